"""How long the ranks are held in each step, so that steps come at a set-point."""

from collections import deque
from dataclasses import dataclass
from math import ceil
from statistics import median

MAX_STOP_S = 0.35
"""One stop: well below the second after which a scrape of a stopped rank is given up."""
NATURAL_STEPS = 15
"""Behind the estimate of a step's own time: steady, and new within seconds."""
TRIM, MAX_TRIM = 0.01, 0.1
"""Of the set-point: one step's correction of the holds, and all of them together."""
KEPT_STEPS = 20_000
"""Step times behind the reported median."""


@dataclass(frozen=True)
class Hold:
    """Stops within one step, with the ranks running between them."""

    count: int
    stop_s: float
    run_s: float


@dataclass(frozen=True)
class PaceReport:
    """What became of one set-point."""

    set_point_s: float
    steps: int
    """Undisturbed steps under this set-point."""
    median_step_s: float | None
    late_steps: int
    """Of those, slower than the set-point although nothing held them."""

    @property
    def late_percent(self) -> float:
        """The share of late steps."""
        return 100 * self.late_steps / self.steps if self.steps else 0.0


class Governor:
    """Learns a step's own time from what steps took less what they were held."""

    def __init__(self, set_point_s: float) -> None:
        self._natural_s: deque[float] = deque(maxlen=NATURAL_STEPS)
        self.move(set_point_s)

    def move(self, set_point_s: float) -> None:
        """Take another set-point, 0 for none; the step under way counts for neither."""
        self.set_point_s = set_point_s
        self._trim_s = 0.0
        self._times_s: deque[float] = deque(maxlen=KEPT_STEPS)
        self._steps = self._late = 0
        self._is_first = True

    def take(self, step_s: float, held_s: float, *, is_clean: bool) -> None:
        """Learn from a completed step that took `step_s`, of which it was held `held_s`."""
        is_first, self._is_first = self._is_first, False
        if not is_clean:
            return
        self._natural_s.append(max(0.0, step_s - held_s))
        if is_first or not self.set_point_s:
            return
        self._steps += 1
        self._times_s.append(step_s)
        if held_s:
            self._correct(step_s)
        else:
            self._late += step_s > self.set_point_s

    def _correct(self, step_s: float) -> None:
        """Move the holds by a hundredth towards the set-point, for what the estimate misses.

        By its side only, not by how far: one stalled step says nothing about the next.
        """
        side = (step_s < self.set_point_s) - (step_s > self.set_point_s)
        limit_s = MAX_TRIM * self.set_point_s
        trim_s = self._trim_s + side * TRIM * self.set_point_s
        self._trim_s = min(max(trim_s, -limit_s), limit_s)

    def hold(self) -> Hold | None:
        """Return how to hold the step that begins; None: not at all."""
        if not self._natural_s or not self.set_point_s:
            return None
        natural_s = median(self._natural_s)
        held_s = self.set_point_s - natural_s + self._trim_s
        if natural_s >= self.set_point_s or held_s <= 0:
            return None
        # Spread over the step: else it would end between two stops of a long hold.
        count = ceil(held_s / MAX_STOP_S)
        return Hold(count, held_s / count, natural_s / count)

    def report(self) -> PaceReport:
        """Return what became of the current set-point so far."""
        middle = median(self._times_s) if self._times_s else None
        return PaceReport(self.set_point_s, self._steps, middle, self._late)
