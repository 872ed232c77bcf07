"""Builds what the commands work with: the only place that builds adapters.

Imports stand inside the functions, and those of types under TYPE_CHECKING, so that a command pays
only for what it uses: `ctl --help` and `ctl status` load no model at all.
"""

import contextlib
import hashlib
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from contract.plan import Plan
    from controller.adapters.ledger import Judgement, SegmentedLedger
    from controller.adapters.ledger_format import Scan
    from controller.adapters.ledger_tail import LedgerTail
    from controller.adapters.pacing import Pacer
    from controller.adapters.system import SystemClock
    from controller.core.declared.drills import Drill
    from controller.core.declared.launched import GivenFile, LaunchedRun
    from controller.core.declared.spec import RunFile
    from controller.core.gate import Evidence
    from controller.core.memory import Memory
    from controller.core.policy import Policy
    from controller.core.snapshot import OwnerIntent, Snapshot, StoreView
    from controller.ports import LedgerRecord
    from controller.runtime.loop import Ending

STEER_MODULE = "controller.cli.steer"
CTL_MODULE = "controller.cli.main"
DRILLS_LOG = "drills.log"
REPORT_MODULE = "controller.report"
DRAW_MODULE = "controller.report.rehearsals"
REPORT_WITHIN_S = 300.0
"""A year's step log takes a minute to read."""
START_WITHIN_S = 30.0
POLL_S = 0.02


# --- run files and run directories ---


def read_given(path: Path) -> "GivenFile":
    """Return the run file at `path`; raises SpecError."""
    from controller.adapters import rundir

    return rundir.read_given(path)


def read_given_text(path: Path, field: str, advice: str) -> str:
    """Return the text of a file that the owner names; raises SpecError."""
    from controller.adapters import given

    return given.read_given_text(path, field, advice)


def check_given(given: "GivenFile", *, measure: bool = False, is_launch: bool = False) -> None:
    """Check what only this machine can tell; raises SpecError, writes nothing.

    `measure`: make built-in text in a temporary folder to know its size; takes seconds.
    `is_launch`: the run begins now.
    """
    from controller.adapters import rundir

    now_ms = time.time_ns() // 1_000_000
    rundir.check_given(given, now_ms, measure=measure, is_launch=is_launch)


def create_run(given: "GivenFile", runs_dir: Path) -> "LaunchedRun":
    """Make the run's directory, whole or not at all."""
    from controller.adapters import rundir

    return rundir.create_run(given, runs_dir, uuid.uuid4().hex, time.time())


def load_run(directory: Path) -> "LaunchedRun":
    """Return the run in `directory`; raises PortError for a copy, for damage, for none."""
    from controller.adapters import rundir

    return rundir.load_run(directory)


def find_run(runs_dir: Path, name: str) -> "LaunchedRun":
    """Return the run `name`; raises PortError."""
    from controller.adapters import rundir

    return rundir.load_run(rundir.find_run(runs_dir, name))


def read_run(runs_dir: Path, name: str) -> "LaunchedRun":
    """Return the run `name` for reading only, be it a copy; raises PortError."""
    from controller.adapters import rundir

    return rundir.read_run(rundir.find_run(runs_dir, name))


def adopt_copy(runs_dir: Path, name: str) -> None:
    """Make a copied directory the run; raises PortError."""
    from controller.adapters import files, rundir

    files.adopt_identity(rundir.find_run(runs_dir, name))


def accept_run_file(run: "LaunchedRun", given: "GivenFile") -> "LaunchedRun":
    """Replace the accepted run file."""
    from controller.adapters import rundir

    return rundir.accept_run_file(run, given)


def preview_plan(given: "GivenFile") -> "Plan":
    """Return the first plan as it would be, but for the digest of text not yet written."""
    from contract.config import SourceFiles
    from controller.core.declared.planning import make_genesis

    none = SourceFiles(
        train="-", heldout="-", train_tokens=1, heldout_tokens=1,
        train_sha256="0" * 64, heldout_sha256="0" * 64,
    )  # fmt: skip
    sources = dict.fromkeys(given.run_file.spec.data.sources, none)
    return make_genesis(given.run_file, "dry-run", sources)


