"""Whether the gang itself went over to a revision: same attempt, same processes, same program.

Read from the step logs, whose every record names the plan that the ranks held, and from the
claims: a rank of an attempt is started once, so that one attempt has one process for each rank.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from controller.core.telling.history import AttemptHistory


@dataclass(frozen=True)
class Passage:
    """How the gang came over a fork; None: no step under the revision is on record."""

    attempt_before: int | None = None
    """That ran the last step before the fork."""
    attempt_after: int | None = None
    """That first ran the fork step under the revision."""
    without_restart: bool | None = None
    """One attempt ran both in a row, the former still under the parent."""
    compilations: int | None = None
    """Steps of that attempt, from the fork on, that something was compiled for."""
    pids: Mapping[int, int] = field(default_factory=dict[int, int])
    """Rank -> its process, as claimed at its start, of the attempt after the fork."""


def find_passage(histories: Sequence[AttemptHistory], sha: str, fork: int) -> Passage:
    """Return how the gang first came over `fork` under the revision `sha`."""
    for index, history in enumerate(histories):
        if any(it.step == fork and it.plan_sha == sha for it in history.steps):
            went_over = _went_over(history, sha, fork)
            before = history.number if went_over else _find_before(histories[: index + 1], fork)
            return Passage(before, history.number, went_over, _compile(history, fork), history.pids)
    return Passage()


def _went_over(history: AttemptHistory, sha: str, fork: int) -> bool:
    return any(
        (left.step, right.step, right.plan_sha) == (fork - 1, fork, sha) and left.plan_sha != sha
        for left, right in pairwise(history.steps)
    )


def _find_before(histories: Iterable[AttemptHistory], fork: int) -> int | None:
    ran = [it.number for it in histories if any(step.step == fork - 1 for step in it.steps)]
    return ran[-1] if ran else None


def _compile(history: AttemptHistory, fork: int) -> int:
    return sum(it.step >= fork and "compile" in it.tags for it in history.steps)
