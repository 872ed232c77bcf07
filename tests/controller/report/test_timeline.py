"""What took the time, on one axis."""

import pytest

from controller.report.timeline import NUM_BINS, set_timeline
from tests.chronicles import (
    AGAIN_S,
    COMPLETED_S,
    KILLED_S,
    LAUNCHED_S,
    Scroll,
    Told,
    a_shortened_run,
    told,
    until_proposed,
)

BIN_S = COMPLETED_S / NUM_BINS


@pytest.fixture
def scene():
    return set_timeline(told(a_shortened_run()).evidence, rests=())


def share_at(scene, name, second):
    return scene.bins[name][int(second / BIN_S)]


def test_groups_of_each_bin_sum_to_all_of_it(scene):
    for column in zip(*scene.bins.values(), strict=True):
        assert sum(column) == pytest.approx(1.0, abs=2e-3)


def test_phases_lie_where_they_were(scene):
    assert share_at(scene, "starting", 3) == pytest.approx(1.0)
    assert share_at(scene, "training", 30) == pytest.approx(1.0)
    assert share_at(scene, "no gang", KILLED_S) > 0
    assert share_at(scene, "replaying", AGAIN_S + 12) == pytest.approx(1.0)
    assert share_at(scene, "training", 300) == pytest.approx(1.0)


def test_rest_of_the_owner_is_no_gang_that_is_awaited():
    run = told(until_proposed()[0], last=82)
    rest = (LAUNCHED_S + 46.2, LAUNCHED_S + 49.0)
    scene = set_timeline(run.evidence, rests=[rest])
    assert sum(scene.bins["at rest"]) * scene.end_s / NUM_BINS == pytest.approx(2.8)


def test_attempts_and_incidents_share_the_axis(scene):
    assert [number for number, _, _ in scene.attempts] == [1, 2]
    [outage] = scene.outages
    assert (outage.number, outage.cause, outage.at_s) == (1, "killed", KILLED_S)
    assert scene.lost == [(KILLED_S, outage.cost_s)]
    # From the end of step 40, at 46 s, to the beginning of step 41, at 66 s.
    assert outage.cost_s == 20.0


def test_incident_that_is_not_made_up_for_costs_until_now():
    scroll = Scroll().launch(0, 1).kill(KILLED_S, 1, 40)
    run = Told(scroll, told(scroll).histories[:1])
    scene = set_timeline(run.evidence, rests=())
    assert scene.outages[0].cost_s is None
    assert scene.lost == [(KILLED_S, scene.end_s - KILLED_S)]


def test_run_that_never_started_has_no_bins():
    assert set_timeline(Told(Scroll(), []).evidence, rests=()).bins == {}
