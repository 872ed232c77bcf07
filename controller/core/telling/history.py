"""What an attempt left behind: phases, steps, end. Plain data for account and summary."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from contract.plan import Plan
from contract.wire import PhaseRecord, StepRecord


@dataclass(frozen=True)
class AttemptHistory:
    """One attempt, as its files and the ledger tell it."""

    number: int
    launched_wall_s: float
    ended_wall_s: float
    """When its last rank ended."""
    phases: Sequence[PhaseRecord]
    """Of rank 0, oldest first."""
    steps: Sequence[StepRecord]
    """Oldest first."""
    pids: Mapping[int, int] = field(default_factory=dict[int, int])
    """Rank -> its process, as claimed once at its start; without ranks that left no claim."""


@dataclass(frozen=True)
class Replay:
    """A step that was run again: what was recorded first, and what came now."""

    first: StepRecord
    again: StepRecord


def find_replays(histories: Iterable[AttemptHistory]) -> Iterator[Replay]:
    """Yield every step that an earlier attempt had completed on the same line."""
    known: dict[tuple[str, int], StepRecord] = {}
    for history in histories:
        for record in history.steps:
            key = (record.line, record.step)
            if key in known:
                yield Replay(known[key], record)
            else:
                known[key] = record


def is_comparable(replay: Replay, chain: Sequence[Plan], shas: Sequence[str] | None = None) -> bool:
    """Return whether both runs of the step must agree in every bit.

    They must where code and execution are equal and the step's plan is, or lies in the past that
    both plans share. `shas` are those of the chain, where they are known: they cost more than all
    the rest.
    """
    first, again = replay.first, replay.again
    if (first.execution_sha, first.code) != (again.execution_sha, again.code):
        return False
    if first.plan_sha == again.plan_sha:
        return True
    shas = [plan.sha for plan in chain] if shas is None else shas
    if first.plan_sha not in shas or again.plan_sha not in shas:
        return False
    low, high = sorted((shas.index(first.plan_sha), shas.index(again.plan_sha)))
    return all(first.step < plan.effective for plan in chain[low + 1 : high + 1])


def loss_difference(replay: Replay) -> float:
    """Return the absolute difference of both losses in nats; 0.0 exactly for equal bits."""
    if replay.first.loss == replay.again.loss:
        return 0.0
    return abs(float.fromhex(replay.first.loss) - float.fromhex(replay.again.loss))
