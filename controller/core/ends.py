"""How an attempt ends: fenced at the first end, the rest ended after a while, then recorded."""

from contract.exits import PLANNED, Exit, describe_exit
from controller.core.actions import Action, CloseAttempt, Complete, KillRanks, RecordEnd
from controller.core.memory import Memory
from controller.core.owner import drain_patience_ms
from controller.core.readings import Unknown, show_seconds
from controller.core.rules import (
    Answer,
    alive_ranks,
    all_claimed,
    ended_ranks,
    foreign_ranks,
    has_passed,
    live_attempt,
    nonce_of,
    own_gang,
    rule,
)
from controller.core.snapshot import GangView, RankTelemetry, RankView, Snapshot


@rule("gang")
def kill_remains(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """End ranks that outlived their attempt: none of them may meet a new gang."""
    remains = foreign_ranks(snapshot, memory)
    attempt = memory.attempt
    since = (attempt.ended_at or attempt.launched_at) if attempt else memory.epoch_at
    if not remains or not has_passed(since, memory.policy.cascade_ms, snapshot.now):
        return None
    number = min(ref.attempt for ref in remains)
    ranks = [ref.rank for ref in remains if ref.attempt == number]
    reason = f"ranks {ranks} of attempt {number} outlived it"
    return Answer(
        reason,
        [
            CloseAttempt(reason=reason, nonce="remains", attempt=number),
            KillRanks(reason=reason, nonce="remains", attempt=number, ranks=ranks),
        ],
    )


@rule("gang")
def record_end(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Take the end of the attempt into memory once no rank of it lives or can still start."""
    attempt = live_attempt(memory)
    gang = own_gang(snapshot, memory)
    if attempt is None or gang is None or not is_over(gang, memory):
        return None
    blind = isinstance(snapshot.store, Unknown) or isinstance(snapshot.progress, Unknown)
    if blind and all(view.end and view.end.code == Exit.DONE for view in gang.ranks):
        return Answer("all ranks say done; wait until store and step log can be read to believe it")
    reason = f"attempt {attempt.number} is over: {describe_ends(gang.ranks)}"
    return Answer(reason, [end_record(snapshot, memory, gang, reason)], wake_in_ms=0)


def is_over(gang: GangView, memory: Memory) -> bool:
    """Return whether no rank lives and none can start any more."""
    return not alive_ranks(gang.ranks) and (gang.closed or all_claimed(gang, memory))


def describe_ends(ranks: list[RankView]) -> str:
    """Return the ends in words, equal ones together."""
    words: dict[str, list[int]] = {}
    for view in ranks:
        words.setdefault(_describe_end(view), []).append(view.rank)
    parts = [f"{_name_ranks(who)} {end}" for end, who in words.items()]
    return ", ".join(parts) or "no rank was started"


def _describe_end(view: RankView) -> str:
    if view.end is not None:
        return f"ended with {describe_exit(view.end.code)}"
    return "left no record" if view.claimed else "never started"


def _name_ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"{len(ranks)} ranks ({ranks[0]} to {ranks[-1]})"


def end_record(snapshot: Snapshot, memory: Memory, gang: GangView, reason: str) -> RecordEnd:
    """Return the facts that the end will be judged by."""
    attempt = memory.attempt
    assert attempt is not None
    progress, store = snapshot.progress, snapshot.store
    steps: int | None = None
    if progress is not None and not isinstance(progress, Unknown):
        steps = progress.completed_steps if progress.attempt == gang.attempt else None
    return RecordEnd(
        reason=reason,
        nonce=nonce_of(attempt),
        attempt=gang.attempt,
        ranks=gang.ranks,
        completed_steps=steps,
        progress_known=not isinstance(progress, Unknown) and not isinstance(store, Unknown),
        verified_step=newest_verified(snapshot, memory),
        killed_by_us=attempt.killed,
    )


def newest_verified(snapshot: Snapshot, memory: Memory) -> int | None:
    """Return the newest verified, unmarked checkpoint of the current line; None: none or unread."""
    if isinstance(snapshot.store, Unknown):
        return None
    line = memory.plan.line.name
    steps = [
        found.step
        for found in snapshot.store.checkpoints
        if found.line == line and found.verified and found.quarantined is None
    ]
    return max(steps, default=None)


@rule("gang")
def close_ended(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Fence the attempt at its first end; that record also starts the clock of the others."""
    attempt = live_attempt(memory)
    gang = own_gang(snapshot, memory)
    if attempt is None or gang is None or (gang.closed and attempt.closed):
        return None
    ended = ended_ranks(gang.ranks)
    if not (ended or gang.closed or attempt.closed):
        return None
    patience = show_seconds(patience_after_end_ms(gang, memory))
    reason = f"{describe_ends(ended)}; the others have {patience} to follow"
    close = CloseAttempt(reason=reason, nonce=nonce_of(attempt), attempt=attempt.number)
    return Answer(reason, [close])


@rule("gang")
def kill_rest(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """End the ranks that do not follow the first end by themselves, stopped ones included."""
    attempt = live_attempt(memory)
    gang = own_gang(snapshot, memory)
    if attempt is None or gang is None or not attempt.closed:
        return None
    ranks = alive_ranks(gang.ranks)
    patience_ms = patience_after_end_ms(gang, memory)
    if not ranks or not has_passed(attempt.closed_at, patience_ms, snapshot.now):
        return None
    reason = f"ranks {ranks} still live {show_seconds(patience_ms)} after the attempt was closed"
    kill = KillRanks(reason=reason, nonce=nonce_of(attempt), attempt=attempt.number, ranks=ranks)
    return Answer(reason, [kill])


def patience_after_end_ms(gang: GangView, memory: Memory) -> int:
    """Return how long the rest may live after the first end: longer while all leave as planned."""
    ended = ended_ranks(gang.ranks)
    is_planned = bool(ended) and all(view.end and view.end.code in PLANNED for view in ended)
    return max(memory.policy.cascade_ms, drain_patience_ms(memory) if is_planned else 0)


@rule("gang")
def end_late_start(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """End an attempt of which a rank was not started in time."""
    attempt = live_attempt(memory)
    gang = own_gang(snapshot, memory)
    if attempt is None or (attempt.closed and attempt.close_cause != "start"):
        return None
    if gang is None and attempt.launched:
        return None  # Read before the launch, whenever it arrives: it says nothing about it.
    started = count_started(snapshot, gang) if gang else 0
    if started == memory.policy.ranks or is_whole(snapshot, memory, gang):
        return None
    if not start_is_overdue(snapshot, memory):
        return None
    waited = show_seconds(memory.policy.start_ms)
    reason = f"{started} of {memory.policy.ranks} ranks started in {waited}"
    nonce = nonce_of(attempt)
    close = CloseAttempt(reason=reason, nonce=nonce, attempt=attempt.number, cause="start")
    ranks = alive_ranks(gang.ranks) if gang else []
    kill = KillRanks(reason=reason, nonce=nonce, attempt=attempt.number, ranks=ranks)
    is_closed = gang is not None and gang.closed
    actions: list[Action] = [*([] if is_closed else [close]), *([kill] if ranks else [])]
    return Answer(reason, actions) if actions else None


def count_started(snapshot: Snapshot, gang: GangView) -> int:
    """Return how many ranks did start: they live or answer, whatever became of their claims."""
    answering = {
        reading.rank
        for reading in snapshot.telemetry
        if isinstance(reading.value, RankTelemetry) and reading.value.attempt == gang.attempt
    }
    return sum(view.claimed or view.alive or view.rank in answering for view in gang.ranks)


def is_whole(snapshot: Snapshot, memory: Memory, gang: GangView | None) -> bool:
    """Return whether the attempt logged a step, and lives by the fleet or by a log that grows."""
    progress = snapshot.progress
    if gang is None or progress is None or isinstance(progress, Unknown):
        return False
    has_stepped = progress.attempt == gang.attempt and progress.completed_steps is not None
    is_growing = progress.grown_age_ms < memory.policy.start_ms
    return has_stepped and (is_growing or bool(alive_ranks(gang.ranks)))


def start_is_overdue(snapshot: Snapshot, memory: Memory) -> bool:
    """Return whether ranks had their time to start while this controller could start them."""
    assert memory.attempt is not None
    start_ms, now = memory.policy.start_ms, snapshot.now
    is_overdue = has_passed(memory.attempt.launched_at, start_ms, now)
    return is_overdue and (memory.epoch_at is None or has_passed(memory.epoch_at, start_ms, now))


@rule()
def complete(_: Snapshot, memory: Memory) -> Answer | None:
    """The horizon is reached: the last attempt said so and its last checkpoint is verified."""
    attempt = memory.attempt
    if attempt is None or attempt.end_cause != "done" or memory.wanted.resume_from is not None:
        return None
    step = memory.plan.total_steps
    reason = f"step {step} is reached and its checkpoint is verified"
    return Answer(reason, [Complete(reason=reason, nonce=str(memory.seq), step=step)], wake_in_ms=0)
