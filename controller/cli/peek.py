"""Looks at runs from outside, without any model: `ctl status` starts at once and always answers.

Only files and one lock are looked at, so it works when the controller is dead or stopped.
"""

import contextlib
import fcntl
import json
import os
import socket
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from controller.cli.shape import is_status

Status = dict[str, object]

IDENTITY_FILE = "identity.json"
STATUS_FILE = "status.json"
LOCK_FILE = "controller.lock"
SUMMARY_FILE = "summary.json"
ATTEMPTS_DIR = "attempts"
RANK_LOCK_FILE = "lock"
STDERR_FILE = "stderr.log"
# The names of contract.wire, which would cost a third of a second; a test compares.
STALE_AFTER_MS = 30_000
"""Of runtime.lease, for the same reason: a heart that did not beat for so long has stopped."""
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
NS_PER_MS = 1_000_000

AT_REST = frozenset({"completed", "suspended", "stopped", "halted"})


@dataclass(frozen=True)
class Controller:
    """Whether somebody steers the run, and who did last."""

    is_alive: bool
    """It holds the run's lock, and its heart beats."""
    pid: int | None
    epoch: int | None
    silent_s: float | None = None
    """Since its heart stopped, where it holds the lock still: the next controller ends it."""


@dataclass(frozen=True)
class View:
    """A run as it looks from outside."""

    name: str
    directory: Path
    status: Status | None
    """None: never written, or unreadable."""
    controller: Controller
    age_s: float | None
    """Since the status was written."""
    copy_of: str | None = None
    """Where the original was launched, None unless the directory is a copy."""

    @property
    def state(self) -> str:
        """The state last written, `unknown` without one."""
        return str(self.status["state"]) if self.status else "unknown"

    @property
    def is_at_rest(self) -> bool:
        """Whether the run waits for nobody but its owner."""
        return self.state in AT_REST

    @property
    def is_blind(self) -> bool:
        """Whether the status says nothing about now: nobody steers a run that is not at rest."""
        return self.status is None or not (self.is_at_rest or self.controller.is_alive)


def list_names(runs_dir: Path) -> list[str]:
    """Return the names of the runs in `runs_dir`, sorted."""
    found = (path.parent.name for path in runs_dir.glob(f"*/{IDENTITY_FILE}"))
    return sorted(name for name in found if not name.startswith("."))


def look(directory: Path) -> View:
    """Return the run in `directory` as it is now."""
    path = directory / STATUS_FILE
    found, age_s = _read_object(path), None
    if found is not None:
        with contextlib.suppress(OSError):
            age_s = max(0.0, time.time() - path.stat().st_mtime)
    status = found if is_status(found) else None
    return View(
        directory.name,
        directory,
        status,
        _find_controller(directory),
        age_s,
        _find_origin(directory),
    )


def _find_origin(directory: Path) -> str | None:
    """Return where the run was launched if `directory` is a copy: a copy has another inode."""
    identity = _read_object(directory / IDENTITY_FILE)
    try:
        inode = directory.stat().st_ino
    except OSError:
        return None
    if identity is None:
        return None
    is_copy = identity.get("inode") not in (None, inode)
    return str(identity.get("directory")) if is_copy else None


def _read_object(path: Path) -> Status | None:
    """Return the JSON object in a file, None where there is none: anything may lie there."""
    try:
        descriptor = _open(path)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return _parse_object(file.read(MAX_BYTES + 1))
    except OSError:
        return None
    finally:
        os.close(descriptor)


MAX_BYTES = 1 << 26
"""Of a status or summary; one of the model case has some 200 kB."""


def _open(path: Path) -> int:
    # Without waiting: opening a pipe waits for its other end.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _parse_object(data: bytes) -> Status | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("Status", found) if isinstance(found, dict) else None


def _find_controller(directory: Path) -> Controller:
    try:
        descriptor = _open(directory / LOCK_FILE)
    except OSError:
        return Controller(is_alive=False, pid=None, epoch=None)
    try:
        holder = _read_holder(descriptor)
        pid, epoch = _pid_of(holder), holder.get("epoch")
        is_locked = _is_locked(descriptor)
        silent_s = _measure_silence(holder, pid) if is_locked else None
        is_alive = is_locked and silent_s is None
        return Controller(is_alive, pid, epoch if isinstance(epoch, int) else None, silent_s)
    finally:
        os.close(descriptor)


def _measure_silence(holder: dict[str, object], pid: int | None) -> float | None:
    """Return since when the heart of the lock's holder stopped, None where it is not known to.

    As the lease judges it: by the monotonic clock of one boot, and only on this machine. A
    process that is gone holds no lock: another one just took it and did not sign yet.
    """
    heartbeat = holder.get("heartbeat")
    if not isinstance(heartbeat, dict) or holder.get("host") != socket.gethostname():
        return None
    beat = cast("dict[str, object]", heartbeat)
    mono_ms = beat.get("mono_ms")
    if not isinstance(mono_ms, int) or beat.get("boot_id") != BOOT_ID_FILE.read_text().strip():
        return None
    age_ms = time.monotonic_ns() // NS_PER_MS - mono_ms
    is_silent = age_ms > STALE_AFTER_MS and Path(f"/proc/{pid}").is_dir()
    return age_ms / 1_000 if is_silent else None


def list_live_ranks(directory: Path) -> list[int]:
    """Return the ranks of the newest attempt that live, by their locks."""
    attempts = [path for path in directory.glob(f"{ATTEMPTS_DIR}/*") if path.name.isdigit()]
    if not attempts:
        return []
    newest = max(attempts, key=lambda path: int(path.name))
    locks = newest.glob(f"rank-*/{RANK_LOCK_FILE}")
    return sorted(int(path.parent.name.removeprefix("rank-")) for path in locks if _holds(path))


def _holds(lock: Path) -> bool:
    try:
        descriptor = _open(lock)
    except OSError:
        return False
    try:
        return _is_locked(descriptor)
    finally:
        os.close(descriptor)


def find_last_words(view: View) -> tuple[Path, str] | None:
    """Return where the trainer that ended a halted run spoke, and the last line that it wrote.

    Of the root rank of the last incident, or of the first rank where the whole gang is to blame.
    None where the run did not halt, or the rank said nothing.
    """
    if view.state != "halted" or view.status is None:
        return None
    incidents = view.status.get("incidents")
    if not isinstance(incidents, dict):
        return None
    recent = cast("dict[str, list[dict[str, object]]]", incidents).get("recent")
    if not recent:
        return None
    last = recent[-1]
    rank = last.get("root_rank")
    attempt = view.directory / ATTEMPTS_DIR / str(last.get("attempt"))
    path = attempt / f"rank-{0 if rank is None else rank}" / STDERR_FILE
    line = _read_last_line(path)
    return None if line is None else (path, line)


def _read_last_line(path: Path) -> str | None:
    try:
        with os.fdopen(_open(path), "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None


TAIL_BYTES = 1 << 16


def _is_locked(descriptor: int) -> bool:
    try:
        # Shared, so that two lookers do not see each other; given back within microseconds.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _read_holder(descriptor: int) -> dict[str, object]:
    try:
        return _parse_object(os.read(descriptor, 4096).strip()) or {}
    except OSError:
        return {}


def _pid_of(holder: dict[str, object]) -> int | None:
    process = holder.get("process")
    if not isinstance(process, dict):
        return None
    pid = cast("dict[str, object]", process).get("pid")
    return pid if isinstance(pid, int) else None


def read_summary(directory: Path) -> dict[str, object] | None:
    """Return the summary of a finished run, None when there is none."""
    return _read_object(directory / SUMMARY_FILE)
