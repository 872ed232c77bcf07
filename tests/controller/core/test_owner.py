"""The owner's wishes: recorded first, drained for, rested on."""

import pytest

from contract.wire import Drain
from tests.builders import a_run, the, verbs_of


def asked(run, verb, nonce="n", **details):
    """Let the owner ask, and record it."""
    assert run.asked(verb, nonce, **details).pass_once().rule == "record_intents"
    return run.seeing(intents=[])


def test_wish_is_recorded_before_anything_else_and_once():
    run = a_run().launched().with_end(1, 137).asked("suspend", "n")
    assert run.pass_once().rule == "record_intents"
    assert run.memory.wanted.state == "suspended"
    assert run.decide().rule != "record_intents"


@pytest.mark.parametrize(
    ("verb", "mode"), [("suspend", "suspend"), ("stop", "stop"), ("restart", "restart")]
)
def test_gang_is_asked_to_leave_with_everything_unknown(verb, mode):
    run = asked(a_run().launched(), verb)
    run.blind("gang", "progress", "store", "storage", "control")
    control = the(run.decide(), "publish_control")
    assert control.drain == Drain(nonce="n", mode=mode)
    assert control.plan_sha == run.plan.sha


def test_drain_is_published_once():
    run = asked(a_run().launched(), "stop")
    assert run.pass_once().rule == "drain_gang"
    run.drained(Drain(nonce="n", mode="stop"))
    assert run.after(10_000).decide().rule == "watch"


@pytest.mark.parametrize(("verb", "state"), [("suspend", "suspended"), ("stop", "stopped")])
def test_run_rests_when_the_gang_is_down(verb, state):
    run = asked(a_run().launched(), verb)
    run.pass_once()
    run.over(40, 40, 40, 40)
    assert run.pass_once().rule == "rest"
    assert run.memory.rest == state
    assert verbs_of(run.decide()) == []
    assert run.decide().rule == "stay_at_rest"


def test_stop_before_the_first_launch_rests_at_once():
    run = asked(a_run(), "stop")
    assert run.pass_once().rule == "rest"


def test_gang_that_does_not_drain_is_ended_after_the_deadline_and_the_margin():
    run = asked(a_run().launched(), "stop")
    run.pass_once()
    run.drained(Drain(nonce="n", mode="stop")).blind("store", "progress", "storage")
    assert run.after(149_999).decide().rule == "watch"
    decision = run.after(1).pass_once()
    assert decision.rule == "end_undrained"
    assert verbs_of(decision) == ["close_attempt", "kill_ranks"]
    assert the(decision, "kill_ranks").ranks == [0, 1, 2, 3]


def test_stop_of_a_launch_that_never_came_about_fences_it():
    run = a_run()
    run.pass_once(ok=False)
    asked(run, "stop").pass_once()
    decision = run.after(200_000).pass_once()
    assert verbs_of(decision)[0] == "close_attempt"


def test_resume_starts_the_gang_again():
    run = asked(a_run().launched(), "suspend", "s")
    run.pass_once()
    run.over(40, 40, 40, 40).pass_once()
    asked(run, "resume", "r")
    assert verbs_of(run.decide()) == ["publish_plan", "publish_control", "launch_gang"]
    assert the(run.decide(), "publish_control").drain is None


def test_drain_is_withdrawn_when_the_owner_resumes_in_time():
    run = asked(a_run().launched(), "suspend", "s")
    run.pass_once()
    run.drained(Drain(nonce="s", mode="suspend"))
    asked(run, "resume", "r")
    decision = run.pass_once()
    assert decision.rule == "withdraw_drain"
    assert the(decision, "publish_control").drain is None
    assert run.drained(None).after(500_000).decide().rule == "watch"


def test_restart_launches_again_at_once_and_is_no_incident():
    run = asked(a_run().launched(), "restart")
    run.pass_once()
    run.over(42, 42, 42, 42)
    assert run.decide().rule == "launch"
    assert run.memory.incidents == []
    run.launched()
    assert run.decide().rule == "watch"


def test_restart_ends_the_delay_before_a_launch():
    run = a_run().launched().over(137, 94, 94, 94)
    assert run.decide().rule == "wait_delay"
    assert asked(run, "restart").decide().rule == "launch"


def test_restart_of_a_resting_run_changes_nothing():
    run = asked(a_run(), "stop", "s")
    run.pass_once()
    assert asked(run, "restart", "r").decide().rule == "stay_at_rest"


def test_completed_run_stays_completed():
    run = a_run().launched().with_checkpoints(100).with_progress(100).over(0, 0, 0, 0)
    assert run.pass_once().rule == "complete"
    assert asked(run, "resume").decide().rule == "stay_at_rest"
    assert run.memory.rest == "completed"


def test_halted_run_rests_until_the_owner_says_otherwise():
    run = a_run().launched().over(2, 2, 2, 2)
    assert run.pass_once().rule == "spend_budget"
    assert run.after(10**9).decide().rule == "stay_at_rest"
    assert asked(run, "resume").decide().rule == "launch"
