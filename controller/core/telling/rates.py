"""The learning rate of every step computed a second time, apart from `contract.schedule`.

In whole numbers, straight from the plan's knots: it shares no line with what the trainer ran, and
compares the 390,251 steps of the model case in seconds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import lcm, ldexp
from typing import NamedTuple

from contract.plan import Plan
from contract.wire import StepRecord

BITS = 24
LOWEST_EXPONENT = -149
"""Of the last bit of a binary32 number."""


class Piece(NamedTuple):
    """Between two knots, of one group: (base + slope x (step - first)) / divisor."""

    first: int
    last: int
    base: int
    slope: int
    divisor: int


def find_mismatches(records: Iterable[StepRecord], plan: Plan) -> list[int]:
    """Return the steps whose logged rates are not, in every group and bit, the plan's.

    `records` in the order of their steps. A revision contains its whole past, so that the plan in
    force tells the rate of every step.
    """
    peaks = plan.peaks["learning_rate"]
    knots = plan.knots_of("learning_rate")
    rates = {group: _Rates(_list_pieces(knots, Fraction(peak))) for group, peak in peaks.items()}
    return [record.step for record in records if not _is_as_planned(record, rates)]


def _is_as_planned(record: StepRecord, rates: Mapping[str, "_Rates"]) -> bool:
    if record.lr.keys() != rates.keys():
        return False
    return all(rates[group].at(record.step) == text for group, text in record.lr.items())


class _Rates:
    """Rates of one group for steps that only grow."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._later: Iterator[Piece] = iter(pieces)
        self._piece: Piece | None = next(self._later, None)

    def at(self, step: int) -> str | None:
        """Return the rate as a step logs it, None past the last knot."""
        while self._piece is not None and step > self._piece.last:
            self._piece = next(self._later, None)
        if self._piece is None:
            return None
        first, _, base, slope, divisor = self._piece
        return round_quotient(base + slope * (step - first), divisor).hex()


def _list_pieces(knots: Sequence[tuple[int, Fraction]], peak: Fraction) -> list[Piece]:
    ends = pairwise(knots) if len(knots) > 1 else [(knots[0], knots[0])]
    return [_make_piece(left, right, peak) for left, right in ends]


def _make_piece(left: tuple[int, Fraction], right: tuple[int, Fraction], peak: Fraction) -> Piece:
    (first, low), (last, high) = left, right
    base, slope = peak * low, peak * (high - low) / max(1, last - first)
    divisor = lcm(base.denominator, slope.denominator)
    return Piece(first, last, int(base * divisor), int(slope * divisor), divisor)


def round_quotient(numerator: int, denominator: int) -> float:
    """Return the binary32 number nearest to the quotient of two positive numbers, half to even.

    0.0 for a numerator of 0. What exceeds binary32 stays what it is: it equals no logged value.
    """
    if numerator == 0:
        return 0.0
    exponent = numerator.bit_length() - denominator.bit_length() - BITS
    # The quotient's length is known but for one bit; the last bit kept is at `exponent`.
    above, below = _scale(numerator, denominator, exponent)
    if above >= below << BITS:
        exponent += 1
    exponent = max(exponent, LOWEST_EXPONENT)
    above, below = _scale(numerator, denominator, exponent)
    whole, rest = divmod(above, below)
    if 2 * rest > below or (2 * rest == below and whole % 2):
        whole += 1
    return ldexp(whole, exponent)


def _scale(numerator: int, denominator: int, exponent: int) -> tuple[int, int]:
    if exponent > 0:
        return numerator, denominator << exponent
    return numerator << -exponent, denominator
