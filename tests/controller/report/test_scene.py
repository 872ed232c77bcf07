"""What the pictures show, in numbers."""

import pytest

from controller.report.scene import set_rate_scene, set_time_scene, thin
from tests.chronicles import (
    COMPLETED_S,
    DEADLINE_S,
    DUE_S,
    FORK,
    KILLED_S,
    SHORTER,
    STEPS,
    a_shortened_run,
    told,
    until_proposed,
)


@pytest.fixture
def times():
    return set_time_scene(told(a_shortened_run()).evidence)


def test_times_are_seconds_since_launch(times):
    assert (times.deadline_s, times.due_s, times.finish_s) == (DEADLINE_S, DUE_S, COMPLETED_S)
    assert times.counterfactual_s == 770.0
    assert times.end_s == COMPLETED_S


def test_last_step_and_finish_are_two_instants(times):
    assert (times.last_step_s, times.finish_s) == (605.0, COMPLETED_S)


def test_deadline_that_stayed_is_one_term(times):
    [term] = times.terms
    assert (term.from_s, term.to_s) == (0.0, COMPLETED_S)
    assert (term.deadline_s, term.due_s) == (DEADLINE_S, DUE_S)


def test_moved_deadline_is_a_term_of_its_own_and_marked():
    scroll = until_proposed()[0].move_deadline(130, 700)
    scene = set_time_scene(told(scroll, last=86).evidence)
    assert [(it.from_s, it.to_s, it.deadline_s, it.due_s) for it in scene.terms] == [
        (0.0, 130.0, DEADLINE_S, DUE_S),
        (130.0, 137.0, 700.0, 690.0),
    ]
    assert (scene.deadline_s, scene.due_s) == (700.0, 690.0)
    assert [(it.at_s, it.label) for it in scene.marks if it.kind == "deadline"] == [
        (130.0, "deadline moved")
    ]


def test_incident_and_revision_are_marked_when_they_happened(times):
    assert [(it.kind, it.at_s) for it in times.marks] == [
        ("incident", KILLED_S),
        ("revision", 145.0),
    ]


def test_horizon_changes_at_the_fork(times):
    assert [(it.from_s, it.to_s, it.total_steps) for it in times.horizons] == [
        (0.0, 145.0, STEPS),
        (145.0, COMPLETED_S, SHORTER),
    ]


def test_every_forecast_is_shown_as_it_was_made(times):
    assert [it.at_s for it in times.guesses] == [76, 106, 126, 200, 300, 400, 500]
    assert [it.total_steps for it in times.guesses] == [STEPS] * 3 + [SHORTER] * 4
    third = times.guesses[2]
    assert (third.low_s, third.middle_s, third.high_s) == (702.0, 766.0, 830.0)


def test_each_attempt_has_its_own_curve(times):
    assert [(it.ys[0], it.ys[-1]) for it in times.progress] == [(1, 41), (31, SHORTER)]


def test_cone_is_of_the_newest_forecast_while_the_last_step_is_ahead(times):
    assert times.cone is None
    scene = set_time_scene(told(until_proposed()[0], last=82).evidence)
    assert scene.cone == scene.guesses[-1]
    assert (scene.cone.step, scene.cone.middle_s) == (80, 766.0)


def test_rates_show_every_plan_and_what_was_received():
    scene = set_rate_scene(told(a_shortened_run()).evidence)
    launch, held = scene.schedules
    assert (launch.is_held, held.is_held) == (False, True)
    assert scene.forks == [FORK]
    assert (launch.rates.xs[-1], held.rates.xs[-1]) == (STEPS - 1, SHORTER - 1)
    assert launch.rates.ys[-1] == held.rates.ys[-1] == 5.0
    assert (scene.executed.xs[0], scene.executed.xs[-1]) == (0, SHORTER - 1)
    assert scene.executed.ys[-1] == pytest.approx(5.0)


def test_mixture_of_each_plan_spans_its_run_in_shares():
    scene = set_rate_scene(told(a_shortened_run()).evidence)
    assert scene.sources == ["text"]
    assert [[(it.start, it.end) for it in one.stages] for one in scene.schedules] == [
        [(0, STEPS)],
        [(0, SHORTER)],
    ]
    assert {sum(it.shares.values()) for one in scene.schedules for it in one.stages} == {1.0}


def test_rates_of_a_run_that_was_not_revised_have_one_plan():
    scene = set_rate_scene(told(until_proposed()[0], last=82).evidence)
    assert len(scene.schedules) == 1
    assert scene.forks == []


@pytest.mark.parametrize("count", [0, 1, 399, 400, 401, 5_000, 390_251])
def test_thinned_points_are_few_and_hold_both_ends(count):
    kept = thin(range(count))
    assert len(kept) <= 401
    assert kept[:1] == list(range(count))[:1]
    assert kept[-1:] == list(range(count))[-1:]
