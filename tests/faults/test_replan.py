"""A re-plan of a run that trains, by real controllers and processes, while things break.

In each: one revision governs, every step of the surviving line received what the plans' files say,
and what was trained before the fork has the bits it had.
"""

import os
import signal

import pytest

from contract.plan import read_plan
from contract.wire import CONTROL_FILE, plan_file
from controller.core.proposal import Change
from tests.conformance.surviving import check_survivors
from tests.faults.harness import Sampler
from tests.faults.test_controllers import await_death, is_over, pids
from tests.waiting import wait_for

pytestmark = pytest.mark.faults

STEPS = 400
SHORTER = 300
TERMS = {"window_percent": 60, "floor_percent": 50, "lead_ms": 500}


def plan_named(world, sha: str):
    """Return the plan of that name from its file."""
    return read_plan((world.path / plan_file(sha)).read_bytes(), sha=sha)


def await_memory(world, what: str, look):
    """Return the first true thing that `look` finds in the memory of the ledger."""
    return wait_for(lambda: look(world.memory()), world.patience_s, f"{what}; {world.words()}")


def propose(world, total_steps: int = SHORTER) -> str:
    """Ask for a shorter horizon; return the id of the proposal."""
    world.await_step(1, 20)
    world.ask("propose", "propose-1", change=Change(kind="horizon", total_steps=total_steps))
    return await_memory(world, "a proposal", lambda it: it.proposal and it.proposal.id)


def approve(world, proposal: str) -> None:
    """Consent to the proposal."""
    world.ask("approve", "approve-1", proposal=proposal)


def await_revision(world):
    """Return the newest revision once the gang is pointed at it."""
    sha = await_memory(world, "a revision", lambda it: len(it.chain) > 1 and it.chain[-1].sha)
    control = world.path / CONTROL_FILE
    wait_for(lambda: sha in control.read_text(), world.patience_s, "the pointer to name it")
    return plan_named(world, sha)


def check_end(world, *, attempts: int) -> None:
    """The run is completed under one adopted revision, and every step is the plans' own."""
    memory = world.memory()
    [adopted] = memory.adopted
    revision = plan_named(world, adopted.plan_sha)
    assert memory.rest == "completed"
    assert memory.plan == revision
    assert (revision.total_steps, memory.revision, memory.proposal) == (SHORTER, None, None)
    assert world.attempts() == list(range(1, attempts + 1))
    check_survivors(world.run, revision)
    world.check_replay(attempts)
    world.check_ledger()


def test_revision_is_adopted_without_a_restart(make):
    world = make(total_steps=STEPS, terms=TERMS)
    controller = world.control()
    approve(world, propose(world))
    before = pids(world, 1)
    assert controller.wait() == "completed"
    assert pids(world, 1) == before
    check_end(world, attempts=1)


@pytest.mark.parametrize(
    "death",
    [
        "publisher.publish_plan:before:2",
        "publisher.publish_plan:after:2",
        "publisher.publish_control:before:2",
        "publisher.publish_control:after:2",
        "ledger.append:after:8",
        "ledger.append:before:10",
        "ledger.append:after:10",
        "ledger.append:after:11",
    ],
)
def test_controller_that_dies_in_the_middle_of_a_re_plan_is_succeeded(make, death):
    world = make(total_steps=STEPS, terms=TERMS)
    first = world.control(die=death)
    world.await_step(1, 20)
    world.ask("propose", "propose-1", change=Change(kind="horizon", total_steps=SHORTER))
    proposal = None
    while not is_over(first) and proposal is None:
        proposal = await_memory(
            world, "a proposal or a death", lambda it: it.proposal or is_over(first)
        )
        proposal = None if proposal is True else proposal
    if proposal is not None:
        approve(world, proposal.id)
    await_death(world, first)
    second = world.control()
    if proposal is None:
        approve(world, propose_again(world))
    assert second.wait() == "completed"
    check_end(world, attempts=1)


def propose_again(world) -> str:
    """Return the proposal that the second controller makes of the wish that the first one heard."""
    return await_memory(world, "a proposal", lambda it: it.proposal and it.proposal.id)


@pytest.mark.parametrize("moment", ["published", "adopted"])
@pytest.mark.parametrize("rank", [0, 1])
def test_crash_on_either_side_of_the_fork_ends_on_the_same_series(make, moment, rank):
    world = make(total_steps=STEPS, terms=TERMS | {"lead_ms": 1_000})
    controller = world.control()
    with Sampler(world):
        approve(world, propose(world))
        revision = await_revision(world)
        if moment == "adopted":
            world.await_step(1, revision.effective + 1)
        world.kill(1, rank)
        assert controller.wait() == "completed"
    if moment == "published":
        assert world.run.steps(1)[-1].step < revision.effective, "the crash came before the fork"
    check_end(world, attempts=2)


def test_revision_that_comes_too_late_is_superseded_by_a_sibling(make):
    world = make(total_steps=STEPS, terms=TERMS)
    controller = world.control(late="publisher.publish_control:3:2")
    approve(world, propose(world))
    assert controller.wait() == "completed"
    [adopted] = world.memory().adopted
    [missed] = adopted.missed
    sibling = plan_named(world, adopted.plan_sha)
    assert sibling.supersedes == missed
    assert sibling.effective > plan_named(world, missed).effective
    assert {record.plan_sha for record in world.run.steps(1)} == {sibling.parent, sibling.sha}
    check_end(world, attempts=1)


def test_second_revision_waits_until_the_first_is_adopted(make):
    world = make(total_steps=STEPS, terms=TERMS | {"lead_ms": 2_000, "min_change_percent": 1})
    controller = world.control()
    approve(world, propose(world))
    await_revision(world)
    world.ask("propose", "propose-2", change=Change(kind="horizon", total_steps=250))
    answer = await_memory(
        world, "an answer", lambda it: next((a for a in it.answers if a.nonce == "propose-2"), None)
    )
    assert not answer.accepted
    assert "not adopted yet" in answer.text
    assert controller.wait() == "completed"
    check_end(world, attempts=1)


def test_frozen_gang_adopts_after_its_restart(make):
    world = make(total_steps=STEPS, terms=TERMS | {"lead_ms": 1_000}, deadline_s=4)
    controller = world.control()
    approve(world, propose(world))
    await_revision(world)
    os.kill(world.pid(1, 1), signal.SIGSTOP)
    assert controller.wait() == "completed"
    check_end(world, attempts=2)
