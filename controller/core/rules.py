"""What a rule is, and what several rules ask of a snapshot."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from controller.core.actions import Action
from controller.core.memory import AttemptMemory, Memory
from controller.core.readings import Instant, Unknown, elapsed_ms
from controller.core.snapshot import GangView, RankRef, RankView, Snapshot

Value = TypeVar("Value")

FIELDS = tuple(Snapshot.model_fields)


@dataclass(frozen=True)
class Answer:
    """What a rule says: actions, or none of them to hold on purpose."""

    reason: str
    actions: list[Action] = field(default_factory=list[Action])
    wake_in_ms: int | None = None
    """When the rule wants to be asked again; None: at the usual pace."""


Ask = Callable[[Snapshot, Memory], Answer | None]


@dataclass(frozen=True)
class Rule:
    """A pure function, and the snapshot fields without which it has nothing to say."""

    ask: Ask
    needs: tuple[str, ...]
    """With one of them Unknown the rule is not asked."""

    @property
    def name(self) -> str:
        """The function's name."""
        return self.ask.__name__


def unknown_fields(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the fields that could not be read."""
    return frozenset(name for name in FIELDS if isinstance(getattr(snapshot, name), Unknown))


def rule(*needs: str) -> Callable[[Ask], Rule]:
    """Declare the snapshot fields that the decorated rule rests on."""
    assert set(needs) <= set(FIELDS), needs

    def declare(ask: Ask) -> Rule:
        return Rule(ask=ask, needs=needs)

    return declare


def known(value: Value | Unknown) -> Value:
    """Return a value whose field the rule declared, so that it cannot be Unknown."""
    assert not isinstance(value, Unknown), value.unknown
    return value


def has_passed(since: Instant | None, duration_ms: int, now: Instant) -> bool:
    """Return whether `duration_ms` passed since; no instant: no clock was started.

    After a restart of the machine it has: nothing of before still runs.
    """
    if since is None:
        return False
    elapsed = elapsed_ms(since, now)
    return isinstance(elapsed, Unknown) or elapsed >= duration_ms


def remaining_ms(since: Instant, duration_ms: int, now: Instant) -> int:
    """Return how long `duration_ms` still lasts, 0 when it passed."""
    elapsed = elapsed_ms(since, now)
    return 0 if isinstance(elapsed, Unknown) else max(0, duration_ms - elapsed)


def live_attempt(memory: Memory) -> AttemptMemory | None:
    """Return the newest attempt unless its end is recorded or there never was one."""
    attempt = memory.attempt
    return None if attempt is None or attempt.ended else attempt


def nonce_of(attempt: AttemptMemory) -> str:
    """Return the nonce of acts that an attempt sees once."""
    return attempt.order.nonce if attempt.order else str(attempt.number)


def own_gang(snapshot: Snapshot, memory: Memory) -> GangView | None:
    """Return the newest attempt as the fleet shows it, None when it shows another or none."""
    gang = known(snapshot.gang)
    attempt = live_attempt(memory)
    if gang is None or attempt is None or gang.attempt != attempt.number:
        return None
    return gang


def alive_ranks(ranks: Sequence[RankView]) -> list[int]:
    """Return the ranks whose process or shim still exists."""
    return [view.rank for view in ranks if view.alive]


def ended_ranks(ranks: Sequence[RankView]) -> list[RankView]:
    """Return the ranks that were started and are no more."""
    return [view for view in ranks if view.claimed and not view.alive]


def all_claimed(gang: GangView, memory: Memory) -> bool:
    """Return whether every rank of the gang was started."""
    return sum(view.claimed for view in gang.ranks) == memory.policy.ranks


def foreign_ranks(snapshot: Snapshot, memory: Memory) -> list[RankRef]:
    """Return the live ranks that do not belong to a living attempt of ours."""
    gang = known(snapshot.gang)
    if gang is None:
        return []
    found = list(gang.remains)
    if own_gang(snapshot, memory) is None:
        found += [RankRef(attempt=gang.attempt, rank=rank) for rank in alive_ranks(gang.ranks)]
    return found
