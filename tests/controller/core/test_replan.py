"""The plan track: when it evaluates, proposes, falls silent, and what consent leads to."""

import pytest

from contract.model import Execution
from controller.core.chance import PERMILLE
from controller.core.outlook import look_shorter
from controller.core.proposal import Change, WantedStage
from controller.core.replan import explain_silence
from tests.builders import verbs_of
from tests.plan_runs import EVERY_MS, SLOW_STEP_S, STEPS, TERMS, a_dated_run, a_late_run


def open_proposal(run):
    """Return the open proposal."""
    assert run.memory.proposal is not None
    return run.memory.proposal


def rebuilt_equal(run):
    """Whether another controller would remember the same."""
    return run.rebuilt() == run.memory


# --- evaluations ---


def test_run_on_pace_is_evaluated_at_its_interval_and_nothing_is_proposed():
    run = a_dated_run()
    rules = run.train_and_pass(260)
    assert set(rules) == {"evaluate"}
    assert len(rules) == 13  # 2,600 s of training, one each 200 s
    assert run.memory.late == 0
    assert run.memory.evaluation.forecast.on_time_permille > 900


def test_windows_of_evaluations_do_not_overlap():
    run = a_dated_run()
    run.train_and_pass(40)
    first = run.memory.evaluation.pace
    run.train_and_pass(20)
    second = run.memory.evaluation.pace
    assert second.since_step == first.until_step


def test_evaluation_before_the_run_settled_does_not_count():
    run = a_dated_run(settle_ms=10**9)
    run.train_and_pass(200, step_s=30)
    assert not run.memory.evaluation.counts
    assert run.memory.late == 0
    assert "settles" in explain_silence(run.snapshot(), run.memory)


@pytest.mark.parametrize(
    "what",
    [
        {"is_replaying": True},
        {"grown_age_ms": 10**7},
    ],
)
def test_no_evaluation_while_the_gang_replays_or_stands_and_the_row_is_kept(what):
    run = a_dated_run()
    run.train_and_pass(60)
    run.train_and_pass(10, step_s=20)
    late = run.memory.late
    assert late == 1
    run.training(30, step_s=20).shown(**what)
    assert run.decide().rule == "watch"
    assert run.memory.late == late
    run.shown()
    assert run.pass_once().rule == "evaluate"
    assert run.memory.late == late + 1


def test_unreadable_step_log_stops_the_forecast_and_not_the_gang():
    run = a_dated_run()
    run.train_and_pass(60)
    run.after(EVERY_MS * 3).blind("progress")
    assert run.decide().rule == "watch"


@pytest.mark.parametrize("reserve_ms", [0, 1])
def test_clock_jump_makes_the_deadline_unknown_until_the_owner_confirms_it(reserve_ms):
    run = a_dated_run()
    run.train_and_pass(60)
    run.after(1_000, wall_jump_ms=10**8)
    run.settle()
    run.training(60)
    assert "evaluate" not in run.settle()
    assert "the wall clock jumped" in explain_silence(run.snapshot(), run.memory)
    terms = run.memory.policy.terms.model_copy(update={"reserve_ms": reserve_ms})
    run.asked("amend", terms=terms)
    run.pass_once()
    run.seeing(intents=[])
    run.training(30)
    assert "evaluate" in run.settle()


# --- the proposal ---


def test_three_late_evaluations_in_a_row_lead_to_one_proposal_that_meets_its_target():
    run = a_late_run()
    proposal = open_proposal(run)
    facts = proposal.facts
    assert proposal.is_own
    assert not proposal.is_floor
    assert 750 <= proposal.change.total_steps < STEPS
    assert facts.before.on_time_permille < TERMS.on_time_percent * PERMILLE
    assert facts.after.on_time_permille >= TERMS.target_percent * PERMILLE
    assert all(proof.holds for proof in facts.proofs)
    # The lag is all that the even pace to the deadline does not explain.
    elapsed = facts.before.at_wall_ms - TERMS.launched_wall_ms
    even = 105 * (TERMS.due_wall_ms - TERMS.launched_wall_ms) // STEPS
    assert facts.lag.lost_ms + facts.lag.slow_ms == elapsed - even
    assert facts.tokens_given_up == (STEPS - proposal.change.total_steps) * run.plan.tokens_per_step
    assert 0 < facts.loss_cost.low_micronats < facts.loss_cost.high_micronats
    assert proposal.fork_last == 250
    run.train_and_pass(60)
    assert open_proposal(run) == proposal, "sticky"
    assert rebuilt_equal(run)


