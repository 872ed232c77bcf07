"""A published revision on its way: seen to be adopted, or missed.

That its file and the pointer get written is the gang track's business (`repair_control`).
"""

from controller.core.actions import RecordAdoption
from controller.core.ancestry import list_restorable, list_usable
from controller.core.memory import Memory
from controller.core.proofs import list_failures
from controller.core.proposal import Proposal, Revision
from controller.core.proposing import find_contradiction, next_fork, prove_revision, revise_for
from controller.core.replan import close, publish, publish_proven
from controller.core.revise import align_up
from controller.core.rules import Answer, known, live_attempt, rule
from controller.core.snapshot import ProgressView, Snapshot, StoreView
from controller.core.training import find_training


@rule("progress")
def record_adoption(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Take it into memory that the gang runs the revision, because its steps say so."""
    revision, attempt = memory.revision, live_attempt(memory)
    progress = known(snapshot.progress)
    if revision is None or attempt is None or progress is None:
        return None
    if progress.attempt != attempt.number or progress.plan_sha != revision.plan_sha:
        return None
    step = progress.completed_steps or 0
    reason = f"revision {revision.plan_sha[:12]} governs since step {revision.fork_step}"
    action = RecordAdoption(
        reason=reason, nonce=str(memory.seq), plan_sha=revision.plan_sha, step=step
    )
    return Answer(reason, [action], wake_in_ms=0)


@rule()
def supersede_missed(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Replace a revision that the gang ran past by a sibling with a later fork."""
    revision = memory.revision
    if revision is None or revision.kind == "execution":
        return None
    past = find_step_past(snapshot, memory, revision)
    if past is None:
        return None
    parent, proposal = memory.held_plan, revision.proposal
    missed = f"revision {revision.plan_sha[:12]} was missed: the gang ran past its fork"
    why = find_contradiction(parent, proposal.change, past)
    if why is not None:
        return _drop(memory, proposal, f"{missed}; {why}")
    child = revise_for(memory, parent, proposal, past, revision.plan_sha)
    proofs = prove_revision(snapshot, memory, parent, child)
    if failures := list_failures(proofs):
        return _drop(memory, proposal, f"{missed}, and a later one fails {failures[0]}")
    reason = f"{missed}; its sibling {child.sha[:12]} takes effect at step {child.effective}"
    return Answer(reason, publish(memory, child, proposal.id, reason), wake_in_ms=0)


def _drop(memory: Memory, proposal: Proposal, why: str) -> Answer:
    """Return the end of a revision that never governed and can have no sibling."""
    return Answer(why, [close(memory, proposal, "void", why)], wake_in_ms=0)


def find_step_past(snapshot: Snapshot, memory: Memory, revision: Revision) -> int | None:
    """Return the next step at which a sibling can fork if the revision was missed, else None.

    Missed: the gang that lives logged steps past the fork under the parent; or, with none alive,
    a complete checkpoint of the parent lies past it, so that nothing can start from the revision.
    """
    training = find_training(snapshot, memory)
    parent = memory.held_plan
    if training is not None:
        progress = snapshot.progress
        assert isinstance(progress, ProgressView)
        is_past = training.step > revision.fork_step and progress.plan_sha == parent.sha
        return next_fork(memory, training) if is_past else None
    if not memory.is_between_attempts or not isinstance(snapshot.store, StoreView):
        return None
    usable = list_usable(memory.chain[:-1], snapshot.store.checkpoints)
    newest = usable[-1] if usable else None
    if newest is None or newest.plan_sha != parent.sha or newest.step <= revision.fork_step:
        return None
    # The next gang starts there, and has the time of its start to hear of the sibling.
    return align_up(newest.step + 1, parent.align_steps)


@rule("store")
def materialise_execution(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Make an approved execution a revision between two attempts, at the step to be restored."""
    if not awaits_execution(memory):
        return None
    proposal = memory.proposal
    assert proposal is not None
    restorable = list_restorable(memory, known(snapshot.store))
    restored = restorable[-1].step if restorable else 0
    effective = max(restored, memory.plan.effective)
    child = revise_for(memory, memory.plan, proposal, effective)
    return publish_proven(snapshot, memory, proposal, child)


def awaits_execution(memory: Memory) -> bool:
    """Return whether an approved execution waits for this moment between two attempts."""
    proposal = memory.proposal
    if proposal is None or memory.approval is None or proposal.change.kind != "execution":
        return False
    return memory.is_between_attempts and memory.revision is None


@rule("store")
def await_revision(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Let no attempt start until the plan track has put right what it must start from."""
    revision = memory.revision
    is_missed = revision is not None and find_step_past(snapshot, memory, revision) is not None
    if memory.is_between_attempts and (is_missed or awaits_execution(memory)):
        return Answer("the next attempt waits for its revision", wake_in_ms=0)
    return None
