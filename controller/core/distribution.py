"""The finish's distribution: normal clean time and Gamma lost time, added by quadrature.

Plain floats and no random draws: the same numbers give the same answer on every machine that
computes in binary64. Who records an answer rounds it first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import erf, exp, expm1, lgamma, log, pi, sqrt

SERIES_TERMS = 1_000
"""Bound of both expansions; below `NORMAL_SHAPE` they need some 150 terms."""
PRECISION = 1e-12
NORMAL_SHAPE = 300.0
"""From here on Wilson and Hilferty's cube root is right to five digits."""
CELLS = 96
"""Cells of the Gamma part: each 0.15 of its standard deviations wide."""
BELOW_SDS, ABOVE_SDS = 6.0, 9.0
SKEWED_SHAPE = 1.0
SKEWED_SDS = 14.0
"""Of an exponential: one in a million lies beyond."""
SKEW = 9.0
"""Cells of a shape below 1 grow by exp(SKEW) from the first to the last."""
CLOSE = 1e-9
"""Of a probability: a millionth of what is recorded."""
FINE = 1e-4
SOON, MOST_TURNS = 10, 200
LEAST_WEIGHT = 1e-9
FAR_SDS = 8.0
NARROW_SDS = 1e-6
"""A narrower cell counts as a point: the difference of two integrals would lose its digits."""
SQRT_TWO, SQRT_TWO_PI = sqrt(2.0), sqrt(2.0 * pi)
TINY = 1e-300
SD_FLOOR = 1e-6
"""Of the mean: certainty would be a step, which no search for a quantile can follow."""


def normal_cdf(x: float) -> float:
    """Return the share of a standard normal below `x`."""
    return 0.5 * (1.0 + erf(x / SQRT_TWO))


def gamma_cdf(shape: float, x: float) -> float:
    """Return the regularised lower incomplete gamma function P(shape, x)."""
    if x <= 0.0:
        return 0.0
    if shape >= NORMAL_SHAPE:
        ninth = 1.0 / (9.0 * shape)
        return normal_cdf(((x / shape) ** (1 / 3) - 1.0 + ninth) / sqrt(ninth))
    front = exp(shape * log(x) - x - lgamma(shape))
    if x < shape + 1.0:
        return min(1.0, front * _sum_series(shape, x))
    return max(0.0, 1.0 - front * _sum_fraction(shape, x))


def _sum_series(shape: float, x: float) -> float:
    term = total = 1.0 / shape
    for n in range(1, SERIES_TERMS):
        term *= x / (shape + n)
        total += term
        if term < total * PRECISION:
            break
    return total


def _sum_fraction(shape: float, x: float) -> float:
    """Return the continued fraction of the upper function, by Lentz's method."""
    b = x + 1.0 - shape
    c, d = 1.0 / TINY, 1.0 / b
    total = d
    for n in range(1, SERIES_TERMS):
        a = n * (shape - n)
        b += 2.0
        d = 1.0 / (_away_from_zero(a * d + b))
        c = _away_from_zero(b + a / c)
        total *= c * d
        if abs(c * d - 1.0) < PRECISION:
            break
    return total


def _away_from_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY


@dataclass(frozen=True)
class Cell:
    """A stretch of the Gamma part and its probability, spread evenly over it."""

    low: float
    high: float
    weight: float


