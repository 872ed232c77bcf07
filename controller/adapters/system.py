"""The machine: its clock, its processes and its locks."""

import contextlib
import errno
import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Generator
from pathlib import Path

from contract.wire import ProcessIdentity
from controller.core.readings import Instant
from controller.ports import Unavailable

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
PROC = Path("/proc")
NS_PER_MS = 1_000_000


def read_boot_id() -> str:
    """Return what tells this boot of the machine from any other."""
    return BOOT_ID_FILE.read_text().strip()


def total_memory_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class SystemClock:
    """The machine's wall and monotonic clock; a wait ends early when woken."""

    def __init__(self) -> None:
        self._boot_id = read_boot_id()
        self._woken = threading.Event()

    def now(self) -> Instant:
        """Return the current instant."""
        return Instant(
            wall_ms=time.time_ns() // NS_PER_MS,
            mono_ms=time.monotonic_ns() // NS_PER_MS,
            boot_id=self._boot_id,
        )

    def wait(self, timeout_ms: int) -> None:
        """Return after `timeout_ms`, or at once when `wake` was called since the last wait."""
        self._woken.wait(timeout_ms / 1000)
        self._woken.clear()

    def wake(self) -> None:
        """End the wait that runs, or the next one; safe in a signal handler's frame."""
        self._woken.set()


class Processes:
    """The processes of this machine, told apart beyond their numbers."""

    def __init__(self) -> None:
        self._boot_id = read_boot_id()

    def identity_of(self, pid: int) -> ProcessIdentity | None:
        """Return the identity of the process `pid`, None when there is none."""
        stat = _read_stat(pid)
        if stat is None:
            return None
        return ProcessIdentity(pid=pid, start_ticks=int(stat[19]), boot_id=self._boot_id)

    def state_of(self, identity: ProcessIdentity) -> str | None:
        """Return the state letter of the process (R, S, T, Z ...), None when it is gone."""
        stat = _read_stat(identity.pid)
        if stat is None or identity.boot_id != self._boot_id:
            return None
        return stat[0] if int(stat[19]) == identity.start_ticks else None

    def is_alive(self, identity: ProcessIdentity) -> bool:
        """Return whether the process exists and is no zombie."""
        return self.state_of(identity) not in (None, "Z", "X")

    def kill(self, identity: ProcessIdentity) -> bool:
        """SIGKILL the process; return whether it was still there.

        A descriptor pins the process before its identity is compared, so a later process of the
        same number is never hit.
        """
        try:
            descriptor = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.is_alive(identity):
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return True
        finally:
            os.close(descriptor)

    def wait_gone(self, identity: ProcessIdentity, timeout_s: float) -> bool:
        """Return whether the process ended within `timeout_s`."""
        try:
            descriptor = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.is_alive(identity):
                return True
            return bool(select.select([descriptor], [], [], timeout_s)[0])
        finally:
            os.close(descriptor)

    def holders_of(self, path: Path) -> list[ProcessIdentity]:
        """Return the processes that have the file open, by looking at every process."""
        try:
            wanted = path.stat()
        except FileNotFoundError:
            return []
        holders = [
            self.identity_of(int(entry.name))
            for entry in PROC.iterdir()
            if entry.name.isdigit() and _has_open(entry, (wanted.st_dev, wanted.st_ino))
        ]
        return [holder for holder in holders if holder is not None]


def _read_stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state (field 3) on."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses before them may hold blanks and parentheses.
    return text.rpartition(")")[2].split()


def _has_open(process: Path, file: tuple[int, int]) -> bool:
    if process.name == str(os.getpid()):
        return False
    try:
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                found = link.stat()
                if (found.st_dev, found.st_ino) == file:
                    return True
    except OSError:
        # Gone meanwhile, or another user's: no process of ours.
        return False
    return False


def is_locked(path: Path) -> bool:
    """Return whether another process holds the flock of the file.

    Raises:
        Unavailable: the file cannot be looked at.
    """
    try:
        # Without waiting: opening a pipe waits for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error
    try:
        # Shared, so that two lookers do not see each other; held for microseconds.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def port_errors(what: str) -> Generator[None]:
    """Turn an error of the operating system into `Unavailable`, saying `what` failed and where."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        name = errno.errorcode.get(error.errno or 0, "")
        text = f"{what}: {error.strerror or error} {name}{where}"
        raise Unavailable(text) from error
