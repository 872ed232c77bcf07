"""A published revision on its way: brought, adopted, missed, waited for between attempts."""

import pytest

from contract.exits import Exit
from contract.model import PRESETS, Execution
from contract.plan import chain_of
from controller.core.actions import key_of
from controller.core.proposal import Change
from controller.core.recording import read_actions
from controller.core.terms import Fit
from tests.builders import the, verbs_of
from tests.plan_runs import a_dated_run, a_late_run

AUTO = {"mode": "auto"}


def published():
    """Return a run whose revision was published a moment ago, and is not adopted."""
    run = a_late_run(**AUTO)
    run.pointed().settle()
    assert run.memory.revision is not None
    return run


def chain_holds(run):
    """Whether the chain in memory is one chain from the launch on."""
    plans = {plan.sha: plan for plan in run.memory.chain}
    return chain_of(plans, run.memory.plan.sha) == run.memory.chain


def test_revision_is_brought_again_until_file_and_pointer_are_known_to_be_written():
    run = a_late_run(evaluations=3)
    run.asked("approve", proposal=run.memory.proposal.id)
    run.pass_once()
    run.seeing(intents=[])
    run.pass_once()
    decision = run.pass_once(ok=False)
    assert verbs_of(decision) == ["publish_plan", "publish_control"]
    assert run.memory.revision is not None
    run.after(2_000)
    again = run.pass_once()
    assert again.rule == "repair_control"
    assert the(again, "publish_plan").plan == run.memory.plan
    assert len(run.memory.chain) == 2
    run.pointed()
    assert run.settle() in ([], ["notes"])


def test_pointer_never_precedes_the_file():
    run = published()
    for record in run.book.records:
        verbs = [action["verb"] for action in record.body.get("actions", [])]
        if "publish_control" in verbs and "publish_plan" in verbs:
            assert verbs.index("publish_plan") < verbs.index("publish_control")


def test_gang_that_logs_the_parent_before_the_fork_has_missed_nothing():
    run = published()
    run.step = run.memory.plan.effective
    run.shown()
    assert "publish_plan" not in verbs_of(run.decide())


def test_gang_past_the_fork_under_the_parent_gets_a_sibling_with_a_later_fork():
    run = published()
    missed = run.memory.plan
    run.step = missed.effective + 1
    run.shown()
    decision = run.pass_once()
    sibling = the(decision, "publish_plan").plan
    assert sibling.supersedes == missed.sha
    assert sibling.parent == missed.parent
    assert sibling.effective > run.step
    assert sibling.total_steps == missed.total_steps
    assert the(decision, "publish_control").plan_sha == sibling.sha
    assert run.memory.revision.missed == [missed.sha]
    assert chain_holds(run)
    assert run.rebuilt() == run.memory
    run.pointed()
    assert run.settle() in ([], ["notes"])
    run.training(20).adopting()
    run.settle()
    assert [it.plan_sha for it in run.memory.adopted] == [sibling.sha]


def test_revision_missed_beyond_the_window_is_dropped_and_the_parent_goes_on():
    run = published()
    missed = run.memory.plan
    run.step = 260
    run.shown()
    decision = run.pass_once()
    assert decision.rule == "supersede_missed"
    assert "window" in decision.reason
    assert run.memory.plan == run.plan
    assert run.memory.revision is None
    repaired = run.pass_once()
    assert the(repaired, "publish_control").plan_sha == run.plan.sha
    assert missed.sha not in {plan.sha for plan in run.memory.chain}
    assert chain_holds(run)


def test_crash_before_a_checkpoint_past_the_fork_lets_the_restart_adopt():
    run = published()
    child = run.memory.plan
    run.over(*(Exit.KILLED,) * 4)
    run.with_checkpoints(100)
    run.relaunched()
    assert run.memory.attempt.order.plan_sha == child.sha
    run.held_sha = child.sha
    run.pointed().shown(plan_sha=child.sha)
    run.settle()
    assert run.memory.revision is None
    assert run.memory.adopted[0].plan_sha == child.sha


def test_missed_revision_is_superseded_before_any_new_attempt():
    run = published()
    missed = run.memory.plan
    run.over(*(Exit.KILLED,) * 4)
    run.with_checkpoints(100, missed.effective + 10)
    run.after(run.policy.budget.max_delay_ms * 2)
    first = run.pass_once()
    assert "launch_gang" not in verbs_of(first)
    sibling = the(first, "publish_plan").plan
    assert sibling.supersedes == missed.sha
    assert sibling.effective > missed.effective + 10
    second = run.pass_once()
    assert the(second, "launch_gang").plan_sha == sibling.sha


