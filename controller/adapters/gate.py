"""Starts a gang in a throw-away run, measures its first steps and leaves nothing but programs.

The throw-away run lies in `.gate-NAME-PID` beside the runs. What its ranks compiled is kept, so
that the launch that follows starts warm (rundir.keep_programs).
"""

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

from pydantic.alias_generators import to_camel

from contract import wire
from contract.config import TrainerConfig
from contract.exits import CASCADE, describe_exit
from contract.metrics import PEAK_FLOPS
from contract.plan import Plan
from contract.wire import PhaseRecord, Restore, StepRecord
from controller.adapters import rundir
from controller.adapters.interrupts import interruptible, undisturbed
from controller.adapters.ledger import SegmentedLedger, next_epoch
from controller.adapters.local import GangOrder, LocalFleet
from controller.adapters.publisher import FilePublisher
from controller.adapters.records import read_lines
from controller.adapters.scrape import ScrapedTelemetry
from controller.adapters.system import Processes, port_errors
from controller.core.actions import LaunchGang
from controller.core.declared.launched import GivenFile, LaunchedRun
from controller.core.declared.planning import make_config, make_genesis
from controller.core.declared.spec import Faults
from controller.core.gate import Evidence, Peak
from controller.core.snapshot import GangView, RankView
from controller.ports import Unavailable

ATTEMPT = 1
POLL_S = 0.1
HEARTBEAT_S = 10
"""While no step was made: so often it is said what is waited for."""
CASCADE_S = 3.0
"""How long the others have to end after the first one: then the root is told from its victims."""
WORD_CHARS = 2_000
MEMORY_SOURCE = "VmHWM of each rank's process: the most that was resident, as the kernel counts it"
BEFORE_STEPS = (
    wire.Phase.START, wire.Phase.RENDEZVOUS, wire.Phase.RESTORE, wire.Phase.COMPILE,
    wire.Phase.FIRST_STEP,
)  # fmt: skip

Tell = Callable[[str], None]


def measure(given: GivenFile, runs_dir: Path, steps: int, tell: Tell) -> Evidence:
    """Run the first `steps` steps of the run and return what they say; nothing of it stays.

    Raises:
        SpecError: the text does not suffice.
        Unavailable: a rank ended, or a phase took longer than the run file allows.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP; the ranks are gone by then, too.
    """
    name = given.run_file.metadata.name
    with interruptible(), _throw_away(runs_dir, name) as place:
        tell(f"preparing a throw-away run in {place}")
        rundir.lend_programs(runs_dir, place, name)
        run = rundir.create_run(given, place, uuid.uuid4().hex, time.time())
        gang = _Gang(run)
        try:
            evidence = gang.measure(steps, tell)
        finally:
            with undisturbed():
                gang.end()
        rundir.keep_programs(run.directory, runs_dir, name)
    return evidence


@contextlib.contextmanager
def _throw_away(runs_dir: Path, name: str) -> Generator[Path]:
    """Make the folder of the throw-away run, and remove it however the block ends."""
    place = runs_dir / f"{rundir.GATE_PREFIX}{name}-{os.getpid()}"
    with port_errors("cannot prepare the admission test"):
        runs_dir.mkdir(parents=True, exist_ok=True)
        sweep(runs_dir)
        place.mkdir()
    try:
        yield place
    finally:
        with undisturbed():
            shutil.rmtree(place, ignore_errors=True)


def sweep(runs_dir: Path) -> None:
    """End and remove what an admission test left behind that was killed itself."""
    processes = Processes()
    for place in runs_dir.glob(f"{rundir.GATE_PREFIX}*"):
        pid = place.name.rpartition("-")[2]
        if not pid.isdigit() or processes.identity_of(int(pid)) is not None:
            continue
        for lock in place.glob(f"*/{wire.ATTEMPTS_DIR}/*/rank-*/{wire.RANK_LOCK_FILE}"):
            for holder in processes.holders_of(lock):
                processes.kill(holder)
        shutil.rmtree(place, ignore_errors=True)


