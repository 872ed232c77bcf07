"""Ranks that die, freeze, crash again and again, or compute nonsense."""

import os
import signal
from typing import Any

import pytest

from contract.exits import Exit
from contract.plan import MixtureStage, Plan
from contract.wire import STACKS_FILE, Restore, rank_dir
from controller.adapters.system import Processes
from tests.faults.harness import RANKS, Sampler

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(
    ("ranks", "root", "confidence"),
    [([1], 1, "high"), ([0], 0, "high"), ([0, 1], 0, "low")],
    ids=["worker", "rank 0", "all"],
)
def test_killed_ranks_are_recovered_with_the_same_bits(make, ranks, root, confidence):
    world = make(total_steps=70, save_every=30)
    controller = world.control()
    world.await_verified(30)
    world.await_step(1, 40)
    with Sampler(world):
        world.kill(1, *ranks)
        assert controller.wait() == "completed"
    assert world.attempts() == [1, 2]
    (incident,) = world.memory().incidents
    assert (incident.root_rank, incident.code, incident.confidence) == (
        root, Exit.KILLED, confidence,
    )  # fmt: skip
    assert world.check_replay(2) >= 5
    assert world.surviving_steps() == list(range(70))
    world.check_ledger()


def test_frozen_rank_is_found_by_the_deadline_and_gone_before_the_next_gang(make):
    world = make(total_steps=60, save_every=30, deadline_s=3)
    controller = world.control()
    world.await_verified(30)
    world.await_step(1, 38)
    frozen = world.claim(1, 1).process
    with Sampler(world):
        os.kill(frozen.pid, signal.SIGSTOP)
        assert controller.wait() == "completed"
    assert world.attempts() == [1, 2]
    assert not Processes().is_alive(frozen)
    stacks = [world.path / rank_dir(1, rank) / STACKS_FILE for rank in range(RANKS)]
    assert "most recent call first" in stacks[0].read_text()
    assert not stacks[1].exists()
    (incident,) = world.memory().incidents
    assert (incident.cause, incident.root_rank) == ("stall", 1)
    assert world.check_replay(2) >= 2
    world.check_ledger()


def test_crash_at_the_same_step_is_confirmed_once_and_halts_with_file_and_step(make):
    world = make(total_steps=40, save_every=15)
    stages = [
        MixtureStage(start=0, from_percent=0, parts={"code": 32}),
        MixtureStage(start=20, from_percent=50, parts={"code": 20, "docs": 12}),
    ]
    world.replan(mixture=world.run.plan.mixture.model_copy(update={"stages": stages}))
    source = world.path / world.run.sources["docs"].train
    source.unlink()
    controller = world.control()
    assert controller.wait() == "halted"
    assert world.attempts() == [1, 2]
    memory = world.memory()
    assert [incident.step for incident in memory.incidents] == [20, 20]
    assert "20" in memory.halted
    assert "data/docs/train.txt" in memory.halted
    assert world.live_attempts() == []
    world.check_ledger()


def test_non_finite_loss_is_tried_once_from_a_verified_checkpoint_and_halts(make):
    world = make(total_steps=40)
    world.replan(**explosive(world.run.plan))
    controller = world.control()
    assert controller.wait() == "halted"
    assert world.attempts() == [1, 2]
    memory = world.memory()
    assert [incident.code for incident in memory.incidents] == [Exit.NON_FINITE] * 2
    assert "finite" in memory.halted
    launches = [action["restore"] for action in world.actions("launch_gang")]
    assert launches == [Restore.NONE, Restore.VERIFIED]
    assert world.run.steps(2)[0].step == 10
    world.check_ledger()


def explosive(plan: Plan) -> dict[str, Any]:
    """Return changes to a plan of 40 steps: the learning rate becomes absurd at step 16."""
    peak = "1" + "0" * 37
    knots = [(0, f"1/{peak}"), (14, f"1/{peak}"), (16, "1/1"), (39, "1/20")]
    return {
        "peaks": plan.peaks | {"learning_rate": {"matrix": peak, "other": peak}},
        "anneals": plan.anneals | {"learning_rate": knots},
    }
