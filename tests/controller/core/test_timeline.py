"""The public timeline of the model case, replayed day by day: what would have been proposed."""

import pytest

from tools.timeline import (
    BEGIN,
    DAY_MS,
    DEADLINES_D,
    END,
    LEAST_CUT,
    ON_TIME_PERMILLE,
    PAGE,
    SETTLE_MS,
    SLOWER,
    choose_horizon,
    find_last_call,
    find_trigger,
    is_counted,
    is_triggered,
    record_at,
    render,
    replace_between,
    replay,
)


@pytest.fixture(scope="module")
def record():
    return list(replay())


@pytest.fixture(scope="module")
def slower():
    return list(replay(SLOWER))


@pytest.mark.parametrize(
    ("first_h", "last_h", "published"),
    [
        (2, 27, 2_141),
        (27, 96, 3_182),
        (96, 335, 4_302),
        (372, 510, 4_110),
        (510, 609, 4_420),
        (719, 839, 4_755),
        (839, 1_007, 5_502),
        (2, 1_065, 4_463),
    ],
)
def test_record_has_the_published_steps_a_day(first_h, last_h, published):
    steps = record_at(last_h) - record_at(first_h)
    assert steps * 24 / (last_h - first_h) == pytest.approx(published, rel=0.04)


def test_replayed_run_is_where_the_record_was(record):
    assert record[3].pace.until_step == pytest.approx(11_252, abs=1)
    assert record[-1].pace.until_step == pytest.approx(record_at(44 * 24), abs=2)
    assert all(it.in_steps_percent <= 100 for it in record)


@pytest.mark.parametrize("due_day", DEADLINES_D)
def test_record_triggers_nothing_at_any_deadline(record, due_day):
    assert find_trigger(record, due_day) is None


def test_first_two_weeks_are_not_even_near_the_trigger(record):
    first = [it for it in record if it.day <= 13]
    assert min(it.permille[90] for it in first) > 2 * ON_TIME_PERMILLE
    # Dividing steps by days would have said half a year.
    assert first[3].day * 390_251 / first[3].pace.until_step > 135


def test_counting_the_first_days_would_have_cut_the_horizon_wrongly():
    naive = list(replay(settle_ms=0))
    found = find_trigger(naive, 90)
    assert found.day == 8
    assert choose_horizon(found, 90)[0] == 75


@pytest.mark.parametrize("due_day", DEADLINES_D)
def test_slower_run_triggers_as_soon_as_three_evaluations_count(slower, due_day):
    found = find_trigger(slower, due_day)
    assert found.day == 8
    assert found.pace.trained_ms > SETTLE_MS + DAY_MS
    assert choose_horizon(found, due_day)[0] == 75


def test_two_late_evaluations_are_not_enough(slower):
    assert not is_triggered(slower[:7], 90)
    assert is_triggered(slower[:8], 90)


def test_evaluations_past_the_window_do_not_count(slower):
    assert is_counted(slower[31])
    assert not is_counted(slower[32])
    assert not is_triggered(slower[:33], 90)


def test_last_call_comes_on_the_last_day_inside_the_window(record):
    last = find_last_call(record)
    assert last.day == 24
    assert choose_horizon(last, 90)[0] < LEAST_CUT
    assert choose_horizon(last, 100)[0] == 100


def test_page_shows_this_replay():
    text = PAGE.read_text()
    assert text == replace_between(text, BEGIN, END, render()), "next: python -m tools.timeline"
