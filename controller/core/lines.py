"""A new line from an older checkpoint, on the owner's word."""

from collections.abc import Sequence

from contract.plan import Line, Plan, check_child, check_plan, is_admissible
from contract.wire import Drain
from controller.core.actions import Note, PublishPlan
from controller.core.ancestry import list_usable
from controller.core.memory import Memory
from controller.core.owner import order_control
from controller.core.rules import Answer, known, live_attempt, rule
from controller.core.snapshot import CheckpointView, Snapshot, StoreView

REFUSAL = "resume_from"
"""Subject of the note that answers, and ends, a wish for a new line that cannot be met."""


@rule("store")
def open_line(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Drain the gang, then publish the plan of the new line."""
    if memory.wanted.resume_from is None:
        return None
    line, step, nonce = memory.wanted.resume_from
    plan = line_plan(memory, line, step)
    problem = find_problem(memory, plan, line, known(snapshot.store))
    if problem is not None:
        reason = f"cannot resume from {line}/{step}: {problem}"
        return Answer(reason, [Note(reason=reason, nonce=nonce, subject=REFUSAL)], wake_in_ms=0)
    attempt = live_attempt(memory)
    if attempt is None:
        reason = f"open line {plan.line.name} at step {step} of {line}"
        return Answer(reason, [PublishPlan(reason=reason, nonce=nonce, plan=plan)], wake_in_ms=0)
    drain = Drain(nonce=nonce, mode="restart")
    if attempt.drain is not None or attempt.order is None:
        return None
    reason = f"the gang leaves for a new line from {line}/{step}"
    return Answer(reason, [order_control(memory, memory.plan.sha, drain, reason)])


def line_plan(memory: Memory, line: str, step: int) -> Plan:
    """Return the plan in force on a line of its own from `step` on."""
    parent = memory.plan
    taken = {known_line.name for plan in memory.chain for known_line in plan.lineage}
    root = parent.lineage[0].name
    name = next(f"{root}-{n}" for n in range(2, len(taken) + 3) if f"{root}-{n}" not in taken)
    return parent.model_copy(
        update={
            "kind": "line",
            "parent": parent.sha,
            "effective": step,
            "supersedes": None,
            "author": "owner",
            "reason": f"resume from {line}/{step}",
            "lineage": [*parent.lineage, Line(name=name, fork_step=step, offset_blocks=0)],
        }
    )


def find_problem(memory: Memory, plan: Plan, line: str, store: StoreView) -> str | None:
    """Return why the new line cannot start, None when it can."""
    step = plan.effective
    if step >= plan.total_steps:
        return f"the run ends at step {plan.total_steps}"
    if problems := [*check_plan(plan), *check_child(memory.plan, plan)]:
        return "; ".join(problems)
    found = next((c for c in store.checkpoints if (c.line, c.step) == (line, step)), None)
    if found is None:
        return "there is no complete checkpoint"
    return find_damage(found) or find_stranger([*memory.chain, plan], found)


def list_sources(memory: Memory, store: StoreView) -> list[CheckpointView]:
    """Return the checkpoints that a new line may start from, oldest first."""
    return [
        found
        for found in list_usable(memory.chain, store.checkpoints)
        if find_problem(memory, line_plan(memory, found.line, found.step), found.line, store)
        is None
    ]


def find_damage(found: CheckpointView) -> str | None:
    """Return why the checkpoint cannot be trusted, None when nothing speaks against it."""
    if found.quarantined is not None:
        return f"the checkpoint is quarantined ({found.quarantined})"
    if found.manifest_sha256 is None:
        return "the checkpoint's manifest is unreadable"
    return None


def find_stranger(chain: Sequence[Plan], found: CheckpointView) -> str | None:
    """Return why the checkpoint is not of the chain's past, None when it is."""
    if found.plan_sha is None or not is_admissible(chain, found.plan_sha, found.step):
        return "the checkpoint is not of the current line's past"
    return None
