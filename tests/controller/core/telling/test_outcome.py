"""What summary.json says of plan and deadline, from a ledger with an adopted horizon."""

from dataclasses import replace
from pathlib import Path

import pytest

from contract.schedule import round_binary32
from controller.core.actions import Halt, Rest
from controller.core.telling.chronicle import read_chronicle
from controller.core.telling.summary import make_summary
from tests.chronicles import (
    COMPLETED_S,
    FORK,
    PLAN,
    SHORTER,
    STEPS,
    Scroll,
    a_proposal,
    a_shortened_run,
    ends_at,
    instant,
    told,
    until_proposed,
)


def summary_of(scroll=None, last=SHORTER):
    return make_summary(told(scroll or a_shortened_run(), last).evidence)


def test_shortened_run_tells_its_revision_and_its_deadline():
    summary = summary_of()
    assert (summary["original_steps"], summary["final_steps"]) == (STEPS, SHORTER)
    assert (summary["fork_step"], summary["attempts_at_adoption"]) == (FORK, 2)
    [revision] = summary["revisions"]
    assert revision["kind"] == "horizon"
    assert (revision["author"], revision["approved_by"]) == ("controller", "ada")
    assert (revision["adopted_at_step"], revision["missed"]) == (FORK + 1, [])
    assert summary["deadline"] == "2023-11-14T22:24:00.000+00:00"
    assert summary["due"] == "2023-11-14T22:23:50.000+00:00"
    assert summary["finished_at"] == "2023-11-14T22:23:30.000+00:00"
    assert summary["on_time"] is True
    assert (summary["p_on_time_before"], summary["p_on_time_after"]) == (0.021, 0.912)


def test_original_horizon_would_have_missed_by_the_pace_after_the_fork():
    summary = summary_of()
    # Step 89 ended at 145; 310 steps of 2 s, and 5 s from the last step to the end: 770.
    assert summary["counterfactual_finish"] == "2023-11-14T22:26:10.000+00:00"
    assert summary["counterfactual_miss_seconds"] == 130.0
    assert summary["counterfactual_miss_percent"] == pytest.approx(100 * 130 / 610, abs=1e-3)


def paused(step, rests, pause_s=100):
    """Return the shortened run as it would be had the gang rested before `step`."""
    evidence = told(a_shortened_run()).evidence
    first, second = evidence.histories
    steps = [
        it.model_copy(update={"wall_s": it.wall_s + (pause_s if it.step >= step else 0)})
        for it in second.steps
    ]
    chronicle = replace(
        evidence.chronicle,
        completed_at=instant(COMPLETED_S + pause_s),
        rests=tuple(instant(it) for it in rests),
    )
    histories = [first, replace(second, steps=steps)]
    return make_summary(replace(evidence, histories=histories, chronicle=chronicle))


@pytest.mark.parametrize(
    ("step", "rests", "miss_s"),
    [
        (200, [ends_at(199) + 1], 230.0),
        (FORK, [ends_at(FORK - 1) + 1], 230.0),
        (200, [ends_at(199) + 1, ends_at(199) + 50], 230.0),
        # Before the fork it moved the fork itself, and everything after it.
        (60, [ends_at(59) + 1], 230.0),
        # What nobody wanted is an outage: the longer the run, the more of them.
        (200, [], 230 + 100 * (STEPS - SHORTER) / (SHORTER - FORK)),
        (200, [700.0], 230 + 100 * (STEPS - SHORTER) / (SHORTER - FORK)),
    ],
)
def test_pause_of_the_owner_counts_once_and_not_for_each_step(step, rests, miss_s):
    found = paused(step, rests)["counterfactual_miss_seconds"]
    assert found == pytest.approx(miss_s, abs=1e-3)


def test_rests_are_those_that_the_owner_or_a_halt_brought():
    scroll, _ = until_proposed()
    scroll.decide(130, Rest(reason="so", nonce="h", state="suspended"))
    scroll.decide(140, Halt(reason="no luck", nonce="i", cause="killed"))
    found = read_chronicle(scroll.complete(700).book.records).rests
    assert found == (instant(130), instant(140))


def test_rates_are_compared_with_the_plan_step_by_step():
    summary = summary_of()
    before, after = (PLAN.values_at(step)["learning_rate"]["matrix"] for step in (FORK - 1, FORK))
    assert summary["lr_at_fork_before"] == before.hex()
    assert summary["lr_at_fork_after"] == summary["lr_at_fork_parent"] == after.hex()
    assert (summary["lr_at_fork_before_step"], summary["lr_at_fork_after_step"]) == (FORK - 1, FORK)
    assert summary["final_lr_fraction"] == 0.05
    assert summary["final_lr_exact"] is True
    assert summary["lr_matches_plan"] == {
        "steps_checked": SHORTER,
        "mismatches": 0,
        "first_mismatch": None,
    }


