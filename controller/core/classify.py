"""Who was to blame for an attempt's end, and of what kind the end was.

Ends of the controller's own making and ends that follow another's are told from roots first;
among roots the earliest counts. Classes and order: one incident is one attempt's end.
"""

from dataclasses import dataclass
from typing import Literal

from contract.exits import CASCADE, PLANNED, SIGNAL_BASE, Exit, describe_exit
from controller.core.actions import RecordEnd
from controller.core.memory import AttemptMemory, Memory
from controller.core.snapshot import RankEnd, RankView

CAUSES: dict[int, str] = {
    Exit.ERROR: "error",
    Exit.CONFIG: "config",
    Exit.NON_FINITE: "non_finite",
    Exit.REPLICA_MISMATCH: "replica_mismatch",
    Exit.NO_CHECKPOINT: "no_checkpoint",
    Exit.STORAGE: "storage",
    Exit.PLAN_MISMATCH: "plan_mismatch",
    Exit.NO_RETRY: "no_retry",
    Exit.STALL: "stall",
    Exit.PEER_LOST: "peer_lost",
    Exit.ABORTED: "peer_lost",
    Exit.KILLED: "killed",
    Exit.TERMINATED: "killed",
}
"""Other codes above 128 are crashes, the rest errors."""
CAUSE_NAMES = sorted(
    {*CAUSES.values(), "crashed", "early_exit", "out_of_memory", "start", "unknown_end"}
)
"""All that an incident's cause can be."""

MEMORY_WORDS = ("RESOURCE_EXHAUSTED", "out of memory", "OOMKilled", "MemoryError")
"""What a rank's own words hold when memory ran out."""

DETAIL_CHARS = 300


@dataclass(frozen=True)
class Verdict:
    """How an attempt ended; `root_rank` None where no rank is to blame."""

    is_planned: bool
    cause: str
    code: int | None = None
    root_rank: int | None = None
    confidence: Literal["high", "low"] = "high"
    evidence: str = ""
    step: int | None = None
    detail: str = ""
    ended_wall_ms: int | None = None

    @property
    def fingerprint(self) -> str:
        """What makes two failures the same one."""
        return f"{self.cause}/{self.code if self.code is not None else '-'}/{self.detail}"


def classify(memory: Memory, end: RecordEnd) -> Verdict:
    """Return the verdict on the attempt's end, from recorded facts alone."""
    attempt = memory.attempt
    assert attempt is not None
    assert attempt.number == end.attempt
    judges = (judge_planned, judge_own_ends, judge_stuck, judge_silence, judge_cascade)
    for judge in judges:
        verdict = judge(memory, attempt, end)
        if verdict is not None:
            return verdict
    return blame(end, min(unclaimed(memory, end), default=None), "start", "no rank was started")


def judge_planned(memory: Memory, attempt: AttemptMemory, end: RecordEnd) -> Verdict | None:
    """The gang left because it was asked to, or because it is done."""
    started = [view for view in end.ranks if view.claimed]
    forced = attempt.close_cause == "drain"
    asked = memory.wanted.state != "run" or attempt.drain is not None
    if not started:
        is_planned = asked and attempt.close_cause != "start"
        return Verdict(is_planned=True, cause="drained") if is_planned else None
    codes = {view.end.code for view in started if view.end and not is_ours(view, end)}
    if any(view.end is None and not is_ours(view, end) for view in started) or codes - PLANNED:
        return None
    if any(is_ours(view, end) for view in started) and not (forced or asked):
        return None
    if codes == {Exit.DONE} and len(started) == memory.policy.ranks:
        return judge_done(memory, end)
    return Verdict(is_planned=True, cause="drained")


def judge_done(memory: Memory, end: RecordEnd) -> Verdict:
    """Exit 0 is success only at the horizon, with a verified last checkpoint."""
    total = memory.plan.total_steps
    if end.verified_step == total and end.completed_steps in (None, total):
        return Verdict(is_planned=True, cause="done")
    verified = "none" if end.verified_step is None else end.verified_step
    evidence = f"exit 0 with {end.completed_steps or 0} of {total} steps, verified {verified}"
    return blame(end, 0, "early_exit", evidence)


def judge_own_ends(memory: Memory, _: AttemptMemory, end: RecordEnd) -> Verdict | None:
    """The earliest end that is neither planned, nor ours, nor a consequence of another's."""
    roots = [
        view
        for view in end.ranks
        if view.end and not is_ours(view, end) and view.end.code not in CASCADE | PLANNED
    ]
    if not roots:
        return None
    root, others = earliest(roots, memory.policy.clock_skew_ms)
    code = root.end.code if root.end else None
    if code == Exit.STALL:
        return judge_stall(end)
    is_common = code == Exit.NON_FINITE
    tie = f", within the clock skew of ranks {others}" if others else ""
    confidence = "low" if others and not is_common else "high"
    evidence = f"rank {root.rank} ended first with {describe_exit(code or 0)}{tie}"
    return blame(end, root.rank, cause_of(root.end), evidence, confidence)


