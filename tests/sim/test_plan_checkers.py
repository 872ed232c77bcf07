"""Each checker of the plan barks at its own bug, and at nothing else."""

import pytest

from controller.core.proposal import Change
from tests.sim import plan_bugs as bugs
from tests.sim.directed import DEAF, HARD_MS, LATE_MS, a_plan_life, plan_violations


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"plan_rules": bugs.RE_ANCHORED}, "a trainer refuses a revision: learning_rate"),
        ({"plan_rules": bugs.TWO_AT_ONCE}, "proposed while a revision is not adopted"),
        ({"plan_rules": bugs.FORGETS, "mode": "propose"}, "a second proposal is opened"),
    ],
    ids=["re-anchored", "two-at-once", "forgets"],
)
def test_bug_of_the_plan_track_is_caught_by_a_second_checker_too(changes, phrase):
    assert phrase in " | ".join(plan_violations(**changes))


@pytest.mark.parametrize(
    "changes",
    [{}, {"deadline_ms": HARD_MS}, {"mode": "propose"}, {"happenings": DEAF}],
    ids=["late", "floor", "propose", "deaf"],
)
def test_checkers_of_the_plan_are_silent_on_the_core_itself(changes):
    assert plan_violations(**changes) == []


def test_gang_that_ran_another_schedule_is_caught():
    life, _ = a_plan_life()
    life.run(600_000)
    # As if the gang had kept its parent: it is in the chain, and its rate is another one.
    genesis, log = life.memory.chain[0], life.world.log
    sha = life.memory.plan.sha
    log.stretches = [
        stretch
        if stretch.plan_sha != sha
        else stretch.__class__(**{**vars(stretch), "plan_sha": genesis.sha})
        for stretch in log.stretches
    ]
    life.run(1_500_000)
    assert life.is_completed
    assert "step 27 ran another schedule than the chain's" in " | ".join(life.world.violations)


def test_gang_on_a_plan_of_its_own_is_caught():
    life, _ = a_plan_life(mode="off")
    life.run(200_000)
    follower = life.world.gang.follower
    follower.chain = [follower.plan.model_copy(update={"seed": 7})]
    life.run(210_000)
    assert "a gang runs a plan outside the chain" in " | ".join(life.world.violations)


def test_new_line_ends_what_was_proposed_on_the_old_one_and_answers_the_owner():
    life, _ = a_plan_life(mode="propose")
    life.run(240_000)
    proposal = life.memory.proposal
    assert proposal is not None
    life.ask("resume_from", step=10, line="main")
    life.run(600_000)
    assert life.memory.plan.line.name == "main-2"
    assert [(it.id, it.outcome) for it in life.memory.closed][:1] == [(proposal.id, "void")]
    assert not life.world.violations


def test_approved_execution_that_waits_for_a_restart_can_be_taken_back():
    life, _ = a_plan_life(deadline_ms=LATE_MS)
    other = life.plan.execution.model_copy(update={"waves": 4})
    life.run(60_000)
    life.propose(Change(kind="execution", execution=other))
    life.run(70_000)
    life.approve()
    life.run(300_000)
    # The run is late, and nothing else can be proposed.
    assert life.memory.late >= 2
    assert life.memory.approval is not None
    life.approve(verb="reject")
    life.run(500_000)
    assert [closed.outcome for closed in life.memory.closed] == ["rejected", "approved"]
    assert life.memory.adopted[0].kind == "horizon"
    assert not life.world.violations


def test_more_wishes_than_are_kept_are_refused_and_none_is_forgotten():
    life, _ = a_plan_life(mode="off")
    life.run(240_000)
    life.world.blind.add("progress")
    for _ in range(18):
        life.approve("f" * 12)
    life.run(300_000)
    assert "wait for an answer already" in life.memory.answers[-1].text
    life.world.blind.clear()
    life.run(400_000)
    assert not life.memory.asks
    assert not life.world.violations


def test_wish_that_a_new_line_overtakes_is_answered():
    life, _ = a_plan_life(mode="off")
    life.run(240_000)
    # Nothing is known of the steps, so the wish waits; meanwhile the line is left.
    life.world.blind.add("progress")
    life.ask("resume_from", step=10, line="main")
    life.approve("f" * 12)
    life.run(600_000)
    assert life.memory.plan.line.name == "main-2"
    assert not life.memory.asks
    assert not life.memory.answers[-1].accepted
    assert not life.world.violations
