"""Answers that are old or out of order, links that are cut, records half written."""

import pytest

from controller.ports import Unavailable
from controller.simulate.chaos.campaign import ALL_FAULTS, new_random
from controller.simulate.chaos.faults import Weather
from controller.simulate.chaos.life import Life
from controller.simulate.chaos.reads import READS, Link, Reads, connect
from controller.simulate.scenario import sim_plan, sim_policy
from controller.simulate.world import World


def answers(reads, fresh):
    return [reads.pass_on("fleet", one) for one in fresh]


def test_stale_read_answers_what_it_answered_until_it_is_restored():
    reads = Reads()
    assert answers(reads, [1, 2, 3]) == [1, 2, 3]
    reads.freeze("fleet", back=1)
    assert answers(reads, [4, 5]) == [2, 2]
    reads.restore("fleet")
    assert answers(reads, [6]) == [6]


def test_stale_read_goes_back_no_further_than_is_known():
    reads = Reads()
    answers(reads, [1, 2])
    reads.freeze("fleet", back=5)
    assert answers(reads, [3]) == [1]


def test_every_second_answer_of_a_swapped_read_comes_after_the_next_one():
    reads = Reads()
    answers(reads, [0])
    reads.swap("fleet")
    assert answers(reads, [1, 2, 3, 4]) == [1, 0, 3, 2]
    reads.clear()
    assert answers(reads, [5]) == [5]


def test_link_that_is_down_cuts_one_controller_off_from_these_ports():
    world, link = World(policy=sim_policy(), random=new_random(0)), Link()
    ports = connect(world.ports(), Reads(), link)
    assert ports.fleet.observe() is None
    link.down = frozenset({"fleet"})
    with pytest.raises(Unavailable, match="fleet cannot be reached"):
        ports.fleet.observe()
    assert ports.intents.read([]) == []


def test_every_read_of_a_snapshot_has_a_name():
    assert len(READS) == len(set(READS.values())) == 7


def a_life(*strikes):
    """Return a life in which faults strike at their times, lived to its end."""
    random = new_random(1)
    world = World(policy=sim_policy(), random=random)
    life = Life(world, sim_plan(60))
    weather = Weather(life, random, ALL_FAULTS)
    for at_ms, name in strikes:
        world.agenda.after(at_ms, lambda name=name: weather.strike(name))
    life.see_through(7_200_000)
    return life


def test_record_that_is_half_written_is_dropped_by_the_successor():
    life = a_life((200_000, "tear_ledger"), (201_000, "kill_worker"))
    book = life.world.book
    assert (book.torn, book.half, book.find_break()) == (1, None, None)
    assert [record.seq for record in book.records] == list(range(1, len(book.records) + 1))
    assert life.deaths == 1
    assert not life.world.violations


@pytest.mark.parametrize("fault", ["cut_controller", "mute_controller"])
def test_controller_that_was_cut_off_ends_when_it_comes_back(fault):
    life = a_life((200_000, fault), (201_000, "kill_worker"))
    assert life.world.book.epoch == 2
    assert life.exiles == []
    assert len(life.world.gangs) == 2
    assert not life.world.violations


def test_lost_controller_is_missed_and_the_gang_trains_on():
    life = a_life((200_000, "lose_controller"))
    records = life.world.book.records
    [takeover] = [record for record in records if record.kind == "epoch" and record.epoch == 2]
    assert takeover.at.mono_ms >= 220_000
    assert len(life.world.gangs) == 1
    assert not life.world.violations


def test_second_controller_takes_over_at_a_port_call():
    life = a_life((200_000, "overtake_controller"))
    assert life.world.book.epoch == 2
    assert life.is_completed
    assert not life.world.violations
