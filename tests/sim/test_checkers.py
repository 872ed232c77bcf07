"""Each checker that no mutant of the table calls barks at what it is for."""

from dataclasses import replace

from controller.core.decide import GANG
from controller.simulate.book import Book, BookLedger
from controller.simulate.chaos.campaign import live, new_random
from controller.simulate.chaos.life import Life
from controller.simulate.scenario import sim_plan, sim_policy
from controller.simulate.world import World
from tests.sim import bugs
from tests.sim.directed import MANY_KILLS, gang_violations


def test_window_that_is_not_held_is_caught():
    broken = gang_violations(MANY_KILLS, rules=bugs.NO_BUDGET)
    assert any("in the window" in what for what in broken)


def test_kill_on_one_signal_is_caught_by_the_world_too():
    broken = gang_violations([(400_000, "lie")], rules=bugs.ONE_SIGNAL)
    assert any("the healthy attempt" in what for what in broken)


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
    assert live(5).violations == ()
