"""Moves a finished run's folder aside, so that its name can be launched again.

A run whose controller or ranks still live is left alone: they hold locks below its folder.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_ASIDE = 10_000


def find_locks(run: Path) -> Iterator[Path]:
    """Yield the lock files of the controller and of every rank of every attempt."""
    yield from (path for path in [run / "controller.lock"] if path.is_file())
    yield from sorted(run.glob("attempts/*/rank-*/lock"))


def is_held(lock: Path) -> bool:
    """Say whether a process, running or stopped, holds `lock`."""
    descriptor = os.open(lock, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def set_aside(run: Path) -> Path | None:
    """Rename `run` to the first free `run-1`, `run-2`, ...; None when there is no such folder.

    Raises:
        BlockingIOError: a process of the run is alive; the message names its lock.
    """
    if not run.exists():
        return None
    if held := next(filter(is_held, find_locks(run)), None):
        raise BlockingIOError(f"{run} is in use: a process holds {held}")
    taken = (run.with_name(f"{run.name}-{number}") for number in range(1, MAX_ASIDE))
    aside = next(path for path in taken if not path.exists())
    run.rename(aside)
    return aside


def main(arguments: list[str]) -> int:
    run = Path(arguments[0])
    try:
        aside = set_aside(run)
    except BlockingIOError as error:
        sys.stderr.write(f"{error}. Next: .venv/bin/ctl stop {run.name}\n")
        return 1
    if aside:
        sys.stderr.write(f"the earlier {run} is now {aside}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
