"""Which checkpoints and steps are of the current line's past; all others were abandoned."""

from collections.abc import Iterable, Sequence

from contract.plan import Plan, is_admissible
from controller.core.memory import Memory
from controller.core.snapshot import CheckpointView, StoreView


def last_steps(plan: Plan) -> dict[str, int]:
    """Return line -> the completed steps at which the run left it; the total of the current one.

    A line may be left below the step where an ancestor was left before: the lowest counts.
    """
    found: dict[str, int] = {}
    last = plan.total_steps
    for line in reversed(plan.lineage):
        found[line.name] = last
        last = min(last, line.fork_step)
    return found


def list_usable(
    chain: Sequence[Plan], checkpoints: Iterable[CheckpointView]
) -> list[CheckpointView]:
    """Return what the last plan of `chain` may start from, oldest first.

    Unmarked, with a readable manifest, and of the plan's past. At equal steps the younger line
    comes last, as a trainer prefers it.
    """
    lasts = last_steps(chain[-1])
    ages = {line.name: age for age, line in enumerate(chain[-1].lineage)}
    usable = [
        it
        for it in checkpoints
        if it.quarantined is None
        and it.plan_sha is not None
        and it.step <= lasts.get(it.line, -1)
        and is_admissible(chain, it.plan_sha, it.step)
    ]
    return sorted(usable, key=lambda it: (it.step, ages[it.line]))


def list_restorable(memory: Memory, store: StoreView) -> list[CheckpointView]:
    """Return what the next attempt may be launched from, oldest first."""
    usable = list_usable(memory.chain, store.checkpoints)
    return [it for it in usable if it.verified] if memory.restore_verified else usable
