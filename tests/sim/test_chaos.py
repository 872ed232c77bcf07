"""The campaign itself: what it reaches by construction, and a slice of it."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from controller.simulate.chaos.campaign import ALL_FAULTS, Outcome
from controller.simulate.chaos.faults import CHECKPOINT, COMMIT, NOTHING, Fault
from controller.simulate.chaos.pairs import (
    EARLY,
    LOOK_MS,
    PHASES,
    Blow,
    Scene,
    list_pairs,
    list_singles,
    read_blow,
    set_scene,
)
from controller.simulate.chaos.programme import (
    Campaign,
    list_impossible,
    list_names,
    live_named,
    share_pairs,
)
from tests.sim.rows import ROWS

SLICE_SEED, SLICE, CHUNK = 5, 48, 6
ROOT = Path(__file__).parents[2]
CAMPAIGN = 10_000
"""Lives of `make chaos`, as its default in the Makefile."""
MORE_FAULTS = 15
"""How many faults more the campaign has room for, at least, each in every phase."""
SINGLES = [blow.name for blow in list_singles(SLICE_SEED)]
PAIRS = [blow.name for blow in list_pairs(SLICE_SEED)]
CHOSEN = [name for names in (SINGLES, PAIRS) for name in Random(1).sample(names, SLICE // 2)]


@pytest.mark.parametrize("first", range(0, SLICE, CHUNK))
def test_slice_of_the_campaign_holds_every_rule_and_strikes(first):
    tally = Campaign()
    for name in CHOSEN[first : first + CHUNK]:
        outcome = live_named(name)
        blow = read_blow(name)
        assert (blow.fault, blow.phase) in outcome.reached | outcome.met, name
        tally.add(outcome)
    assert not tally.failed, "\n".join(tally.lines())


# What is possible, without living through all of it: each phase is reached, and there every
# fault finds what it needs.


def is_in(weather, phase):
    """Return whether the run is in a phase of the gang, a save or a proposal."""
    states = (weather.phase(), weather.plan_state())
    return phase in states or (phase == COMMIT and weather.is_committing())


def what_can_strike(phase, need, seed):
    """Return the faults that find what they need while a phase lasts, and whose phase it is."""
    found, looks = set(), []

    def probe(weather):
        looks.append(weather.life.world.agenda.now_ms)
        found.update(name for name in ALL_FAULTS if weather.can(name))
        if is_in(weather, phase):
            weather.life.world.agenda.after(LOOK_MS, lambda: probe(weather))

    blow = Blow(seed, "probe", phase, "approve")
    scene = set_scene(blow, ALL_FAULTS | {"probe": Fault(probe, "", need)})
    while not (looks and not is_in(scene.weather, phase)) and not scene.is_over:
        scene.life.tick()
    assert looks, f"{phase} is never reached"
    return found, scene.attempt


@pytest.mark.parametrize("phase", PHASES)
def test_every_fault_can_strike_in_every_phase_by_construction(phase):
    wanted = {blow.fault for blow in list_singles(0) if blow.phase == phase}
    early = {name for name in wanted if ALL_FAULTS[name].need in EARLY}
    attempts = set()
    for seed in range(3):
        possible, attempt = what_can_strike(phase, NOTHING, seed)
        assert early <= possible
        attempts.add(attempt)
    assert wanted <= what_can_strike(phase, CHECKPOINT, 0)[0]
    assert attempts <= {1, 2}


def test_what_is_impossible_is_said_once_with_its_reason():
    possible = {(blow.fault, blow.phase) for blow in list_singles(0)}
    impossible = {(fault, phase) for fault, phase, reason in list_impossible() if reason}
    assert not possible & impossible
    assert len(possible | impossible) == len(ALL_FAULTS) * len(PHASES)
    assert ("kill_worker", "down") in impossible


def test_every_fault_stands_for_a_row_and_every_row_for_faults_that_exist():
    named = {name for row in ROWS for name in row.faults}
    assert named == set(ALL_FAULTS)
    assert all(row.faults or row.missing for row in ROWS)


def test_campaign_begins_with_all_singles_and_meets_every_pair():
    names = list_names(0, CAMPAIGN)
    assert len(names) == CAMPAIGN
    assert names[: len(SINGLES)] == [blow.name for blow in list_singles(0)]
    paired = {(one.fault, one.second) for one in map(read_blow, with_slash(names)) if one.second}
    assert len(paired) == len(ALL_FAULTS) ** 2


@pytest.mark.parametrize("more", range(MORE_FAULTS + 1))
def test_campaign_has_room_for_every_pair_of_several_faults_more(more):
    faults = len(ALL_FAULTS) + more
    rest = CAMPAIGN - len(SINGLES) - more * len(PHASES)
    assert faults**2 <= share_pairs(rest, faults) <= rest


def test_short_campaign_leaves_two_lives_of_five_to_chance():
    assert share_pairs(1_000, len(ALL_FAULTS)) == 600


def test_campaign_is_as_long_as_its_target_says():
    assert f"\nchaos: N = {CAMPAIGN}\n" in (ROOT / "Makefile").read_text()


def test_pair_moves_to_another_phase_with_each_seed():
    met, possible = {}, {}
    for blow in list_singles(0):
        possible.setdefault(blow.fault, set()).add(blow.phase)
    for seed in range(len(PHASES)):
        for blow in islice(list_pairs(seed), 0, None, 37):
            met.setdefault((blow.fault, blow.second), set()).add(blow.phase)
    assert all(phases == possible[first] for (first, _), phases in met.items())


def with_slash(names):
    return [name for name in names if "/" in name]


def test_life_is_told_by_its_name_alone():
    name = "3/hang/restore/freeze"
    assert read_blow(name).name == name
    assert live_named(name) == live_named(name)


@pytest.mark.parametrize("name", ["0/nothing/step", "0/hang/nowhere", "0/hang/step/nothing"])
def test_name_of_no_life_is_refused(name):
    with pytest.raises(ValueError, match="SEED/FAULT/PHASE"):
        read_blow(name)


def test_controller_that_fails_is_a_violation(monkeypatch):
    def fail(_):
        raise AssertionError("broken")

    monkeypatch.setattr("controller.simulate.chaos.programme.live_blow", fail)
    assert live_named("0/hang/step").violations == ("AssertionError in fail: broken",)


def test_report_names_what_was_not_reached_and_how_to_repeat_what_failed():
    tally = Campaign()
    tally.add(Outcome("0/hang/step", (), reached=frozenset({("hang", "step")})))
    bad = ("two gangs",)
    tally.add(Outcome("0/hang/step/freeze", bad, is_paired=True, met=frozenset({("x", "pending")})))
    tally.add(Outcome("0/hang/down/freeze", ()))
    text = "\n".join(tally.lines())
    assert "unreached: hang in drain" in text
    assert "unreached: hang in step" not in text
    assert f"1 of {len(list_singles(0))} (fault, phase) pairs" in text
    assert f"1 of {len(ALL_FAULTS) ** 2} ordered pairs of faults" in text
    assert "unpaired: 0/hang/down/freeze" in text
    assert "repeat: make chaos LIFE=0/hang/step/freeze" in text


@pytest.mark.parametrize(
    ("ending", "order"), [("reversed", [2, 1, 0]), ("together", [0, 1, 2]), ("shuffled", None)]
)
def test_lasting_faults_end_in_the_order_that_was_chosen(ending, order):
    scene: Scene = set_scene(Blow(0, "hang", "step"))
    weather, agenda, ended = scene.weather, scene.life.world.agenda, []
    weather.ending = ending
    for number in range(3):
        weather.later(lambda number=number: ended.append((number, agenda.now_ms)))
    agenda.run_until(100_000)
    assert ended == []
    weather.release()
    agenda.run_until(200_000)
    assert sorted(number for number, _ in ended) == [0, 1, 2]
    assert order is None or [number for number, _ in ended] == order
    is_at_once = len({at_ms for _, at_ms in ended}) == 1
    assert is_at_once == (ending == "together")
