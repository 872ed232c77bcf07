"""The part of the fold that is about the plan: evaluations, proposals, revisions."""

from controller.core.actions import (
    Approve,
    CloseProposal,
    Decline,
    Evaluate,
    Propose,
    PublishPlan,
    RecordAdoption,
)
from controller.core.memory import Memory, alter
from controller.core.policy import Policy
from controller.core.proposal import (
    CONTROLLER,
    Answer,
    Approval,
    Closed,
    Outcome,
    Proposal,
    Revision,
)
from controller.core.readings import Instant
from controller.core.snapshot import OwnerIntent

MAX_ANSWERS = 16
MAX_ASKS = 16
MAX_CLOSED = 64

PlanRecord = Evaluate | Propose | Approve | CloseProposal | Decline | RecordAdoption


def fold_plan_record(memory: Memory, action: PlanRecord, at: Instant) -> Memory:
    """Fold an action of the plan track that takes effect by being recorded."""
    match action:
        case Evaluate():
            return _fold_evaluation(memory, action, at)
        case Propose():
            memory = _answer(memory, action.nonce, f"proposal {action.proposal.id} is open")
            return alter(memory, proposal=action.proposal, approval=None)
        case Approve():
            memory = _answer(memory, action.nonce, f"proposal {action.proposal} is approved")
            return alter(memory, approval=Approval(by=action.by, at=at))
        case CloseProposal():
            return _fold_close(memory, action, at)
        case Decline():
            return _fold_decline(memory, action)
        case RecordAdoption():
            return _fold_adoption(memory, action, at)


def _fold_evaluation(memory: Memory, action: Evaluate, at: Instant) -> Memory:
    is_late = action.counts and action.is_late
    late = memory.late + 1 if is_late else memory.late if not action.counts else 0
    return alter(
        memory,
        evaluation=action,
        declined=None,
        evaluated_at=at,
        evaluated_step=action.pace.until_step,
        first_evaluation=memory.first_evaluation or action,
        late=late,
    )


def _fold_decline(memory: Memory, action: Decline) -> Memory:
    """Answer the wish; without one, the newest evaluation was found to lead to nothing."""
    if action.nonce in (ask.nonce for ask in memory.asks):
        return _answer(memory, action.nonce, action.reason, accepted=False)
    return alter(memory, declined=action.reason)


def _fold_close(memory: Memory, action: CloseProposal, at: Instant) -> Memory:
    proposal = memory.proposal
    accepted = action.outcome == "rejected"
    text = f"proposal {action.proposal} is {action.outcome}: {action.reason}"
    memory = _answer(memory, action.nonce, text, accepted=accepted)
    if memory.revision is not None and memory.revision.proposal.id == action.proposal:
        return _drop_missed(memory, memory.revision, action, at)
    if proposal is None or proposal.id != action.proposal:
        return memory
    memory = _close(memory, proposal, action.outcome, (action.by, action.reason), at)
    # The next proposal needs its full row of late evaluations again.
    return alter(
        memory,
        proposal=None,
        approval=None,
        evaluation=None,
        late=0,
    )


def _drop_missed(memory: Memory, revision: Revision, action: CloseProposal, at: Instant) -> Memory:
    """Forget a revision that never governed a step and can have no sibling any more."""
    origin = (action.by, action.reason)
    memory = _close(memory, revision.proposal, action.outcome, origin, at)
    return alter(memory, chain=memory.chain[:-1], revision=None, late=0)


def _close(
    memory: Memory, proposal: Proposal, outcome: Outcome, origin: tuple[str, str], at: Instant
) -> Memory:
    """Note that a proposal is over; `origin` is by whom and why."""
    by, reason = origin
    closed = Closed(
        id=proposal.id,
        kind=proposal.change.kind,
        outcome=outcome,
        by=by,
        reason=reason,
        at=at,
    )
    return alter(memory, closed=[*memory.closed, closed][-MAX_CLOSED:])


