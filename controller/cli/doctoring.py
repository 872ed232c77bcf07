"""`ctl doctor`: what this machine lacks for a local gang."""

import fcntl
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.peek import View, list_names, look

MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 2 * 1024**3
"""A tiny run takes some 100 MB; an environment with jax about 1 GB."""

NEEDED = ("pydantic", "yaml", "typer", "tenacity", "rich", "prometheus_client", "matplotlib")
OF_THE_TRAINER = ("jax", "optax", "orbax")
NO_TRAINER = (
    "runs whose file names a trainer.command work; for the others: make setup in a clone,"
    ' or pip install "WHEEL[trainer]" with the path of the wheel'
)

Check = tuple[bool, str, str]
"""Whether it is well, what was looked at, and what was found or is to be done."""


def examine(runs_dir: Path) -> int:
    """Print what was found; exit code 1 when something needed is missing."""
    checks = [*_check_machine(), *_check_libraries(), _check_disk(runs_dir), *_check_runs(runs_dir)]
    output.emit_table(
        (("ok" if is_well else "LACKS"), what, found) for is_well, what, found in checks
    )
    return Code.DONE if all(is_well for is_well, _, _ in checks) else Code.FAILED


def _check_machine() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield sys.version_info >= MIN_PYTHON, "python", f"{version}; 3.11 or newer is needed"
    yield sys.platform == "linux", "system", f"{sys.platform}; ranks are told apart by /proc"
    yield hasattr(os, "pidfd_open"), "pidfd", "processes are ended by descriptor, never by number"
    cores = len(os.sched_getaffinity(0))
    yield cores >= 2, "cores", f"{cores}; a gang of two processes wants two"  # noqa: PLR2004  # two
    yield _can_lock(), "flock", "locks tell who lives"
    yield _can_talk(), "loopback", "ranks meet at 127.0.0.1. Where it lacks: ip link set lo up"


def _can_lock() -> bool:
    with tempfile.TemporaryFile() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def _can_talk() -> bool:
    """Return whether this machine reaches itself: in a container without a network it may not."""
    with socket.socket() as server:
        try:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
            socket.create_connection(server.getsockname(), LOOPBACK_WITHIN_S).close()
        except OSError:
            return False
    return True


LOOPBACK_WITHIN_S = 1.0


def _check_libraries() -> Iterator[Check]:
    for name in NEEDED:
        is_there = importlib.util.find_spec(name) is not None
        yield (
            is_there,
            name,
            "found" if is_there else "missing. Next: make setup, or pip install WHEEL",
        )
    missing = [name for name in OF_THE_TRAINER if importlib.util.find_spec(name) is None]
    yield True, "trainer", f"no {', '.join(missing)}; {NO_TRAINER}" if missing else "found"


def _check_disk(runs_dir: Path) -> Check:
    if os.path.lexists(runs_dir) and not runs_dir.is_dir():
        return False, "disk", f"{runs_dir} is no directory. Next: remove it, or give --runs-dir"
    place = next(
        path for path in [runs_dir.absolute(), *runs_dir.absolute().parents] if path.exists()
    )
    free = shutil.disk_usage(place).free
    found = f"{free / 1024**3:.1f} GiB free in {place}, {MIN_FREE_BYTES // 1024**3} wanted"
    if not os.access(place, os.W_OK):
        return False, "disk", f"{place} is not writable. Next: mend it, or give --runs-dir"
    return free >= MIN_FREE_BYTES, "disk", found


def _check_runs(runs_dir: Path) -> Iterator[Check]:
    for name in list_names(runs_dir):
        view = look(runs_dir / name)
        faults = list(_find_faults(view))
        yield not faults, f"run {name}", "; ".join([view.state, *faults])


def _find_faults(view: View) -> Iterator[str]:
    name = view.name
    if (damage := deps.find_damage(view.directory)) is not None:
        yield f"its ledger is damaged: {damage}. Next: ctl log {name} --verify"
    if view.is_blind:
        yield f"nobody steers it. Next: ctl resume {name}"
    if view.state == "halted" and view.status is not None:
        why = view.status.get("reason")
        yield f"{why}. Next: ctl log {name}; when it is cured: ctl resume {name}"
