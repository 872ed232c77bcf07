"""The plan track: is the run on time, what would help, who consents, when it is carried out.

Rules in order; the first that has something to say wins. The gang's track never waits for them.
"""

from collections.abc import Sequence
from typing import Literal

from contract.plan import Plan
from controller.core.actions import (
    Action,
    Approve,
    CloseProposal,
    Decline,
    Evaluate,
    Propose,
    PublishControl,
    PublishPlan,
)
from controller.core.chance import PERMILLE, count_of, is_settled, show_chance
from controller.core.forecast import Forecast
from controller.core.memory import Memory
from controller.core.outlook import find_horizon, look_ahead, look_shorter
from controller.core.proofs import floor_steps, last_window_step, list_failures
from controller.core.proposal import (
    CONTROLLER,
    EXPIRY_EVALUATIONS,
    MAX_OVERSHOOT_PERMILLE,
    Change,
    Proof,
    Proposal,
)
from controller.core.proposing import (
    Draft,
    draft_proposal,
    find_contradiction,
    lead_steps,
    next_fork,
    prove_revision,
    range_of_forks,
    revise_for,
)
from controller.core.readings import age_ms, show_seconds
from controller.core.rules import Answer, live_attempt, rule
from controller.core.snapshot import OwnerIntent, Snapshot
from controller.core.terms import Terms
from controller.core.training import Training, find_training

PERCENT = 100
US_PER_MS = 1_000
AUTO = f"{CONTROLLER} (mode auto)"


# --- the open proposal ends by itself ---


