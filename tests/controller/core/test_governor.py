import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.governor import MAX_STOP_S, Governor, Hold


def hold_s(hold):
    return hold.count * hold.stop_s if hold else 0.0


def drive(governor, natural_s, steps):
    """Let steps happen whose own time is `natural_s`; return how long each took."""
    times, held = [], 0.0
    for index in range(steps):
        own = natural_s(index)
        times.append(own + held)
        governor.take(own + held, held, is_clean=True)
        held = hold_s(governor.hold())
    return times


def test_nobody_is_held_before_a_clean_step_was_seen():
    governor = Governor(1.0)
    governor.take(0.5, 0.0, is_clean=False)
    assert governor.hold() is None


def test_steps_come_at_the_set_point_after_the_first():
    assert drive(Governor(0.5), lambda _: 0.25, 5) == [0.25, 0.5, 0.5, 0.5, 0.5]


def test_long_holds_are_split_and_the_step_s_own_time_is_spread_between():
    governor = Governor(1.0)
    governor.take(0.3, 0.0, is_clean=True)
    hold = governor.hold()
    assert hold == Hold(2, pytest.approx(0.35), pytest.approx(0.15))
    assert hold.stop_s <= MAX_STOP_S < 0.4


def test_own_time_that_changes_is_learned_anew():
    times = drive(Governor(0.5), lambda index: 0.25 if index < 30 else 0.4, 60)
    assert times[31] == pytest.approx(0.65, abs=0.006)
    assert times[-10:] == pytest.approx([0.5] * 10, abs=0.006)


def test_steps_slower_than_the_set_point_are_late_and_not_held():
    governor = Governor(0.25)
    drive(governor, lambda _: 0.5, 11)
    report = governor.report()
    assert (report.steps, report.late_steps, report.late_percent) == (10, 10, 100.0)
    assert report.median_step_s == 0.5


def test_zero_ends_pacing_and_counts_nothing():
    governor = Governor(0.5)
    drive(governor, lambda _: 0.25, 5)
    governor.move(0.0)
    assert governor.hold() is None
    governor.take(0.25, 0.0, is_clean=True)
    governor.take(0.25, 0.0, is_clean=True)
    assert governor.report().steps == 0


def test_moved_set_point_is_reported_without_the_step_under_way():
    governor = Governor(0.5)
    drive(governor, lambda _: 0.25, 5)
    governor.move(0.75)
    governor.take(0.5, 0.25, is_clean=True)
    assert governor.report().steps == 0
    governor.take(0.75, 0.5, is_clean=True)
    assert governor.report().median_step_s == 0.75


def test_lasting_bias_of_the_estimate_is_trimmed_away():
    # Each hold costs a twentieth of a second that is not seen as held.
    governor, times, held = Governor(0.5), [], 0.0
    for _ in range(60):
        own = 0.25 + (0.05 if held else 0.0)
        # An estimate that lags for ever: the book-keeping calls the cost part of the hold.
        times.append(own + held)
        governor.take(own + held, held + (0.05 if held else 0.0), is_clean=True)
        held = hold_s(governor.hold())
    assert times[2] == pytest.approx(0.55, abs=0.006)
    assert times[-10:] == pytest.approx([0.5] * 10, abs=0.0051)


@given(st.floats(0.05, 20.0), st.lists(st.floats(0.001, 5.0), min_size=40, max_size=60))
def test_holds_stay_short_and_never_overshoot_with_steady_steps(set_point, naturals):
    governor = Governor(set_point)
    for natural in naturals:
        governor.take(natural, 0.0, is_clean=True)
        hold = governor.hold()
        assert hold is None or (0 < hold.stop_s <= MAX_STOP_S and hold.run_s > 0)
        assert hold_s(hold) <= 1.1 * set_point
