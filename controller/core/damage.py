"""Checkpoints that nobody can use: marked, and kept."""

from controller.core.actions import QuarantineCheckpoint
from controller.core.memory import Memory
from controller.core.rules import Answer, alive_ranks, known, live_attempt, rule
from controller.core.snapshot import Snapshot


@rule("gang", "store")
def quarantine_damaged(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Mark checkpoints without a readable manifest while no rank could be reading them."""
    gang = known(snapshot.gang)
    if live_attempt(memory) is not None:
        return None
    if gang is not None and (gang.remains or alive_ranks(gang.ranks)):
        return None
    damaged = [
        found
        for found in known(snapshot.store).checkpoints
        if found.manifest_sha256 is None and found.quarantined is None
    ]
    if not damaged:
        return None
    reason = "manifest missing or unreadable"
    nonce = str(memory.attempt.number if memory.attempt else 0)
    return Answer(
        f"{reason}: {', '.join(f'{found.line}/{found.step}' for found in damaged)}",
        [
            QuarantineCheckpoint(reason=reason, nonce=nonce, line=found.line, step=found.step)
            for found in damaged
        ],
    )
