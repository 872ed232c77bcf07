"""Whether another restart is allowed, and after what delay.

Order: never-retry codes; the window; then, where progress could be read, the same failure at the
same step, incidents without progress, the cause's own limit. A newer verified checkpoint resets
what counts since progress, never the window.
"""

import hashlib

from contract.exits import NEVER_RETRY, describe_exit
from controller.core.actions import Halt
from controller.core.memory import Incident, Memory
from controller.core.policy import Policy
from controller.core.readings import Instant, Unknown, elapsed_ms
from controller.core.rules import Answer, live_attempt, rule
from controller.core.snapshot import Snapshot

DAY_MS = 86_400_000
FROM_OUTSIDE = ("killed", "unknown_end")
SAME_STEP = 1
"""A failure one step aside is the same failure: ranks end within one step of each other."""
JITTER_PER_MILLE = 100


@rule()
def spend_budget(_: Snapshot, memory: Memory) -> Answer | None:
    """Halt when the newest end leaves no restart in the budget."""
    if live_attempt(memory) is not None or memory.halted is not None:
        return None
    reason = find_excess(memory)
    if reason is None:
        return None
    cause = memory.incidents[-1].cause if memory.incidents else "drains"
    return Answer(reason, [Halt(reason=reason, nonce=str(memory.seq), cause=cause)], wake_in_ms=0)


def find_excess(memory: Memory) -> str | None:
    """Return which limit the newest end exceeds, in words; None: a restart is allowed."""
    counted = memory.incidents[memory.window_from :]
    if not counted or memory.attempt is None or memory.attempt.number != counted[-1].attempt:
        return find_drain_loop(memory)
    newest = counted[-1]
    reason = find_never(newest) or find_window(memory.policy, counted)
    if reason is None and newest.progress_known:
        reason = (
            find_repetition(memory.no_progress)
            or find_standstill(memory)
            or find_cause_limit(memory)
        )
    return reason


def find_never(newest: Incident) -> str | None:
    """A code that no restart cures."""
    if newest.code is None or newest.code not in NEVER_RETRY:
        return None
    end = f"rank {newest.root_rank} ended with {describe_exit(newest.code)}"
    return f"{end}: a restart cannot cure it{detail_of(newest)}"


def find_window(policy: Policy, counted: list[Incident]) -> str | None:
    """Too many restarts within the window, whatever the progress."""
    budget = policy.budget
    recent = [one for one in counted if is_within(one.at, counted[-1].at, budget.window_ms)]
    if len(recent) <= budget.window_restarts:
        return None
    hours = budget.window_ms / 3_600_000
    return (
        f"{len(recent)} incidents within {hours:g} h, {budget.window_restarts} restarts are "
        "allowed: an operator resumes"
    )


def is_within(earlier: Instant, later: Instant, window_ms: int) -> bool:
    """Return whether both lie in one window; over a machine restart the wall clock must do."""
    elapsed = elapsed_ms(earlier, later)
    if isinstance(elapsed, Unknown):
        elapsed = abs(later.wall_ms - earlier.wall_ms)
    return elapsed <= window_ms


def find_repetition(no_progress: list[Incident]) -> str | None:
    """The same failure at the same step: one confirmation, no loop."""
    if not no_progress:
        return None
    *earlier, newest = no_progress
    if not any(is_same(one, newest) for one in earlier):
        return None
    where = "before its first step" if newest.step is None else f"at step {newest.step}"
    return (
        f"the same failure twice {where} without progress: "
        f"{newest.cause} of rank {newest.root_rank}{detail_of(newest)}"
    )


def is_same(left: Incident, right: Incident) -> bool:
    """Return whether two incidents are the same failure."""
    if left.fingerprint != right.fingerprint:
        return False
    if left.step is None or right.step is None:
        # Killed before any step: by somebody outside, which no step can be blamed for.
        return left.step == right.step and left.cause not in FROM_OUTSIDE
    return abs(left.step - right.step) <= SAME_STEP


def find_standstill(memory: Memory) -> str | None:
    """Incident after incident, and no newer verified checkpoint."""
    limit = memory.policy.budget.no_progress_incidents
    count = len(memory.no_progress)
    if count < limit:
        return None
    return f"{count} incidents without a newer verified checkpoint; the limit is {limit}"


def find_cause_limit(memory: Memory) -> str | None:
    """The cause's own limit since progress."""
    if not memory.no_progress:
        return None
    cause = memory.no_progress[-1].cause
    limit = memory.policy.budget.per_cause.get(cause)
    count = sum(one.cause == cause for one in memory.no_progress)
    if limit is None or count <= limit:
        return None
    return (
        f"{cause} {count} times without progress, {limit} restarts are allowed"
        f"{detail_of(memory.no_progress[-1])}"
    )


def find_drain_loop(memory: Memory) -> str | None:
    """Planned ends are free, but a hundred a day are a loop."""
    limit = memory.policy.budget.drains_a_day
    if not memory.planned_at:
        return None
    newest = memory.planned_at[-1]
    count = sum(is_within(one, newest, DAY_MS) for one in memory.planned_at)
    return f"{count} planned ends within a day, {limit} are allowed" if count > limit else None


def detail_of(incident: Incident) -> str:
    """Return the rank's own words, as the end of a sentence."""
    words = incident.fingerprint.split("/", 2)[-1]
    return f" ({words})" if words else ""


def delay_of(policy: Policy, no_progress: int, key: str) -> int:
    """Return the delay before the next launch after `no_progress` incidents without progress.

    The jitter, up to a tenth, is a hash of `key`, so that a rebuild arrives at the same delay.
    """
    budget = policy.budget
    plain_ms = min(budget.delay_ms * 2 ** min(max(no_progress - 1, 0), 40), budget.max_delay_ms)
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big")
    return plain_ms * (1000 + share % (JITTER_PER_MILLE + 1)) // 1000