def test_two_revisions_of_which_one_is_open_line_are_both_in_the_new_lines_past():
    run = published()
    child = run.memory.plan
    run.over(*(Exit.KILLED,) * 4)
    run.with_checkpoints(50, 100)
    run.asked("resume_from", step=50, line="main")
    run.pass_once()
    run.seeing(intents=[])
    run.after(run.policy.budget.max_delay_ms * 2)
    run.settle()
    assert run.memory.plan.kind == "line"
    assert run.memory.plan.parent == child.sha
    assert run.memory.revision is None
    assert [it.plan_sha for it in run.memory.adopted] == [child.sha]
    assert chain_holds(run)


# --- execution ---

FIT = Fit(shape=PRESETS["tiny"], expert_axis=4, replicas=1, devices_per_rank=2)


def with_execution(**terms):
    """Return a run with an approved execution that waits for a restart."""
    run = a_dated_run(fit=FIT, **terms)
    run.with_gang(memory_bytes=16 * 10**9, ranks_per_machine=4)
    run.with_telemetry(0, 1, 2, 3, memory_bytes=10**9)
    run.train_and_pass(60)
    change = Change(kind="execution", execution=Execution(waves=2))
    run.asked("propose", nonce="p", change=change)
    run.pass_once()
    run.seeing(intents=[])
    run.settle()
    assert run.memory.answers[-1].accepted, run.memory.answers
    run.asked("approve", nonce="a", proposal=run.memory.proposal.id)
    run.pass_once()
    run.seeing(intents=[])
    run.settle()
    assert run.memory.answers[-1].accepted, run.memory.answers
    return run


def test_execution_waits_for_a_restart_and_is_materialised_at_the_restored_step():
    run = with_execution()
    assert len(run.memory.chain) == 1
    assert run.train_and_pass(20) == ["evaluate"]
    run.over(*(Exit.KILLED,) * 4)
    run.with_checkpoints(50, 70)
    run.seeing(telemetry=[])
    run.after(run.policy.budget.max_delay_ms * 2)
    first = run.pass_once()
    child = the(first, "publish_plan").plan
    assert "launch_gang" not in verbs_of(first)
    assert (child.kind, child.effective, child.execution.waves) == ("execution", 70, 2)
    second = run.pass_once()
    assert the(second, "launch_gang").plan_sha == child.sha


def test_execution_that_fits_no_longer_is_void_and_the_launch_goes_on():
    run = with_execution()
    run.over(*(Exit.KILLED,) * 4)
    run.with_gang(memory_bytes=10**9)
    run.with_checkpoints(50)
    run.seeing(telemetry=[])
    run.after(run.policy.budget.max_delay_ms * 2)
    run.settle()
    assert run.memory.closed[-1].outcome == "void"
    assert "fit" in run.memory.closed[-1].reason
    assert run.memory.attempt.number == 2


@pytest.mark.parametrize("ranks", [(0, 1, 2), ()])
def test_execution_is_refused_while_a_ranks_memory_is_not_known(ranks):
    run = a_dated_run(fit=FIT)
    run.with_gang(memory_bytes=16 * 10**9, ranks_per_machine=4)
    run.with_telemetry(*ranks, memory_bytes=10**9)
    run.train_and_pass(60)
    change = Change(kind="execution", execution=Execution(waves=2))
    run.asked("propose", nonce="p", change=change)
    run.pass_once()
    run.seeing(intents=[])
    run.settle()
    assert not run.memory.answers[-1].accepted
    assert "impossible" in run.memory.answers[-1].text


def test_keys_of_a_revision_and_its_sibling_differ():
    run = published()
    first = key_of("u", the_last_publish(run))
    run.step = run.memory.plan.effective + 1
    run.shown()
    run.pass_once()
    assert key_of("u", the_last_publish(run)) != first


def the_last_publish(run):
    """Return the newest order to write a plan file."""

    found = [
        action
        for record in run.book.records
        if record.kind == "decision"
        for action in read_actions(record.body)
        if action.verb == "publish_plan"
    ]
    return found[-1]