def fold_revision(memory: Memory, action: PublishPlan, at: Instant) -> Memory:
    """Take a revision into the chain; a sibling takes the place of the one that was missed."""
    plan, missed = action.plan, memory.revision
    if plan in memory.chain:
        return memory
    if missed is not None and plan.supersedes == missed.plan_sha:
        revision = alter(
            missed,
            plan_sha=plan.sha,
            fork_step=plan.effective,
            published_at=at,
            missed=[*missed.missed, missed.plan_sha],
        )
        return alter(memory, chain=[*memory.chain[:-1], plan], revision=revision)
    proposal, approval = memory.proposal, memory.approval
    assert proposal is not None, "published without a proposal"
    assert approval is not None, "published without consent"
    reason = f"carried out as revision {plan.sha[:12]} from step {plan.effective}"
    memory = _close(memory, proposal, "approved", (approval.by, reason), at)
    return alter(
        memory,
        chain=[*memory.chain, plan],
        proposal=None,
        approval=None,
        late=0,
        revision=Revision(
            plan_sha=plan.sha,
            kind=plan.kind,
            fork_step=plan.effective,
            total_steps=plan.total_steps,
            proposal=proposal,
            approval=approval,
            published_at=at,
        ),
    )


def _fold_adoption(memory: Memory, action: RecordAdoption, at: Instant) -> Memory:
    revision = memory.revision
    if revision is None or revision.plan_sha != action.plan_sha:
        return memory
    adopted = alter(revision, adopted_at=at, adopted_step=action.step)
    # What was measured under the parent says nothing about lateness under the child.
    return alter(memory, revision=None, adopted=[*memory.adopted, adopted], late=0)


def take_ask(memory: Memory, intent: OwnerIntent) -> Memory:
    """Take a wish about the plan into memory; new terms hold at once."""
    if intent.verb != "amend" and len(memory.asks) >= MAX_ASKS:
        text = f"{MAX_ASKS} wishes about the plan wait for an answer already"
        refusal = Answer(nonce=intent.nonce, accepted=False, text=text)
        return alter(memory, answers=[*memory.answers, refusal][-MAX_ANSWERS:])
    if intent.verb != "amend":
        return alter(memory, asks=[*memory.asks, intent])
    if intent.terms is None:
        return memory
    before = memory.policy
    # The owner's word on the deadline, even the same, confirms the clock that it is read by.
    notes = [note for note in memory.notes if note[0] != "clock"]
    memory = alter(memory, policy=alter(before, terms=intent.terms), notes=notes)
    return amend_terms(memory, before)


def amend_terms(memory: Memory, before: Policy) -> Memory:
    """Forget what was judged by other terms than those that hold now."""
    if before.terms == memory.policy.terms:
        return memory
    notes = [note for note in memory.notes if note[0] != "clock"]
    return alter(memory, late=0, evaluated_at=None, evaluation=None, notes=notes)


LEFT = "the run went on on another line"


def forget_plan_wishes(memory: Memory, at: Instant) -> Memory:
    """Forget what was measured on a line that is left; what was proposed or asked there is over.

    A revision that was published and not yet adopted is part of the new line's plan.
    """
    taken: list[Revision] = []
    if (revision := memory.revision) is not None:
        # It governs the new line from its own step on.
        taken = [alter(revision, adopted_at=at, adopted_step=revision.fork_step)]
    for ask in memory.asks:
        memory = _answer(memory, ask.nonce, LEFT, accepted=False)
    if (proposal := memory.proposal) is not None:
        memory = _close(memory, proposal, "void", (CONTROLLER, LEFT), at)
    return alter(
        memory,
        adopted=[*memory.adopted, *taken],
        proposal=None,
        approval=None,
        revision=None,
        late=0,
        evaluation=None,
        evaluated_at=None,
        evaluated_step=0,
    )


def _answer(memory: Memory, nonce: str, text: str, *, accepted: bool = True) -> Memory:
    """Note the outcome of the wish `nonce`, if it is one."""
    if nonce not in (ask.nonce for ask in memory.asks):
        return memory
    answer = Answer(nonce=nonce, accepted=accepted, text=text)
    asks = [ask for ask in memory.asks if ask.nonce != nonce]
    return alter(memory, asks=asks, answers=[*memory.answers, answer][-MAX_ANSWERS:])
