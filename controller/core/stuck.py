"""A rank that lives and does not move, where its own watchdog did not end it."""

from contract.wire import Phase
from controller.core.actions import CloseAttempt, KillRanks
from controller.core.memory import AttemptMemory, Memory
from controller.core.readings import Unknown, elapsed_ms, show_seconds
from controller.core.rules import (
    Answer,
    alive_ranks,
    known,
    live_attempt,
    nonce_of,
    own_gang,
    rule,
)
from controller.core.snapshot import GangView, ProgressView, RankTelemetry, Snapshot

STEPPING = (Phase.STEP, Phase.SAVE_BLOCK, Phase.EVAL, Phase.FIRST_STEP)
"""Phases in which a gang that has logged a step can be, besides leaving."""


@rule("gang", "progress")
def end_stuck(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """End a gang on two fresh signals: a rank past its deadline, and a step log that rests."""
    attempt = live_attempt(memory)
    gang = own_gang(snapshot, memory)
    if attempt is None or gang is None or attempt.closed:
        return None
    still_ms = log_still_ms(snapshot, attempt)
    if isinstance(still_ms, Unknown):
        return None
    suspects = find_suspects(snapshot, memory, gang, still_ms)
    if not suspects:
        return None
    still = show_seconds(still_ms)
    reason = f"ranks {suspects} passed their deadlines and no step was logged for {still}"
    nonce, ranks = nonce_of(attempt), alive_ranks(gang.ranks)
    close = CloseAttempt(
        reason=reason, nonce=nonce, attempt=attempt.number, cause="stall", suspects=suspects
    )
    kill = KillRanks(reason=reason, nonce=nonce, attempt=attempt.number, ranks=ranks)
    return Answer(reason, [close, kill])


def log_still_ms(snapshot: Snapshot, attempt: AttemptMemory) -> int | Unknown:
    """Return for how long the attempt's step log has not grown; without one, since the launch."""
    progress: ProgressView | None = known(snapshot.progress)
    if progress is None:
        return elapsed_ms(attempt.launched_at, snapshot.now)
    if progress.attempt != attempt.number:
        return Unknown(unknown="an old answer: the step log of another attempt")
    return progress.grown_age_ms


def find_suspects(snapshot: Snapshot, memory: Memory, gang: GangView, still_ms: int) -> list[int]:
    """Return the live ranks that two independent signals say are stuck."""
    margin_ms = memory.policy.margin_ms
    said = {reading.rank: reading.value for reading in snapshot.telemetry}
    suspects: list[int] = []
    for view in gang.ranks:
        value = said.get(view.rank)
        if isinstance(value, RankTelemetry) and value.attempt == gang.attempt:
            # A rank may have been given longer than declared, never less, whatever it says.
            declared_ms = memory.policy.deadlines_ms.get(value.phase, 0)
            limit_ms = max(value.deadline_ms, declared_ms) + margin_ms
            is_late = min(value.progress_age_ms, still_ms) > limit_ms
        else:
            is_late = view.stopped and still_ms > blind_limit_ms(snapshot, memory) + margin_ms
        if view.alive and is_late:
            suspects.append(view.rank)
    return suspects


def blind_limit_ms(snapshot: Snapshot, memory: Memory) -> int:
    """Return the deadline of a rank that says nothing: the longest of the phases it may be in."""
    progress = known(snapshot.progress)
    has_stepped = progress is not None and progress.completed_steps is not None
    deadlines = memory.policy.deadlines_ms
    return max(deadlines[phase] for phase in deadlines if phase in STEPPING or not has_stepped)
