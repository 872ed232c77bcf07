"""Whether the gang trains new steps right now, and how fast."""

from dataclasses import dataclass

from controller.core.memory import Memory
from controller.core.pace import PaceView
from controller.core.rules import live_attempt
from controller.core.snapshot import ProgressView, Snapshot

QUIET_STEPS = 20
QUIET_MS = 5_000
"""A gang whose log rested for longer than this, and than 20 steps, does not train."""
US_PER_MS = 1_000


@dataclass(frozen=True)
class Training:
    """A gang that completed steps in its newest attempt."""

    step: int
    """Completed steps."""
    pace: PaceView
    is_steady: bool
    """It trains new steps and its log grows: no replay, no standstill."""


def find_training(snapshot: Snapshot, memory: Memory) -> Training | None:
    """Return what trains, None where no live attempt has completed a step or it is to leave."""
    attempt, progress = live_attempt(memory), snapshot.progress
    if attempt is None or attempt.closed or attempt.drain is not None:
        return None
    if not isinstance(progress, ProgressView) or progress.attempt != attempt.number:
        return None
    if progress.completed_steps is None or progress.pace is None:
        return None
    quiet_ms = max(QUIET_MS, QUIET_STEPS * progress.pace.step_us // US_PER_MS)
    return Training(
        step=progress.completed_steps,
        pace=progress.pace,
        is_steady=not progress.is_replaying and progress.grown_age_ms <= quiet_ms,
    )
