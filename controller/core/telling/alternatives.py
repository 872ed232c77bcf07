"""What a decision did not do instead, and why not.

Found by asking the same functions that decided: horizons that fail a proof or miss the target,
checkpoints that may not be restored, forks that come too early.
"""

from collections.abc import Iterator
from typing import NamedTuple

from controller.core.actions import (
    Action,
    Approve,
    CloseProposal,
    Evaluate,
    Halt,
    LaunchGang,
    Propose,
    PublishPlan,
)
from controller.core.ancestry import last_steps, list_restorable
from controller.core.chance import PERMILLE, show_chance
from controller.core.memory import Memory
from controller.core.outlook import look_shorter
from controller.core.proofs import floor_steps, list_failures
from controller.core.proposal import CONTROLLER, Change, Proposal
from controller.core.proposing import Draft, draft_proposal, find_contradiction, lead_steps
from controller.core.replan import explain_silence, tell_chance
from controller.core.snapshot import CheckpointView, Snapshot, StoreView
from controller.core.telling.prospect import PERCENTS, look_around
from controller.core.training import Training, find_training

PERCENT = 100


class Alternative(NamedTuple):
    """Something that could have been done, and what spoke against it."""

    what: str
    why: str


def list_alternatives(
    snapshot: Snapshot, memory: Memory, after: Memory, action: Action
) -> Iterator[Alternative]:
    """Yield what was refused when `action` was chosen; `after`: the memory with the decision."""
    match action:
        case LaunchGang():
            yield from _refuse_checkpoints(snapshot, memory)
        case Halt():
            yield Alternative("another attempt", action.reason)
        case Evaluate():
            yield from _refuse_proposal(snapshot, after, action)
        case Propose() if action.proposal.is_own:
            yield from _refuse_horizons(snapshot, memory, action.proposal)
        case Approve() if not memory.asks:
            yield Alternative("wait for the owner's word", action.reason)
        case PublishPlan() if action.proposal is not None:
            yield from _refuse_forks(snapshot, memory, action)
        case CloseProposal():
            yield Alternative(f"keep proposal {action.proposal} open", action.reason)
        case _:
            pass


# --- where to start from ---


def _refuse_checkpoints(snapshot: Snapshot, memory: Memory) -> Iterator[Alternative]:
    store = snapshot.store
    if not isinstance(store, StoreView):
        return
    usable = list_restorable(memory, store)
    for found in store.checkpoints:
        if found not in usable:
            name = f"restore checkpoint {found.line}/{found.step}"
            yield Alternative(name, _explain_checkpoint(found, memory))


def _explain_checkpoint(found: CheckpointView, memory: Memory) -> str:
    lasts = last_steps(memory.plan)
    if found.quarantined is not None:
        return f"it is quarantined: {found.quarantined}"
    if found.plan_sha is None:
        return "its manifest is missing or damaged"
    if found.line not in lasts:
        return f"line {found.line} is no ancestor of line {memory.plan.line.name}"
    if found.step > lasts[found.line]:
        return f"the run left line {found.line} at step {lasts[found.line]:,}"
    if memory.restore_verified and not found.verified:
        return "it is not verified, as a start after a loss that was not finite demands"
    return "it lies past a fork of the plan in force, under another plan"


# --- how far to train ---


def _refuse_proposal(
    snapshot: Snapshot, after: Memory, evaluation: Evaluate
) -> Iterator[Alternative]:
    """Why nothing is proposed after an evaluation, and what other horizons would bring."""
    silence = explain_silence(snapshot, after)
    why = "nothing speaks against it any more: the next decision" if silence is None else silence
    yield Alternative("propose a shorter horizon", why)
    if after.proposal is not None:
        return
    for what_if in look_around(after, evaluation.pace, snapshot.now).what_ifs:
        found = what_if.forecast
        given_up = f"{what_if.tokens_given_up:,} tokens given up"
        yield Alternative(
            f"end after {found.total_steps:,} steps ({what_if.percent}%)",
            f"P(on time) {tell_chance(found)}, {given_up}",
        )


def _refuse_horizons(
    snapshot: Snapshot, memory: Memory, proposal: Proposal
) -> Iterator[Alternative]:
    training, chosen = find_training(snapshot, memory), proposal.change.total_steps
    if training is None or chosen is None:
        return
    for total in _list_horizons(memory, chosen):
        yield Alternative(
            f"end after {total:,} steps ({PERCENT * total // memory.genesis.total_steps}%)",
            _explain_horizon(snapshot, memory, training, proposal, total),
        )


def _list_horizons(memory: Memory, chosen: int) -> list[int]:
    """Return the plan's own horizon, the usual percents of the first one, and the next to it."""
    first, floor = memory.genesis.total_steps, floor_steps(memory.genesis, memory.policy.terms)
    percents = {-(-percent * first // PERCENT) for percent in PERCENTS}
    wanted = percents | {memory.plan.total_steps, chosen + 1, floor, floor - 1}
    last = memory.plan.total_steps
    return sorted((it for it in wanted if it != chosen and floor - 1 <= it <= last), reverse=True)


def _explain_horizon(
    snapshot: Snapshot, memory: Memory, training: Training, proposal: Proposal, total: int
) -> str:
    terms, chosen = memory.policy.terms, proposal.change.total_steps or 0
    pace = memory.evaluation.pace if memory.evaluation else training.pace
    forecast = look_shorter(memory, pace, snapshot.now, total)
    chance = f"P(on time) {tell_chance(forecast)}"
    target = terms.target_percent * PERMILLE
    if total > chosen and (forecast.on_time_permille or 0) < target:
        return f"{chance}, under the target of {show_chance(target)}"
    change = Change(kind="horizon", total_steps=total)
    draft = Draft(change, CONTROLLER, str(memory.seq), proposal.reason, snapshot.now)
    first = proposal.fork_first
    if (why := find_contradiction(memory.plan, change, first)) is not None:
        return f"{chance}; {why}"
    failures = list_failures(draft_proposal(snapshot, memory, training, draft).facts.proofs)
    if failures:
        return f"{chance}; {'; '.join(f'it fails {proof}' for proof in failures)}"
    more = (chosen - total) * memory.plan.tokens_per_step
    return f"{chance}, but {more:,} more tokens given up than the target needs"


def _refuse_forks(snapshot: Snapshot, memory: Memory, action: PublishPlan) -> Iterator[Alternative]:
    """An earlier fork is not reached in time by a gang that trains on."""
    training, align = find_training(snapshot, memory), memory.plan.align_steps
    earlier = action.plan.effective - align
    if training is None or earlier < 0:
        return
    lead = lead_steps(memory, training)
    why = (
        f"step {training.step:,} is done, and the gang must hear of a revision"
        f" {lead:,} steps ahead; forks are multiples of {align:,}"
    )
    yield Alternative(f"fork at step {earlier:,} already", why)
