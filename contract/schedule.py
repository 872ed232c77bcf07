"""Exact schedule arithmetic: knots over steps, rational values, one rounding to binary32.

The controller proves exactly the numbers that the trainer receives, because both call this
module and no float takes part before the last rounding.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

Knots = Sequence[tuple[int, Fraction]]
"""(step, fraction of the peak), steps strictly increasing, linear between."""

SIGNIFICAND_BITS = 24
MIN_EXPONENT = -149
MAX_BINARY32 = Fraction(2**128 - 2**104)


def parse_fraction(text: str) -> Fraction:
    """Return the rational written as `p/q`.

    Raises:
        ValueError: not of the form p/q, or not in lowest terms, so that one value has one text.
    """
    value = Fraction(text)
    if text != format_fraction(value):
        raise ValueError(f'{text!r} is not a fraction "p/q" in lowest terms')
    return value


def format_fraction(value: Fraction) -> str:
    """Return `p/q` in lowest terms, with the denominator written also when it is 1."""
    return f"{value.numerator}/{value.denominator}"


def value_at(knots: Knots, step: int) -> Fraction:
    """Return the value at `step` exactly.

    Raises:
        ValueError: `step` is before the first knot or after the last: nothing is scheduled there.
    """
    first, last = knots[0][0], knots[-1][0]
    if not first <= step <= last:
        raise ValueError(f"step {step} is outside the schedule ({first} to {last})")
    for (left, low), (right, high) in pairwise(knots):
        if left <= step <= right:
            return low + (high - low) * Fraction(step - left, right - left)
    return knots[0][1]


def round_binary32(value: Fraction) -> float:
    """Return the binary32 number nearest to `value` (half to even) as a Python float.

    Rounded once, from the exact rational: going through binary64 rounds twice, and a product
    of two binary32 numbers differs in about a third of all steps.

    Raises:
        OverflowError: the magnitude is above the largest binary32 number.
    """
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= SIGNIFICAND_BITS
    if magnitude / Fraction(2) ** exponent >= 2**SIGNIFICAND_BITS:
        exponent += 1
    exponent = max(exponent, MIN_EXPONENT)
    # round() of a Fraction is exact and half to even. A carry to 2**24 is still exact.
    rounded = round(magnitude / Fraction(2) ** exponent) * Fraction(2) ** exponent
    if rounded > MAX_BINARY32:
        raise OverflowError(f"{float(value)} is outside binary32")
    return float(rounded if value > 0 else -rounded)


def warm_up_and_decay(
    warmup_steps: int, total_steps: int, final: Fraction
) -> list[tuple[int, Fraction]]:
    """Return knots that rise over `warmup_steps` to 1, then fall to `final` at the last step.

    With a warm-up of W steps the knots are (0, 1/W), (W-1, 1): the first step already moves.

    Raises:
        ValueError: the warm-up does not leave a step for the decay.
    """
    if not 1 <= warmup_steps < total_steps:
        raise ValueError(f"warm-up of {warmup_steps} steps does not fit {total_steps} steps")
    rise = [(0, Fraction(1, warmup_steps))] if warmup_steps > 1 else []
    return [*rise, (warmup_steps - 1, Fraction(1)), (total_steps - 1, final)]


def retime(knots: Knots, fork_step: int, total_steps: int) -> list[tuple[int, Fraction]]:
    """Return knots with the past before `fork_step` unchanged and the rest linear to the same end.

    The value at `fork_step` stays what it was (never re-anchored), and the last step,
    `total_steps - 1`, gets the value that the last step had.

    Raises:
        ValueError: the fork is outside the schedule or not before the new last step.
    """
    if not 0 <= fork_step < total_steps - 1:
        raise ValueError(f"fork step {fork_step} is not before the new last step {total_steps - 1}")
    kept = [knot for knot in knots if knot[0] < fork_step]
    return [*kept, (fork_step, value_at(knots, fork_step)), (total_steps - 1, knots[-1][1])]


def last_rise(knots: Knots) -> int:
    """Return the step until which the values rise: the end of a warm-up; 0 where they never do."""
    return max((right[0] for left, right in pairwise(knots) if right[1] > left[1]), default=0)


def shares_past(left: Knots, right: Knots, before_step: int) -> bool:
    """Return whether both schedules are equal at every step below `before_step`.

    Both are linear between the knots of their union, so the ends of those pieces decide.
    """
    if before_step <= 0:
        return True
    end = before_step - 1
    if min(left[-1][0], right[-1][0]) < end or left[0][0] != right[0][0]:
        return False
    steps = {step for step, _ in (*left, *right) if step < end} | {end}
    return all(value_at(left, step) == value_at(right, step) for step in steps)
