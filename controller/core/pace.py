"""How fast the run goes: a fold of its step logs into one clean window, changes and outages."""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import hypot, pi, sqrt
from statistics import median
from typing import NamedTuple, Protocol

from contract.plan import Frozen

US_PER_MS = 1_000
US_PER_S = 1_000_000

BLOCK_STEPS = 10
"""Single steps depend on each other; means of ten nearly do not."""
SETTLING_STEPS = 5
"""The first steps of an attempt run slower: caches, allocators, clocks."""
STATISTIC_STEPS = 5_000
"""Newest clean steps that the pace rests on: a day at 17.3 s a step."""
FEW_STEPS = BLOCK_STEPS
"""A window of fewer is filled up from before it; from here on it speaks for itself."""
FALLBACK_STEPS = 100
"""Newest clean steps, across the window's begin while it holds few."""
KEPT_CLEAN_STEPS = 20_000
KEPT_OUTAGES = 64
KEPT_EXTRAS = 31

SIGMA_PER_MAD = 1.4826
"""Of a normal distribution."""
MEDIAN_ERROR = sqrt(pi / 2)
"""Standard error of a median over that of a mean, normal distribution."""
CLIP_MADS = 5
FEW_REACH = 0.5
"""Of fewer than 20 steps none counts as more than this beyond their median."""

CUSUM_SLACK = 0.5
CUSUM_LIMIT = 8.0
"""Some 19,000 independent normal blocks to a false alarm (Siegmund's approximation)."""
CUSUM_CLIP = 4.0
"""A single stalled block may not reach the limit: it takes three."""
BASELINE_BLOCKS = 500
CUSUM_MIN_BLOCKS = 10
"""Fewer know their own spread too badly."""
JUMP_MIN_BLOCKS = 3
JUMP_RATIO = 1.2
JUMP_SIGMAS = 3.0
SIGMA_FLOOR = 0.001
"""Of the baseline: smaller changes are nobody's concern, and a timer's grain is no spread."""
SMALL_BASELINE = 3.0
"""The MAD of n blocks reads low; (1 + 3/n) keeps early false alarms as rare as later ones."""

RECURRING = frozenset({"save", "eval"})
"""Tags whose extra time comes again; compilations and changes of plan are paid once."""


