"""Looks at runs from outside, without any model: `ctl status` starts at once and always answers.

Only files and one lock are looked at, so it works when the controller is dead or stopped.
"""

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

Status = dict[str, object]

IDENTITY_FILE = "identity.json"
STATUS_FILE = "status.json"
LOCK_FILE = "controller.lock"
SUMMARY_FILE = "summary.json"
# The names of contract.wire, which would cost a third of a second; a test compares.

AT_REST = frozenset({"completed", "suspended", "stopped", "halted"})


@dataclass(frozen=True)
class Controller:
    """Whether somebody steers the run, and who did last."""

    is_alive: bool
    pid: int | None
    epoch: int | None


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
    try:
        found = json.loads(path.read_bytes())
        age_s = max(0.0, time.time() - path.stat().st_mtime)
    except (OSError, ValueError):
        found, age_s = None, None
    status = cast("Status", found) if isinstance(found, dict) and "state" in found else None
    return View(directory.name, directory, status, _find_controller(directory), age_s)


def _find_controller(directory: Path) -> Controller:
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return Controller(is_alive=False, pid=None, epoch=None)
    try:
        holder = _read_holder(descriptor)
        pid, epoch = _pid_of(holder), holder.get("epoch")
        return Controller(_is_locked(descriptor), pid, epoch if isinstance(epoch, int) else None)
    finally:
        os.close(descriptor)


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
        found = json.loads(os.read(descriptor, 4096).strip())
    except ValueError:
        return {}
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def _pid_of(holder: dict[str, object]) -> int | None:
    process = holder.get("process")
    if not isinstance(process, dict):
        return None
    pid = cast("dict[str, object]", process).get("pid")
    return pid if isinstance(pid, int) else None


def read_summary(directory: Path) -> dict[str, object] | None:
    """Return the summary of a finished run, None when there is none."""
    try:
        found = json.loads((directory / SUMMARY_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return cast("dict[str, object]", found) if isinstance(found, dict) else None