def judge_stall(end: RecordEnd) -> Verdict:
    """A watchdog fired first: the root is the rank that could not even dump its stacks."""
    silent = [
        view.rank
        for view in end.ranks
        if not view.has_stacks and not (view.end and view.end.code == Exit.STALL)
    ]
    if silent:
        sure = "high" if len(silent) == 1 else "low"
        evidence = f"watchdogs ended the others; rank {silent[0]} left no stacks"
        return blame(end, silent[0], "stall", evidence, sure)
    stalled = [view.rank for view in end.ranks if view.end and view.end.code == Exit.STALL]
    return blame(end, min(stalled), "stall", "every rank left its stacks", "low")


def judge_stuck(_: Memory, attempt: AttemptMemory, end: RecordEnd) -> Verdict | None:
    """The controller itself found ranks stuck and ended the gang."""
    if attempt.close_cause != "stall" or not attempt.suspects:
        return None
    sure = "high" if len(attempt.suspects) == 1 else "low"
    evidence = f"ranks {attempt.suspects} passed their deadlines and the step log rested"
    return blame(end, attempt.suspects[0], "stall", evidence, sure)


def judge_silence(memory: Memory, attempt: AttemptMemory, end: RecordEnd) -> Verdict | None:
    """A rank is gone without a record, or never came."""
    silent = [
        view.rank for view in end.ranks if view.claimed and not view.end and not is_ours(view, end)
    ]
    if silent:
        sure = "high" if len(silent) == 1 else "low"
        return blame(end, silent[0], "unknown_end", f"rank {silent[0]} left no end record", sure)
    absent = unclaimed(memory, end)
    if absent and attempt.close_cause == "start":
        return blame(end, absent[0], "start", f"ranks {absent} were not started in time", "low")
    return None


def judge_cascade(memory: Memory, _: AttemptMemory, end: RecordEnd) -> Verdict | None:
    """Only consequences are left: the earliest of them is the nearest to the cause."""
    victims = [view for view in end.ranks if view.end and not is_ours(view, end)]
    victims = [view for view in victims if view.end and view.end.code in CASCADE] or [
        view for view in end.ranks if view.end and view.end.code not in PLANNED
    ]
    if not victims:
        return None
    root, others = earliest(victims, memory.policy.clock_skew_ms)
    sure = "low" if others or len(victims) > 1 else "high"
    return blame(end, root.rank, cause_of(root.end), f"rank {root.rank} ended first", sure)


def earliest(views: list[RankView], skew_ms: int) -> tuple[RankView, list[int]]:
    """Return the lowest rank among the earliest ends, and the others within the clock skew."""
    first_ms = min(view.end.wall_ms for view in views if view.end)
    tied = [view for view in views if view.end and view.end.wall_ms <= first_ms + skew_ms]
    root = min(tied, key=lambda view: view.rank)
    return root, [view.rank for view in tied if view is not root]


def is_ours(view: RankView, end: RecordEnd) -> bool:
    """Return whether the rank ended by the controller's own kill."""
    if view.rank not in end.killed_by_us:
        return False
    return view.end is None or view.end.code in (Exit.KILLED, Exit.TERMINATED)


def unclaimed(memory: Memory, end: RecordEnd) -> list[int]:
    """Return the ranks that were never started."""
    claimed = {view.rank for view in end.ranks if view.claimed}
    return [rank for rank in range(memory.policy.ranks) if rank not in claimed]


def cause_of(end: RankEnd | None) -> str:
    """Return the class of one rank's end."""
    if end is None:
        return "unknown_end"
    if any(word in end.detail for word in MEMORY_WORDS):
        return "out_of_memory"
    return CAUSES.get(end.code, "crashed" if end.code > SIGNAL_BASE else "error")


def blame(
    end: RecordEnd,
    rank: int | None,
    cause: str,
    evidence: str,
    confidence: Literal["high", "low"] = "high",
) -> Verdict:
    """Return an unplanned end with `rank` as its root."""
    own = next((view.end for view in end.ranks if view.rank == rank), None)
    named = [view.end.step for view in end.ranks if view.end and view.end.step is not None]
    step = own.step if own and own.step is not None else max(named, default=end.completed_steps)
    walls = [view.end.wall_ms for view in end.ranks if view.end]
    return Verdict(
        is_planned=False,
        cause=cause,
        code=own.code if own else None,
        root_rank=rank,
        confidence=confidence,
        evidence=evidence,
        step=step,
        detail=own.detail[:DETAIL_CHARS] if own else "",
        ended_wall_ms=min(walls, default=None),
    )
