"""What the main thread is doing and since when: the account that the watchdog and telemetry read.

Each second since the process began belongs to exactly one phase, so the phases sum to the uptime.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from contract.wire import RANK_PHASES, Phase, PhaseRecord
from trainer.files import append_line

LOG = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STAT = Path("/proc/self/stat")
START_TICKS_FIELD = 19
"""Field 22 of /proc/self/stat, counted after the command's closing bracket."""
P99 = 99.0
P99_EVERY_STEPS = 20
KEPT_STEPS = 2_000
"""Step times behind the p99: enough for it, little to sort."""


def read_boot_id() -> str:
    """Return the machine's boot id, empty where there is none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def process_age_s() -> float:
    """Return how long this process has existed, so that imports count as the start phase."""
    try:
        ticks = int(STAT.read_text().rpartition(")")[2].split()[START_TICKS_FIELD])
    except (OSError, ValueError):
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


class PhaseClock:
    """Seconds per phase, progress age and deadline; written by the main thread, read by others."""

    def __init__(
        self, path: Path | None, deadlines_s: Mapping[Phase, float], step_factor: float = 10
    ) -> None:
        self._path = path
        self._deadlines_s = dict(deadlines_s)
        self._step_factor = step_factor
        self._boot_id = read_boot_id()
        self._lock = threading.Lock()
        self._seconds: dict[Phase, float] = dict.fromkeys(RANK_PHASES, 0.0)
        self._step_times_s: deque[float] = deque(maxlen=KEPT_STEPS)
        self._steps_timed = 0
        self._p99_s = 0.0
        age_s = process_age_s()
        self.phase = Phase.START
        self.step = 0
        self._entered_s = self._progress_s = time.monotonic() - age_s
        self._progress_s += age_s
        self._record(time.time() - age_s, self._entered_s)

    def limit(self, deadlines_s: Mapping[Phase, float], step_factor: float) -> None:
        """Take the deadlines of the config, which is read after the clock began to run."""
        with self._lock:
            self._deadlines_s = dict(deadlines_s)
            self._step_factor = step_factor

    def enter(self, phase: Phase, step: int | None = None) -> Phase:
        """Begin `phase`, which is progress; return the phase before it."""
        now_s = time.monotonic()
        with self._lock:
            before = self.phase
            self._seconds[before] += now_s - self._entered_s
            self._entered_s = self._progress_s = now_s
            self.phase = phase
            self.step = self.step if step is None else step
        if phase is not before:
            self._record(time.time(), now_s)
        return before

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Be in `phase` and return to the one before."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def advance(self, step: int | None = None, step_s: float | None = None) -> None:
        """Say that something moved: a completed step and its time, or bytes."""
        with self._lock:
            self._progress_s = time.monotonic()
            self.step = self.step if step is None else step
            if step_s is not None:
                self._step_times_s.append(step_s)
                self._steps_timed += 1
                # Sorted now and then: it would be a good part of what each step pays.
                if self._steps_timed % P99_EVERY_STEPS == 1:
                    self._p99_s = float(np.percentile(self._step_times_s, P99))

    @property
    def age_s(self) -> float:
        """Seconds since the main thread last made progress."""
        with self._lock:
            return time.monotonic() - self._progress_s

    @property
    def deadline_s(self) -> float:
        """Age at which the watchdog ends the rank in the current phase."""
        with self._lock:
            floor_s = self._deadlines_s.get(self.phase, float("inf"))
            if self.phase is Phase.STEP:
                return max(floor_s, self._step_factor * self._p99_s)
            return floor_s

    def seconds(self) -> dict[Phase, float]:
        """Return seconds per phase, the current one up to now; they sum to the uptime."""
        with self._lock:
            now = {self.phase: time.monotonic() - self._entered_s}
            return {phase: spent + now.get(phase, 0.0) for phase, spent in self._seconds.items()}

    def _record(self, wall_s: float, mono_s: float) -> None:
        if self._path is None:
            return
        record = PhaseRecord(
            phase=self.phase, step=self.step, wall_s=wall_s, mono_s=mono_s, boot_id=self._boot_id
        )
        try:
            append_line(self._path, record.model_dump_json())
        except OSError as error:
            LOG.warning("%s: %s", self._path, error.strerror)
