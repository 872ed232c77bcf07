"""The simulated world itself: time, checkpoints, trainers, ledger."""

import pytest

from contract.wire import Phase, Restore
from controller.ports import EpochLost, Unavailable
from controller.simulate.agenda import Agenda
from controller.simulate.book import Book
from controller.simulate.chaos.campaign import new_random
from controller.simulate.chaos.life import Life
from controller.simulate.scenario import sim_plan, sim_policy
from controller.simulate.shelf import KEEP, Shelf, SimCheckpoint
from controller.simulate.world import World
from tests.contract.builders import a_line


def test_agenda_runs_things_in_the_order_of_their_time():
    agenda, seen = Agenda(), []
    agenda.after(20, lambda: seen.append("b"))
    agenda.after(10, lambda: agenda.after(5, lambda: seen.append("a")))
    agenda.after(20, lambda: seen.append("c"))
    agenda.after(21, lambda: seen.append("later"))
    agenda.run_until(20)
    assert (seen, agenda.now_ms) == (["a", "b", "c"], 20)


def test_machine_restart_changes_boot_and_monotonic_clock_only():
    agenda = Agenda()
    agenda.run_until(1_000)
    before = agenda.instant()
    agenda.reboot()
    after = agenda.instant()
    assert (after.wall_ms, after.mono_ms) == (before.wall_ms, 0)
    assert after.boot_id != before.boot_id


PLAN = sim_plan()


def a_shelf(*steps, **changes):
    shelf = Shelf()
    for step in steps:
        made = SimCheckpoint("main", step, PLAN.sha, 1, **changes)
        shelf.add(made)
    return shelf


def test_newest_good_checkpoint_is_restored_and_damaged_ones_are_marked_on_the_way():
    shelf = a_shelf(10, 20, 30)
    shelf.find("main", 30).damage = "data"
    assert shelf.choose([PLAN], Restore.REQUIRED).step == 20
    assert shelf.find("main", 30).quarantined is not None
    assert shelf.find("main", 20).verified


def test_only_verified_ones_are_restored_when_asked_for():
    shelf = a_shelf(10, 20)
    shelf.verify(shelf.find("main", 10))
    assert shelf.choose([PLAN], Restore.VERIFIED).step == 10


def test_only_the_past_of_a_line_is_restored():
    shelf = a_shelf(10, 20, 30)
    fork = a_line(PLAN, "main-2", 20)
    assert shelf.choose([PLAN, fork], Restore.REQUIRED).step == 20


def test_retention_keeps_the_newest_verified():
    shelf = a_shelf(*range(10, 100, 10))
    for made in list(shelf.checkpoints):
        shelf.verify(made)
    assert [one.step for one in shelf.checkpoints] == [50, 60, 70, 80, 90][-KEEP:]


def a_life(**pace):
    world = World(policy=sim_policy(), random=new_random(1))
    life = Life(world, sim_plan(60))
    life.run(200_000)
    return life


def test_gang_steps_with_time_and_saves_on_its_way():
    life = a_life()
    gang = life.world.gang
    assert gang.phase == Phase.STEP
    assert gang.completed() == 17
    assert [one.step for one in life.world.shelf.checkpoints if one.verified] == [10]


def test_killed_rank_takes_its_peers_along():
    life = a_life()
    gang = life.world.gang
    gang.kill(gang.ranks[1])
    life.world.agenda.run_until(life.world.agenda.now_ms + 8_000)
    assert [rank.end.code for rank in gang.ranks if rank.rank == 1] == [137]
    assert {rank.end.code for rank in gang.ranks if rank.rank != 1} <= {134, 94}


def test_frozen_rank_lives_on_and_the_others_leave_their_stacks():
    life = a_life()
    gang = life.world.gang
    gang.freeze(gang.ranks[1])
    life.world.agenda.run_until(life.world.agenda.now_ms + 130_000)
    assert [(rank.alive, rank.has_stacks) for rank in gang.ranks] == [
        (False, True),
        (True, False),
        (False, True),
    ]


def test_book_fences_former_controllers_and_chains_records():
    book, now = Book(), Agenda().instant()
    first = book.open_epoch()
    first.append("run", {}, now)
    second = book.open_epoch()
    with pytest.raises(EpochLost):
        first.append("outcome", {}, now)
    record = second.append("epoch", {}, now)
    assert record.seal[0].epoch == 1
    assert book.find_break() is None
    book.is_full = True
    with pytest.raises(Unavailable):
        second.append("outcome", {}, now)
