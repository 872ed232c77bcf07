"""Holds a run's ranks by stopping and continuing them, so that steps come at a set-point.

Only the step log is read: that a step ended, how long it took, and its tags. Whoever was stopped is
continued, however the pacer ends: by itself, or by its guardian (guardian.py).
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

from pydantic import ValidationError

from contract import wire
from controller.adapters import guardian
from controller.adapters.files import numbered, read_or_none
from controller.adapters.interrupts import interruptible, undisturbed
from controller.adapters.rundir import DRILLS_FILE
from controller.adapters.system import Processes, port_errors
from controller.core.governor import Governor, Hold, PaceReport
from controller.ports import Refused, Unavailable

POLL_S = 0.004
"""Between looks at the step log: short against a step, as a hold begins with what is left of it."""
ATTEMPT_POLL_S = 0.2
LOCK_FILE = "pacer.lock"
GUARDIAN = Path(guardian.__file__)
STOPPED = ("T", "t")


@dataclass(frozen=True)
class _Rank:
    """One rank's process, pinned by a descriptor."""

    number: int
    identity: wire.ProcessIdentity
    descriptor: int

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a process that is gone needs none."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, number)


class _Guard:
    """The guardian process, fed through a pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARDIAN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def tell(self, line: str) -> bool:
        """Return whether the guardian still reads."""
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), f"{line}\n".encode())
        except BrokenPipeError:
            return False
        return True

    def dismiss(self) -> None:
        """End it without a signal to anyone."""
        self.tell("bye")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextlib.contextmanager
def open_pacer(run_dir: Path) -> Generator["Pacer"]:
    """Give a pacer for the run; ranks are continued however the block ends, SIGTERM included."""
    with interruptible(), Pacer(run_dir) as pacer:
        yield pacer


class Pacer:
    """Paces the newest attempt of a run from `pace` on, until it is closed."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._processes = Processes()
        self._governor = Governor(0.0)
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock: int | None = None
        self._guard: _Guard | None = None
        self._problem: str | None = None
        self._ranks: list[_Rank] = []
        self._attempt: int = 0
        self._attempt_seen_s = 0.0
        self._log = _Log(run_dir / wire.attempt_dir(self._attempt) / wire.STEPS_FILE)
        self._frozen = _Frozen(run_dir / DRILLS_FILE)
        self._mutex = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with undisturbed():
            self.close()

    @property
    def is_pacing(self) -> bool:
        """Whether a set-point is in force; raises Unavailable where it cannot be held any more."""
        if self._problem is not None:
            raise Unavailable(f"cannot pace the run: {self._problem}")
        is_alive = self._thread is not None and self._thread.is_alive()
        return is_alive and self._governor.set_point_s > 0

    def pace(self, step_s: float) -> str:
        """Pace at `step_s` from the next step on, 0 for not at all; return it in words.

        Raises:
            Refused: another process paces this run.
        """
        if self._thread is None:
            self._lock = _take_lock(self._run_dir / LOCK_FILE)
            self._guard = _Guard()
            self._thread = threading.Thread(target=self._run, name="pacer", daemon=True)
            self._governor.move(step_s)
            self._thread.start()
        else:
            with self._mutex:
                self._note(self._governor.report())
                self._governor.move(step_s)
        done = f"pacing at {step_s:g} s a step" if step_s else "pacing ended"
        self._record({"stepS": f"{step_s:g}", "done": done})
        return done

    def close(self) -> None:
        """Stop pacing: the ranks are continued, and what became of the set-point is recorded."""
        if self._thread is None:
            return
        self._end.set()
        self._thread.join()
        self._thread = None
        self._note(self._governor.report())
        assert self._guard is not None
        self._guard.dismiss()
        self._drop_ranks()
        assert self._lock is not None
        os.close(self._lock)

    # In the pacer's own thread.

    def _run(self) -> None:
        try:
            self._keep_pace()
        except OSError as error:
            self._problem = str(error)

    def _keep_pace(self) -> None:
        held_s = 0.0
        while not self._end.is_set():
            self._follow()
            ended = self._log.read()
            if not ended:
                self._end.wait(POLL_S)
                continue
            with self._mutex:
                for step in ended:
                    self._governor.take(step.step_s, held_s, is_clean=not step.tags)
                    held_s = 0.0
                hold = self._governor.hold()
            held_s = self._hold(hold) if hold else 0.0

    def _hold(self, hold: Hold) -> float:
        """Carry out a hold; return for how long the ranks were stopped."""
        held_s = 0.0
        for index in range(hold.count):
            if index and self._end.wait(hold.run_s):
                break
            held_s += self._stop_for(hold.stop_s)
        return held_s

    def _stop_for(self, stop_s: float) -> float:
        self._heed_freezes()
        # Who is stopped already was stopped by somebody else, who wants it to stay so.
        ranks = [
            rank
            for rank in self._ranks
            if rank.number not in self._frozen.ranks
            and self._processes.state_of(rank.identity) not in (None, *STOPPED)
        ]
        self._tell_guard("stop", ranks)
        begun_s = time.monotonic()
        try:
            for rank in ranks:
                rank.send(signal.SIGSTOP)
            self._end.wait(stop_s)
        finally:
            self._continue(ranks)
        held_s = time.monotonic() - begun_s
        self._tell_guard("go", ranks)
        return held_s if ranks else 0.0

    def _continue(self, ranks: Iterable[_Rank]) -> None:
        """Continue the ranks, but for those that a drill froze while they were held."""
        self._heed_freezes()
        for rank in ranks:
            if rank.number not in self._frozen.ranks:
                rank.send(signal.SIGCONT)

    def _heed_freezes(self) -> None:
        """Leave ranks alone that a drill froze; one that we continued meanwhile is frozen again."""
        news = self._frozen.look(self._attempt)
        for rank in self._ranks:
            if rank.number in news:
                rank.send(signal.SIGSTOP)

    def _tell_guard(self, verb: str, ranks: Sequence[_Rank]) -> None:
        """Tell the guardian; a guardian that is gone is replaced before anybody is stopped."""
        assert self._guard is not None
        names = " ".join(f"{it.identity.pid}:{it.identity.start_ticks}" for it in ranks)
        lines = [f"ranks {names}", verb] if verb == "stop" else [verb]
        while not all(map(self._guard.tell, lines)):
            self._guard = _Guard()

    def _follow(self) -> None:
        """Turn to the newest attempt and its ranks, a few times a second."""
        now_s = time.monotonic()
        if now_s - self._attempt_seen_s < ATTEMPT_POLL_S:
            return
        self._attempt_seen_s = now_s
        self._heed_freezes()
        attempts = numbered(self._run_dir / wire.ATTEMPTS_DIR)
        newest = attempts[-1] if attempts else 0
        if newest != self._attempt:
            self._drop_ranks()
            self._attempt = newest
            self._log = _Log(self._run_dir / wire.attempt_dir(newest) / wire.STEPS_FILE)
        if newest:
            self._find_ranks()

    def _find_ranks(self) -> None:
        known = {rank.number for rank in self._ranks}
        for path in (self._run_dir / wire.attempt_dir(self._attempt)).glob("rank-*"):
            number = int(path.name.removeprefix("rank-"))
            rank = None if number in known else self._open_rank(path, number)
            if rank is not None:
                self._ranks.append(rank)

    def _open_rank(self, directory: Path, number: int) -> _Rank | None:
        try:
            claim = wire.Claim.model_validate_json(read_or_none(directory / wire.CLAIM_FILE) or b"")
            descriptor = os.pidfd_open(claim.process.pid)
        except (ValidationError, OSError):
            return None
        # Pinned first, compared then: a later process of the same number is never hit.
        if not self._processes.is_alive(claim.process):
            os.close(descriptor)
            return None
        return _Rank(number, claim.process, descriptor)

    def _drop_ranks(self) -> None:
        for rank in self._ranks:
            os.close(rank.descriptor)
        self._ranks = []

    # What is recorded.

    def _note(self, report: PaceReport) -> None:
        if not report.set_point_s:
            return
        median_s = report.median_step_s
        words = "none" if median_s is None else f"median {median_s:.4f} s"
        done = (
            f"paced {report.steps} steps at {report.set_point_s:g} s: {words},"
            f" {report.late_percent:.0f}% slower by themselves"
        )
        figures: dict[str, object] = {
            "stepS": f"{report.set_point_s:g}",
            "pacedSteps": report.steps,
            "medianStepS": None if median_s is None else f"{median_s:.6f}",
            "lateSteps": report.late_steps,
            "done": done,
        }
        self._record(figures)

    def _record(self, figures: dict[str, object]) -> None:
        line = {"kind": "pace", "wallS": time.time(), **figures}
        with (self._run_dir / DRILLS_FILE).open("a") as file:
            file.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class _Step:
    """What the pacer reads of a step."""

    step_s: float
    tags: tuple[str, ...]