def test_rate_of_the_plan_before_is_its_own_and_not_the_log_s():
    summary = make_summary(bend(told(a_shortened_run()).evidence, FORK, 2))
    assert summary["lr_at_fork_parent"] == PLAN.values_at(FORK)["learning_rate"]["matrix"].hex()
    assert summary["lr_at_fork_after"] != summary["lr_at_fork_parent"]


def test_last_step_and_finish_are_two_instants():
    summary = summary_of()
    assert summary["last_step_ended_at"] == "2023-11-14T22:23:25.000+00:00"
    assert summary["finished_at"] == "2023-11-14T22:23:30.000+00:00"


def test_gang_that_went_over_by_itself_is_told_with_its_processes():
    evidence = told(a_shortened_run()).evidence
    first, second = evidence.histories
    second = replace(second, pids={1: 8, 0: 7})
    [revision] = make_summary(replace(evidence, histories=[first, second]))["revisions"]
    assert revision["adopted_without_restart"] is True
    assert (revision["attempt_before_fork"], revision["attempt_after_fork"]) == (2, 2)
    assert revision["pids"] == [7, 8]
    assert revision["compilations_after_fork"] == 0


def test_revision_that_a_restart_brought_is_told_as_such():
    evidence = told(a_shortened_run()).evidence
    first, second = evidence.histories
    cut = FORK - 30
    left = replace(second, steps=second.steps[:cut])
    third = replace(second, number=3, steps=second.steps[cut:])
    [revision] = make_summary(replace(evidence, histories=[first, left, third]))["revisions"]
    assert revision["adopted_without_restart"] is False
    assert (revision["attempt_before_fork"], revision["attempt_after_fork"]) == (2, 3)


def test_gang_started_under_the_revision_ahead_of_its_fork_did_not_go_over():
    evidence = told(a_shortened_run()).evidence
    first, second = evidence.histories
    sha = second.steps[-1].plan_sha
    held = [it.model_copy(update={"plan_sha": sha}) for it in second.steps]
    changed = replace(evidence, histories=[first, replace(second, steps=held)])
    [revision] = make_summary(changed)["revisions"]
    assert revision["adopted_without_restart"] is False


def test_what_was_compiled_after_the_fork_is_counted():
    evidence = told(a_shortened_run()).evidence
    first, second = evidence.histories
    tagged = [
        it.model_copy(update={"tags": ["compile"]}) if it.step in (50, FORK, 200) else it
        for it in second.steps
    ]
    changed = replace(evidence, histories=[first, replace(second, steps=tagged)])
    [revision] = make_summary(changed)["revisions"]
    assert revision["compilations_after_fork"] == 2


def test_revision_without_a_step_under_it_says_nothing_of_its_adoption():
    scroll, proposal = until_proposed()
    scroll.approve(proposal, 127).publish(proposal, 127.5)
    [revision] = summary_of(scroll, last=82)["revisions"]
    nothing = (
        "adopted_without_restart", "attempt_before_fork", "attempt_after_fork", "pids",
        "compilations_after_fork",
    )  # fmt: skip
    assert {name: revision[name] for name in nothing} == dict.fromkeys(nothing)


def test_moved_deadline_is_told_with_who_and_when():
    scroll, _ = until_proposed()
    scroll.move_deadline(130, 700).move_deadline(131, 700)
    [move] = summary_of(scroll, last=82)["deadline_moves"]
    assert move == {
        "at": "2023-11-14T22:15:30.000+00:00",
        "by": "ada",
        "deadline": "2023-11-14T22:25:00.000+00:00",
        "due": "2023-11-14T22:24:50.000+00:00",
    }


def test_deadline_of_an_edited_run_file_is_taken_once_by_nobody():
    scroll, _ = until_proposed()
    terms = scroll.memory.policy.terms
    later = terms.model_copy(update={"deadline_wall_ms": terms.deadline_wall_ms + 60_000})
    scroll.begin_anew(130, later).begin_anew(140, later.model_copy(update={"mode": "auto"}))
    deadlines = read_chronicle(scroll.book.records).deadlines
    assert [it.by for it in deadlines] == [None, None]
    assert deadlines[1].deadline_wall_ms == later.deadline_wall_ms
    assert deadlines[1].at.wall_ms - deadlines[0].at.wall_ms == 130_000


def bend(evidence, step, by):
    """Change one step's logged rate by a factor."""
    last = evidence.histories[-1]
    steps = [
        record.model_copy(
            update={
                "lr": {name: (float.fromhex(hexed) * by).hex() for name, hexed in record.lr.items()}
            }
        )
        if record.step == step
        else record
        for record in last.steps
    ]
    return replace(evidence, histories=[*evidence.histories[:-1], replace(last, steps=steps)])


