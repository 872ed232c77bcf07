"""The public timeline of the model case, replayed day by day: what would have been proposed."""

import pytest

from tools.timeline import (
    BEGIN,
    DEADLINES_D,
    END,
    PAGE,
    SETTLE_MS,
    SLOWER,
    find_outcome,
    is_counted,
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
def test_first_days_of_the_record_trigger_nothing_at_any_deadline(record, due_day):
    outcome = find_outcome(record, due_day)
    assert all(proposal.is_last_call for _, proposal in outcome.proposals)
    assert all(day >= 20 for day, _ in outcome.proposals)


def test_first_two_weeks_are_not_even_near_the_trigger(record):
    first = [it for it in record if it.day <= 13]
    assert min(it.permille[90] for it in first) > 200
    # Dividing steps by days would have said half a year.
    assert first[3].day * 390_251 / first[3].pace.until_step > 135


def test_counting_the_first_days_would_have_cut_the_horizon_wrongly():
    naive = list(replay(settle_ms=0))
    day, proposal = find_outcome(naive, 90, 0).proposals[0]
    assert day == 4
    assert proposal.is_floor


@pytest.mark.parametrize("due_day", DEADLINES_D)
def test_slower_run_triggers_as_soon_as_three_evaluations_count(slower, due_day):
    day, proposal = find_outcome(slower, due_day).proposals[0]
    assert day == 8
    assert slower[5].pace.trained_ms >= SETTLE_MS > slower[4].pace.trained_ms
    assert proposal.is_floor
    assert not proposal.is_last_call
    assert proposal.facts.shortfall_ms > 0 or proposal.facts.after.on_time_permille < 800


def test_evaluations_past_the_window_do_not_count(slower):
    assert is_counted(slower[31])
    assert not is_counted(slower[32])
    last_day = find_outcome(slower, 90).proposals[-1][0]
    assert slower[last_day - 1].pace.until_step <= 97_562


def test_last_call_comes_while_the_window_has_room_for_it(record):
    [(day, proposal)] = find_outcome(record, 90).proposals
    assert proposal.is_last_call
    assert day == 23
    assert proposal.facts.after.on_time_permille >= 800
    assert find_outcome(record, 100).proposals == []


def test_page_shows_this_replay():
    text = PAGE.read_text()
    assert text == replace_between(text, BEGIN, END, render()), "next: python -m tools.timeline"
