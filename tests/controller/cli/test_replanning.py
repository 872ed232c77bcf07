"""`ctl replan` in words and exit codes; whole lives are in tests/e2e/test_replan.py."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from contract import wire
from contract.plan import ROOT_LINE
from controller.adapters import given
from controller.cli import replanning
from controller.cli.codes import Code
from controller.cli.entries import describe_record
from controller.cli.peek import Controller, View
from controller.cli.proposals import describe_differences, describe_report
from controller.cli.shape import is_status
from controller.cli.watching import list_news
from controller.cli.wording import FIRST_LINE, chance_of, describe, describe_line, show_span
from controller.core.proposal import Change
from controller.core.telling.status import build_status
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
        "finish before", "finish after", "lag then", "the even pace", "gives up", "loss cost",
        "if the reducible part", "expires", "continuous", "equal at the fork",
        "learning_rate of the last step", "mixture",
        f"ctl replan sim --approve {proposal.id} or ctl replan sim --reject {proposal.id}",
    ):  # fmt: skip
        assert words in text, words
    assert "floor " not in text.split("PROOF")[0]


def test_floor_proposal_names_the_shortfall():
    run = a_late_run(deadline_wall_ms=a_dated_run().now.wall_ms + 8_000_000)
    text = shown(run)
    assert "the target cannot be met by any horizon allowed" in text
    assert "still misses due by 37 min 40 s, the deadline by 37 min 40 s" in text


def test_open_proposal_is_shown_with_what_the_newest_evaluation_says_of_it():
    run = a_late_run(deadline_wall_ms=a_dated_run().now.wall_ms + 10_000_000)
    made = a_view(run).status["proposal"]
    assert made["newest"] is None
    assert "newest" not in describe(a_view(run)) + shown(run)
    run.train_and_pass(40, step_s=20)
    view = a_view(run)
    newest, after = view.status["proposal"]["newest"], made["facts"]["after"]
    assert newest["on_time_permille"] < after["on_time_permille"]
    assert (newest["target_percent"], newest["meets_target"]) == (80, False)
    assert newest["shortfall_ms"] == newest["p50"] - newest["due"] > made["facts"]["shortfall_ms"]
    chance, doubt = chance_of(newest), "it does NOT meet the target of 80% now"
    told = f"-> {chance_of(after)} as made, {chance} by the newest evaluation: {doubt}. Next: "
    assert told in describe(view)
    (row,) = [line for line in shown(run).splitlines() if line.startswith("newest")]
    assert f"P(on time) {chance}" in row
    assert f"the median misses due by {show_span(newest['shortfall_ms'])}: {doubt}" in row
    # To whoever looks on, the proposal is told once, and not again with each evaluation.
    news = [text for _, text in list_news(view) if " proposal " in text]
    assert [chance in text for text in news] == [False]


def test_open_proposal_that_meets_its_target_still_is_not_doubted():
    run = a_late_run()
    run.train_and_pass(40)
    assert "by the newest evaluation. Next: " in describe(a_view(run))
    assert "NOT meet" not in describe(a_view(run)) + shown(run)


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


def test_proposal_says_where_it_would_fork_now_and_how_long_its_owner_has():
    run = a_late_run(reserve_ms=600_000)
    first, last = run.memory.proposal.fork_first, run.memory.proposal.fork_last
    assert f"earliest now: step {first}, at the latest step {last}" in shown(run)
    run.training(30)
    text = shown(run)
    made = f"proofs below were made for step {first} and are run again at the real one"
    assert f"earliest now: step {first + 30} ({made})" in text
    proposal = a_view(run).status["proposal"]
    # 14 s a step, from the fork that is possible now to the last one.
    assert proposal["window_closes"] == run.now.wall_ms + (last - first - 30) * 14_000
    assert proposal["expires"] < proposal["window_closes"]
    assert "(in 16 min 20 s): it expires; " in text
    assert f": step {last}, its last, is out of reach at the present pace" in text
    assert "rejected it is closed" in text
    assert "3 late evaluations in a row, or the last call, proposes anew" in text
    (after,) = [line for line in text.splitlines() if line.startswith("finish after")]
    assert "against due 2023-11-15 01:40:00 UTC, deadline 2023-11-15 01:50:00 UTC" in after
    assert " tokens, 2" in text
    assert "% of the horizon" in text


def test_proposal_out_of_whose_window_the_run_gets_first_says_so():
    text = shown(a_late_run().training(100, step_s=4))
    assert text.index("its last, is out of reach") < text.index(": it expires")


def test_execution_has_no_step_to_wait_for():
    run = a_dated_run().training(60)
    execution = run.plan.execution.model_copy(update={"waves": 2})
    change = Change(kind="execution", execution=execution)
    proposal = a_late_run().memory.proposal.model_copy(
        update={"change": change, "author": "me", "at": run.now}
    )
    memory = run.memory.model_copy(update={"proposal": proposal})
    view = a_view(run)
    shown_one = replanning.describe_open(memory, replanning.read_pace(view), run.now)
    assert shown_one["fork_now"] is shown_one["window_closes"] is None
    text = describe_report({"run": "sim", "state": "training", "proposal": shown_one, "at": None})
    assert re.search(r"takes effect +at a restart", text)
    assert "proposes anew" not in text


def test_lag_names_both_paces_and_a_change_of_pace_what_was_before():
    run = a_late_run()
    assert "steps slower than the even pace (12.00 s a step needed, 1" in shown(run.training(20))
    early = a_dated_run().training(60)
    won = "6 min 40 s ahead of the even pace: 0.0 s lost time, 6 min 40 s won by steps faster than"
    assert won.replace("6 min 40", "2 min 0") in shown(early)
    change = {"step": 70, "step_us": 391_000, "before_step": 60, "before_us": 26_250}
    told = "since step 70 steps take 0.39 s, before 26.2 ms (as of step 60)"
    assert told in describe(a_view(run, pace_change=change))
    text = describe_report(replanning.make_report(a_view(run, pace_change=change), run.memory))
    assert text.index("because") < text.index(told) < text.index("takes effect")
    alone = a_view(run, pace_change=change | {"before_us": None})
    assert "since step 70 steps take 0.39 s\n" in describe(alone)


def test_rounded_chances_are_not_called_certain():
    at = {"at": 5, "due": 9, "step": 1, "total_steps": 3}
    assert [chance_of(at | {"on_time_permille": it}) for it in (0, 1, 999, 1_000)] == [
        "<0.1%", "0.1%", "99.9%", ">99.9%",
    ]  # fmt: skip
    assert chance_of(at | {"on_time_permille": 0, "at": 9}) == "0%"
    assert chance_of(at | {"on_time_permille": 1_000, "step": 3}) == "100%"


def test_median_that_is_in_time_is_not_called_late():
    run = a_dated_run(mode="off", target_percent=99).training(100, step_s=15.2)
    assert "its median in time" in shown(run)


def test_refused_wish_is_named():
    run = a_dated_run().training(60)
    run.asked("propose", change=Change(kind="horizon", total_steps=500))
    run.settle()
    told = run.memory.answers[-1].text
    assert told.startswith('"end after 500 steps" cannot be: it fails floor: 500 steps')


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


def test_status_names_the_line_unless_it_is_the_first():
    run = a_late_run()
    assert FIRST_LINE == ROOT_LINE == a_view(run).status["plan"]["line"]
    assert "\nline" not in describe(a_view(run))
    text = describe(a_view(run, plan={"line": "main-2"}))
    assert re.search(r"\nline +main-2, opened by ctl resume --from\n", text)


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
        ("halted", "it must train first. Next: ctl log probe, then: ctl resume probe"),
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
    assert 'holds no run "prob"; runs there: probe. Next: ctl status' in err


# --- a word on the proposal of a run at rest ---


def suspended(run):
    """Return the run after its owner suspended it and the gang left, the proposal still open."""
    run.asked("suspend")
    run.pass_once()
    run.seeing(intents=[])
    run.pass_once()
    run.drained(run.memory.attempt.drain).over(80, 80, 80, 80).settle()
    assert run.memory.rest == "suspended"
    return run


@pytest.fixture
def resting(launched, monkeypatch):
    """Make `probe` a suspended run, steered by `run`: a controller passes once it is started."""
    run = suspended(a_late_run())
    wishes = []

    def show():
        found = json.loads(json.dumps(build_status(run.memory, run.snapshot())))
        (launched / wire.STATUS_FILE).write_text(json.dumps(found))

    def steer(_):
        run.seeing(intents=wishes).pass_once()
        run.seeing(intents=[]).settle()
        show()

    show()
    monkeypatch.setattr("controller.cli.deps.read_memory", lambda _: run.memory)
    monkeypatch.setattr("controller.cli.deps.drop_intent", lambda _, wish: wishes.append(wish))
    monkeypatch.setattr("controller.cli.deps.start_controller", steer)
    return run


def test_approval_of_a_suspended_run_is_kept_until_it_trains(resting, run_ctl):
    proposal = resting.memory.proposal.id
    code, out, _ = run_ctl("ctl replan probe")
    assert (code, f"ctl replan probe --approve {proposal}" in out) == (Code.WAITS, True)
    code, _, err = run_ctl(f"ctl replan probe --approve {proposal}")
    assert code == Code.DONE, err
    assert f"proposal {proposal} is approved; probe is suspended: it is carried out once" in err
    assert "Next: ctl resume probe" in err
    assert resting.memory.approval is not None
    assert "once the run trains again. Next: ctl resume probe" in run_ctl("ctl replan probe")[1]


def test_approval_of_a_suspended_run_can_be_taken_back(resting, run_ctl):
    proposal = resting.memory.proposal.id
    run_ctl(f"ctl replan probe --approve {proposal}")
    code, _, err = run_ctl(f"ctl replan probe --reject {proposal}")
    assert (code, f"proposal {proposal} is rejected" in err) == (Code.DONE, True), err
    code, _, err = run_ctl(f"ctl replan probe --approve {proposal}")
    assert code == Code.FAILED
    user = resting.memory.closed[-1].by
    assert f"proposal {proposal} is not open: it was rejected by {user}" in err


def test_finished_run_hears_no_word_on_a_proposal(launched, run_ctl, monkeypatch):
    (launched / wire.STATUS_FILE).write_text(json.dumps({"state": "completed", "reason": ""}))
    monkeypatch.setattr("controller.cli.deps.read_memory", lambda _: None)
    code, _, err = run_ctl("ctl replan probe --approve 0123456789ab")
    assert (code, "is finished; there is nothing to replan" in err) == (Code.FAILED, True), err


def test_steps_to_a_revision_are_only_counted_while_somebody_steers_the_run():
    run = a_late_run(mode="auto")
    fork = f"{run.memory.revision.fork_step:,}"
    steered, alone = a_view(run), a_view(run, is_steered=False)
    assert f"takes effect at step {fork}: in " in shown(run)
    assert "steps; in " in describe(steered)
    left = describe_report(replanning.make_report(alone, run.memory))
    assert f"from step {fork}: not adopted yet" in left
    assert "takes effect" not in left
    assert "steps; not adopted yet" in describe(alone)


def test_copy_goes_by_its_own_name_and_must_become_the_run_first():
    run = a_late_run()
    copy = replace(a_view(run), name="c5", copy_of="/elsewhere/sim")
    text = describe_report(replanning.make_report(copy, run.memory))
    assert text.startswith("c5 ")
    assert "Next: ctl resume c5 --adopt-copy" in text
    assert "ctl replan sim" not in text


# --- files that are none ---


def test_file_that_is_a_device_a_pipe_or_huge_is_refused(launched, folder, run_ctl):
    os.mkfifo(folder / "pipe")
    (folder / "huge").write_bytes(b"#" * (given.MAX_BYTES + 1))
    for option in ("--mixture", "--execution"):
        for name, bound in (
            ("/dev/zero", "it must be a regular file"),
            ("pipe", "it must be a regular file"),
            (".", "it must be a regular file"),
            ("huge", "it must have at most 1,048,576 bytes"),
        ):
            code, _, err = run_ctl(f"ctl replan probe {option} {name}")
            assert (code, f'{option} is "{name}"; {bound}' in err) == (Code.BAD_INPUT, True), err
            assert "Next: ctl replan probe" in err
