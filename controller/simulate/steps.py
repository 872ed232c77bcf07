"""The simulated step log: stretches of equal steps, and the pace that they show."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from controller.core.pace import (
    FALLBACK_STEPS,
    KEPT_OUTAGES,
    SETTLING_STEPS,
    STATISTIC_STEPS,
    US_PER_MS,
    Outage,
    PaceView,
)

NOISE_PERMILLE = 3
CHANGE_STEPS = 20
"""Steps at another pace before anybody would call it one."""
CHANGE_PERCENT = 3


@dataclass(frozen=True)
class Stretch:
    """Steps `first` to `end` - 1 of one attempt, under one plan and at one pace."""

    attempt: int
    line: str
    first: int
    end: int
    plan_sha: str
    execution_sha: str
    length: int
    step_ms: int
    end_wall_ms: int
    """What the wall clock showed at the end of the last step."""
    launched_wall_ms: int

    @property
    def kind(self) -> tuple[object, ...]:
        """Everything but which steps they are, and when."""
        return (self.attempt, self.line, self.plan_sha, self.configuration, self.step_ms)

    @property
    def configuration(self) -> tuple[str, int]:
        """What the pace depends on besides the weather."""
        return (self.execution_sha, self.length)


Piece = tuple[int, int, int]
"""(first step, end, milliseconds a step)."""


def cut(pieces: Sequence[Piece], first: int, end: int) -> list[Piece]:
    """Return the pieces without what lies in `first` to `end`."""
    left = [(low, min(high, first), ms) for low, high, ms in pieces if low < first]
    right = [(max(low, end), high, ms) for low, high, ms in pieces if high > end]
    return [*left, *right]


def join(pieces: Sequence[Piece], piece: Piece) -> list[Piece]:
    """Return the pieces with one more at their end, as part of the last one where it fits."""
    if pieces and (pieces[-1][1], pieces[-1][2]) == (piece[0], piece[2]):
        return [*pieces[:-1], (pieces[-1][0], piece[1], piece[2])]
    return [*pieces, piece]


def find_median(weighed: Sequence[tuple[int, int]]) -> int:
    """Return the value at the middle of (value, how often) pairs; of two, the lower one."""
    half = sum(count for _, count in weighed) / 2
    for value, count in sorted(weighed):
        half -= count
        if half <= 0:
            return value
    raise AssertionError("no steps at all")


def count_steps(pieces: Sequence[Piece]) -> int:
    """Return how many steps the pieces hold."""
    return sum(end - first for first, end, _ in pieces)


@dataclass
class SimLog:
    """Every step ever logged, and what a reader of all logs would make of them."""

    stretches: list[Stretch] = field(default_factory=list[Stretch])
    survivors: list[Piece] = field(default_factory=list[Piece])
    """Of the surviving line, ascending."""
    clean: list[Piece] = field(default_factory=list[Piece])
    outages: list[Outage] = field(default_factory=list[Outage])
    highest: dict[str, int] = field(default_factory=dict[str, int])
    first_wall_ms: int = 0
    start_ms: int = 0
    configured_at: int = 0
    _begun_at: int = 0
    """First step of the newest attempt."""
    _last_new: tuple[int, int] | None = None

    def take(self, stretch: Stretch) -> None:
        """Add the newest steps of the newest attempt."""
        last = self.stretches[-1] if self.stretches else None
        if last is None or last.attempt != stretch.attempt:
            self._begin_attempt(stretch)
        if last is not None and last.line != stretch.line:
            self.survivors = cut(self.survivors, stretch.first, 10**12)
            self.clean = cut(self.clean, stretch.first, 10**12)
        highest = self.highest.get(stretch.line, 0)
        if last is not None and last.configuration != stretch.configuration:
            self.configured_at = max(stretch.first, highest)
        self._append(stretch, last)
        piece = (stretch.first, stretch.end, stretch.step_ms)
        kept = cut(self.survivors, stretch.first, stretch.end)
        is_last = all(end <= piece[0] for _, end, _ in kept)
        self.survivors = join(kept, piece) if is_last else sorted([*kept, piece])
        if stretch.end > highest:
            self.highest[stretch.line] = stretch.end
            self._take_new(stretch, max(stretch.first, highest))

    def _append(self, stretch: Stretch, last: Stretch | None) -> None:
        """Add the stretch, as part of the last one where nothing changed."""
        if last is not None and last.end == stretch.first and last.kind == stretch.kind:
            self.stretches[-1] = replace(stretch, first=last.first)
        else:
            self.stretches.append(stretch)

    def _begin_attempt(self, stretch: Stretch) -> None:
        first_end_ms = self._wall_after(stretch, stretch.first)
        self._begun_at = stretch.first
        self.start_ms = max(0, first_end_ms - stretch.launched_wall_ms)
        self.first_wall_ms = self.first_wall_ms or first_end_ms

    def _wall_after(self, stretch: Stretch, step: int) -> int:
        return stretch.end_wall_ms - (stretch.end - step - 1) * stretch.step_ms

    def _take_new(self, stretch: Stretch, first: int) -> None:
        """Take steps that no attempt computed before on this line."""
        if self._last_new is not None and self._last_new[0] != stretch.attempt:
            attempt, wall_ms = self._last_new
            lost_ms = self._wall_after(stretch, first) - wall_ms - stretch.step_ms
            trained_ms = self.trained_ms - (stretch.end - first) * stretch.step_ms
            self.outages.append(
                Outage(attempt=attempt, lost_ms=max(0, lost_ms), trained_ms=max(0, trained_ms))
            )
            del self.outages[:-KEPT_OUTAGES]
        self._last_new = (stretch.attempt, stretch.end_wall_ms)
        clean = max(first, self._begun_at + SETTLING_STEPS)
        if clean < stretch.end:
            self.clean = join(self.clean, (clean, stretch.end, stretch.step_ms))

    @property
    def trained_ms(self) -> int:
        """Time in the steps of the surviving line."""
        return sum((end - first) * ms for first, end, ms in self.survivors)

    def changed_step(self) -> int | None:
        """Return the first clean step after the newest change of pace that lasts."""
        newest = len(self.clean) - 1
        while newest >= 0 and count_steps(self.clean[newest:]) < CHANGE_STEPS:
            newest -= 1
        for before, after in reversed(list(pairwise(self.clean[: newest + 1]))):
            if abs(after[2] - before[2]) * 100 >= CHANGE_PERCENT * before[2]:
                return after[0]
        return None

    def view(self, since_step: int) -> PaceView | None:
        """Return the pace since `since_step`, None before any step."""
        if not self.survivors:
            return None
        changed, last = self.changed_step(), self.stretches[-1]
        since = max(since_step, changed or 0, self.configured_at)
        window = cut(self.clean, 0, since)
        until = max(end for _, end, _ in self.survivors)
        step_us = self._typical_us(window)
        noise = (until * 7_919 + since) % (2 * NOISE_PERMILLE + 1) - NOISE_PERMILLE
        return PaceView(
            since_step=since,
            until_step=until,
            clean_steps=count_steps(window),
            step_us=step_us + step_us * noise // 1_000,
            error_us=step_us * NOISE_PERMILLE // 1_000,
            extra_us=0,
            trained_ms=self.trained_ms,
            first_wall_ms=self.first_wall_ms,
            start_ms=self.start_ms,
            changed_step=changed,
            context_length=last.length,
            execution_sha=last.execution_sha,
            outages=list(self.outages),
        )

    def _typical_us(self, window: Sequence[Piece]) -> int:
        """Return the median step time of the newest steps of the window, else of those before."""
        wanted = STATISTIC_STEPS if window else FALLBACK_STEPS
        pieces = window or self.clean or self.survivors[-1:]
        newest: list[tuple[int, int]] = []
        for first, end, ms in reversed(pieces):
            taken = min(end - first, wanted)
            newest.append((ms, taken))
            wanted -= taken
        return find_median(newest) * US_PER_MS
