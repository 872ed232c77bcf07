"""Starting a gang: storage first, then the plan, the control document, the ranks."""

from contract.wire import Restore
from controller.core.actions import Action, Halt, LaunchGang, PublishControl, PublishPlan
from controller.core.ends import start_is_overdue
from controller.core.memory import Memory
from controller.core.owner import order_control, wanted_drain
from controller.core.readings import Unknown, show_seconds
from controller.core.rules import (
    Answer,
    all_claimed,
    ended_ranks,
    foreign_ranks,
    known,
    live_attempt,
    own_gang,
    remaining_ms,
    rule,
)
from controller.core.snapshot import ControlView, Snapshot

STORAGE_WAKE_MS = 5_000


@rule()
def wait_delay(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Wait out the delay that the budget put before the next launch."""
    begin = memory.not_before
    if live_attempt(memory) is not None or begin is None:
        return None
    left_ms = remaining_ms(begin, 0, snapshot.now)
    if left_ms == 0:
        return None
    delay = show_seconds(memory.delay_ms)
    return Answer(f"the next attempt starts {delay} after the last", [], left_ms)


@rule("gang", "store", "storage")
def launch(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Start the next attempt, once nothing of an older one lives."""
    if live_attempt(memory) is not None:
        return None
    if foreign_ranks(snapshot, memory):
        return Answer("wait until the ranks of older attempts are gone")
    problem = known(snapshot.storage).problem
    if problem is not None:
        return refuse_storage(memory, problem)
    order = next_order(snapshot, memory)
    return Answer(order.reason, [*prepare(snapshot, memory, order), order])


def refuse_storage(memory: Memory, problem: str) -> Answer:
    """Halt before the first launch, wait before any other."""
    reason = f"the checkpoint directory cannot be used: {problem}"
    if memory.attempt is not None:
        return Answer(reason, wake_in_ms=STORAGE_WAKE_MS)
    return Answer(reason, [Halt(reason=reason, nonce=str(memory.seq), cause="storage")], 0)


def next_order(snapshot: Snapshot, memory: Memory) -> LaunchGang:
    """Return the order of the next attempt."""
    gang, progress = known(snapshot.gang), snapshot.progress
    highest = memory.highest_step
    if progress is not None and not isinstance(progress, Unknown):
        highest = max(highest, progress.highest_step)
    last = max(memory.attempt.number if memory.attempt else 0, gang.attempt if gang else 0)
    return LaunchGang(
        reason=f"start attempt {last + 1}",
        nonce=str(memory.seq),
        attempt=last + 1,
        plan_sha=memory.plan.sha,
        restore=choose_restore(snapshot, memory),
        highest_step=highest,
    )


def choose_restore(snapshot: Snapshot, memory: Memory) -> Restore:
    """Return what the attempt may start from."""
    # The ledger remembers, too: a volume that is not mounted looks like a run without checkpoints.
    if not known(snapshot.store).ever_complete and not memory.had_checkpoint:
        return Restore.NONE
    return Restore.VERIFIED if memory.restore_verified else Restore.REQUIRED


def prepare(snapshot: Snapshot, memory: Memory, order: LaunchGang) -> list[Action]:
    """Return what must be published before the ranks start.

    The plans each time: publishing mends a plan file that was damaged or lost since.
    """
    steps: list[Action] = [
        PublishPlan(reason=f"plan of kind {plan.kind}", nonce=order.nonce, plan=plan)
        for plan in memory.chain
    ]
    # The attempt's own nonce: a launch does not wait for the pace of an earlier repair.
    control = PublishControl(
        reason=order.reason, nonce=order.nonce, plan_sha=order.plan_sha, drain=None
    )
    is_published = memory.control_plan_sha == control.plan_sha and memory.control_drain is None
    if not is_published or not shows(snapshot, control.plan_sha):
        steps.append(control)
    return steps


def shows(snapshot: Snapshot, plan_sha: str) -> bool:
    """Return whether the control document is this controller's, names the plan and asks nothing.

    New ranks refuse the document of an epoch before the one that launched them.
    """
    view = snapshot.control
    if not isinstance(view, ControlView):
        return False
    return (view.epoch, view.plan_sha, view.drain) == (snapshot.epoch, plan_sha, None)


@rule("gang")
def finish_launch(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Carry out a launch that was intended and of which the outcome is not known."""
    attempt = live_attempt(memory)
    if attempt is None or attempt.order is None or attempt.launched or attempt.closed:
        return None
    gang = own_gang(snapshot, memory)
    if gang is not None and (gang.closed or ended_ranks(gang.ranks) or all_claimed(gang, memory)):
        return None
    if foreign_ranks(snapshot, memory):
        return None
    if wanted_drain(memory) is not None or attempt.drain is not None:
        return None
    if start_is_overdue(snapshot, memory):
        return None
    order = attempt.order
    return Answer(f"finish: {order.reason}", [*prepare(snapshot, memory, order), order])


@rule()
def repair_control(snapshot: Snapshot, memory: Memory) -> Answer | None:
    """Publish the control document again where it is not what was published.

    Rests on no reading: an unreadable document is as wrong as another one, and publishing the
    same content again harms nothing.
    """
    attempt = live_attempt(memory)
    if attempt is None or attempt.order is None or attempt.closed:
        return None
    view, plan, drain = snapshot.control, memory.plan, attempt.drain
    if isinstance(view, ControlView) and (view.plan_sha, view.drain) == (plan.sha, drain):
        return None
    reason = "the control document is not the one that was published"
    control = order_control(memory, plan.sha, drain, reason)
    # Ranks that are pointed at a plan without a file refuse it, and look no second time.
    file = PublishPlan(reason=reason, nonce=control.nonce, plan=plan)
    return Answer(reason, [file, control])


@rule()
def watch(_: Snapshot, memory: Memory) -> Answer | None:
    """Let the gang train."""
    attempt = live_attempt(memory)
    if attempt is None:
        return None
    return Answer(f"attempt {attempt.number} is up", wake_in_ms=memory.policy.wake_ms)
