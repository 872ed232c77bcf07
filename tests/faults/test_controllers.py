"""Controllers that die, meet, stop and wake up, while the gang trains on."""

import os
import signal

import pytest

from contract.wire import LOCK_FILE, QUARANTINED_SUFFIX
from controller.runtime.lease import read_lease
from tests.faults.controller_process import HELD
from tests.faults.harness import RANKS, Sampler
from tests.waiting import wait_for

pytestmark = pytest.mark.faults

CALM = [
    "publisher.publish_plan:before:1",
    "publisher.publish_plan:after:1",
    "publisher.publish_control:before:1",
    "publisher.publish_control:after:1",
    "fleet.launch:before:1",
    "fleet.launch:after:1",
    "ledger.append:before:1",
    "ledger.append:after:1",
    "ledger.append:after:4",
    "status.write:before:3",
]
"""Deaths on the way to a training gang."""
CRASH = [
    "ledger.append:after:8",
    "fleet.launch:before:2",
    "fleet.launch:after:2",
]
"""Deaths while an attempt ends and the next begins."""


def is_over(controller) -> bool:
    return controller.process.poll() is not None


def await_death(world, controller) -> None:
    wait_for(lambda: is_over(controller), 40, f"the death of {controller.words()}")
    assert controller.process.returncode == -signal.SIGKILL
    assert not read_lease(world.path).is_held


def pids(world, attempt: int) -> list[int]:
    return [world.pid(attempt, rank) for rank in range(RANKS)]


@pytest.mark.parametrize("death", CALM)
def test_controller_that_dies_on_the_way_to_a_gang_is_succeeded(make, death):
    world = make(total_steps=20)
    with Sampler(world):
        await_death(world, world.control(die=death))
        live = world.live_attempts()
        before = pids(world, 1) if live else []
        assert world.control().wait() == "completed"
    assert world.attempts() == [1]
    assert not before or pids(world, 1) == before
    assert [record.step for record in world.run.steps(1)] == list(range(20))
    assert world.memory().incidents == []
    world.check_ledger()


@pytest.mark.parametrize("death", CRASH)
def test_controller_that_dies_while_a_gang_is_replaced_is_succeeded(make, death):
    world = make(total_steps=60)
    with Sampler(world):
        controller = world.control(die=death)
        world.await_verified(10)
        world.kill(1, 1)
        await_death(world, controller)
        assert world.control().wait() == "completed"
    assert world.attempts() == [1, 2]
    assert len(world.memory().incidents) == 1
    assert world.surviving_steps() == list(range(60))
    world.check_replay(2)
    world.check_ledger()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["close", "kill"])
def test_controller_that_dies_while_it_ends_a_frozen_rank_is_succeeded(make, method, when):
    world = make(total_steps=60, cascade_ms=600)
    with Sampler(world):
        controller = world.control(die=f"fleet.{method}:{when}:1")
        world.await_verified(10)
        os.kill(world.pid(1, 1), signal.SIGSTOP)
        world.kill(1, 0)
        await_death(world, controller)
        assert world.control().wait() == "completed"
    assert world.attempts() == [1, 2]
    assert world.memory().incidents[0].root_rank == 0
    world.check_replay(2)
    world.check_ledger()


@pytest.mark.parametrize("when", ["before", "after"])
def test_controller_that_dies_while_it_quarantines_is_succeeded(make, when):
    world = make(total_steps=80, save_every=20)
    with Sampler(world):
        controller = world.control(die=f"checkpoints.quarantine:{when}:1")
        world.await_verified(40)
        (world.run.checkpoint(40) / "manifest.json").write_bytes(b"{}")
        world.kill(1, 0, 1)
        await_death(world, controller)
        assert world.control().wait() == "completed"
    assert list(world.path.rglob(f"*{QUARANTINED_SUFFIX}"))
    assert world.run.steps(2)[0].step == 20
    assert world.surviving_steps() == list(range(80))
    world.check_ledger()


@pytest.mark.parametrize("when", ["before", "after"])
def test_controller_that_dies_while_it_suspends_is_succeeded(make, when):
    world = make(total_steps=200)
    controller = world.control(die=f"publisher.publish_control:{when}:2")
    world.await_step(1, 3)
    world.ask("suspend", "suspend-1")
    await_death(world, controller)
    assert world.control().wait() == "suspended"
    assert world.live_attempts() == []
    saved = world.run.checkpoint_steps()[-1]
    world.ask("stop", "stop-1")
    assert world.control().wait() == "stopped"
    assert world.attempts() == [1]
    assert world.run.steps(1)[-1].step == saved - 1
    assert world.memory().incidents == []
    world.check_ledger()


def test_training_goes_on_without_a_controller_and_the_next_adopts_the_same_processes(make):
    world = make(total_steps=200)
    first = world.control()
    world.await_step(1, 5)
    first.process.kill()
    await_death(world, first)
    reached = world.run.steps(1)[-1].step
    before = pids(world, 1)
    world.await_step(1, reached + 5)
    second = world.control()
    assert second.wait() == "completed"
    assert pids(world, 1) == before
    assert [record.step for record in world.run.steps(1)] == list(range(200))
    epochs = {record.epoch for record in world.records()}
    assert epochs == {1, 2}
    world.check_ledger()


def test_controller_that_is_asked_to_leave_leaves_the_gang_alone(make):
    world = make(total_steps=150)
    first = world.control()
    world.await_step(1, 5)
    before = pids(world, 1)
    first.signal(signal.SIGTERM)
    assert first.wait() == "detached"
    assert world.live_attempts() == [1]
    assert world.control().wait() == "completed"
    assert pids(world, 1) == before
    assert world.attempts() == [1]


def test_second_controller_refuses_and_names_the_first(make):
    world = make(total_steps=300)
    first = world.control()
    world.await_step(1, 2)
    second = world.control()
    wait_for(lambda: is_over(second), 40, "the refusal")
    assert second.process.returncode == HELD
    assert f"controller pid {first.process.pid} on " in second.log.read_text()
    assert first.wait() == "completed"
    assert {record.epoch for record in world.records()} == {1}


def test_stopped_leader_is_gone_before_another_takes_over(make):
    world = make(total_steps=400)
    first = world.control()
    world.await_step(1, 5)
    before = pids(world, 1)
    first.signal(signal.SIGSTOP)

    def take_over():
        candidate = world.control()
        wait_for(lambda: is_over(candidate) or holds(world, candidate), 20, "an answer")
        return None if is_over(candidate) else candidate

    # Refused while the leader's heart is fresh, taken when it is stale.
    second = wait_for(take_over, 40, "a takeover")
    assert first.process.wait(10) == -signal.SIGKILL
    assert second.wait() == "completed"
    assert pids(world, 1) == before
    epochs = [record for record in world.records() if record.kind == "epoch"]
    assert [record.body["takeover"] for record in epochs] == [False, True]
    world.check_ledger()


def holds(world, controller) -> bool:
    assert (world.path / LOCK_FILE).exists()
    holder = read_lease(world.path).holder
    return holder is not None and holder.process.pid == controller.process.pid
