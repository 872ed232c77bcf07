"""How fast the fleet is over the days when nothing is broken: declared paces, drift, jumps."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from random import Random
from statistics import NormalDist

from controller.core.declared.simulation import DAY_MS, Simulation
from controller.core.declared.supposition import MOST_CHANGES

NORMAL = NormalDist()
LEAST_FACTOR, MOST_FACTOR = 0.25, 4.0
"""Drift and jumps never take the pace further from what is declared."""
MOST_JUMPS = 3 * MOST_CHANGES
PERMILLE, PERCENT = 1_000, 100


def open_stream(seed: int, name: str) -> Random:
    """Return a stream of chance of its own: what others draw does not move it."""
    return Random(f"{seed}/{name}")  # noqa: S311  # repeatable on purpose; nothing is kept secret by it


def draw_normal(uniform: float) -> float:
    """Return a standard normal value of one uniform one: a stream of draws stays in step."""
    return NORMAL.inv_cdf(min(max(uniform, 1e-12), 1 - 1e-12))


def draw_wait(uniform: float, mean_ms: int) -> int:
    """Return an exponential time of a mean, at least a millisecond."""
    return max(1, round(-log(1 - uniform) * mean_ms))


@dataclass(frozen=True)
class Course:
    """Tokens a second from each moment on, in order; the first is the launch."""

    moments: tuple[tuple[int, int], ...]
    """(milliseconds since the launch, tokens a second)."""

    def rate_at(self, passed_ms: int) -> int:
        """Return the tokens a second so long after the launch."""
        return self.moments[self._index(passed_ms)][1]

    def next_change(self, passed_ms: int) -> int | None:
        """Return when the rate changes next, None when it never does."""
        index = self._index(passed_ms) + 1
        return self.moments[index][0] if index < len(self.moments) else None

    def _index(self, passed_ms: int) -> int:
        return bisect_right(self.moments, passed_ms, key=lambda it: it[0]) - 1


def plot_course(supposed: Simulation, seed: int, days: int) -> Course:
    """Return the course of the first `days`; after them the pace stays."""
    factors = {day * DAY_MS: it for day, it in enumerate(_drift(supposed, seed, days))}
    jumps = dict(_jump(supposed, seed, days))
    declared = {it.from_day * DAY_MS: it.tokens_per_second for it in supposed.throughput}
    rate, drift, jump = supposed.throughput[0].tokens_per_second, 1.0, 1.0
    moments: list[tuple[int, int]] = []
    for at_ms in sorted({0, *factors, *jumps, *declared}):
        rate = declared.get(at_ms, rate)
        drift = factors.get(at_ms, drift)
        jump = jumps.get(at_ms, jump)
        factor = min(max(drift * jump, LEAST_FACTOR), MOST_FACTOR)
        moments.append((at_ms, max(1, round(rate * factor))))
    return Course(tuple(moments))


def _drift(supposed: Simulation, seed: int, days: int) -> Iterator[float]:
    """Yield the factor of each day: a random walk from 1."""
    if not supposed.drift_permille:
        return
    random, factor = open_stream(seed, "drift"), 1.0
    for _ in range(days):
        yield factor
        factor *= max(0.5, 1 + supposed.drift_permille * draw_normal(random.random()) / PERMILLE)
        factor = min(max(factor, LEAST_FACTOR), MOST_FACTOR)


def _jump(supposed: Simulation, seed: int, days: int) -> Iterator[tuple[int, float]]:
    """Yield (milliseconds since the launch, factor) of each jump, up or down alike.

    After `MOST_JUMPS` the pace stays: so many come only long after the plan's time.
    """
    changes = supposed.changes
    if not changes.every:
        return
    random, factor, at_ms = open_stream(seed, "changes"), 1.0, 0
    for _ in range(MOST_JUMPS):
        at_ms += draw_wait(random.random(), changes.every)
        if at_ms >= days * DAY_MS:
            return
        step = 1 + changes.percent / PERCENT
        factor = factor * step if random.random() < 0.5 else factor / step  # noqa: PLR2004  # a coin
        factor = min(max(factor, LEAST_FACTOR), MOST_FACTOR)
        yield at_ms, factor
