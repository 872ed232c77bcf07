"""The same faults on the real trainer: two processes of a small mixture-of-experts model."""

import os
import signal

import pytest

from contract.config import Limits
from contract.exits import Exit
from contract.wire import RANK_PHASES, STACKS_FILE, Phase, Restore, rank_dir
from controller.adapters.system import Processes
from tests.conformance.trainers import JAX
from tests.faults.harness import Sampler
from tests.faults.test_ranks import explosive

# Twice the usual limit: each start compiles, and a busy machine multiplies that.
pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

STEP_DEADLINE_S = 12


def make_real(make, **options):
    deadlines = dict.fromkeys(RANK_PHASES, JAX.deadline_s) | {Phase.STEP: STEP_DEADLINE_S}
    limits = Limits(deadlines_s=deadlines, step_factor=5, commit_s=JAX.deadline_s, heartbeat_s=600)
    return make(kind=JAX, run={"limits": limits}, cascade_ms=20_000, **options)


def test_killed_ranks_of_the_real_trainer_are_recovered_with_the_same_bits(make):
    world = make_real(make, total_steps=50)
    controller = world.control()
    victims = {1: [1], 2: [0], 3: [0, 1]}
    with Sampler(world):
        for attempt, ranks in victims.items():
            world.await_verified(10 * attempt)
            world.await_step(attempt, 10 * attempt + 4)
            world.kill(attempt, *ranks)
        assert controller.wait() == "completed"
    assert world.attempts() == [1, 2, 3, 4]
    roots = [incident.root_rank for incident in world.memory().incidents]
    assert roots == [1, 0, 0]
    assert world.check_replay(4) >= 5
    assert world.surviving_steps() == list(range(50))
    world.check_ledger()


def test_frozen_rank_of_the_real_trainer_is_found_and_gone_before_the_next_gang(make):
    world = make_real(make, total_steps=30)
    controller = world.control()
    world.await_verified(10)
    world.await_step(1, 15)
    frozen = world.claim(1, 1).process
    with Sampler(world):
        os.kill(frozen.pid, signal.SIGSTOP)
        assert controller.wait() == "completed"
    assert world.attempts() == [1, 2]
    assert not Processes().is_alive(frozen)
    assert "most recent call first" in (world.path / rank_dir(1, 0) / STACKS_FILE).read_text()
    (incident,) = world.memory().incidents
    assert (incident.cause, incident.root_rank) == ("stall", 1)
    assert world.check_replay(2) >= 3
    world.check_ledger()


def test_non_finite_loss_of_the_real_trainer_is_tried_once_and_halts(make):
    world = make_real(make, total_steps=40)
    world.replan(**explosive(world.run.plan))
    controller = world.control()
    assert controller.wait() == "halted"
    assert world.attempts() == [1, 2]
    memory = world.memory()
    assert [incident.code for incident in memory.incidents] == [Exit.NON_FINITE] * 2
    launches = [action["restore"] for action in world.actions("launch_gang")]
    assert launches == [Restore.NONE, Restore.VERIFIED]
    assert world.run.steps(2)[0].step == 10
    world.check_ledger()