class StepLike(Protocol):
    """What is read of a step's record: `contract.wire.StepRecord` is one."""

    @property
    def line(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def execution_sha(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def step_s(self) -> float: ...
    @property
    def wall_s(self) -> float: ...
    @property
    def tags(self) -> Sequence[str]: ...


class LoggedStep(NamedTuple):
    """A step's record without validation, for whoever reads long logs."""

    line: str
    step: int
    execution_sha: str
    code: str
    step_s: float
    wall_s: float
    tags: Sequence[str] = ()


class Outage(Frozen):
    """What one end of an attempt cost: start-up, replay and failed starts included."""

    attempt: int
    """The one that ended; attempts that never got further are part of its outage."""
    lost_ms: int
    """From its last new step to the first step beyond it, less one clean step."""
    trained_ms: int = 0
    """Time in steps of the surviving line before it."""


class PaceView(Frozen):
    """The step logs in short: one window of steps on the current line."""

    since_step: int
    """First step of the clean window: after the last evaluation, change point or change of
    configuration."""
    until_step: int
    """Completed steps of the line."""
    clean_steps: int
    """Of the window: untagged, none of an attempt's first five, not replayed."""
    step_us: int
    """Microseconds of a clean step: the median over means of ten, so that pauses that come
    every few steps count. Across the window's begin while it holds under 10 clean steps."""
    error_us: int
    """Standard error of `step_us` as an estimate of the mean clean step."""
    extra_us: int
    """Mean extra time a step by saves and evaluations, over the whole run so far."""
    trained_ms: int
    """Time spent in the steps of the surviving line: each once, its newest computation."""
    first_wall_ms: int
    """Wall clock of the end of the first step ever logged."""
    start_ms: int
    """Newest time from an attempt's launch to the end of its first step; 0 unknown."""
    changed_step: int | None
    """Newest change point: the first step at another pace."""
    context_length: int
    execution_sha: str
    outages: list[Outage]
    """The newest 64, planned ends among them: the reader knows which attempts those were."""


class Estimate(NamedTuple):
    """A pace and its standard error, microseconds a step."""

    step_us: int
    error_us: int


def estimate_pace(clean_us: Sequence[int]) -> Estimate:
    """Return the pace of clean steps, oldest first: the median of their means of ten.

    Of fewer than 20 it is the mean with outliers pulled in: a median of so few single steps jumps
    where they come in two kinds, as they do on a machine that pauses every few steps.
    """
    starts = range(len(clean_us) % BLOCK_STEPS, len(clean_us), BLOCK_STEPS)
    means = [sum(clean_us[start : start + BLOCK_STEPS]) / BLOCK_STEPS for start in starts]
    if len(means) > 1:
        spread = _spread(means, 0.0)
        skew = spread.mean - spread.middle
        return Estimate(round(spread.middle), round(hypot(spread.error, skew)))
    spread = _spread(clean_us, FEW_REACH)
    error = spread.middle if len(clean_us) == 1 else spread.error
    return Estimate(round(spread.mean), round(error))


class _Spread(NamedTuple):
    middle: float
    mean: float
    """Of the values, outliers pulled in."""
    error: float
    """Standard error of the median, robust."""


def _spread(values: Sequence[float], least_reach: float) -> _Spread:
    """Return middle, mean and error of `values`; `least_reach` of the middle is no outlier."""
    middle = median(values)
    deviation = median(abs(value - middle) for value in values)
    reach = max(CLIP_MADS * deviation, least_reach * middle)
    clipped = [min(max(value, middle - reach), middle + reach) for value in values]
    error = MEDIAN_ERROR * SIGMA_PER_MAD * deviation / sqrt(len(values))
    return _Spread(middle, sum(clipped) / len(clipped), error)


@dataclass
class ChangeWatch:
    """Looks for changes of pace in the clean steps since `since_step`, in means of ten.

    Two rules: a CUSUM each way against the window's own median (small lasting changes), and
    two means in a row beyond 1.2 times it (large ones, at once).
    """

    since_step: int = 0
    changed_step: int | None = None
    _part: list[int] = field(default_factory=list[int])
    _part_step: int = 0
    _blocks: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    """(First step, mean) of the window's newest blocks."""
    _middle: float = 0.0
    _sigma: float = 0.0
    _sums: dict[int, float] = field(default_factory=lambda: {1: 0.0, -1: 0.0})
    """Direction -> CUSUM."""
    _begins: dict[int, int] = field(default_factory=dict[int, int])
    """Direction -> first step after its CUSUM last was 0."""

    def restart(self, step: int) -> None:
        """Begin a window at `step`; what came before says nothing about it."""
        self.since_step = step
        self._part, self._blocks = [], []
        self._reset_sums()

    def take(self, step: int, step_us: int) -> None:
        """Add one clean step."""
        if not self._part:
            self._part_step = step
        self._part.append(step_us)
        if len(self._part) == BLOCK_STEPS:
            mean, self._part = sum(self._part) / BLOCK_STEPS, []
            change = self._find_change(self._part_step, mean)
            self._blocks.append((self._part_step, mean))
            if change is not None:
                self._move_to(change)
            self._learn()

    def _reset_sums(self) -> None:
        self._sums = {1: 0.0, -1: 0.0}
        self._begins = {}

    def _move_to(self, change: int) -> None:
        """Begin the window at a change point, with the blocks that came after it."""
        self.since_step = self.changed_step = change
        self._blocks = [block for block in self._blocks if block[0] >= change]
        self._reset_sums()

    def _learn(self) -> None:
        """Learn middle and spread of the window's blocks anew, seldom once they are many."""
        count = len(self._blocks)
        if count > BASELINE_BLOCKS // 10 and count % 10:
            return
        if count > 2 * BASELINE_BLOCKS:
            del self._blocks[: count - BASELINE_BLOCKS]
        means = [mean for _, mean in self._blocks[-BASELINE_BLOCKS:]]
        self._middle = median(means)
        deviation = median(abs(mean - self._middle) for mean in means)
        spread = SIGMA_PER_MAD * deviation * (1 + SMALL_BASELINE / count)
        self._sigma = max(spread, SIGMA_FLOOR * self._middle, 1.0)

    def _find_change(self, first: int, mean: float) -> int | None:
        """Return the first step of a change that the block at `first` reveals."""
        if self._jumped(mean) and self._jumped(self._blocks[-1][1]):
            return self._blocks[-1][0]
        if len(self._blocks) < CUSUM_MIN_BLOCKS:
            return None
        z = (mean - self._middle) / self._sigma
        z = min(max(z, -CUSUM_CLIP), CUSUM_CLIP)
        return self._sum_up(1, z, first) or self._sum_up(-1, -z, first)

    def _jumped(self, mean: float) -> bool:
        if len(self._blocks) < JUMP_MIN_BLOCKS:
            return False
        is_far = abs(mean - self._middle) > JUMP_SIGMAS * self._sigma
        return is_far and not 1 / JUMP_RATIO <= mean / self._middle <= JUMP_RATIO

    def _sum_up(self, direction: int, z: float, first: int) -> int | None:
        if self._sums[direction] == 0.0:
            self._begins[direction] = first
        self._sums[direction] = max(0.0, self._sums[direction] + z - CUSUM_SLACK)
        return self._begins[direction] if self._sums[direction] > CUSUM_LIMIT else None


@dataclass
class _Extras:
    """Extra time of saves and evaluations.

    Medians, so that the compilation in a short run's first evaluation is not taken for a habit.
    """

    counts: dict[str, int] = field(default_factory=dict[str, int])
    newest: dict[str, deque[int]] = field(default_factory=dict[str, deque[int]])

    def take(self, kind: str, extra_us: int) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.newest.setdefault(kind, deque(maxlen=KEPT_EXTRAS)).append(max(0, extra_us))

    def mean_us(self, steps: int) -> int:
        total = sum(self.counts[kind] * median(values) for kind, values in self.newest.items())
        return round(total / max(1, steps))


@dataclass
class _Clean:
    """The newest clean steps, ascending: every one is new on its line."""

    steps: list[int] = field(default_factory=list[int])
    times_us: list[int] = field(default_factory=list[int])

    def take(self, step: int, step_us: int) -> None:
        self.steps.append(step)
        self.times_us.append(step_us)
        if len(self.steps) > KEPT_CLEAN_STEPS:
            # Half at once: dropping one at a time would move the rest each time.
            del self.steps[: KEPT_CLEAN_STEPS // 2]
            del self.times_us[: KEPT_CLEAN_STEPS // 2]

    def drop_from(self, step: int) -> None:
        kept = bisect_left(self.steps, step)
        del self.steps[kept:]
        del self.times_us[kept:]

    def since(self, step: int) -> list[int]:
        return self.times_us[bisect_left(self.steps, step) :]

    def typical_us(self) -> int | None:
        newest = self.times_us[-BLOCK_STEPS:]
        return round(median(newest)) if newest else None


class PaceBook:
    """Folds step records, in the order they were written, attempt after attempt.

    Memory: 8 bytes for each step of the line, and bounded lists.
    """

    def __init__(self) -> None:
        self._line = ""
        self._highest: dict[str, int] = {}
        self._trained_us = array("q")
        """Time of each step of the surviving line; 0 where a record was lost."""
        self._total_us = 0
        self._first_wall_ms: int | None = None
        self._attempt = 0
        self._attempt_steps = 0
        self._launches: dict[int, int] = {}
        self._start_ms = 0
        self._last_new: tuple[int, int] | None = None
        """Attempt and wall time, in ms, of the newest new step."""
        self._new_steps = 0
        self._outages: deque[Outage] = deque(maxlen=KEPT_OUTAGES)
        self._clean = _Clean()
        self._extras = _Extras()
        self._watch = ChangeWatch()
        self._configuration: tuple[str, str, int] | None = None
        self._taken = 0
        self._cached: tuple[tuple[int, int], PaceView] | None = None

    def launch(self, attempt: int, wall_ms: int) -> None:
        """Note when an attempt was launched, before its first record is taken."""
        self._launches = {attempt: wall_ms}

    def take(self, record: StepLike, *, attempt: int, length: int = 0) -> None:
        """Add one step's record; `length` is the context length in force at that step."""
        step_us = max(0, round(record.step_s * US_PER_S))
        wall_ms = round(record.wall_s * US_PER_MS)
        self._taken += 1
        if attempt != self._attempt:
            self._begin_attempt(attempt, wall_ms)
        if record.line != self._line:
            self._begin_line(record.line, record.step)
        self._attempt_steps += 1
        highest = self._highest.get(record.line, 0)
        self._configure((record.execution_sha, record.code, length), max(record.step, highest))
        self._keep(record.step, step_us)
        if record.step >= highest:
            self._highest[record.line] = record.step + 1
            self._take_new(record, step_us, wall_ms)

    def view(self, since_step: int = 0) -> PaceView | None:
        """Return the pace since `since_step` or the newest change; None without any step."""
        if not self._trained_us:
            return None
        key = (self._taken, since_step)
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._build_view(max(since_step, self._watch.since_step)))
        return self._cached[1]

    def _build_view(self, since_step: int) -> PaceView:
        assert self._configuration is not None
        window = self._clean.since(since_step)
        pace = estimate_pace(self._choose_base(window))
        return PaceView(
            since_step=since_step,
            until_step=len(self._trained_us),
            clean_steps=len(window),
            step_us=max(1, pace.step_us),
            error_us=pace.error_us,
            extra_us=self._extras.mean_us(self._new_steps),
            trained_ms=self._total_us // US_PER_MS,
            first_wall_ms=self._first_wall_ms or 0,
            start_ms=self._start_ms,
            changed_step=self._watch.changed_step,
            context_length=self._configuration[2],
            execution_sha=self._configuration[0],
            outages=list(self._outages),
        )

    def _choose_base(self, window: list[int]) -> list[int]:
        """Return the steps to estimate from: the window's, or the newest while those are few."""
        if len(window) >= FEW_STEPS:
            return window[-STATISTIC_STEPS:]
        unchanged = self._clean.since(self._watch.since_step)
        newest = (unchanged or self._clean.times_us)[-FALLBACK_STEPS:]
        # An attempt's first steps are a bad guess, and the only one before the sixth.
        return newest or list(self._trained_us[-1:])

    def _begin_attempt(self, attempt: int, wall_ms: int) -> None:
        self._attempt, self._attempt_steps = attempt, 0
        if attempt in self._launches:
            self._start_ms = max(0, wall_ms - self._launches[attempt])
        if self._first_wall_ms is None:
            self._first_wall_ms = wall_ms

    def _begin_line(self, line: str, step: int) -> None:
        """The newest line wins: what others did from its first step on does not survive."""
        self._line = line
        self._total_us -= sum(self._trained_us[step:])
        del self._trained_us[step:]
        self._clean.drop_from(step)
        self._watch.restart(step)

    def _configure(self, configuration: tuple[str, str, int], step: int) -> None:
        if self._configuration != configuration:
            self._configuration = configuration
            self._watch.restart(step)

    def _keep(self, step: int, step_us: int) -> None:
        gap = step + 1 - len(self._trained_us)
        if gap > 0:
            self._trained_us.extend([0] * gap)
        self._total_us += step_us - self._trained_us[step]
        self._trained_us[step] = step_us

    def _take_new(self, record: StepLike, step_us: int, wall_ms: int) -> None:
        """Take a step that no earlier attempt computed on this line."""
        typical_us = self._clean.typical_us()
        if self._last_new is not None and self._last_new[0] != self._attempt:
            attempt, last_wall_ms = self._last_new
            usual_ms = (typical_us or step_us) // US_PER_MS
            lost_ms = max(0, wall_ms - last_wall_ms - usual_ms)
            trained_ms = (self._total_us - step_us) // US_PER_MS
            self._outages.append(Outage(attempt=attempt, lost_ms=lost_ms, trained_ms=trained_ms))
        self._last_new = (self._attempt, wall_ms)
        self._new_steps += 1
        if not record.tags and self._attempt_steps > SETTLING_STEPS:
            self._clean.take(record.step, step_us)
            self._watch.take(record.step, step_us)
        elif typical_us is not None and record.tags and RECURRING.issuperset(record.tags):
            self._extras.take("+".join(sorted(record.tags)), step_us - typical_us)
