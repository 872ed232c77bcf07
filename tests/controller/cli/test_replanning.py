"""`ctl replan` in words and exit codes; whole lives are in tests/e2e/test_replan.py."""

import json
from pathlib import Path

import pytest

from contract import wire
from controller.cli import replanning
from controller.cli.codes import Code
from controller.cli.logbook import describe_record
from controller.cli.peek import Controller, View
from controller.cli.proposals import describe_differences, describe_report
from controller.cli.shape import is_status
from controller.cli.wording import describe, describe_line, show_span
from controller.core.status import build_status
from tests.plan_runs import SLOW_STEP_S, a_dated_run, a_late_run


def a_view(run, *, is_steered=True, **changes):
    """Return a run as it looks from outside."""
    status = json.loads(json.dumps(build_status(run.memory, run.snapshot()))) | changes
    assert is_status(status)
    return View("sim", Path("sim"), status, Controller(is_steered, 7, 1), 0.0)


def shown(run):
    """Return what `ctl replan` shows of it."""
    return describe_report(replanning.make_report(a_view(run), run.memory))


# --- exit codes ---


def test_run_on_time_is_0_and_a_late_one_3():
    run = a_dated_run().training(100)
    assert replanning.code_of(a_view(run), run.memory) == Code.DONE
    late = a_dated_run(mode="off").training(100, step_s=SLOW_STEP_S)
    assert replanning.code_of(a_view(late), late.memory) == Code.DIFFERS


def test_after_the_window_the_target_counts():
    run = a_dated_run(mode="off").training(100).training(160, step_s=11.6)
    chance = a_view(run).status["forecast"]["on_time_permille"]
    assert 100 < chance < 800
    assert replanning.code_of(a_view(run), run.memory) == Code.DIFFERS


def test_open_proposal_is_4_until_somebody_approves_it():
    run = a_late_run()
    assert replanning.code_of(a_view(run), run.memory) == Code.WAITS
    run.asked("approve", proposal=run.memory.proposal.id)
    run.pass_once()
    run.seeing(intents=[])
    run.pass_once()
    assert replanning.code_of(a_view(run), run.memory) == Code.DIFFERS


def test_without_controller_or_pace_it_is_blind():
    run = a_late_run()
    assert replanning.code_of(a_view(run, is_steered=False), run.memory) == Code.BLIND
    young = a_dated_run()
    assert replanning.code_of(a_view(young), young.memory) == Code.BLIND
    garbage = a_view(young, pace={"step_us": "fast"})
    assert replanning.code_of(garbage, young.memory) == Code.BLIND


@pytest.mark.parametrize(
    ("state", "code"),
    [("completed", Code.DONE), ("suspended", Code.DONE), ("halted", Code.FAILED)],
)
def test_run_at_rest_has_nothing_to_be_late_for(state, code):
    run = a_dated_run().training(100)
    view = a_view(run, is_steered=False, state=state)
    assert replanning.code_of(view, run.memory) == code


# --- words ---


def test_proposal_is_shown_with_price_proofs_plans_and_what_to_type():
    run = a_late_run()
    proposal, text = run.memory.proposal, shown(run)
    for words in (
        f"{proposal.id} (horizon): end after", "by controller", "below 10% at 3 evaluations",
        "finish before", "finish after", "lag then", "an even pace", "gives up", "loss cost",
        "if the reducible part", "expires", "continuous", "equal at the fork",
        "learning_rate of the last step", "mixture",
        f"ctl replan sim --approve {proposal.id} or ctl replan sim --reject {proposal.id}",
    ):  # fmt: skip
        assert words in text, words
    assert "floor " not in text.split("PROOF")[0]


def test_floor_proposal_names_the_shortfall():
    run = a_late_run(deadline_wall_ms=a_dated_run().now.wall_ms + 5_000_000)
    text = shown(run)
    assert "the target cannot be met by any horizon allowed" in text
    assert "still misses the due instant by" in text


def test_without_a_proposal_horizons_and_the_reason_for_silence_are_shown():
    run = a_dated_run(mode="off").training(100, step_s=SLOW_STEP_S)
    text = shown(run)
    assert "would meet the target of 80%" in text
    assert "none: the contingency's mode is off" in text
    assert [line.split()[0] for line in text.splitlines()[-5:]] == [
        "95%", "90%", "85%", "80%", "75%",
    ]  # fmt: skip
    assert "none allowed meets" in shown(a_dated_run(mode="off").training(100, step_s=30))
    assert "as it is meets" in shown(a_dated_run(mode="off").training(100))
    undated = a_dated_run(deadline_wall_ms=None, mode="off").training(100)
    assert "P50" in shown(undated)
    assert "target" not in shown(undated)


def test_report_is_json_and_says_the_same():
    run = a_late_run()
    report = json.loads(json.dumps(replanning.make_report(a_view(run), run.memory)))
    assert report["proposal"]["id"] == run.memory.proposal.id
    assert any(it["is_change"] for it in report["differences"])
    assert report["plan"]["floor_steps"] == 750