@rule("progress")
def end_proposal(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Close a proposal whose facts no longer hold, or that nobody answered in time."""
    proposal = memory.proposal
    if proposal is None:
        return None
    if (why := find_void(memory, proposal)) is not None:
        return _close(memory, proposal, "void", why)
    if (why := find_expiry(snapshot, memory, proposal)) is not None:
        return _close(memory, proposal, "expired", why)
    return None


def find_void(memory: Memory, proposal: Proposal) -> str | None:
    """Return why the proposal no longer rests on facts, None while it does."""
    if proposal.parent != memory.plan.sha:
        return "the plan that it would follow is no longer in force"
    if proposal.change.kind != "horizon":
        return None
    terms, evaluation = memory.policy.terms, memory.evaluation
    if proposal.facts.due_wall_ms != terms.due_wall_ms:
        return "the owner moved the deadline"
    if proposal.is_own and evaluation is not None:
        return _find_recovery(proposal, evaluation, terms)
    return None


def _find_recovery(proposal: Proposal, evaluation: Evaluate, terms: Terms) -> str | None:
    """Return how the newest evaluation speaks against the controller's own proposal."""
    unchanged = evaluation.forecast.on_time_permille
    # A last call is made below the target already: only what meets it takes the call back.
    clear = terms.target_percent if proposal.is_last_call else terms.clear_above_percent
    if unchanged is not None and unchanged > clear * PERMILLE:
        return f"P(on time) of the unchanged plan is {show_chance(unchanged)}, above {clear}%"
    proposed = evaluation.proposed.on_time_permille if evaluation.proposed else None
    target = terms.target_percent * PERMILLE
    if proposed is None or proposal.is_floor or proposed >= target - MAX_OVERSHOOT_PERMILLE:
        return None
    p = show_chance(proposed)
    return f"P(on time) at the proposed horizon fell to {p}, under {terms.target_percent}%"


def find_expiry(snapshot: Snapshot, memory: Memory, proposal: Proposal) -> str | None:
    """Return why it is too late for the proposal, None while it is not."""
    patience_ms = EXPIRY_EVALUATIONS * memory.policy.terms.evaluate_every_ms
    if memory.approval is None and age_ms(proposal.at, snapshot.now) >= patience_ms:
        return f"nobody answered within {show_seconds(patience_ms)}"
    training = find_training(snapshot, memory)
    if training is None or proposal.change.kind == "execution":
        return None
    fork = next_fork(memory, training)
    if fork > proposal.fork_last:
        return f"the next possible fork, step {fork}, is after the last one, {proposal.fork_last}"
    return find_contradiction(memory.plan, proposal.change, fork)


def close(
    memory: Memory, proposal: Proposal, outcome: Literal["expired", "void"], why: str
) -> CloseProposal:
    """Return the end of a proposal by the controller."""
    return CloseProposal(
        reason=why, nonce=str(memory.seq), proposal=proposal.id, outcome=outcome, by=CONTROLLER
    )


def _close(
    memory: Memory, proposal: Proposal, outcome: Literal["expired", "void"], why: str
) -> Answer:
    action = close(memory, proposal, outcome, why)
    return Answer(f"proposal {proposal.id} is {outcome}: {why}", [action], wake_in_ms=0)


# --- the owner's wishes ---


@rule("progress")
def answer_owner(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Answer the oldest wish about the plan."""
    if not memory.asks:
        return None
    ask = memory.asks[0]
    if ask.verb == "propose":
        return _answer_proposal(snapshot, memory, ask)
    proposal = memory.proposal
    if proposal is None or proposal.id != ask.proposal:
        there = f"{proposal.id} is" if proposal else "none is"
        return _decline(ask.nonce, f"proposal {ask.proposal} is not open; {there}")
    # What waits for a restart that may be weeks away keeps every other proposal out.
    is_waiting = proposal.change.kind == "execution" or find_training(snapshot, memory) is None
    if memory.approval is not None and not (is_waiting and ask.verb == "reject"):
        return _decline(ask.nonce, f"proposal {proposal.id} is approved already")
    action: Action = Approve(
        reason=f"{ask.user} approved it", nonce=ask.nonce, proposal=proposal.id, by=ask.user
    )
    if ask.verb == "reject":
        action = CloseProposal(
            reason=f"{ask.user} rejected it",
            nonce=ask.nonce,
            proposal=proposal.id,
            outcome="rejected",
            by=ask.user,
        )
    return Answer(f"{ask.user} asked to {ask.verb} proposal {proposal.id}", [action], wake_in_ms=0)


def _answer_proposal(snapshot: Snapshot, memory: Memory, ask: OwnerIntent) -> Answer | None:
    if (why := find_obstacle(memory)) is not None:
        return _decline(ask.nonce, why)
    training = find_training(snapshot, memory)
    if training is None:
        is_coming = live_attempt(memory) is not None or memory.wanted.state == "run"
        is_at_rest = memory.rest is not None or memory.halted is not None
        if is_coming and not is_at_rest:
            return None  # The gang is on its way to its first steps.
        return _decline(ask.nonce, "the run does not train, so no step can be named")
    assert ask.change is not None
    first, _ = range_of_forks(memory, ask.change, training)
    if (why := find_contradiction(memory.plan, ask.change, first)) is not None:
        return _decline(ask.nonce, why)
    draft = Draft(
        change=ask.change,
        author=ask.user,
        nonce=ask.nonce,
        wish=ask.nonce,
        reason=f"{ask.user} asked to {ask.change.describe()}",
        now=snapshot.now,
    )
    return _put_up(draft_proposal(snapshot, memory, training, draft), draft)


def find_obstacle(memory: Memory) -> str | None:
    """Return why no proposal can be made now, None when one can."""
    if memory.proposal is not None:
        return f"proposal {memory.proposal.id} is open; approve or reject it first"
    if memory.revision is not None:
        return f"revision {memory.revision.plan_sha[:12]} is not adopted yet"
    return None


def _decline(nonce: str, why: str) -> Answer:
    return Answer(why, [Decline(reason=why, nonce=nonce)], wake_in_ms=0)


def tell_failures(failures: Sequence[Proof]) -> str:
    """Return which proofs fail, in words."""
    return "; ".join(f"it fails {proof}" for proof in failures)


def _put_up(proposal: Proposal, draft: Draft) -> Answer:
    failures = list_failures(proposal.facts.proofs)
    if failures:
        wish = f'"{draft.change.describe()}" cannot be'
        return _decline(draft.nonce, f"{wish}: {tell_failures(failures)}")
    reason = f"proposal {proposal.id}: {proposal.change.describe()} ({proposal.reason})"
    return Answer(
        reason, [Propose(reason=reason, nonce=draft.nonce, proposal=proposal)], wake_in_ms=0
    )


# --- consent, and carrying it out ---


@rule()
def approve_by_mode(_: Snapshot, memory: Memory) -> Answer | None:
    """Consent to the controller's own proposal where the owner declared so before launch."""
    proposal = memory.proposal
    if proposal is None or memory.approval is not None or memory.policy.terms.mode != "auto":
        return None
    if not proposal.is_own or proposal.is_floor:
        return None
    reason = "the contingency's mode is auto"
    action = Approve(reason=reason, nonce=str(memory.seq), proposal=proposal.id, by=AUTO)
    return Answer(f"proposal {proposal.id} is approved: {reason}", [action], wake_in_ms=0)


@rule("progress")
def materialise(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Make the approved proposal a revision at the first aligned step ahead, and publish it."""
    proposal = memory.proposal
    if proposal is None or memory.approval is None or proposal.change.kind == "execution":
        return None
    training = find_training(snapshot, memory)
    if training is None or memory.revision is not None:
        return None
    fork = max(next_fork(memory, training), proposal.fork_first)
    child = revise_for(memory, memory.plan, proposal, fork)
    return publish_proven(snapshot, memory, proposal, child)


def publish_proven(snapshot: Snapshot, memory: Memory, proposal: Proposal, child: Plan) -> Answer:
    """Publish the revision if every proof holds again; else the proposal is void."""
    proofs = prove_revision(snapshot, memory, memory.plan, child)
    if failures := list_failures(proofs):
        why = f"from step {child.effective:,} it cannot be: {tell_failures(failures)}"
        return _close(memory, proposal, "void", why)
    reason = f"revision {child.sha[:12]} of proposal {proposal.id} from step {child.effective}"
    return Answer(reason, publish(memory, child, proposal.id, reason), wake_in_ms=0)


def publish(memory: Memory, child: Plan, proposal_id: str, reason: str) -> list[Action]:
    """Return what brings a revision to a gang that lives: its file first, then the pointer."""
    nonce = str(memory.seq)
    plan = PublishPlan(reason=reason, nonce=nonce, plan=child, proposal=proposal_id)
    attempt = live_attempt(memory)
    if attempt is None or attempt.order is None:
        return [plan]  # The launch publishes the pointer.
    control = PublishControl(
        reason=reason, nonce=nonce, plan_sha=child.sha, drain=memory.control_drain
    )
    return [plan, control]


# --- is the run on time? ---


@rule("progress")
def evaluate(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Forecast the finish, at the declared interval, on clean steps of its own."""
    terms, training = memory.policy.terms, find_training(snapshot, memory)
    if terms.deadline_wall_ms is None or training is None or not training.is_steady:
        return None
    if not is_due(snapshot, memory, training) or is_clock_unsure(memory):
        return None
    pace = training.pace
    forecast = look_ahead(memory, pace, snapshot.now, memory.plan)
    proposal = memory.proposal
    total = proposal.change.total_steps if proposal is not None else None
    permille = forecast.on_time_permille
    assert permille is not None
    action = Evaluate(
        reason=f"P(on time) {tell_chance(forecast)}",
        nonce=str(memory.seq),
        pace=pace,
        forecast=forecast,
        proposed=None if total is None else look_shorter(memory, pace, snapshot.now, total),
        counts=pace.trained_ms >= terms.settle_ms,
        is_late=permille < terms.on_time_percent * PERMILLE,
        is_last_call=is_last_call(memory, training),
    )
    return Answer(f"evaluated at step {pace.until_step}: {action.reason}", [action], wake_in_ms=0)


def tell_chance(forecast: Forecast) -> str:
    """Return P(on time) in words: certain once all is done, or the due instant passed."""
    at, due = forecast.at_wall_ms, forecast.due_wall_ms
    is_certain = is_settled(at, due, forecast.step, forecast.total_steps)
    return show_chance(forecast.on_time_permille or 0, is_certain=is_certain)


def is_due(snapshot: Snapshot, memory: Memory, training: Training) -> bool:
    """Return whether an interval passed since the last evaluation, with enough clean steps."""
    terms, pace = memory.policy.terms, training.pace
    # An old answer counts steps from before the last evaluation: they were judged already.
    if pace.clean_steps < terms.min_clean_steps or pace.since_step < memory.evaluated_step:
        return False
    if memory.evaluated_at is None:
        return pace.trained_ms >= terms.evaluate_every_ms
    return age_ms(memory.evaluated_at, snapshot.now) >= terms.evaluate_every_ms


def is_clock_unsure(memory: Memory) -> bool:
    """Return whether the wall clock jumped and the owner did not confirm the deadline since."""
    return any(subject == "clock" for subject, _, __ in memory.notes)


def is_last_call(memory: Memory, training: Training) -> bool:
    """Return whether the next evaluation, or the one after it, would come too late for the window.

    Two intervals, because an evaluation waits for its clean steps and consent takes its time.
    """
    terms, pace = memory.policy.terms, training.pace
    last = last_window_step(memory.genesis, terms)
    per_interval = terms.evaluate_every_ms * US_PER_MS // max(1, pace.step_us)
    fork = next_fork(memory, training)
    return fork <= last < fork + 2 * per_interval


@rule("progress")
def propose(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Propose the declared contingency when the run is late, or before its window closes."""
    terms, evaluation = memory.policy.terms, memory.evaluation
    training = find_training(snapshot, memory)
    if training is None or evaluation is None or explain_silence(snapshot, memory) is not None:
        return None
    floor = floor_steps(memory.genesis, terms)
    total, found = find_horizon(memory, evaluation.pace, snapshot.now, floor)
    if not found.on_time_permille:
        return _decline(str(memory.seq), _tell_hopelessness(found))
    draft = Draft(
        change=Change(kind="horizon", total_steps=min(total, highest_cut(memory))),
        author=CONTROLLER,
        nonce=str(memory.seq),
        reason=describe_trigger(memory),
        now=snapshot.now,
        is_floor=found.on_time_permille < terms.target_percent * PERMILLE,
        is_last_call=evaluation.is_last_call and memory.late < terms.evaluations,
    )
    first, _ = range_of_forks(memory, draft.change, training)
    if (why := find_contradiction(memory.plan, draft.change, first)) is not None:
        return _decline(draft.nonce, why)
    return _put_up(draft_proposal(snapshot, memory, training, draft), draft)


def _tell_hopelessness(floor: Forecast) -> str:
    """Return why not even the shortest horizon is proposed: it gives tokens up for nothing."""
    chance = f"P(on time) is {tell_chance(floor)} at the floor of {floor.total_steps:,} steps"
    return f"no horizon allowed meets the due date: {chance}"


def highest_cut(memory: Memory) -> int:
    """Return the most steps that a shortening may leave: the change must be worth a revision."""
    least_cut = -(-memory.policy.terms.min_change_percent * memory.genesis.total_steps // PERCENT)
    return memory.plan.total_steps - least_cut


def describe_trigger(memory: Memory) -> str:
    """Return why the contingency is called for."""
    terms, evaluation = memory.policy.terms, memory.evaluation
    assert evaluation is not None
    p = tell_chance(evaluation.forecast)
    if memory.late >= terms.evaluations:
        return (
            f"P(on time) is {p}, below {terms.on_time_percent}% at"
            f" {count_of(memory.late, 'evaluation')} in a row"
        )
    return f"last call before the window closes: P(on time) is {p}"


def explain_silence(snapshot: Snapshot, memory: Memory) -> str | None:
    """Return why the controller proposes nothing, None where it has reason to."""
    terms = memory.policy.terms
    if terms.deadline_wall_ms is None:
        return "no deadline is declared"
    if terms.mode == "off":
        return "the contingency's mode is off"
    if is_clock_unsure(memory):
        return "the wall clock jumped: the deadline is unknown until its owner launches it again"
    return (
        find_obstacle(memory)
        or _explain_limits(snapshot, memory, terms)
        or _explain_window(snapshot, memory, terms)
        or _explain_decline(memory)
        or _explain_patience(memory, terms)
    )


def _explain_window(snapshot: Snapshot, memory: Memory, terms: Terms) -> str | None:
    training = find_training(snapshot, memory)
    if training is None:
        return "the run does not train now"
    last = last_window_step(memory.genesis, terms)
    # Once more as much as a revision needs: a proposal that expires at birth helps nobody.
    if next_fork(memory, training) + lead_steps(memory, training) > last:
        return f"the window closed at step {last:,}; from now on the forecast is only reported"
    return None


def _explain_limits(snapshot: Snapshot, memory: Memory, terms: Terms) -> str | None:
    floor = floor_steps(memory.genesis, terms)
    if highest_cut(memory) < floor:
        return f"the floor of {floor:,} steps leaves no cut worth a revision"
    horizons = [it for it in memory.adopted if it.kind == "horizon"]
    if len(horizons) >= terms.max_revisions:
        count, verb = count_of(len(horizons), "revision"), "was" if len(horizons) == 1 else "were"
        return f"{count} of the horizon {verb} adopted; no more are allowed"
    if horizons:
        since = horizons[-1].adopted_at or horizons[-1].published_at
        left_ms = terms.cool_down_ms - age_ms(since, snapshot.now)
        if left_ms > 0:
            left = show_seconds(left_ms)
            return f"the last revision is too fresh; {left} of its cool-down are left"
    return None


def _explain_decline(memory: Memory) -> str | None:
    if memory.evaluation is None or memory.declined is None:
        return None
    return f"{memory.declined}; the next evaluation judges anew"


def _explain_patience(memory: Memory, terms: Terms) -> str | None:
    evaluation = memory.evaluation
    if evaluation is None:
        is_first = memory.evaluated_at is None
        used_up = "the newest evaluation led to nothing more; the next one begins a new row"
        return "no evaluation was made yet" if is_first else used_up
    if not evaluation.counts:
        return f"the run settles: it must have trained for {show_seconds(terms.settle_ms)}"
    if memory.late >= terms.evaluations:
        return None
    permille = evaluation.forecast.on_time_permille or 0
    if evaluation.is_last_call and permille < terms.target_percent * PERMILLE:
        return None
    if evaluation.is_late:
        return f"late at {memory.late} of {count_of(terms.evaluations, 'evaluation')} in a row"
    p = tell_chance(evaluation.forecast)
    return f"P(on time) is {p}, not below {terms.on_time_percent}%"