def test_largest_horizon_that_meets_the_target_is_proposed():
    run = a_late_run()
    facts = open_proposal(run).facts
    more = look_shorter(
        run.memory, run.memory.evaluation.pace, run.now, facts.after.total_steps + 1
    )
    assert more.on_time_permille < TERMS.target_percent * PERMILLE


def test_one_evaluation_on_time_breaks_the_row():
    run = a_dated_run()
    run.train_and_pass(60)
    run.train_and_pass(20, step_s=20)
    assert run.memory.late == 2
    run.train_and_pass(25, step_s=8)
    assert run.memory.late == 0
    assert run.memory.proposal is None


def test_mode_off_evaluates_and_proposes_nothing():
    run = a_dated_run(mode="off")
    run.train_and_pass(60)
    assert set(run.train_and_pass(150, step_s=20)) == {"evaluate"}
    assert explain_silence(run.snapshot(), run.memory) == "the contingency's mode is off"


def test_slow_down_after_the_window_is_only_reported():
    run = a_dated_run()
    run.train_and_pass(260)
    assert set(run.train_and_pass(150, step_s=30)) == {"evaluate"}
    assert "window closed at step 250" in explain_silence(run.snapshot(), run.memory)


def test_last_call_proposes_below_the_target_without_a_row_of_late_evaluations():
    # P lies between onTime and target: never late, and still not good enough to let the window go.
    run = a_dated_run(deadline_wall_ms=TERMS.deadline_wall_ms - 2_100_000)
    rules = run.train_and_pass(260)
    assert "propose" in rules
    assert run.memory.late == 0
    proposal = open_proposal(run) if run.memory.proposal else None
    closed = run.memory.closed
    assert (proposal and proposal.is_last_call) or closed[-1].outcome == "expired"


def test_only_the_floor_is_reachable_and_says_by_how_much_the_deadline_is_missed():
    run = a_late_run(mode="auto", deadline_wall_ms=TERMS.launched_wall_ms + 10_000_000)
    proposal = open_proposal(run)
    assert proposal.is_floor
    assert proposal.change.total_steps == 750
    assert proposal.facts.shortfall_ms > 0
    run.train_and_pass(20)
    assert run.memory.approval is None, "never approved by the mode"


@pytest.mark.parametrize("left_ms", [1_300_000, 7_000_000])
def test_cut_that_gains_nothing_is_declined_and_the_next_evaluation_judges_anew(left_ms):
    run = a_dated_run(deadline_wall_ms=a_dated_run().now.wall_ms + left_ms)
    run.train_and_pass(60)
    rules = run.train_and_pass(60, step_s=SLOW_STEP_S)
    assert rules.count("propose") > 1, "once for each evaluation"
    assert rules.count("propose") <= rules.count("evaluate")
    assert run.memory.proposal is None
    assert run.memory.closed == []
    chance = "0%" if left_ms < 1_700_000 else "<0.1%"
    why = f"no horizon allowed meets the due date: P(on time) is {chance} at the floor of 750 steps"
    silence = explain_silence(run.snapshot(), run.memory)
    assert silence == f"{why}; the next evaluation judges anew"
    assert run.memory.last_decision[:2] == ("propose", why)
    assert run.memory.evaluation is not None, "it can be seen still"
    assert rebuilt_equal(run)


def test_cut_that_gains_a_thousandth_is_the_owners_to_judge():
    run = a_late_run(deadline_wall_ms=a_dated_run().now.wall_ms + 7_500_000)
    assert open_proposal(run).facts.after.on_time_permille == 1


def test_cut_too_small_for_a_revision_is_made_as_large_as_one():
    run = a_late_run(min_change_percent=20)
    assert open_proposal(run).change.total_steps == 800


def test_floor_that_leaves_no_cut_leads_to_nothing_and_is_told():
    run = a_dated_run(floor_percent=99, min_change_percent=2)
    run.train_and_pass(60)
    rules = run.train_and_pass(30, step_s=20)
    assert set(rules) == {"evaluate"}
    assert "leaves no cut worth a revision" in explain_silence(run.snapshot(), run.memory)


# --- how it ends ---


def test_recovery_makes_the_proposal_void_and_says_why():
    run = a_late_run()
    run.train_and_pass(40, step_s=7)
    assert run.memory.proposal is None
    [closed] = run.memory.closed
    assert closed.outcome == "void"
    assert "P(on time) of the unchanged plan" in closed.reason


def test_further_slow_down_makes_it_void_where_its_target_is_out_of_reach():
    run = a_late_run()
    run.train_and_pass(20, step_s=40)
    assert run.memory.closed[0].outcome == "void"
    assert "at the proposed horizon fell" in run.memory.closed[0].reason


