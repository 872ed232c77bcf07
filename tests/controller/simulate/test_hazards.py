"""Failures as streams, and the pace as a course: what is drawn, and what it does not depend on."""

from itertools import pairwise

import pytest

from controller.core.declared.simulation import Simulation
from controller.simulate.agenda import Agenda
from controller.simulate.rehearsal.course import open_stream, plot_course
from controller.simulate.rehearsal.hazards import make_hazards
from controller.simulate.rehearsal.spending import Spending

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
KINDS = {
    "tray": {"effect": "tray", "every": "10h", "repair": "6h"},
    "rank": {"effect": "rank", "every": "20h"},
}


def supposed(**members):
    throughput = [{"fromDay": 0, "tokensPerSecond": 1_000}]
    return Simulation.model_validate(
        {"throughput": throughput, "driftPermille": 0, "failures": KINDS, **members}
    )


def strikes(seed=0, *, until_ms=100 * DAY_MS, stop_ms=0, **members):
    """Return (milliseconds, strike) of a gang that trains; `stop_ms` after each strike it rests."""
    agenda, found = Agenda(), []
    hazards = make_hazards(supposed(**members), seed, agenda)

    def take(strike):
        found.append((agenda.now_ms, strike))
        if stop_ms:
            hazards.pause()
            agenda.after(stop_ms, hazards.begin)

    hazards.strike = take
    hazards.begin()
    agenda.run_until(until_ms)
    return found


def test_classes_strike_as_often_as_declared():
    found = strikes(until_ms=1_000 * DAY_MS)
    counts = {name: sum(it.name == name for _, it in found) for name in KINDS}
    # 2,400 and 1,200 to be expected: four standard deviations are 196 and 139.
    assert abs(counts["tray"] - 2_400) < 196
    assert abs(counts["rank"] - 1_200) < 139


def test_time_in_which_the_gang_rests_counts_for_nothing():
    at_once = strikes(until_ms=20 * DAY_MS)
    rested = strikes(until_ms=100 * DAY_MS, stop_ms=HOUR_MS)[: len(at_once)]
    assert [it for _, it in rested] == [it for _, it in at_once]
    assert [ms - index * HOUR_MS for index, (ms, _) in enumerate(rested)] == [
        ms for ms, _ in at_once
    ]


def test_class_strikes_the_same_whatever_others_are_declared():
    alone = strikes(failures={"tray": KINDS["tray"]})
    assert alone == [it for it in strikes() if it[1].name == "tray"]
    assert alone != [it for it in strikes(1) if it[1].name == "tray"]


def test_repairs_are_around_their_median_and_as_wide_as_declared():
    found = sorted(it.repair_ms for _, it in strikes(until_ms=500 * DAY_MS) if it.name == "tray")
    middle, high = found[len(found) // 2], found[len(found) * 84 // 100]
    assert abs(middle / (6 * HOUR_MS) - 1) < 0.1
    # One sigma up: a spread of 60% is a factor of e to the 0.6.
    assert abs(high / (6 * HOUR_MS) / 1.822 - 1) < 0.15
    even = strikes(repairSpreadPercent=0)
    assert {it.repair_ms for _, it in even if it.name == "tray"} == {6 * HOUR_MS}
    assert {it.repair_ms for _, it in even if it.name == "rank"} == {0}


def test_course_follows_the_declared_history():
    paces = [{"fromDay": 0, "tokensPerSecond": 100}, {"fromDay": 3, "tokensPerSecond": 250}]
    course = plot_course(supposed(throughput=paces), 0, 30)
    assert [course.rate_at(ms) for ms in (0, 3 * DAY_MS - 1, 3 * DAY_MS, 99 * DAY_MS)] == [
        100, 100, 250, 250,
    ]  # fmt: skip
    assert (course.next_change(0), course.next_change(3 * DAY_MS)) == (3 * DAY_MS, None)


def test_drift_moves_a_little_each_day_and_differs_by_seed():
    courses = [plot_course(supposed(driftPermille=5), seed, 100) for seed in range(40)]
    assert len(courses[0].moments) == 100
    steps = [
        after[1] / before[1] - 1 for course in courses for before, after in pairwise(course.moments)
    ]
    spread = (sum(step**2 for step in steps) / len(steps)) ** 0.5
    assert abs(spread - 0.005) < 0.0005
    assert courses[0] != courses[1]
    assert courses[0] == plot_course(supposed(driftPermille=5), 0, 100)


def test_jumps_come_as_often_and_as_far_as_declared_both_ways():
    changes = {"every": "5d", "percent": 10}
    moments = plot_course(supposed(changes=changes), 0, 400).moments
    ratios = [after[1] / before[1] for before, after in pairwise(moments)]
    assert abs(len(ratios) - 80) < 36
    assert any(it > 1.09 for it in ratios)
    assert any(it < 0.92 for it in ratios)
    assert all(0.9 < it < 1.11 for it in ratios)


def test_streams_of_chance_are_told_apart_by_seed_and_name():
    draws = {open_stream(seed, name).random() for seed in (0, 1) for name in ("a", "b")}
    assert len(draws) == 4


def test_spending_charges_each_millisecond_once():
    agenda = Agenda()
    spending = Spending(agenda)
    agenda.run_until(100)
    spending.turn_to("productive")
    agenda.run_until(250)
    # The last step ended a while ago; what came after it got nowhere.
    spending.turn_to("stall", 220)
    spending.turn_to("schedule", 180)
    agenda.run_until(300)
    spent = {name: ms for name, ms in spending.settle().items() if ms}
    assert spent == {"schedule": 180, "productive": 120}
    with pytest.raises(AssertionError, match="idling"):
        spending.turn_to("idling")