def test_status_has_a_row_for_forecast_lag_proposal_and_revision():
    run = a_late_run()
    text = describe(a_view(run))
    for label in ("forecast", "lag", "proposal"):
        assert f"\n{label} " in text
    assert f"Next: ctl replan sim --approve {run.memory.proposal.id}" in text
    assert "P(on time)" in describe_line(a_view(run))
    revised = a_late_run(mode="auto")
    sha = revised.memory.plan.sha[:12]
    assert f"{sha} (horizon) from step" in describe(a_view(revised))
    assert "steps; in " in describe(a_view(revised))


def test_log_tells_what_each_step_of_a_revision_was():
    run = a_late_run()
    proposal = run.memory.proposal.id
    run.asked("approve", proposal="0" * 12)
    run.settle()
    run.asked("approve", "mine", proposal=proposal)
    run.settle()
    run.training(40).adopting().settle()
    text = "\n".join(describe_record(record) for record in run.book.records)
    for words in (
        "; counts, late", f"proposal {proposal} by controller: fork from step", "proofs hold",
        f"wish mine of me: approve proposal {proposal}", f"proposal {proposal} approved by me",
        f"revision of kind horizon for proposal {proposal}: from step", "seen at step",
        f"proposal {'0' * 12} is not open",
    ):  # fmt: skip
        assert words in text, words


def test_spans_have_their_two_largest_units():
    assert [show_span(it) for it in (0, 59_900, 60_000, 3_661_000, 90_000_000, -7_200_000)] == [
        "0.0 s", "59.9 s", "1 min 0 s", "1 h 1 min", "1 d 1 h", "-2 h 0 min",
    ]  # fmt: skip


def test_nothing_to_compare_is_no_table():
    assert describe_differences([]) == ""


# --- waiting ---


def test_wish_that_went_under_with_its_line_is_found_lost():
    run = a_dated_run().training(60)
    assert replanning.find_lost_answer(run.memory, "mine") is None  # not heard yet
    run.asked("approve", "mine", proposal="0" * 12)
    run.pass_once()
    assert replanning.find_lost_answer(run.memory, "mine") is None  # it waits
    forgotten = run.memory.model_copy(update={"asks": []})
    assert replanning.find_lost_answer(forgotten, "mine")["accepted"] is False
    run.seeing(intents=[]).pass_once()
    assert "is not open" in replanning.find_lost_answer(run.memory, "mine")["text"]


def test_outcome_of_an_approval_is_its_revision_or_why_there_is_none():
    run = a_late_run()
    proposal = run.memory.proposal.id
    assert replanning.find_outcome(a_view(run), proposal) is None
    run.asked("reject", proposal=proposal)
    run.settle()
    revision, why = replanning.find_outcome(a_view(run), proposal)
    assert (revision, "me rejected it" in why) == (None, True)

    run = a_late_run(mode="auto")
    revision = run.memory.revision
    found, _ = replanning.find_outcome(a_view(run), revision.proposal.id)
    assert found["fork_step"] == revision.fork_step
    run.training(100).adopting().settle()
    found, _ = replanning.find_outcome(a_view(run), revision.proposal.id)
    assert found["sha"] == revision.plan_sha


# --- what is refused before anything is asked ---


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--horizon 0", "--horizon is 0; it must be 1 to 100"),
        ("--horizon 101", "--horizon is 101"),
        ("--approve 7e5", '--approve is "7e5"; it must be the whole id'),
        ("--reject 0123456789AB", "--reject is"),
        ("--horizon 90 --diff", "--horizon: it goes with none of --diff"),
        ("--approve 0123456789ab --reject 0123456789ab", "--approve: it goes with none of"),
        ("-o yaml", "--output is yaml; it must be one of table, json"),
        ("--mixture gone.yaml", '--mixture is "gone.yaml"; it must be readable'),
        ("--execution gone.yaml", '--execution is "gone.yaml"; it must be readable'),
        ("--mixture @late", '--mixture is "@late"; it must be one of spec.data.alternatives'),
    ],
)
def test_wrong_option_names_value_bound_and_next_command(words, told, launched, run_ctl):
    code, _, err = run_ctl(f"ctl replan probe {words}")
    assert (code, told in err) == (Code.BAD_INPUT, True), err
    assert "ctl replan probe" in err
    assert not (launched / wire.INTENTS_DIR).exists() or not list(
        (launched / wire.INTENTS_DIR).iterdir()
    )


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("completed", "is finished; there is nothing to replan"),
        ("suspended", "is suspended: it must train first. Next: ctl resume probe"),
        ("halted", "is halted: it must train first"),
    ],
)
def test_run_at_rest_is_not_replanned(state, told, launched, run_ctl):
    (launched / wire.STATUS_FILE).write_text(json.dumps({"state": state, "reason": ""}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controller.cli.deps.read_memory", lambda _: None)
        code, _, err = run_ctl("ctl replan probe --horizon 90")
    assert (code, told in err) == (Code.FAILED, True), err


def test_run_that_is_not_there_is_named(launched, run_ctl):
    code, _, err = run_ctl("ctl replan prob")
    assert code == Code.BAD_INPUT
    assert 'holds no run "prob"' in err