def test_unanswered_proposal_expires():
    run = a_late_run(evaluate_every_ms=EVERY_MS)
    run.after(EVERY_MS * 8)
    assert run.pass_once().rule == "end_proposal"
    assert run.memory.closed[-1].outcome == "expired"


def test_closed_window_ends_the_proposal():
    run = a_late_run()
    run.step = 249
    run.shown()
    run.pass_once()
    assert run.memory.closed[-1].outcome == "expired"
    assert "after the last one" in run.memory.closed[-1].reason


def test_moved_deadline_makes_it_void_and_starts_the_row_anew():
    run = a_late_run()
    later = run.memory.policy.terms.model_copy(
        update={"deadline_wall_ms": TERMS.deadline_wall_ms + 10**8}
    )
    run.asked("amend", terms=later)
    run.pass_once()
    run.seeing(intents=[])
    run.settle()
    assert run.memory.closed[0].reason == "the owner moved the deadline"
    assert run.memory.policy.terms == later
    assert rebuilt_equal(run)


def ask(run, verb, **details):
    """Ask, and let it be answered."""
    run.asked(verb, nonce=f"{verb}-{run.memory.seq}", **details)
    run.pass_once()
    run.seeing(intents=[])
    run.pass_once()
    return run.memory.answers[-1]


def test_rejected_proposal_needs_a_new_row_before_the_next():
    run = a_late_run()
    answer = ask(run, "reject", proposal=open_proposal(run).id)
    assert answer.accepted
    assert (run.memory.proposal, run.memory.late) == (None, 0)
    rules = run.train_and_pass(45)
    assert rules.count("evaluate") == 3
    assert rules[-1] == "propose"


def test_equal_proposal_later_has_another_id():
    run = a_late_run()
    first = open_proposal(run)
    ask(run, "reject", proposal=first.id)
    run.train_and_pass(45)
    second = open_proposal(run)
    assert second.id != first.id
    assert not ask(run, "approve", proposal=first.id).accepted
    assert run.memory.approval is None


# --- consent ---


def approved(run):
    """Approve the open proposal and let the revision be published."""
    assert ask(run, "approve", proposal=open_proposal(run).id).accepted
    decision = run.pass_once()
    assert decision.rule == "materialise"
    assert verbs_of(decision) == ["publish_plan", "publish_control"]
    return run.pointed()


def test_approved_proposal_is_published_ahead_of_the_gang_and_adopted_when_it_says_so():
    run = a_late_run()
    proposal = open_proposal(run)
    approved(run)
    child, revision = run.memory.plan, run.memory.revision
    assert child.effective >= run.step + 6
    assert child.total_steps == proposal.change.total_steps
    assert revision.approval.by == "me"
    assert run.memory.proposal is None
    assert run.decide().actions == []
    run.training(2)
    assert run.decide().actions == [], "not adopted until the ranks say so"
    run.training(20).adopting()
    assert run.pass_once().rule == "record_adoption"
    assert run.memory.revision is None
    assert run.memory.adopted[0].adopted_step == run.step
    assert rebuilt_equal(run)


def test_mode_auto_consents_to_its_own_proposal():
    run = a_late_run(mode="auto")
    assert run.memory.revision is not None
    assert run.memory.revision.approval.by == "controller (mode auto)"


def test_no_proposal_in_the_cool_down_and_none_beyond_the_allowed_number():
    run = a_late_run(mode="auto", max_revisions=1)
    run.pointed().training(20).adopting()
    run.settle()
    assert "evaluate" in run.train_and_pass(60, step_s=40)
    assert run.memory.proposal is None
    assert "1 revision of the horizon was adopted" in explain_silence(run.snapshot(), run.memory)


def test_cool_down_counts_from_the_adoption():
    run = a_late_run(mode="propose", cool_down_ms=10**9)
    approved(run).training(20).adopting()
    run.settle()
    run.train_and_pass(40, step_s=40)
    assert "cool-down" in explain_silence(run.snapshot(), run.memory)
    assert run.memory.proposal is None


def test_revision_whose_horizon_would_be_reached_first_is_not_published():
    run = a_dated_run(floor_percent=10, window_percent=90)
    run.train_and_pass(700)
    answer = ask(run, "propose", change=Change(kind="horizon", total_steps=705))
    assert not answer.accepted


