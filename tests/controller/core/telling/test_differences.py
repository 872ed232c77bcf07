"""What this core would decide otherwise is told in lines that people read."""

from controller.core.decide import GANG, PLAN
from controller.core.fold import fold
from controller.core.telling.differences import MAX_LINES, compare_decisions
from controller.core.telling.replay import replay_one
from controller.simulate.book import CORE
from tests.builders import a_run
from tests.plan_runs import a_late_run


def compared(run, rule, *, without=(), alter=None):
    """Return how a core without some rules, or with another memory, differs in a decision."""
    memory = None
    for record in run.book.records:
        if record.body.get("rule") == rule:
            break
        memory = fold(memory, record)
    memory = alter(memory) if alter else memory
    left = (tuple(it for it in rules if it.name not in without) for rules in (GANG, PLAN))
    return compare_decisions(replay_one(record, memory, CORE, *left))


def test_same_decision_has_no_differences():
    assert compared(a_run().launched(), "launch") == []


def test_acts_that_would_not_be_decided_now_are_struck_out():
    run = a_run().launched()
    assert compared(run, "launch", without=["launch"]) == [
        "rule: launch -> none",
        "reason: start attempt 1 -> nothing to do",
        "- publish_plan plan (kind genesis, total_steps 100, effective 0)",
        f"- publish_control plan_sha {run.plan.sha[:12]}",
        f"- launch_gang attempt 1, plan_sha {run.plan.sha[:12]}, restore none, highest_step 0",
    ]


def test_acts_that_would_be_decided_now_are_added():
    run = a_run().launched().with_end(1, 137)
    run.pass_once()
    run.over(94, 137, 94, 94)
    lines = compared(run, "record_end", alter=gone_on)
    assert lines[0] == "rule: record_end -> launch"
    assert "- record_end attempt 1, ranks (4), progress_known true" in lines
    assert (
        f"+ launch_gang attempt 2, plan_sha {run.plan.sha[:12]}, restore none, highest_step 0"
        in lines
    )


def gone_on(memory):
    ended = memory.attempt.model_copy(update={"ended": True, "closed": True})
    return memory.model_copy(update={"attempt": ended})


def test_changed_members_alone_are_told_with_their_path():
    def later(memory):
        terms = memory.policy.terms.model_copy(update={"target_percent": 50})
        policy = memory.policy.model_copy(update={"terms": terms})
        return memory.model_copy(update={"policy": policy})

    run = a_late_run()
    lines = compared(run, "propose", alter=later)
    total = run.memory.proposal.change.total_steps
    assert any(it.startswith(f"propose: proposal.change.total_steps: {total} -> ") for it in lines)
    assert lines[0].startswith("reason: proposal ")
    assert [it for it in lines if "reason" in it or "fork_first" in it] == lines[:1]
    assert len(lines) <= MAX_LINES + 1