def suppose_run(given: "GivenFile") -> "RunFile":
    """Return the run file with all that a rehearsal supposes; raises SpecError, writes nothing."""
    from controller.adapters import rundir
    from controller.core.declared.supposition import suppose

    advice = f"Edit {given.path}, then: ctl simulate {given.path}"
    return suppose(given.run_file, rundir.count_tokens(given), advice)


def measure_gate(
    given: "GivenFile", runs_dir: Path, steps: int, tell: Callable[[str], None]
) -> "Evidence":
    """Run the first steps in a throw-away run; raises SpecError, PortError."""
    from controller.adapters import gate

    return gate.measure(given, runs_dir, steps, tell)


# --- the controller ---


def start_controller(directory: Path) -> int:
    """Start a controller in a session of its own; return its pid once it holds the lock.

    Where another one took the lock meanwhile, the run is steered as wanted: its pid.

    Raises:
        Unavailable: it ended at once; the message holds its last words and where they stand.
    """
    from controller.adapters.rundir import CONTROLLER_LOG
    from controller.cli.peek import look
    from controller.ports import Unavailable

    log_path = directory / CONTROLLER_LOG
    with log_path.open("ab") as log:
        begin = log.tell()
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", STEER_MODULE, str(directory.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=_environment(),
        )
    deadline = time.monotonic() + START_WITHIN_S
    while child.poll() is None and time.monotonic() < deadline:
        controller = look(directory).controller
        if controller.is_alive and controller.pid == child.pid:
            return child.pid
        time.sleep(POLL_S)
    if child.poll() in (None, 0):
        return child.pid  # it ended well already: the run was at rest
    other = look(directory).controller
    if other.is_alive:
        return other.pid or child.pid
    words = log_path.read_bytes()[begin:].decode(errors="replace").strip()
    last = words.splitlines()[-1] if words else f"it ended with code {child.returncode}"
    raise Unavailable(f"the controller ended at once: {last} (all of it: {log_path})")


