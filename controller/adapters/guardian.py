"""Continues ranks that a pacer stopped, should the pacer die or freeze before it does.

Run by file path with `python -I -S`: standard library only. It reads lines from the pacer:

    ranks PID:START_TICKS ...    whom to continue from now on
    stop                         they are about to be stopped
    go                           they were continued
    bye                          the pacer ends well

The end of the lines without `bye`, or no `go` in time after `stop`, continues them.
"""

import contextlib
import os
import select
import signal
import sys
from pathlib import Path

DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 1.0
"""A stop is a third of this; the pacer is frozen, or the machine is beyond pacing."""
READ_BYTES = 65_536


def main() -> int:
    """Guard until the pacer says goodbye or is gone."""
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    ranks: list[tuple[int, int]] = []
    pending, is_stopped = b"", False
    while True:
        patience_s = PATIENCE_S if is_stopped else None
        if not select.select([sys.stdin], [], [], patience_s)[0]:
            continue_ranks(ranks)
            is_stopped = False
            continue
        data = os.read(sys.stdin.fileno(), READ_BYTES)
        if not data:
            continue_ranks(ranks)
            return 0
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            verb, *words = line.decode().split()
            if verb == "bye":
                return 0
            if verb == "ranks":
                ranks = [parse_rank(word) for word in words]
            is_stopped = verb == "stop"


def parse_rank(word: str) -> tuple[int, int]:
    """Return (pid, start ticks)."""
    pid, _, ticks = word.partition(":")
    return int(pid), int(ticks)


def continue_ranks(ranks: list[tuple[int, int]]) -> None:
    """Send SIGCONT to those of the processes that still are who they were."""
    for pid, ticks in ranks:
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(pid)
            try:
                if read_start_ticks(pid) == ticks:
                    signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            finally:
                os.close(descriptor)


def read_start_ticks(pid: int) -> int:
    """Return when the process began; raises OSError when it is gone."""
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return int(stat.rpartition(")")[2].split()[19])


if __name__ == "__main__":
    sys.exit(main())