class _Log:
    """An attempt's step log, from where it ends now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        data = read_or_none(path) or b""
        self._offset = data.rfind(b"\n") + 1

    def read(self) -> list[_Step]:
        """Return the steps that ended since the last look."""
        try:
            if self._path.stat().st_size <= self._offset:
                return []
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        if not newline:
            return []
        self._offset += len(whole) + 1
        return list(_parse_steps(whole.splitlines()))


def _parse_steps(lines: Iterable[bytes]) -> Generator[_Step]:
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            record = cast("dict[str, object]", json.loads(line))
            tags = cast("list[str]", record["tags"])
            yield _Step(float(cast("float", record["step_s"])), tuple(tags))


class _Frozen:
    """Ranks that a drill froze meanwhile, by what it recorded: the pacer leaves them alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._by_attempt: dict[int, set[int]] = {}
        self.ranks: frozenset[int] = frozenset()
        """Of the attempt that was looked at last."""

    def look(self, attempt: int) -> frozenset[int]:
        """Take what was recorded since the last look; return who was not frozen before it."""
        before = frozenset(self._by_attempt.get(attempt, ()))
        with contextlib.suppress(OSError):
            if self._path.stat().st_size > self._offset:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    whole, newline, _ = file.read().rpartition(b"\n")
                self._offset += len(whole) + len(newline)
                self._take(whole.splitlines())
        self.ranks = frozenset(self._by_attempt.get(attempt, ()))
        return self.ranks - before

    def _take(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                drill = json.loads(line)
                if drill["kind"] == "freeze":
                    self._by_attempt.setdefault(drill["attempt"], set()).update(drill["ranks"])


def _take_lock(path: Path) -> int:
    with port_errors("cannot pace the run"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        name = path.parent.name
        again = f"end it with Ctrl-C there, then: ctl drill {name} pace --step-s SECONDS"
        raise Refused(f"another drill paces {name} already, of another command: {again}") from error
    return descriptor