class _Gang:
    """The one attempt of the throw-away run, without a controller."""

    def __init__(self, run: LaunchedRun) -> None:
        uid, sources = run.identity.run_uid, run.facts.sources
        self._run = run
        self._dir = run.directory
        self._plan = make_genesis(run.run_file, uid, sources)
        self._config = leave_alone(make_config(run.run_file, uid, sources), self._plan)
        folder = run.directory / wire.LEDGER_DIR
        self._ledger = SegmentedLedger(
            folder, epoch=next_epoch(folder), core_version="", spec_sha=""
        )
        order = GangOrder(
            run_uid=uid,
            ranks=self._config.mesh.ranks,
            command=rundir.command_of(run),
            config=self._config.encode(),
        )
        self._fleet = LocalFleet(run.directory, order, fence=self._ledger.fence)

    def measure(self, steps: int, tell: Tell) -> Evidence:
        """Start the ranks, wait for `steps` steps, look at the ranks."""
        self._publish()
        begun_s = time.time()
        order = LaunchGang(
            reason="admission test", nonce="gate", attempt=ATTEMPT, plan_sha=self._plan.sha,
            restore=Restore.NONE, highest_step=0,
        )  # fmt: skip
        self._fleet.launch(order, epoch=self._ledger.epoch)
        records = self._await_steps(steps, tell)
        gang = self._observe()
        return Evidence(
            records=records,
            flops_per_token=self._plan.context_at(0).flops_per_token,
            memory_bytes=self._read_memory(gang.ranks),
            memory_source=MEMORY_SOURCE,
            peak=self._read_peak(gang),
            start_s=records[0].wall_s - begun_s,
        )

    def end(self) -> None:
        """Kill every rank that lives."""
        self._fleet.close(ATTEMPT)
        self._fleet.kill(ATTEMPT, range(self._config.mesh.ranks))
        self._ledger.close()

    def _publish(self) -> None:
        publisher = FilePublisher(self._dir, fence=self._ledger.fence)
        publisher.publish_plan(self._plan)
        publisher.publish_control(
            wire.ControlDocument(
                run_uid=self._run.identity.run_uid,
                epoch=self._ledger.epoch,
                seq=1,
                plan_sha=self._plan.sha,
                drain=None,
                ledger_head=self._ledger.head(),
            )
        )

    def _observe(self) -> GangView:
        gang = self._fleet.observe()
        assert gang is not None, "the attempt was launched"
        return gang

    # Waiting.

    def _await_steps(self, steps: int, tell: Tell) -> Sequence[StepRecord]:
        """Return the first `steps` records; raises Unavailable when they do not come."""
        watch, seen, said = _Watch(self._run.run_file.spec.faults), 0, ""
        while True:
            # The ranks first: one that ends after its last step was logged did get there.
            is_over = any(not view.alive and view.claimed for view in self._observe().ranks)
            records = read_lines(self._steps_file, StepRecord)
            if len(records) >= steps:
                return records[:steps]
            if is_over:
                raise Unavailable(self._explain_end(len(records)))
            seen = len(records)
            watch.see(self._find_phases(), seen)
            doing = f"{self._describe_progress(seen, steps)}{self._describe_wait(seen)}"
            said = _tell_news(tell, said, doing)
            if (silence := watch.explain_silence()) is not None:
                raise Unavailable(silence)
            time.sleep(POLL_S)

    def _find_phases(self) -> list[wire.Phase]:
        """Return each rank's phase; one that left no word of it is still to start."""
        logs = (self._rank_dir(it) / wire.PHASES_FILE for it in range(self._config.mesh.ranks))
        found = [read_lines(path, PhaseRecord) for path in logs]
        return [records[-1].phase if records else wire.Phase.START for records in found]

    @property
    def _steps_file(self) -> Path:
        return self._dir / wire.attempt_dir(ATTEMPT) / wire.STEPS_FILE

    def _describe_progress(self, seen: int, steps: int) -> str:
        if seen:
            return f"{seen - seen % 5 or 1} of {steps} steps"
        phases = read_lines(self._rank_dir(0) / wire.PHASES_FILE, PhaseRecord)
        return f"phase {phases[-1].phase}" if phases else "starting the ranks"

    def _describe_wait(self, seen: int) -> str:
        phases = read_lines(self._rank_dir(0) / wire.PHASES_FILE, PhaseRecord) if not seen else []
        return describe_wait(time.time() - phases[-1].wall_s) if phases else ""

    def _rank_dir(self, rank: int) -> Path:
        return self._dir / wire.rank_dir(ATTEMPT, rank)

    # Looking.

    def _read_memory(self, ranks: Sequence[RankView]) -> Mapping[int, int]:
        return {view.rank: self._read_peak_bytes(view.rank) for view in ranks}

    def _read_peak_bytes(self, rank: int) -> int:
        claim = wire.Claim.model_validate_json(
            (self._rank_dir(rank) / wire.CLAIM_FILE).read_bytes()
        )
        return read_peak_bytes(claim.process.pid)

    def _read_peak(self, gang: GangView) -> Peak | None:
        telemetry = ScrapedTelemetry(self._dir, run_uid=self._run.identity.run_uid)
        try:
            telemetry.read(gang)
            scrape = telemetry.scrapes.get(0)
        finally:
            telemetry.close()
        for labels, value in scrape.labelled(PEAK_FLOPS) if scrape else ():
            if value > 0:
                return Peak(value, labels.get("origin", ""))
        return None

    # Explaining.

    def _explain_end(self, seen: int) -> str:
        """Return which rank ended first, how, and its last words."""
        deadline = time.monotonic() + CASCADE_S
        while time.monotonic() < deadline and any(it.alive for it in self._observe().ranks):
            time.sleep(POLL_S)
        ended = [view for view in self._observe().ranks if not view.alive]
        root = min(ended, key=_blame)
        how = "left no record" if root.end is None else f"ended with {describe_exit(root.end.code)}"
        words = root.end.detail if root.end and root.end.detail else self._last_words(root.rank)
        said = f": {words}" if words else ""
        return f"rank {root.rank} {how} after {seen} steps{said}"

    def _last_words(self, rank: int) -> str:
        try:
            data = (self._rank_dir(rank) / wire.STDERR_FILE).read_bytes()[-WORD_CHARS:]
        except OSError:
            return ""
        lines = [line.strip() for line in data.decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")


class _Watch:
    """Judges whether the gang still gets on: each phase has its own deadline, and the margin."""

    def __init__(self, faults: Faults) -> None:
        self._limits_ms, self._margin_ms = faults.deadlines.by_phase(), faults.margin
        self._phase, self._seen = wire.Phase.START, 0
        self._since_s = time.monotonic()

    def see(self, phases: Sequence[wire.Phase], steps: int) -> None:
        """Take what the ranks do now, one phase each, and how many steps were made."""
        # Ranks wait for the last of them: the gang is where that one is.
        early = [] if steps else [phase for phase in phases if phase in BEFORE_STEPS]
        phase = min(early, key=BEFORE_STEPS.index, default=wire.Phase.STEP)
        if phase != self._phase or steps > self._seen:
            self._since_s = time.monotonic()
        self._phase, self._seen = phase, steps

    def explain_silence(self) -> str | None:
        """Return which deadline passed, None while none did."""
        limit_ms = self._limits_ms[self._phase]
        if time.monotonic() - self._since_s <= (limit_ms + self._margin_ms) / 1000:
            return None
        field = f"spec.faults.deadlines.{to_camel(self._phase)}"
        limits = (
            f"{field} is {limit_ms / 1000:g} s, spec.faults.margin {self._margin_ms / 1000:g} s"
        )
        where = f"{self._seen} steps were made" if self._seen else "no step was made"
        return f"the gang hangs in phase {self._phase}: {limits}; {where}"


def _blame(view: RankView) -> tuple[bool, int, int]:
    """Order ended ranks: those of their own accord before the cascade, then by time."""
    if view.end is None:
        return (False, 0, view.rank)
    return (view.end.code in CASCADE, view.end.wall_ms, view.rank)


def _tell_news(tell: Tell, said: str, text: str) -> str:
    if text != said:
        tell(text)
    return text


def describe_wait(waited_s: float) -> str:
    """Return how long a phase before the first step lasts, anew every `HEARTBEAT_S` seconds."""
    beats = int(waited_s / HEARTBEAT_S)
    return f" for {beats * HEARTBEAT_S} s; this may take a minute" if beats > 0 else ""


def leave_alone(config: TrainerConfig, plan: Plan) -> TrainerConfig:
    """Return the config without saves and evaluations on the way; the trajectory is the same."""
    never = plan.total_steps + 1
    saving = {"every_steps": never, "permanent_every_steps": None}
    return config.model_copy(
        update={
            "evaluation": config.evaluation.model_copy(update={"every_steps": never}),
            "checkpointing": config.checkpointing.model_copy(update=saving),
        }
    )


def read_peak_bytes(pid: int) -> int:
    """Return the most memory that the process ever held in RAM.

    Raises:
        Unavailable: the process is gone.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError as error:
        raise Unavailable(f"process {pid} is gone: its memory cannot be read") from error
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise Unavailable(f"process {pid} ended: its memory cannot be read")
