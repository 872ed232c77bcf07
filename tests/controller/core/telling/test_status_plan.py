"""What the status says about the plan track, at each stage of a revision's life."""

import json

from controller.core.proposal import Change
from controller.core.telling.status import build_status
from controller.core.telling.status_plan import RECENT_CLOSED, describe_change, describe_plan_track
from tests.plan_runs import EVERY_MS, STEPS, a_dated_run, a_late_run


def status_of(run):
    """Return the status as its reader gets it."""
    return json.loads(json.dumps(build_status(run.memory, run.snapshot())))


def test_run_on_pace_has_a_forecast_and_a_reason_for_silence():
    run = a_dated_run()
    run.train_and_pass(100)
    status = status_of(run)
    forecast, evaluation = status["forecast"], status["evaluation"]
    assert forecast["p10"] < forecast["p50"] < forecast["p90"] < forecast["due"]
    assert (forecast["step"], forecast["total_steps"], forecast["source"]) == (100, STEPS, "now")
    assert forecast["on_time_permille"] == evaluation["on_time_permille"] > 900
    assert forecast["deadline"] == run.memory.policy.terms.deadline_wall_ms
    assert forecast["lag"]["total_ms"] == forecast["lag"]["lost_ms"] + forecast["lag"]["slow_ms"]
    assert (evaluation["counts"], evaluation["late"], evaluation["evaluations"]) == (True, 0, 3)
    assert status["proposal"] is status["revision"] is status["approval"] is None
    assert "not below 10%" in status["silence"]


def test_without_a_deadline_dates_are_shown_and_no_chance_nor_lag():
    run = a_dated_run(deadline_wall_ms=None, mode="off").training(50)
    forecast = status_of(run)["forecast"]
    assert forecast["p50"] > run.now.wall_ms
    assert forecast["on_time_permille"] is forecast["due"] is forecast["lag"] is None
    assert "no deadline" in status_of(run)["silence"]


def test_forecast_that_cannot_be_made_says_why():
    assert status_of(a_dated_run())["forecast"] is None
    assert "no step" in status_of(a_dated_run())["forecast_unknown"]
    run = a_dated_run()
    run.train_and_pass(100)
    run.training(40).blind("progress")
    status = status_of(run)
    assert status["forecast_unknown"] == "no progress"
    assert status["forecast"]["source"] == "evaluation"
    assert status["forecast"]["at"] < run.now.wall_ms
    assert status["pace"] is None
    over = run.memory.model_copy(update={"rest": "completed"})
    assert describe_plan_track(over, run.snapshot())["forecast"] is None


def test_speed_of_the_last_evaluation_stands_until_its_window_has_steps_of_its_own():
    run = a_dated_run(min_clean_steps=15)
    run.train_and_pass(100)
    run.training(10, step_s=30)
    assert status_of(run)["pace"]["step_us"] == 10_000_000
    assert status_of(run)["pace"]["until_step"] == 110
    run.training(5)
    assert status_of(run)["pace"]["step_us"] == 30_000_000


def test_speed_of_the_last_evaluation_does_not_outlive_a_change():
    run = a_dated_run(min_clean_steps=15)
    run.train_and_pass(100)
    run.training(10, step_s=30)
    evaluation = run.memory.evaluation
    before = evaluation.pace.model_copy(update={"context_length": 32})
    memory = run.memory.model_copy(
        update={"evaluation": evaluation.model_copy(update={"pace": before})}
    )
    assert describe_plan_track(memory, run.snapshot())["pace"]["step_us"] == 30_000_000


def test_change_of_pace_is_told_with_what_an_evaluation_found_before_it():
    run = a_dated_run()
    assert status_of(run)["pace_change"] is None
    run.train_and_pass(100)
    pace = run.snapshot().progress.pace
    evaluations = (run.memory.first_evaluation, run.memory.evaluation)
    first, newest = (it.pace.until_step for it in evaluations)
    assert first < newest
    for changed, known in ((first, first), (newest, newest), (first - 1, None)):
        changed_pace = pace.model_copy(update={"changed_step": changed, "step_us": 5})
        assert describe_change(run.memory, changed_pace) == {
            "step": changed,
            "step_us": 5,
            "before_step": known,
            "before_us": known and 10_000_000,
        }


def test_lag_holds_the_even_pace_and_the_measured_one():
    run = a_dated_run().training(100, step_s=13)
    lag = status_of(run)["forecast"]["lag"]
    assert (lag["even_us"], lag["mean_us"]) == (12_000_000, 13_000_000)


def test_completed_run_is_not_silent_for_a_reason():
    run = a_dated_run().training(50)
    over = run.memory.model_copy(update={"rest": "completed"})
    assert describe_plan_track(over, run.snapshot())["silence"] is None


def test_open_proposal_is_told_whole_until_it_is_a_revision_and_adopted():
    run = a_late_run()
    proposal = run.memory.proposal
    status = status_of(run)
    shown = status["proposal"]
    assert (shown["id"], shown["kind"], shown["author"]) == (proposal.id, "horizon", "controller")
    assert shown["change"] == {"kind": "horizon", "total_steps": proposal.change.total_steps}
    assert shown["expires"] == proposal.at.wall_ms + 7 * EVERY_MS
    assert (shown["fork_first"], shown["fork_last"]) == (proposal.fork_first, proposal.fork_last)
    assert shown["facts"]["before"]["on_time_permille"] < 100
    assert shown["facts"]["tokens_given_up"] > 0
    names = {proof["name"] for proof in shown["proofs"]}
    assert {"window", "floor", "continuous", "end"} <= names
    assert set(shown["proofs"][0]) == {"name", "holds", "value", "bound"}
    assert f"proposal {proposal.id} is open" in status["silence"]

    run.asked("approve", proposal=proposal.id)
    run.pass_once()
    run.seeing(intents=[])
    run.pass_once()
    approved = status_of(run)
    assert approved["approval"]["by"] == "me"
    assert approved["proposal"]["expires"] is None
    assert approved["answers"][-1]["accepted"] is True

    run.settle()
    published = status_of(run)
    revision = published["revision"]
    assert published["proposal"] is None
    assert (revision["proposal"], revision["approved_by"]) == (proposal.id, "me")
    assert revision["steps_to_go"] == revision["fork_step"] - run.step > 0
    assert published["closed"][-1]["outcome"] == "approved"

    run.training(revision["steps_to_go"] + 1)
    run.adopting().settle()
    adopted = status_of(run)
    assert adopted["revision"] is None
    (done,) = adopted["revisions"]
    assert (done["sha"], done["adopted_step"]) == (revision["sha"], run.step)


def test_newest_proposals_that_are_over_are_kept():
    run = a_dated_run()
    run.train_and_pass(60)
    for count in range(RECENT_CLOSED + 1):
        run.asked("propose", f"p{count}", change=Change(kind="horizon", total_steps=900))
        run.settle()
        opened = run.memory.proposal.id
        run.asked("reject", f"r{count}", proposal=opened)
        run.settle()
    closed = status_of(run)["closed"]
    assert len(closed) == RECENT_CLOSED
    assert (closed[-1]["id"], closed[-1]["outcome"], closed[-1]["by"]) == (opened, "rejected", "me")
