"""A strike before and after every single port call of whole lives.

The controller is killed there; or it is stopped there, another one takes over, and it wakes up.
"""

import pytest

from controller.core.fold import read_actions
from tests.sim.scripted import SCRIPTS, scripted_life

SHARDS = 4

EFFECTS = {
    "crash-suspend": {"fleet.launch", "publisher.publish_control", "publisher.publish_plan"},
    "freeze-fork": {"fleet.close", "fleet.kill", "checkpoints.quarantine"},
    "replan-crash": {"intents.read", "publisher.publish_control", "publisher.publish_plan"},
}


@pytest.fixture(scope="module")
def undisturbed():
    return {name: scripted_life(expected) for name, expected in SCRIPTS.items()}


def assert_life_is_whole(life, name, where):
    """Assert that the strike changed nothing that matters."""
    expected = SCRIPTS[name]
    assert not life.world.violations, where
    assert life.is_completed, where
    assert len(life.world.gangs) == expected.attempts, where
    assert tuple(one.cause for one in life.memory.incidents) == expected.causes, where
    assert life.world.highest[expected.line] == life.memory.plan.total_steps, where
    if expected.has_revision:
        assert_revision_is_whole(life, where)
    else:
        assert life.memory.plan.total_steps == expected.steps, where


def assert_revision_is_whole(life, where):
    """Assert that one proposal became one revision, approved once and adopted."""
    verbs = [
        action.verb
        for record in life.world.book.records
        if record.kind == "decision"
        for action in read_actions(record.body)
    ]
    once = {verb: verbs.count(verb) for verb in ("propose", "approve", "record_adoption")}
    assert once == {"propose": 1, "approve": 1, "record_adoption": 1}, where
    memory = life.memory
    assert [plan.kind for plan in memory.chain] == ["genesis", "horizon"], where
    assert [closed.outcome for closed in memory.closed] == ["approved"], where
    assert memory.answers[-1].accepted, where


def list_strikes(life, name):
    """Return the numbers of the port calls to strike at.

    Launch and end are struck in the lives without a revision; in its life, all between them.
    """
    calls = life.killer.calls
    if SCRIPTS[name].has_revision:
        return range(calls // 4, calls * 3 // 4)
    return range(1, calls + 1)


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_holds_every_kind_of_moment(undisturbed, name):
    assert_life_is_whole(undisturbed[name], name, "undisturbed")
    assert set(undisturbed[name].killer.names) >= EFFECTS[name]


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_controller_killed_at_any_port_call_changes_nothing(undisturbed, shard, side, name):
    for call in list_strikes(undisturbed[name], name)[shard::SHARDS]:
        life = scripted_life(SCRIPTS[name], (call, side))
        where = f"{side} call {call} ({life.killer.names[call - 1]})"
        assert life.deaths == 1, where
        assert_life_is_whole(life, name, where)


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_controller_overtaken_at_any_port_call_gets_nowhere(undisturbed, shard, name):
    for call in list_strikes(undisturbed[name], name)[shard::SHARDS]:
        life = scripted_life(SCRIPTS[name], (call, "before"), is_usurped=True)
        where = f"call {call} ({life.killer.names[call - 1]})"
        assert life.world.book.epoch >= 2, where
        assert_life_is_whole(life, name, where)