def _environment() -> dict[str, str]:
    """Return the environment in which a controller finds this very package."""
    import os

    import controller
    from controller.adapters.environment import clean

    root = str(Path(controller.__file__).parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return clean(os.environ) | {"PYTHONPATH": os.pathsep.join(paths)}


def list_withheld() -> list[str]:
    """Return the names of this environment's variables that do not reach the ranks."""
    import os

    from controller.adapters import environment

    return environment.list_withheld(os.environ)


def steer(directory: Path) -> "Ending":
    """Be the run's controller until the run rests; raises PortError."""
    import os
    import signal
    import socket

    from contract import wire
    from controller.adapters import finish
    from controller.adapters.ledger import SegmentedLedger, next_epoch
    from controller.adapters.system import Processes, SystemClock
    from controller.ports import Damaged
    from controller.runtime.lease import acquire_lease
    from controller.runtime.loop import StopRequest, run_controller

    run = load_run(directory)
    clock = SystemClock()
    stop = StopRequest(clock)
    stop.on_signals(signal.SIGTERM, signal.SIGINT)
    folder = directory / wire.LEDGER_DIR
    lease = acquire_lease(
        directory, Processes(), now=clock.now, next_epoch=lambda: next_epoch(folder)
    )
    try:
        ledger = SegmentedLedger(
            folder,
            epoch=lease.epoch,
            core_version=core_version(),
            spec_sha=hashlib.sha256(run.text).hexdigest(),
            anchors=finish.anchors_of(run),
        )
    except Damaged as error:
        raise Damaged(f"{error}. Next: ctl log {directory.name} --verify") from error
    body = {"pid": os.getpid(), "host": socket.gethostname(), "takeover": lease.is_takeover}
    desk = _Desk(run, clock, ledger)
    desk.open_books(body)
    ending = run_controller(desk.passes, clock, lease, stop)
    desk.close_books(ending, lambda: lease.beat(clock.now()))
    lease.release()
    return ending


class _Desk:
    """The controller's adapters, wired together."""

    def __init__(self, run: "LaunchedRun", clock: "SystemClock", ledger: "SegmentedLedger") -> None:
        from controller.adapters.checkpoints import CheckpointFiles
        from controller.adapters.intents import IntentFiles
        from controller.adapters.local import GangOrder, LocalFleet
        from controller.adapters.publisher import FilePublisher, StatusFile
        from controller.adapters.records import StepTail
        from controller.adapters.rundir import command_of
        from controller.adapters.scrape import ScrapedTelemetry
        from controller.adapters.steplog import StepLogs
        from controller.core.declared.planning import make_config
        from controller.core.telling.figures import RECENT_STEPS
        from controller.runtime.observe import Ports
        from controller.runtime.reconcile import Reconciler

        directory, uid, fence = run.directory, run.identity.run_uid, ledger.fence
        config = make_config(run.run_file, uid, run.facts.sources)
        order = GangOrder(
            run_uid=uid,
            ranks=config.mesh.ranks,
            command=command_of(run),
            config=config.encode(),
        )
        self._run, self._clock, self._ledger = run, clock, ledger
        self._telemetry = ScrapedTelemetry(directory, run_uid=uid)
        self._tail = StepTail(directory, keep=RECENT_STEPS)
        self._peak: float | None = None
        ports = Ports(
            clock=clock,
            fleet=LocalFleet(directory, order, fence=fence),
            telemetry=self._telemetry,
            progress=StepLogs(directory),
            checkpoints=CheckpointFiles(directory, run_uid=uid, fence=fence),
            publisher=FilePublisher(directory, fence=fence),
            intents=IntentFiles(directory),
            ledger=ledger,
            status=StatusFile(directory),
        )
        self.passes = Reconciler(ports, self._build_status)

    def open_books(self, epoch: Mapping[str, object]) -> None:
        """Write who begins, the run itself at first, and what its owner changed meanwhile."""
        from controller.core.declared.planning import make_genesis

        run, uid = self._run, self._run.identity.run_uid
        policy = policy_of(run)
        if not self._ledger.records():
            plan = make_genesis(run.run_file, uid, run.facts.sources)
            body = {"policy": policy.model_dump(mode="json"), "plan": plan.model_dump(mode="json")}
            self._append("run", body)
        self._append("epoch", epoch)
        known = self.passes.resume().policy
        if known != policy:
            changed = [
                name
                for name in type(policy).model_fields
                if getattr(known, name) != getattr(policy, name)
            ]
            self._append("policy", {"policy": policy.model_dump(mode="json"), "changed": changed})
            self.passes.resume()

    def close_books(self, ending: "Ending", beat: Callable[[], object]) -> None:
        """Write summary and report of a run that is over; a failure to do so takes nothing back."""
        import logging

        from controller.adapters.finish import write_summary
        from controller.ports import PortError
        from controller.runtime.loop import Ending

        if ending in (Ending.COMPLETED, Ending.STOPPED, Ending.HALTED):
            try:
                write_summary(self._run, self.passes.memory, self._peak)
            except PortError as error:
                logging.getLogger(__name__).warning("no summary: %s", error)
        self._telemetry.close()
        self._ledger.close()
        if ending in (Ending.COMPLETED, Ending.STOPPED, Ending.HALTED):
            try:
                write_report(self._run.directory, beat)
            except PortError as error:
                logging.getLogger(__name__).warning("no report: %s", error)

    def _append(self, kind: str, body: Mapping[str, object]) -> None:
        self._ledger.append(kind, body, self._clock.now())

    def _build_status(self, memory: "Memory", snapshot: "Snapshot") -> Mapping[str, object]:
        from controller.core.telling.figures import measure
        from controller.core.telling.status import build_status

        self._peak = self._read_peak() or self._peak
        attempt = memory.attempt.number if memory.attempt else 0
        records = self._tail.read(attempt) if attempt else ()
        return build_status(memory, snapshot, measure(records, memory.plan, self._peak))

    def _read_peak(self) -> float | None:
        from contract.metrics import PEAK_FLOPS

        scrape = self._telemetry.scrapes.get(0)
        return (scrape.total(PEAK_FLOPS) or None) if scrape else None


def core_version() -> str:
    """Return the identity of the code that decides: a hash of its sources.

    Rooms below the core decide nothing: how a run file is read, what people are told.
    """
    import contract
    import controller.core

    digest = hashlib.sha256()
    for package in (contract, controller.core):
        for path in sorted(Path(str(package.__file__)).parent.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def settle(run: "LaunchedRun", memory: "Memory") -> None:
    """Make up for what a controller that died at rest left undone: the status, the summary.

    Nothing is done while a controller lives; it does so itself. Raises PortError.
    """
    from controller.adapters import finish
    from controller.cli.peek import look, read_summary

    view = look(run.directory)
    if view.controller.is_alive:
        return
    outcome = memory.rest or "halted"
    if view.state != ("halted" if memory.halted is not None else memory.rest):
        start_controller(run.directory)  # ends at once, with status and summary
        deadline = time.monotonic() + START_WITHIN_S
        while look(run.directory).controller.is_alive and time.monotonic() < deadline:
            time.sleep(POLL_S)
    elif outcome != "suspended" and not _tells(read_summary(run.directory), outcome, memory):
        finish.write_summary(run, memory, None)


def _tells(summary: "Mapping[str, object] | None", outcome: str, memory: "Memory") -> bool:
    if summary is None or summary.get("outcome") != outcome:
        return False
    return outcome != "completed" or summary.get("steps") == memory.plan.total_steps


def write_report(directory: Path, beat: Callable[[], object] = bool) -> Path:
    """Write the run's page and return its path; raises PortError. `beat` is called meanwhile."""
    from contract import wire

    make_report(directory, ("html", "0", ""), beat)
    return directory / wire.REPORT_FILE


def make_report(
    directory: Path, words: tuple[str, str, str], beat: Callable[[], object] = bool
) -> str:
    """Write the report and return what it was told to say; raises PortError.

    `words` are its form, the entry since which it tells, and where it goes: empty for its place in
    the run, `-` for what is returned. `beat` is called meanwhile. In a process of its own: who
    steers a run, or only asks, does not load what draws.
    """
    from controller.ports import Unavailable

    child = subprocess.Popen(
        [sys.executable, "-P", "-m", REPORT_MODULE, str(directory.resolve()), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
    )
    deadline, told = time.monotonic() + REPORT_WITHIN_S, None
    try:
        while told is None and time.monotonic() < deadline:
            beat()
            with contextlib.suppress(subprocess.TimeoutExpired):
                told = [it.decode(errors="replace") for it in child.communicate(timeout=1)]
    finally:
        child.kill()  # no page is worth more waiting, and none is wanted after a Ctrl-C
        child.wait()
    if told is None:
        raise Unavailable(f"the report was not written in {REPORT_WITHIN_S:g} s")
    text, said = told
    if child.returncode:
        raise Unavailable(f"the report was not written: {_find_reason(said, child.returncode)}")
    return text


def _find_reason(said: str, code: int) -> str:
    """Return the last line of what a child said before it failed."""
    return (said.strip().splitlines() or [f"it ended with code {code}"])[-1]


def draw_rehearsals(told: str, path: Path) -> None:
    """Draw rehearsals, told as JSON, into `path`; raises Unavailable. In a process of its own."""
    from controller.ports import Unavailable

    child = subprocess.run(
        [sys.executable, "-P", "-m", DRAW_MODULE, str(path)],
        input=told.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=_environment(), timeout=REPORT_WITHIN_S, check=False,
    )  # fmt: skip
    if child.returncode:
        why = _find_reason(child.stderr.decode(errors="replace"), child.returncode)
        raise Unavailable(f"the picture was not drawn: {why}")


def remove_summary(directory: Path) -> None:
    """Remove the summary of a run that goes on; raises PortError."""
    from controller.adapters.system import port_errors
    from controller.cli.peek import SUMMARY_FILE

    with port_errors("cannot remove the old summary"):
        (directory / SUMMARY_FILE).unlink(missing_ok=True)


def policy_of(run: "LaunchedRun") -> "Policy":
    """Return the numbers that the run's decisions rest on, as its run file stands now."""
    from controller.core.declared.planning import make_policy

    created_ms = round(run.identity.created_wall_s * 1_000)
    return make_policy(run.run_file, run.identity.run_uid, run.facts.sources, created_ms)


# --- the owner's wishes, and what is recorded ---


def drop_intent(directory: Path, intent: "OwnerIntent") -> None:
    """Leave a wish for the controller."""
    from controller.adapters import intents

    intents.drop_intent(directory, intent)


def read_memory(run: "LaunchedRun") -> "Memory | None":
    """Return what the ledger says, None before its first record; raises PortError."""
    from controller.core.fold import fold

    memory: Memory | None = None
    for record in read_ledger(run):
        memory = fold(memory, record)
    return memory


def read_ledger(run: "LaunchedRun") -> "Sequence[LedgerRecord]":
    """Return all valid records; raises PortError."""
    from controller.adapters import finish
    from controller.ports import Damaged

    records, damage = finish.read_valid(run.directory)
    if damage is not None:
        name = run.directory.name
        raise Damaged(f"the ledger of {name} is damaged: {damage}. Next: ctl log {name} --verify")
    return records


def list_checkpoints(run: "LaunchedRun") -> "StoreView":
    """Return the checkpoints as they lie there now; raises PortError."""
    from controller.adapters import checkpoints

    return checkpoints.list_checkpoints(run.directory, run.identity.run_uid)


def read_valid(directory: Path) -> "tuple[Sequence[LedgerRecord], str | None]":
    """Return the records before the first damage, and what that is; raises PortError."""
    from controller.adapters import finish

    return finish.read_valid(directory)


def find_damage(directory: Path) -> str | None:
    """Return what is wrong with the ledger in `directory`, None when nothing is."""
    from controller.ports import PortError

    try:
        return read_valid(directory)[1]
    except PortError as error:
        return str(error)


def scan_ledger(directory: Path) -> "Scan":
    """Return a walk over the ledger that keeps no record; raises PortError."""
    from contract import wire
    from controller.adapters.ledger_format import Scan

    return Scan(directory / wire.LEDGER_DIR)


def follow_ledger(directory: Path) -> "LedgerTail":
    """Return a reader of the ledger as it grows."""
    from contract import wire
    from controller.adapters.ledger_tail import LedgerTail

    return LedgerTail(directory / wire.LEDGER_DIR)


def verify_ledger(run: "LaunchedRun") -> "Judgement":
    """Return what the ledger holds and what is not as it was written; raises PortError."""
    from contract import wire
    from controller.adapters import finish
    from controller.adapters.ledger import judge_ledger

    return judge_ledger(run.directory / wire.LEDGER_DIR, finish.anchors_of(run))


# --- drills ---


def wait_for_step(directory: Path, step: int, is_over: Callable[[], bool]) -> bool:
    """Return whether the run completed `step` steps before it was over."""
    from controller.adapters import drilling

    return drilling.wait_for_step(directory, step, is_over)


def drill(directory: Path, order: "Drill") -> str:
    """Do it and return what was done; raises PortError."""
    from controller.adapters import drilling

    return drilling.drill(directory, order)


def open_pacer(directory: Path) -> "AbstractContextManager[Pacer]":
    """Give a pacer of the run, which stops nobody before it is told a set-point."""
    from controller.adapters import pacing

    return pacing.open_pacer(directory)


def start_drills(runs_dir: Path, name: str, file: Path) -> None:
    """Carry out a drill file in a process of its own; what it says goes to drills.log."""
    words = ["drill", name, "--file", str(file.resolve()), "--runs-dir", str(runs_dir.resolve())]
    with (runs_dir / name / DRILLS_LOG).open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-P", "-m", CTL_MODULE, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=_environment(),
        )


def render_yaml(value: object) -> str:
    """Return `value` as YAML."""
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