@dataclass(frozen=True)
class NormalPlusGamma:
    """The sum of an independent normal and a Gamma, by their moments; one unit throughout."""

    mean: float
    sd: float
    lost_mean: float
    lost_variance: float

    @cached_property
    def _cells(self) -> tuple[Cell, ...]:
        if self.lost_mean <= 0.0 or self.lost_variance <= 0.0:
            return (Cell(low=max(0.0, self.lost_mean), high=max(0.0, self.lost_mean), weight=1.0),)
        shape = self.lost_mean**2 / self.lost_variance
        scale = self.lost_variance / self.lost_mean
        edges = _list_edges(shape)
        shares = [gamma_cdf(shape, edge) for edge in edges]
        highs = edges[1:]
        if shape < SKEWED_SHAPE:
            # Next to zero the density is x^(shape-1): twice its mean there, not the whole cell.
            highs[0] *= 2.0 * shape / (shape + 1.0)
        return tuple(
            Cell(low=low * scale, high=high * scale, weight=above - below)
            for low, high, (below, above) in zip(edges, highs, pairwise(shares), strict=False)
            if above - below > LEAST_WEIGHT
        )

    @cached_property
    def _weight(self) -> float:
        """Weight of all cells: what the grid leaves out is given to the cells in proportion."""
        return sum(cell.weight for cell in self._cells)

    @cached_property
    def _grain(self) -> float:
        """Standard deviation of the normal part, or the floor that stands for certainty."""
        return max(self.sd, SD_FLOOR * (abs(self.mean) + max(0.0, self.lost_mean)), TINY)

    def cdf(self, x: float) -> float:
        """Return the probability that the sum is at most `x`."""
        left, grain = x - self.mean, self._grain
        total, end, carried = 0.0, -1.0, 0.0
        for cell in self._cells:
            top, bottom = (left - cell.low) / grain, (left - cell.high) / grain
            if top < -FAR_SDS:
                break
            if bottom > FAR_SDS or top - bottom < NARROW_SDS:
                total += cell.weight * normal_cdf(bottom)
                continue
            # The mean of the distribution function over the cell, by its integral at both ends.
            above = carried if cell.low == end else _integrate(top)
            end, carried = cell.high, _integrate(bottom)
            total += cell.weight * (above - carried) / (top - bottom)
        # Far out, the differences above round to either side of the last digit.
        return min(1.0, max(0.0, total / self._weight))

    def quantile(self, share: float) -> float:
        """Return the value that the sum stays below with probability `share`."""
        middle = self.mean + max(0.0, self.lost_mean)
        step = sqrt(self.sd**2 + max(0.0, self.lost_variance)) + self._grain
        # To a part of the narrower of both: rare outages make the whole far wider than its bulk.
        return find_root(lambda x: self.cdf(x) - share, middle, step, FINE * self._grain)


def _list_edges(shape: float) -> list[float]:
    """Return the edges of the cells of a standard Gamma, in units of its scale."""
    sd = sqrt(shape)
    if shape < SKEWED_SHAPE:
        # Nearly all of a small shape lies near zero, and the rest far out.
        reach = SKEWED_SDS * max(sd, 1.0)
        return [reach * expm1(SKEW * i / CELLS) / expm1(SKEW) for i in range(CELLS + 1)]
    low = max(0.0, shape - BELOW_SDS * sd)
    high = shape + ABOVE_SDS * sd + SKEWED_SDS - ABOVE_SDS
    return [low + (high - low) * i / CELLS for i in range(CELLS + 1)]


def _integrate(x: float) -> float:
    """Return the integral of the normal's distribution function up to `x`."""
    return x * normal_cdf(x) + exp(-0.5 * x * x) / SQRT_TWO_PI


def find_root(rising: Callable[[float], float], middle: float, step: float, width: float) -> float:
    """Return, to within `width`, where a rising function crosses zero; sought from `middle` on."""
    low, high = middle - step, middle + step
    while rising(low) > 0.0:
        low -= step
        step *= 2.0
    while rising(high) < 0.0:
        high += step
        step *= 2.0
    return _close_in(rising, low, high, width)


def _close_in(rising: Callable[[float], float], low: float, high: float, width: float) -> float:
    """Close the bracket by regula falsi with Illinois' halving; by its middle if that is slow."""
    at_low, at_high = rising(low), rising(high)
    side = 0
    for turn in range(1, MOST_TURNS):
        if high - low <= width or at_high - at_low <= 0.0:
            break
        x = (low * at_high - high * at_low) / (at_high - at_low)
        if turn > SOON and turn % 2:
            x = (low + high) / 2
        value = rising(x)
        if abs(value) < CLOSE:
            return x
        if value < 0.0:
            low, at_low = x, value
            at_high *= 0.5 if side < 0 else 1.0
            side = -1
        else:
            high, at_high = x, value
            at_low *= 0.5 if side > 0 else 1.0
            side = 1
    return (low + high) / 2
