"""From a wish for a change to a proposal with its facts and proofs."""

from dataclasses import dataclass

from contract.plan import Plan
from contract.schedule import last_rise
from controller.core.memory import Memory
from controller.core.outlook import estimate_loss_cost, look_ahead, look_shorter, measure_lag
from controller.core.proofs import Case, Room, last_window_step, prove
from controller.core.proposal import Change, Facts, Proof, Proposal, make_id
from controller.core.readings import Instant
from controller.core.revise import align_up, revise
from controller.core.snapshot import GangView, ProgressView, RankTelemetry, Snapshot
from controller.core.training import Training

NEWS_STEPS = 6
"""Steps that a gang needs to hear of a revision, agree on it and have some to spare."""
US_PER_MS = 1_000


@dataclass(frozen=True)
class Draft:
    """A wish for a change, by whom and why."""

    change: Change
    author: str
    nonce: str
    reason: str
    now: Instant
    wish: str | None = None
    """Nonce of the owner's wish; None: the controller's own idea."""
    is_floor: bool = False
    is_last_call: bool = False


def lead_steps(memory: Memory, training: Training) -> int:
    """Return how many steps lie between publishing a revision and its effective step at least."""
    lead_us = memory.policy.terms.lead_ms * US_PER_MS
    return NEWS_STEPS + -(-lead_us // max(1, training.pace.step_us))


def next_fork(memory: Memory, training: Training) -> int:
    """Return the first aligned step at which a revision published now could take effect."""
    wanted = training.step + lead_steps(memory, training)
    return align_up(wanted, memory.plan.align_steps)


def range_of_forks(memory: Memory, change: Change, training: Training) -> tuple[int, int]:
    """Return the first and last step at which the change may take effect."""
    plan, align = memory.plan, memory.plan.align_steps
    warm = align_up(last_rise(memory.genesis.knots_of("learning_rate")), align)
    match change.kind:
        case "horizon":
            first = max(next_fork(memory, training), warm)
            return first, max(first, last_window_step(memory.genesis, memory.policy.terms))
        case "mixture":
            first = next_fork(memory, training)
            return first, max(first, (plan.total_steps - 1) // align * align)
        case "execution":
            return 0, plan.total_steps - 1


def find_contradiction(parent: Plan, change: Change, fork: int) -> str | None:
    """Return why the change cannot begin at `fork`, None where it can."""
    total = change.total_steps or parent.total_steps
    if fork < total - 1:
        return None
    return f"its {total:,} steps would be done before it could take effect, at step {fork:,}"


def revise_for(
    memory: Memory, parent: Plan, proposal: Proposal, effective: int, supersedes: str | None = None
) -> Plan:
    """Return the revision that carries the proposal out from `effective` on."""
    return _revise(
        memory, parent, proposal.change, effective, (proposal.author, proposal.reason), supersedes
    )


def _revise(  # the parts of one pure function, and of a sibling's name
    memory: Memory,
    parent: Plan,
    change: Change,
    effective: int,
    origin: tuple[str, str],
    supersedes: str | None = None,
) -> Plan:
    author, reason = origin
    child = revise(
        parent,
        change,
        effective,
        author=author,
        reason=reason,
        midtrain_steps=-(-memory.policy.terms.midtrain_min_tokens // parent.tokens_per_step),
    )
    return child if supersedes is None else child.model_copy(update={"supersedes": supersedes})


def prove_revision(snapshot: Snapshot, memory: Memory, parent: Plan, child: Plan) -> list[Proof]:
    """Return every proof of the revision, on what is known now."""
    return prove(
        Case(
            genesis=memory.genesis,
            parent=parent,
            child=child,
            terms=memory.policy.terms,
            room=measure_room(snapshot, memory),
        )
    )


def measure_room(snapshot: Snapshot, memory: Memory) -> Room:
    """Return the memory of the largest rank, now or when the open proposal was made."""
    said = [it.value for it in snapshot.telemetry if isinstance(it.value, RankTelemetry)]
    sizes = [it.memory_bytes for it in said if it.memory_bytes is not None]
    is_whole = len(sizes) == memory.policy.ranks
    gang = snapshot.gang if isinstance(snapshot.gang, GangView) else None
    kept = memory.proposal.facts.rank_bytes if memory.proposal else None
    return Room(
        rank_bytes=max(sizes) if is_whole else kept,
        machine_bytes=gang.memory_bytes if gang else None,
        ranks=gang.ranks_per_machine if gang else 1,
    )


def draft_proposal(
    snapshot: Snapshot, memory: Memory, training: Training, draft: Draft
) -> Proposal:
    """Return the proposal with its facts; its proofs may fail."""
    first, last = range_of_forks(memory, draft.change, training)
    plan, change = memory.plan, draft.change
    # An execution takes effect at a restart, which comes at a step that nobody knows yet.
    effective = first if change.kind != "execution" else max(training.step, plan.effective)
    child = _revise(memory, plan, change, effective, (draft.author, draft.reason))
    proposal = Proposal(
        id="",
        parent=plan.sha,
        change=change,
        fork_first=first,
        fork_last=last,
        author=draft.author,
        wish=draft.wish,
        reason=draft.reason,
        is_floor=draft.is_floor,
        is_last_call=draft.is_last_call,
        facts=gather_facts(snapshot, memory, training, child),
        at=draft.now,
    )
    return proposal.model_copy(update={"id": make_id(proposal, memory.seq + 1)})


def gather_facts(snapshot: Snapshot, memory: Memory, training: Training, child: Plan) -> Facts:
    """Return what the proposal rests on."""
    plan, terms, now = memory.plan, memory.policy.terms, snapshot.now
    pace = memory.evaluation.pace if memory.evaluation else training.pace
    after = look_shorter(memory, pace, now, child.total_steps)
    due = terms.due_wall_ms
    return Facts(
        before=look_ahead(memory, pace, now, plan),
        after=after,
        lag=measure_lag(memory, pace, now),
        due_wall_ms=due,
        tokens_given_up=(plan.total_steps - child.total_steps) * plan.tokens_per_step,
        loss_cost=estimate_loss_cost(loss_of(snapshot), plan.total_steps, child.total_steps),
        shortfall_ms=0 if due is None else max(0, after.p50_wall_ms - due),
        rank_bytes=measure_room(snapshot, memory).rank_bytes,
        proofs=prove_revision(snapshot, memory, plan, child),
    )


def loss_of(snapshot: Snapshot) -> int | None:
    """Return the loss of the newest steps in millionths of a nat, None where it is not known."""
    progress = snapshot.progress
    return progress.loss_micronats if isinstance(progress, ProgressView) else None
