"""Ends a rank that makes no progress: stacks first, then exit 124.

It is a thread and leaves by os._exit, because a blocked main thread cannot unwind.
"""

import faulthandler
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from contract.exits import Exit
from contract.wire import STACKS_FILE
from trainer.ends import leave
from trainer.phases import PhaseClock

LOG = logging.getLogger(__name__)

CHECK_S = 0.5


class Watchdog:
    """Compares the clock's progress age with its deadline, twice a second."""

    def __init__(self, clock: PhaseClock, rank_dir: Path, end: Callable[..., None] = leave) -> None:
        self._clock = clock
        self._rank_dir = rank_dir
        self._end = end
        self.spent_s = 0.0
        """Seconds that looking has cost."""

    def start(self) -> None:
        """Watch from now on, in a thread that does not keep the process alive."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def look(self) -> bool:
        """End the rank if it is late; return whether it was."""
        age_s, deadline_s = self._clock.age_s, self._clock.deadline_s
        if age_s <= deadline_s:
            return False
        phase, step = self._clock.phase, self._clock.step
        dump_stacks(self._rank_dir)
        text = f"no progress for {age_s:.1f} s in phase {phase} (deadline {deadline_s:.1f} s)"
        self._end(self._rank_dir, Exit.STALL, step=step, text=text)
        return True

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(CHECK_S):
            start_s = time.perf_counter()
            if self.look():
                return
            self.spent_s += time.perf_counter() - start_s


def dump_stacks(rank_dir: Path) -> None:
    """Append the stacks of all threads to the rank's stack file."""
    path = rank_dir / STACKS_FILE
    try:
        with path.open("a") as file:
            faulthandler.dump_traceback(file, all_threads=True)
    except OSError as error:
        LOG.warning("%s: %s", path, error.strerror)
