"""The controller is killed before and after every single port call of one whole life."""

import pytest

from tests.sim.scripted import STEPS, scripted_life

SIDES = ("before", "after")
SHARDS = 8


@pytest.fixture(scope="module")
def undisturbed():
    return scripted_life()


def test_the_script_holds_every_kind_of_moment(undisturbed):
    assert not undisturbed.world.violations
    decided = {r.body["rule"] for r in undisturbed.world.book.records if r.kind == "decision"}
    assert decided >= {
        "launch", "close_ended", "record_end", "record_intents", "drain_gang", "rest", "complete",
    }  # fmt: skip
    effects = {"fleet.launch", "fleet.close", "publisher.publish_plan"}
    assert set(undisturbed.killer.names) >= effects | {"publisher.publish_control"}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_controller_killed_at_any_port_call_changes_nothing_that_matters(undisturbed, shard, side):
    for call in range(1 + shard, undisturbed.killer.calls + 1, SHARDS):
        life = scripted_life((call, side))
        where = f"{side} call {call} ({life.killer.names[call - 1]})"
        assert not life.world.violations, where
        assert life.deaths == 1, where
        assert life.is_completed, where
        # One crash and one suspension: three attempts, whoever steers.
        assert len(life.world.gangs) == len(undisturbed.world.gangs), where
        assert len(life.memory.incidents) == 1, where
        assert life.world.highest["main"] == STEPS, where
