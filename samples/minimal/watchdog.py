"""Ends a rank that makes no progress, after saying where it hangs."""

import faulthandler
import threading

from contract.exits import Exit
from contract.wire import STACKS_FILE
from minimal.ends import leave
from minimal.settings import Settings
from minimal.telemetry import Telemetry

LOOK_EVERY_S = 0.1
"""A tenth of the shortest deadline a config can hold."""


def start_watchdog(settings: Settings, telemetry: Telemetry) -> None:
    """Watch the main thread's progress from a thread of its own until the process ends."""
    thread = threading.Thread(
        target=_watch, args=(settings, telemetry), name="watchdog", daemon=True
    )
    thread.start()


def _watch(settings: Settings, telemetry: Telemetry) -> None:
    pause = threading.Event()
    while not pause.wait(LOOK_EVERY_S):
        age_s, deadline_s = telemetry.progress_age_s, telemetry.deadline_s
        if age_s > deadline_s:
            _dump_stacks(settings)
            what = f"no progress in phase {telemetry.phase} for {age_s:.1f} s"
            text = f"{what} (deadline {deadline_s:g} s)"
            leave(Exit.STALL, text, step=telemetry.step, rank_dir=settings.rank_dir)


def _dump_stacks(settings: Settings) -> None:
    try:
        with (settings.rank_dir / STACKS_FILE).open("w") as file:
            faulthandler.dump_traceback(file, all_threads=True)
    except OSError:
        faulthandler.dump_traceback(all_threads=True)
