"""A new line from an older checkpoint."""

import pytest

from contract.plan import check_child, check_plan
from contract.wire import Drain
from tests.builders import a_checkpoint, a_run, the, verbs_of


def wished(run, step, line=None, nonce="w"):
    """Let the owner have asked to resume from a checkpoint."""
    run.asked("resume_from", nonce, step=step, line=line).pass_once()
    return run.seeing(intents=[])


def test_line_is_opened_and_launched_when_no_gang_is_up():
    run = a_run().launched().with_checkpoints(10, 20, 30).over(2, 2, 2, 2)
    run.pass_once()
    assert run.memory.halted
    decision = wished(run, 20).pass_once()
    plan = the(decision, "publish_plan").plan
    assert check_plan(plan) == []
    assert check_child(run.plan, plan) == []
    assert (plan.line.name, plan.line.fork_step, plan.effective) == ("main-2", 20, 20)
    assert run.memory.plan == plan
    assert run.memory.halted is None
    launch = run.pass_once()
    assert verbs_of(launch) == ["publish_plan", "publish_plan", "publish_control", "launch_gang"]
    assert the(launch, "launch_gang").plan_sha == plan.sha
    assert the(launch, "launch_gang").highest_step == 0


def test_gang_leaves_first():
    run = wished(a_run().launched().with_checkpoints(10, 20), 10)
    decision = run.pass_once()
    assert the(decision, "publish_control").drain == Drain(nonce="w", mode="restart")
    run.drained(Drain(nonce="w", mode="restart"))
    assert run.decide().rule == "watch"
    run.over(42, 42, 42, 42)
    assert run.pass_once().rule == "open_line"
    assert run.pass_once().rule == "launch"
    assert run.memory.incidents == []


def test_lines_get_new_names():
    run = a_run().launched().with_checkpoints(10, 20).over(40, 40, 40, 40)
    wished(run, 20, nonce="a").pass_once()
    run.pass_once()
    wished(run, 10, nonce="b", line="main")
    run.with_gang(attempt=2, closed=True).pass_once()
    run.pass_once()
    run.pass_once()
    names = [line.name for line in run.memory.plan.lineage]
    assert names == ["main", "main-2", "main-3"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quarantined": "digest"}, "quarantined (digest)"),
        ({"manifest_sha256": None, "plan_sha": None}, "unreadable"),
        ({"plan_sha": "e" * 64}, "not of the current line's past"),
        ({"step": 99}, "no complete checkpoint"),
        ({"line": "other"}, "no complete checkpoint"),
    ],
)
def test_checkpoint_that_cannot_be_used_is_refused_in_words(changes, words):
    run = a_run().launched()
    view = a_checkpoint(20, run.plan).model_copy(update=changes)
    store = run.seen["store"].model_copy(update={"checkpoints": [view]})
    decision = wished(run.seeing(store=store), 20).pass_once()
    note = the(decision, "note")
    assert note.subject == "resume_from"
    assert words in note.reason
    assert run.memory.wanted.resume_from is None
    assert run.decide().rule == "watch"


def test_step_at_the_horizon_is_refused():
    run = wished(a_run(steps=50).launched().with_checkpoints(50), 50)
    assert "ends at step 50" in the(run.pass_once(), "note").reason


def test_refusal_leaves_a_resting_run_at_rest():
    run = a_run().launched().over(2, 2, 2, 2)
    run.pass_once()
    wished(run, 7).pass_once()
    assert run.decide().rule == "stay_at_rest"


def test_unreadable_store_keeps_the_wish_and_the_gang():
    run = wished(a_run().launched().with_checkpoints(10), 10).blind("store")
    assert run.decide().rule == "watch"
    assert run.memory.wanted.resume_from == ("main", 10, "w")


def test_completed_run_can_be_continued_on_a_new_line():
    run = a_run().launched().with_checkpoints(50, 100).with_progress(100).over(0, 0, 0, 0)
    run.pass_once()
    assert run.memory.rest == "completed"
    wished(run, 50)
    assert run.pass_once().rule == "open_line"
    assert run.pass_once().rule == "launch"
