import math
import struct
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contract.schedule import (
    format_fraction,
    parse_fraction,
    retime,
    round_binary32,
    shares_past,
    value_at,
    warm_up_and_decay,
)

FINAL = Fraction(1, 20)
fractions = st.fractions(min_value=0, max_value=1, max_denominator=10**9)


@st.composite
def schedules(draw, min_steps=3, max_steps=10**6):
    """Draw (warm-up steps, knots) of a run of up to `max_steps` steps."""
    total = draw(st.integers(min_steps, max_steps))
    warmup = draw(st.integers(1, total - 1))
    return warmup, warm_up_and_decay(warmup, total, FINAL)


def to_binary32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def neighbours(value: float) -> tuple[float, float]:
    """Return the binary32 numbers next to a positive one, below and above."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    below, above = (struct.unpack("<f", struct.pack("<I", bits + d))[0] for d in (-1, 1))
    return below, above


@given(schedules())
def test_schedule_last_step_is_exactly_the_final_share(drawn):
    _, knots = drawn
    assert value_at(knots, knots[-1][0]) == FINAL


@given(schedules(), st.data())
def test_schedule_rises_in_the_warm_up_and_falls_after_it(drawn, data):
    warmup, knots = drawn
    step = data.draw(st.integers(1, knots[-1][0]))
    change = value_at(knots, step) - value_at(knots, step - 1)
    assert change > 0 if step < warmup else change < 0
    assert 0 < value_at(knots, step) <= 1


@given(st.integers(1, 1000), st.data())
def test_warm_up_first_step_already_moves(warmup, data):
    knots = warm_up_and_decay(warmup, warmup + data.draw(st.integers(1, 50)), FINAL)
    assert value_at(knots, 0) == Fraction(1, warmup)
    assert value_at(knots, warmup - 1) == 1


@pytest.mark.parametrize(("warmup", "total"), [(0, 10), (10, 10), (11, 10)])
def test_warm_up_without_room_for_the_decay_is_refused(warmup, total):
    with pytest.raises(ValueError, match="warm-up"):
        warm_up_and_decay(warmup, total, FINAL)


@given(schedules(), st.data())
def test_value_between_knots_is_exactly_linear(drawn, data):
    _, knots = drawn
    left, right = data.draw(st.sampled_from(list(pairwise(knots))))
    step = data.draw(st.integers(left[0], right[0]))
    share = Fraction(step - left[0], right[0] - left[0])
    assert value_at(knots, step) == left[1] * (1 - share) + right[1] * share


@given(schedules(), st.sampled_from([-1, 1]))
def test_value_outside_the_schedule_is_an_error(drawn, side):
    _, knots = drawn
    step = -1 if side < 0 else knots[-1][0] + 1
    with pytest.raises(ValueError, match="outside the schedule"):
        value_at(knots, step)


@given(schedules(), st.data())
def test_retimed_schedule_keeps_every_bit_of_the_past_and_the_end(drawn, data):
    warmup, knots = drawn
    fork = data.draw(st.integers(0, knots[-1][0] - 1))
    total = data.draw(st.integers(fork + 2, knots[-1][0] + 100))
    moved = retime(knots, fork, total)
    for step in {0, fork // 2, max(0, fork - 1), fork}:
        assert value_at(moved, step) == value_at(knots, step)
    assert shares_past(knots, moved, fork + 1)
    assert moved[-1] == (total - 1, FINAL)
    if fork >= warmup:
        assert value_at(moved, fork + 1) < value_at(moved, fork)


@given(schedules(min_steps=6), st.data())
def test_retimed_twice_still_shares_the_first_past(drawn, data):
    _, knots = drawn
    first = data.draw(st.integers(0, knots[-1][0] - 3))
    moved = retime(knots, first, knots[-1][0])
    second = data.draw(st.integers(first, moved[-1][0] - 2))
    again = retime(moved, second, data.draw(st.integers(second + 2, knots[-1][0])))
    step = data.draw(st.integers(0, first))
    assert value_at(again, step) == value_at(knots, step)


@pytest.mark.parametrize(("fork", "total"), [(-1, 50), (49, 50), (60, 50)])
def test_fork_outside_the_new_horizon_is_refused(fork, total):
    with pytest.raises(ValueError, match="fork step"):
        retime(warm_up_and_decay(5, 100, FINAL), fork, total)


@given(schedules(max_steps=300), st.data())
def test_shares_past_agrees_with_looking_at_every_step(drawn, data):
    _, knots = drawn
    other = list(knots)
    index = data.draw(st.integers(0, len(other) - 1))
    other[index] = (other[index][0], data.draw(st.sampled_from([other[index][1], Fraction(1, 3)])))
    before = data.draw(st.integers(0, knots[-1][0] + 1))
    equal = all(value_at(knots, step) == value_at(other, step) for step in range(before))
    assert shares_past(knots, other, before) == equal


@given(st.floats(allow_nan=False, width=64))
def test_rounding_a_double_equals_the_hardwares(value):
    try:
        expected = to_binary32(value)
    except OverflowError:
        with pytest.raises(OverflowError):
            round_binary32(Fraction(value) if math.isfinite(value) else Fraction(2**130))
        return
    assume(math.isfinite(value))
    assert round_binary32(Fraction(value)) == expected


@given(st.fractions(min_value=Fraction(1, 2**120), max_value=2**100))
def test_rounding_a_rational_gives_the_nearest(value):
    rounded = round_binary32(value)
    assert to_binary32(rounded) == rounded
    below, above = neighbours(rounded)
    distance = abs(Fraction(rounded) - value)
    assert distance <= abs(Fraction(below) - value)
    assert distance <= abs(Fraction(above) - value)
    assert round_binary32(-value) == -rounded


@given(st.floats(min_value=2.0**-100, max_value=2.0**100, width=32))
def test_rounding_a_tie_goes_to_the_even_significand(value):
    _, above = neighbours(value)
    middle = (Fraction(value) + Fraction(above)) / 2
    bits = struct.unpack("<I", struct.pack("<f", round_binary32(middle)))[0]
    assert bits % 2 == 0
    just_above = middle + Fraction(1, 2**400)  # a double would have rounded this away first
    assert round_binary32(just_above) == above


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Fraction(0), 0.0),
        (Fraction(1, 2**149), 2.0**-149),
        (Fraction(1, 2**150), 0.0),
        (Fraction(3, 2**150), 2.0**-148),
        (Fraction(2**128 - 2**104), 2.0**128 - 2.0**104),
        (Fraction(2**24 + 1), 2.0**24),
        (Fraction(2**24 + 3), 2.0**24 + 4),
    ],
)
def test_rounding_at_the_edges_of_binary32(value, expected):
    assert round_binary32(value) == expected


def test_rounding_above_the_largest_is_an_error():
    with pytest.raises(OverflowError):
        round_binary32(Fraction(2**128))


@given(fractions)
def test_fraction_text_round_trips(value):
    assert parse_fraction(format_fraction(value)) == value


@pytest.mark.parametrize("text", ["2/4", "1", "0.5", "-0/1", " 1/2", "1/2 ", "01/2", "1e0/1"])
def test_fraction_has_one_text_only(text):
    with pytest.raises(ValueError, match=r"."):
        parse_fraction(text)