def test_last_rate_that_is_not_the_declared_one_is_the_quotient():
    summary = make_summary(bend(told(a_shortened_run()).evidence, SHORTER - 1, 1 + 2**-20))
    assert summary["final_lr_exact"] is False
    assert summary["final_lr_fraction"] != 0.05
    assert summary["final_lr_fraction"] == pytest.approx(0.05, rel=1e-5)


def test_step_whose_rate_differs_is_counted_and_named():
    compared = make_summary(bend(told(a_shortened_run()).evidence, 200, 2))["lr_matches_plan"]
    assert (compared["mismatches"], compared["first_mismatch"]) == (1, 200)


def test_binary32_of_a_twentieth_is_told_as_a_twentieth():
    # The quotient of the logged value is another binary64 number.
    peak = float(PLAN.peaks["learning_rate"]["matrix"])
    last = a_shortened_run().memory.plan.values_at(SHORTER - 1)["learning_rate"]["matrix"]
    assert last == round_binary32(PLAN.knots_of("learning_rate")[-1][1] * 3 / 1000)
    assert last / peak != 0.05


def test_what_does_not_apply_is_null():
    scroll = Scroll(
        terms=Scroll().memory.policy.terms.model_copy(update={"deadline_wall_ms": None})
    )
    summary = summary_of(scroll.launch(0, 1), last=60)
    nothing = (
        "fork_step", "attempts_at_adoption", "deadline", "due", "finished_at", "on_time",
        "p_on_time_before", "p_on_time_after", "counterfactual_finish",
        "counterfactual_miss_seconds", "counterfactual_miss_percent", "lr_at_fork_before",
        "lr_at_fork_after", "final_lr_fraction", "final_lr_exact", "lr_at_fork_parent",
        "lr_at_fork_before_step", "lr_at_fork_after_step", "last_step_ended_at",
    )  # fmt: skip
    assert {name: summary[name] for name in nothing} == dict.fromkeys(nothing)
    assert summary["proposals"] == summary["revisions"] == summary["deadline_moves"] == []
    assert (summary["evaluations"], summary["late_evaluations"]) == (0, 0)
    assert summary["original_steps"] == summary["final_steps"] == STEPS


def test_evaluations_and_proposals_are_told_with_their_ends():
    scroll, proposal = until_proposed()
    summary = summary_of(scroll.close(proposal, 130, "rejected", "ada"), last=85)
    assert (summary["evaluations"], summary["late_evaluations"]) == (3, 2)
    assert summary["proposals"] == [
        {
            "id": proposal.id,
            "kind": "horizon",
            "outcome": "rejected",
            "by": "ada",
            "reason": "another day",
            "is_floor": False,
        }
    ]


def test_open_proposal_is_open_and_a_published_revision_is_not_adopted_yet():
    scroll, proposal = until_proposed()
    assert summary_of(scroll, last=82)["proposals"][0]["outcome"] == "open"
    summary = summary_of(scroll.approve(proposal, 127).publish(proposal, 127.5), last=82)
    [revision] = summary["revisions"]
    assert revision["adopted_at_step"] is None
    assert (summary["fork_step"], summary["final_steps"]) == (None, STEPS)


def test_missed_deadline_is_told():
    scroll, _ = until_proposed()
    summary = summary_of(scroll.complete(641), last=STEPS)
    assert summary["on_time"] is False
    assert summary["counterfactual_finish"] is None


def test_gang_started_after_the_end_takes_the_end_back():
    scroll = a_shortened_run().launch(700, 3)
    assert read_chronicle(scroll.book.records).completed_at is None


def test_proposal_of_a_line_that_is_left_is_void():
    scroll, _ = until_proposed()
    line = PLAN.lineage[0].model_copy(update={"name": "main-2", "fork_step": 20})
    plan = PLAN.model_copy(
        update={
            "kind": "line",
            "parent": PLAN.sha,
            "effective": 20,
            "lineage": [*PLAN.lineage, line],
        }
    )
    scroll.open_line(140, plan)
    [story] = read_chronicle(scroll.book.records).stories
    assert (story.outcome, story.by) == ("void", "owner")
    assert scroll.memory.proposal is None


def test_floor_proposal_says_so():
    scroll, _ = until_proposed()
    floor = a_proposal(is_floor=True, seq=2)
    told_of = summary_of(scroll.propose(floor), last=82)["proposals"]
    assert [it["is_floor"] for it in told_of] == [False, True]


def test_every_member_is_documented():
    page = (Path(__file__).parents[4] / "docs" / "cli.md").read_text()
    summary = summary_of()
    moves = summary_of(until_proposed()[0].move_deadline(130, 700), last=82)["deadline_moves"]
    parts = [summary["revisions"][0], summary["proposals"][0], summary["lr_matches_plan"], *moves]
    for name in [*summary, *(name for part in parts for name in part)]:
        assert f"`{name}`" in page, name
