"""Two hundred seeded lives: whatever happens, nothing forbidden does, and the run finishes."""

import pytest

from controller.simulate.chaos.campaign import campaign, live, live_quietly

SEEDS = 200
CHUNK = 25


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_lives_under_faults_hold_every_rule_and_finish(first):
    tally = campaign(first, CHUNK)
    assert tally.lives == CHUNK
    assert not tally.failed, "\n".join(tally.lines())


def test_a_life_is_told_by_its_seed_alone():
    assert live(11) == live(11)


def test_lives_differ_by_seed_and_reach_many_faults_in_many_phases():
    tally = campaign(1000, 12)
    faults = {fault for fault, _ in tally.reached}
    phases = {phase for _, phase in tally.reached}
    assert len(faults) >= 15
    assert {"start", "compile", "step"} <= phases
    assert tally.attempts > tally.lives


def test_lives_with_a_deadline_reach_every_event_of_the_plan():
    tally = campaign(1000, 40)
    events = {event for event, _ in tally.events}
    states = {state for _, state in tally.met}
    assert events == {"proposed", "approved", "published", "recorded", "closed"}
    assert {"settled", "proposed", "published", "pending"} <= states
    assert tally.adopted > 0
    assert not tally.failed, "\n".join(tally.lines())


def test_a_quiet_month_completes_with_one_attempt_per_killed_rank():
    life = live_quietly(30, kills=10)
    assert life.is_completed
    assert not life.world.violations
    assert 1 < len(life.world.gangs) <= 11
    assert life.passes < 30 * 24 * 2
