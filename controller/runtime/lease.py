"""One controller per run: a lock, and beside it who holds it and since when.

The lock is an flock of `controller.lock`; the kernel gives it back when its holder ends. A holder
that is stopped keeps it, so a stale heartbeat means: kill the holder, identified beyond doubt,
then take the lock. Only then is the next epoch's ledger segment created.
"""

import fcntl
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from contract.plan import Frozen
from contract.wire import LOCK_FILE, ProcessIdentity
from controller.core.readings import Instant, Unknown, elapsed_ms
from controller.ports import Refused, Unavailable

STALE_AFTER_MS = 30_000
"""Far above the longest port call; a pass beats the heart twice a second."""
BEAT_EVERY_MS = 1_000
HOLDER_BYTES = 1_024
TRIES = 20
"""A look at the lock holds it for microseconds; 20 looks in a row are another holder."""
PAUSE_S = 0.01
GONE_WITHIN_S = 10.0


class Holder(Frozen):
    """Who steers the run."""

    process: ProcessIdentity
    host: str
    epoch: int
    since_wall_ms: int
    heartbeat: Instant


class LeaseHeld(Refused):
    """Another controller steers the run."""

    def __init__(self, holder: Holder | None) -> None:
        self.holder = holder
        who = "a controller that is just starting" if holder is None else describe_holder(holder)
        super().__init__(f"{who} steers this run")


class ProcessTable(Protocol):
    """What the lease needs to know about processes."""

    def identity_of(self, pid: int) -> ProcessIdentity | None:
        """Return the identity of the process `pid`, None when there is none."""
        ...

    def kill(self, identity: ProcessIdentity) -> bool:
        """SIGKILL the process; return whether it was still there."""
        ...

    def wait_gone(self, identity: ProcessIdentity, timeout_s: float) -> bool:
        """Return whether the process ended within `timeout_s`."""
        ...


@dataclass(frozen=True)
class LeaseView:
    """The lock as it is now."""

    is_held: bool
    holder: Holder | None
    """Who holds it, or held it last."""


def describe_holder(holder: Holder) -> str:
    """Return who it is, in words."""
    since = datetime.fromtimestamp(holder.since_wall_ms // 1000, UTC).astimezone()
    who = f"controller pid {holder.process.pid} on {holder.host}"
    return f"{who} (epoch {holder.epoch}, since {since:%Y-%m-%d %H:%M:%S %Z})"


def read_lease(run_dir: Path) -> LeaseView:
    """Return whether a controller lives and who it is, without disturbing it."""
    try:
        descriptor = os.open(run_dir / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return LeaseView(is_held=False, holder=None)
    try:
        is_held = not _try_lock(descriptor, fcntl.LOCK_SH)
        return LeaseView(is_held=is_held, holder=_read_holder(descriptor))
    finally:
        os.close(descriptor)


class Lease:
    """The lock, held until `release` or the end of this process."""

    def __init__(self, descriptor: int, holder: Holder, *, is_takeover: bool) -> None:
        self._descriptor = descriptor
        self._holder = holder
        self.is_takeover = is_takeover
        """A former controller had to be ended."""

    @property
    def epoch(self) -> int:
        """The epoch of this controller."""
        return self._holder.epoch

    def beat(self, now: Instant) -> None:
        """Say that this controller lives; cheap, so call it in every pass."""
        age = elapsed_ms(self._holder.heartbeat, now)
        if not isinstance(age, Unknown) and 0 <= age < BEAT_EVERY_MS:
            return
        self._holder = self._holder.model_copy(update={"heartbeat": now})
        _write_holder(self._descriptor, self._holder)

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)


def acquire_lease(
    run_dir: Path,
    processes: ProcessTable,
    *,
    now: Callable[[], Instant],
    next_epoch: Callable[[], int],
    stale_after_ms: int = STALE_AFTER_MS,
) -> Lease:
    """Take the run's lock, ending a holder whose heart stopped.

    `next_epoch` is asked once the lock is held.

    Raises:
        LeaseHeld: another controller lives.
        Unavailable: the stale holder could not be ended, or the lock cannot be opened.
    """
    try:
        descriptor = os.open(run_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Unavailable(f"cannot open {run_dir / LOCK_FILE}: {error.strerror}") from error
    try:
        is_takeover = not _lock_soon(descriptor)
        if is_takeover:
            _end_stale_holder(descriptor, processes, now(), stale_after_ms)
        identity = processes.identity_of(os.getpid())
        assert identity is not None, "this process has no entry in /proc"
        instant = now()
        holder = Holder(
            process=identity,
            host=socket.gethostname(),
            epoch=next_epoch(),
            since_wall_ms=instant.wall_ms,
            heartbeat=instant,
        )
        _write_holder(descriptor, holder)
    except BaseException:
        os.close(descriptor)
        raise
    return Lease(descriptor, holder, is_takeover=is_takeover)


def _end_stale_holder(
    descriptor: int, processes: ProcessTable, now: Instant, stale_after_ms: int
) -> None:
    """Kill the holder if it is ours to kill and its heart stopped; then take its lock.

    Raises:
        LeaseHeld: its heart beats, or it lives on another machine.
        Unavailable: it does not go away.
    """
    holder = _read_holder(descriptor)
    if holder is None or holder.host != socket.gethostname():
        raise LeaseHeld(holder)
    age = elapsed_ms(holder.heartbeat, now)
    if isinstance(age, Unknown) or age <= stale_after_ms:
        raise LeaseHeld(holder)
    processes.kill(holder.process)
    if not processes.wait_gone(holder.process, GONE_WITHIN_S):
        raise Unavailable(f"{describe_holder(holder)} is silent and does not end")
    if not _lock_soon(descriptor):
        raise LeaseHeld(_read_holder(descriptor))


def _lock_soon(descriptor: int) -> bool:
    pause = threading.Event()
    for _ in range(TRIES):
        if _try_lock(descriptor, fcntl.LOCK_EX):
            return True
        pause.wait(PAUSE_S)
    return False


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_holder(descriptor: int, holder: Holder) -> None:
    # In place: a rename would leave the lock on the old file, and a full disk refuses it.
    os.pwrite(descriptor, holder.model_dump_json().encode().ljust(HOLDER_BYTES), 0)


def _read_holder(descriptor: int) -> Holder | None:
    try:
        return Holder.model_validate_json(os.pread(descriptor, HOLDER_BYTES, 0).strip())
    except (OSError, ValidationError):
        return None
