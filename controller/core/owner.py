"""What the owner wants: taken into memory, published as a drain, rested on."""

from contract.wire import Drain, Phase
from controller.core.actions import (
    CloseAttempt,
    KillRanks,
    PublishControl,
    RecordIntent,
    Rest,
)
from controller.core.memory import Memory
from controller.core.readings import show_seconds
from controller.core.rules import (
    Answer,
    alive_ranks,
    has_passed,
    known,
    live_attempt,
    nonce_of,
    own_gang,
    rule,
)
from controller.core.snapshot import Snapshot

REST_WAKE_MS = 60_000
"""Nothing changes at rest but by the owner, whose intents are looked for at each wake."""


@rule("intents")
def record_intents(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Take what the owner asked for into memory, oldest first."""
    fresh = [i for i in known(snapshot.intents) if i.nonce not in memory.known_nonces]
    if not fresh:
        return None
    verbs = ", ".join(intent.verb for intent in fresh)
    return Answer(
        f"the owner asked: {verbs}",
        [
            RecordIntent(reason=f"{i.user} asked to {i.verb}", nonce=i.nonce, intent=i)
            for i in fresh
        ],
        wake_in_ms=0,
    )


@rule()
def stay_at_rest(_: Snapshot, memory: Memory) -> Answer | None:
    """Do nothing once the run rests or is halted, until the owner says otherwise."""
    if memory.wanted.resume_from is not None:
        return None
    if memory.halted is not None:
        return Answer(f"halted: {memory.halted}", wake_in_ms=REST_WAKE_MS)
    if memory.rest == "completed" or (memory.rest and memory.rest == memory.wanted.state):
        return Answer(f"at rest: {memory.rest}", wake_in_ms=REST_WAKE_MS)
    return None


def wanted_drain(memory: Memory) -> Drain | None:
    """Return the drain that stop, suspend or restart call for, None when none does."""
    wanted = memory.wanted
    if wanted.state == "stopped":
        return Drain(nonce=wanted.nonce, mode="stop")
    if wanted.state == "suspended":
        return Drain(nonce=wanted.nonce, mode="suspend")
    if wanted.restart_nonce is not None:
        return Drain(nonce=wanted.restart_nonce, mode="restart")
    return None


@rule()
def drain_gang(_: Snapshot, memory: Memory) -> Answer | None:
    """Ask the gang to checkpoint and leave; needs no reading, so it works blind."""
    drain = wanted_drain(memory)
    attempt = live_attempt(memory)
    if attempt is None or drain is None or attempt.order is None or attempt.drain == drain:
        return None
    reason = f"ask the gang to {drain.mode} at a checkpoint"
    return Answer(reason, [order_control(memory, memory.plan.sha, drain, reason)])


@rule()
def withdraw_drain(_: Snapshot, memory: Memory) -> Answer | None:
    """Take back a drain that the owner no longer wants."""
    attempt = live_attempt(memory)
    if attempt is None or attempt.drain is None or attempt.order is None:
        return None
    if wanted_drain(memory) is not None or memory.wanted.resume_from is not None:
        return None
    reason = "the owner no longer wants the gang to leave"
    return Answer(reason, [order_control(memory, memory.plan.sha, None, reason)])


def order_control(
    memory: Memory, plan_sha: str, drain: Drain | None, reason: str
) -> PublishControl:
    """Return the order to publish; the same content again is the same act."""
    is_same = memory.control_plan_sha == plan_sha and memory.control_drain == drain
    nonce = memory.control_nonce if is_same and memory.control_nonce else str(memory.seq)
    return PublishControl(reason=reason, nonce=nonce, plan_sha=plan_sha, drain=drain)


@rule("gang")
def end_undrained(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """End a gang that does not leave within the drain deadline and the margin."""
    attempt = live_attempt(memory)
    if attempt is None or attempt.drain is None:
        return None
    if not has_passed(attempt.drain_at, drain_patience_ms(memory), snapshot.now):
        return None
    gang = own_gang(snapshot, memory)
    ranks = alive_ranks(gang.ranks) if gang else []
    if gang is not None and gang.closed and not ranks:
        return None
    patience = show_seconds(drain_patience_ms(memory))
    reason = f"the gang did not {attempt.drain.mode} within {patience}"
    nonce = nonce_of(attempt)
    close = CloseAttempt(reason=reason, nonce=nonce, attempt=attempt.number, cause="drain")
    kill = KillRanks(reason=reason, nonce=nonce, attempt=attempt.number, ranks=ranks)
    is_closed = gang is not None and gang.closed
    return Answer(reason, [*([] if is_closed else [close]), *([kill] if ranks else [])])


def drain_patience_ms(memory: Memory) -> int:
    """Return how long a drain may take before the controller ends the gang."""
    policy = memory.policy
    return policy.deadlines_ms[Phase.DRAIN] + policy.margin_ms


@rule()
def rest(_: Snapshot, memory: Memory) -> Answer | None:
    """Rest once the gang is down and the owner wants it down."""
    state = memory.wanted.state
    if live_attempt(memory) is not None or state in ("run", memory.rest):
        return None
    if memory.wanted.resume_from is not None:
        return None
    reason = f"the gang is down, as the owner wanted: {state}"
    return Answer(reason, [Rest(reason=reason, nonce=str(memory.seq), state=state)], wake_in_ms=0)