def test_second_approval_is_refused_and_changes_nothing():
    run = a_late_run()
    proposal = open_proposal(run)
    run.asked("approve", nonce="a1", proposal=proposal.id)
    first = run.seen["intents"]
    run.asked("approve", nonce="a2", proposal=proposal.id)
    run.seeing(intents=[*first, *run.seen["intents"]])
    run.pass_once()
    run.seeing(intents=[])
    run.settle()
    answers = {answer.nonce: answer.accepted for answer in run.memory.answers}
    assert answers == {"a1": True, "a2": False}
    assert len(run.memory.chain) == 2


# --- the owner's own proposals ---


def test_owner_may_propose_a_horizon_at_any_time_within_the_window():
    run = a_dated_run()
    run.train_and_pass(60)
    assert ask(run, "propose", change=Change(kind="horizon", total_steps=800)).accepted
    proposal = open_proposal(run)
    assert proposal.author == "me"
    run.train_and_pass(40)
    assert open_proposal(run) == proposal, "that it is on time does not make it void"
    approved(run)
    assert run.memory.plan.total_steps == 800


def test_mode_auto_never_consents_to_the_owners_proposal():
    run = a_dated_run(mode="auto")
    run.train_and_pass(60)
    ask(run, "propose", change=Change(kind="horizon", total_steps=800))
    run.settle()
    assert run.memory.approval is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change(kind="horizon", total_steps=700), "floor"),
        (Change(kind="horizon", total_steps=995), "change"),
        (Change(kind="horizon", total_steps=1_200), "change"),
        (Change(kind="mixture", stages=[WantedStage(from_percent=0, parts={"x": 16})]), "unknown"),
        (Change(kind="mixture", stages=[WantedStage(from_percent=0, parts={"text": 9})]), "sum"),
        (Change(kind="execution", execution=Execution(waves=2)), "fit"),
    ],
)
def test_owners_proposal_that_fails_a_proof_is_refused_by_name(change, words):
    run = a_dated_run()
    run.train_and_pass(60)
    answer = ask(run, "propose", change=change)
    assert not answer.accepted
    assert words in answer.text
    assert run.memory.proposal is None


def test_second_proposal_is_refused_while_one_is_open_or_a_revision_not_adopted():
    run = a_late_run()
    change = Change(kind="mixture", stages=[WantedStage(from_percent=0, parts={"text": 16})])
    assert "is open" in ask(run, "propose", change=change).text
    approved(run)
    assert "not adopted yet" in ask(run, "propose", change=change).text


def test_mixture_takes_the_same_road_after_the_window_too():
    run = a_dated_run(source_tokens={"text": 10**9, "more": 10**9})
    run.train_and_pass(400)
    stages = [WantedStage(from_percent=0, parts={"text": 8, "more": 8})]
    assert ask(run, "propose", change=Change(kind="mixture", stages=stages)).accepted
    approved(run)
    child = run.memory.plan
    assert child.kind == "mixture"
    assert child.total_steps == STEPS
    assert child.mixture.stages[0] == run.plan.mixture.stages[0]
    assert child.mixture.stages[1].start == child.effective


def test_wish_while_the_gang_starts_waits_and_one_at_rest_is_refused():
    run = a_dated_run()
    run.asked("propose", nonce="p", change=Change(kind="horizon", total_steps=800))
    run.pass_once()
    run.seeing(intents=[])
    assert run.decide().actions == []
    assert len(run.memory.asks) == 1
    run.training(50)
    run.settle()
    assert run.memory.answers[-1].accepted


def test_owner_who_is_called_controller_gets_no_consent_by_mode():
    run = a_dated_run(mode="auto")
    run.train_and_pass(60)
    run.asked("propose", nonce="p", change=Change(kind="horizon", total_steps=800))
    [intent] = run.seen["intents"]
    run.seeing(intents=[intent.model_copy(update={"user": "controller"})])
    run.pass_once()
    run.seeing(intents=[])
    run.settle()
    assert not open_proposal(run).is_own
    assert run.memory.approval is None


def test_chance_is_certain_once_the_due_instant_passed():
    run = a_dated_run(deadline_wall_ms=a_dated_run().now.wall_ms + 400_000)
    assert run.memory.evaluation is None
    run.train_and_pass(20)
    assert run.memory.evaluation.reason == "P(on time) <0.1%"
    run.train_and_pass(60)
    assert run.memory.evaluation.reason == "P(on time) 0%"


def test_cut_that_would_end_before_its_fork_is_declined():
    # Late in a wide window: 840 steps would do, and the least change leaves 800, already trained.
    run = a_dated_run(window_percent=90, floor_percent=50, min_change_percent=20)
    run.train_and_pass(780)
    rules = run.train_and_pass(30, step_s=60)
    assert "propose" in rules
    assert run.memory.proposal is None
    assert run.memory.closed == []
