"""Each checker barks at its own bug: planted in a rule or behind a port."""

from dataclasses import replace

import pytest

from controller.core.decide import GANG
from controller.simulate.book import Book, BookLedger
from controller.simulate.campaign import live, new_random
from controller.simulate.faults import Weather
from controller.simulate.life import Life
from controller.simulate.scenario import sim_plan, sim_policy
from controller.simulate.world import World
from tests.sim import bugs

SEEDS = 24


def found_by_seeds(phrase, *, rules=GANG, wrap=None):
    """Return whether some seed's life shows a violation that says `phrase`."""
    return any(
        phrase in what
        for seed in range(SEEDS)
        for what in live(seed, rules=rules, wrap=wrap).violations
    )


def directed(happenings, *, rules=GANG, wrap=None, reads_back=True):
    """Return the violations of a life in which just these things happen."""
    random = new_random(3)
    world = World(policy=sim_policy(), random=random)
    world.shelf.reads_back = reads_back
    life = Life(world, sim_plan(200), rules=rules, wrap=wrap)
    weather = Weather(life, random)
    for at_ms, name in happenings:
        world.agenda.after(at_ms, lambda name=name: weather.strike(name))
    life.run(3_000_000)
    return world.violations


@pytest.mark.parametrize(
    ("rules", "phrase"),
    [
        (bugs.NO_WAIT, "starts while an older one lives"),
        (bugs.UNKNOWN_IS_DEAD, "although gang is unknown"),
        (bugs.FROM_NOTHING, "over old work"),
        (bugs.NO_BUDGET, "incidents without progress"),
        (bugs.MARKS_GOOD_ONES, "the intact checkpoint"),
        (bugs.NEVER_AGAIN, "did not finish"),
    ],
    ids=["no-wait", "unknown-is-dead", "from-nothing", "no-budget", "marks-good", "never-again"],
)
def test_broken_rule_is_caught(rules, phrase):
    assert found_by_seeds(phrase, rules=rules)


KILLS = [(at_ms, "kill_worker") for at_ms in (300_000, 800_000, 1_300_000, 1_800_000)]


def test_budget_reset_by_an_unverified_checkpoint_is_caught():
    broken = directed(KILLS, rules=bugs.UNVERIFIED_COUNTS, reads_back=False)
    assert any("incidents without progress" in what for what in broken)
    assert not directed(KILLS, reads_back=False)


def test_window_that_is_not_held_is_caught():
    kills = [(at_ms, "kill_worker") for at_ms in range(200_000, 2_400_000, 250_000)]
    broken = directed(kills, rules=bugs.NO_BUDGET)
    assert any("in the window" in what for what in broken)
    assert not directed(kills)


def test_kill_on_one_signal_is_caught():
    lie = [(400_000, "lie")]
    broken = directed(lie, rules=bugs.ONE_SIGNAL)
    assert any("on one signal" in what for what in broken)
    assert any("the healthy attempt" in what for what in broken)
    assert not directed(lie)


def test_act_without_an_intent_is_caught():
    assert found_by_seeds("without an intent in the ledger", wrap=bugs.act_unannounced)


def test_memory_that_is_not_the_fold_of_the_ledger_is_caught():
    twice = [(301_000, "kill_worker"), (450_000, "second_controller"), (600_000, "kill_worker")]
    broken = directed(twice, wrap=bugs.remember_too_little)
    assert any("memory is not what a rebuild gives" in what for what in broken)
    assert not directed(twice)


def test_effects_of_a_former_controller_are_caught():
    late = [(301_000, "kill_worker"), (301_001, "second_controller")]
    broken = directed(late, wrap=bugs.ignore_epochs)
    assert any("a former controller acted" in what for what in broken)
    assert not directed(late)


def test_changed_record_breaks_the_chain():
    life = Life(World(policy=sim_policy(), random=new_random(0)), sim_plan(20))
    life.run(300_000)
    book = life.world.book
    assert book.find_break() is None
    last = book.records[-1]
    book.records[-1] = last.model_copy(update={"body": {**last.body, "reason": "another"}})
    assert book.find_break() == last.seq


def a_checked_life(rules=GANG):
    """Return a life after its first minutes, and its checkers' next look."""
    life = Life(World(policy=sim_policy(), random=new_random(0)), sim_plan(60), rules=rules)
    life.run(300_000)
    return life


def violations_after(life):
    """Return what the checkers find now."""
    life.checkers.look(None)
    return " | ".join(life.world.violations)


def test_epoch_that_goes_back_is_caught():
    life = a_checked_life()
    former = BookLedger(Book(records=life.world.book.records), 0, None)
    former.append("outcome", {"key": "-", "ok": False, "error": ""}, life.world.agenda.instant())
    assert "an epoch went back" in violations_after(life)


def test_attempt_number_that_goes_back_is_caught():
    life = a_checked_life(bugs.COUNTS_BACK)
    life.world.gang.kill(life.world.gang.ranks[0])
    life.run(600_000)
    assert "an attempt number went back" in violations_after(life)


def test_lost_steps_are_caught():
    life = a_checked_life()
    life.world.highest["main"] -= 1
    assert "lost steps" in violations_after(life)


def test_loss_of_the_last_verified_checkpoint_is_caught():
    life = a_checked_life()
    life.world.shelf.checkpoints.clear()
    assert "no verified checkpoint is left" in violations_after(life)


def test_two_living_gangs_are_caught():
    life = a_checked_life()
    gang = life.world.gang
    life.world.gangs.append(replace(gang, order=gang.order.model_copy(update={"attempt": 2})))
    for rank in life.world.gang.ranks:
        rank.alive = True
    assert "live at once" in violations_after(life)


def test_decision_that_is_not_repeatable_is_caught():
    assert "replays differently" in violations_after(a_checked_life(bugs.moody_rules()))


def test_checkers_are_silent_on_the_core_itself():
    assert replace(live(5), seed=0).violations == ()
