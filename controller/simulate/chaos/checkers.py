"""What must always hold, checked against the world's truth and the ledger after every pass."""

from collections.abc import Callable
from dataclasses import dataclass, field

from contract.exits import PLANNED
from contract.wire import Restore
from controller.core.actions import (
    Action,
    CloseAttempt,
    LaunchGang,
    PublishPlan,
    RecordEnd,
    RecordIntent,
    key_of,
)
from controller.core.decide import EFFECTS, PLAN
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.core.readings import Unknown
from controller.core.recording import read_actions
from controller.core.rules import Rule
from controller.core.snapshot import RankTelemetry, Snapshot
from controller.core.telling.replay import replay_one
from controller.ports import LedgerRecord
from controller.simulate.book import hash_record
from controller.simulate.chaos.plan_checkers import PlanCheckers
from controller.simulate.world import World

NEEDS: dict[str, tuple[str, ...]] = {
    "record_end": ("gang",),
    "launch_gang": ("gang",),
    "kill_ranks": ("gang",),
    "quarantine_checkpoint": ("gang", "store"),
}
"""What must be known for an act that destroys, or that would be wrong if ranks lived."""

Listener = Callable[[Action], None]


@dataclass
class BudgetTruth:
    """Restarts counted anew, from the ends in the ledger and the checkpoints in the world."""

    since_progress: int = 0
    in_window: list[int] = field(default_factory=list[int])
    verified: int | None = None


@dataclass
class Checkers:
    """Everything that must hold; reads only what is new since the last look."""

    world: World
    rules: tuple[Rule, ...]
    plan_rules: tuple[Rule, ...] = PLAN
    memory: Memory | None = None
    seen_records: int = 0
    seen_acts: int = 0
    epoch: int = 0
    acted: int = 0
    """Epoch of the newest act."""
    attempt: int = 0
    prev_hash: str = "0" * 64
    intended: set[tuple[str, int, str]] = field(default_factory=set[tuple[str, int, str]])
    budget: BudgetTruth = field(default_factory=BudgetTruth)
    has_damage: bool = False
    """Checkpoints were damaged from outside."""
    highest: dict[str, int] = field(default_factory=dict[str, int])
    on_action: list[Listener] = field(default_factory=list[Listener])
    """Told of every action that was recorded."""
    plan: PlanCheckers = field(init=False)

    def __post_init__(self) -> None:
        self.plan = PlanCheckers(self.world)

    def look(self, live: Memory | None) -> None:
        """Check everything that is new; `live` is the memory of the controller that passed."""
        fresh = self.world.book.records[self.seen_records :]
        for record in fresh:
            self._check_record(record)
        self.seen_records += len(fresh)
        if fresh and live is not None and live.seq == self.world.book.head.seq:
            self._demand(live == self.memory, "memory is not what a rebuild gives")
        self._check_acts()
        self._check_world()
        if self.memory is not None:
            self.plan.check_world(self.memory)

    def _demand(self, holds: bool, what: str) -> None:  # noqa: FBT001  # reads as a sentence
        if not holds:
            self.world.violate(what)

    # The ledger.

    def _check_record(self, record: LedgerRecord) -> None:
        is_chained = record.prev == self.prev_hash and hash_record(record) == record.hash
        self._demand(is_chained, f"record {record.seq} breaks the chain")
        self._demand(record.epoch >= self.epoch, "an epoch went back")
        self.prev_hash, self.epoch = record.hash, record.epoch
        if record.kind == "decision":
            assert self.memory is not None
            self._check_decision(record, self.memory)
        before = self.memory
        try:
            self.memory = fold(before, record)
        except ValueError as error:
            self.world.violate(f"record {record.seq} cannot be folded: {error}")
        if before is not None and self.memory is not None:
            self.plan.check_change(before, self.memory)

    def _check_decision(self, record: LedgerRecord, memory: Memory) -> None:
        repeated = replay_one(record, memory, record.core_version, self.rules, self.plan_rules)
        self._demand(repeated.is_equal, f"decision {record.seq} replays differently")
        for action in read_actions(record.body):
            if isinstance(action, EFFECTS):
                self.intended.add(_mark(key_of("", action)))
            self._check_known(action, repeated.snapshot)
            self._check_action(action, repeated.snapshot, memory)
            self.plan.check_action(action, repeated.snapshot, memory)
            for tell in self.on_action:
                tell(action)

    def _check_known(self, action: Action, snapshot: Snapshot) -> None:
        for need in NEEDS.get(action.verb, ()):
            is_known = not isinstance(getattr(snapshot, need), Unknown)
            self._demand(is_known, f"{action.verb} although {need} is unknown")

    def _check_action(self, action: Action, snapshot: Snapshot, memory: Memory) -> None:
        match action:
            case RecordEnd():
                self._count_end(action, memory, snapshot)
            case LaunchGang():
                self._check_launch(action, snapshot)
            case CloseAttempt():
                self._check_stall(action, snapshot, memory)
            case RecordIntent() | PublishPlan():
                self._forgive(action)
            case _:
                pass

    def _check_stall(self, action: CloseAttempt, snapshot: Snapshot, memory: Memory) -> None:
        """Two independent signals for every rank that is called stuck."""
        if action.cause != "stall":
            return
        progress, margin_ms = snapshot.progress, memory.policy.margin_ms
        said = {reading.rank: reading.value for reading in snapshot.telemetry}
        for rank in action.suspects:
            value = said.get(rank)
            limit_ms = margin_ms + (value.deadline_ms if isinstance(value, RankTelemetry) else 0)
            is_late = not isinstance(value, RankTelemetry) or value.progress_age_ms > limit_ms
            is_still = not isinstance(progress, Unknown) and (
                progress is None or progress.grown_age_ms > limit_ms
            )
            self._demand(is_late and is_still, f"rank {rank} is called stuck on one signal")

    # The budget.

    def _count_end(self, action: RecordEnd, memory: Memory, snapshot: Snapshot) -> None:
        truth, store = self.budget, snapshot.store
        codes = {view.end.code if view.end else None for view in action.ranks if view.claimed}
        attempt = memory.attempt
        was_asked = memory.wanted.state != "run" or (attempt is not None and bool(attempt.drain))
        if (codes and codes <= PLANNED and action.completed_steps) or was_asked:
            return
        truth.in_window.append(snapshot.now.wall_ms)
        if not action.progress_known or isinstance(store, Unknown):
            return
        # By what was seen: an old answer of the store may hide progress, and never invents any.
        line = memory.plan.line.name
        steps = [c.step for c in store.checkpoints if c.line == line and c.verified]
        newest = max(steps, default=None)
        if newest is not None and (truth.verified is None or newest > truth.verified):
            truth.verified, truth.since_progress = newest, 0
        truth.since_progress += 1

    def _forgive(self, action: RecordIntent | PublishPlan) -> None:
        if isinstance(action, RecordIntent) and action.intent.verb == "resume":
            self.budget = BudgetTruth(verified=self.budget.verified)
        if isinstance(action, PublishPlan) and action.plan.kind == "line":
            self.budget = BudgetTruth()

    def _check_launch(self, action: LaunchGang, snapshot: Snapshot) -> None:
        if action.attempt <= self.attempt:
            self._demand(action.attempt == self.attempt, "an attempt number went back")
            return
        self.attempt = action.attempt
        limits, truth = self.world.policy.budget, self.budget
        is_within = truth.since_progress < limits.no_progress_incidents
        self._demand(is_within, f"restart after {truth.since_progress} incidents without progress")
        since = snapshot.now.wall_ms - limits.window_ms
        recent = sum(at >= since for at in truth.in_window)
        self._demand(recent <= limits.window_restarts, f"restart after {recent} in the window")
        # By what was seen, too: the trainer looks for itself, and the world sees to that.
        store = snapshot.store
        is_new = not isinstance(store, Unknown) and not store.ever_complete
        self._demand(
            action.restore != Restore.NONE or is_new, "a gang may start at step 0 over old work"
        )

    # The world.

    def _check_acts(self) -> None:
        for act in self.world.acts[self.seen_acts :]:
            self._demand(act.epoch >= self.acted, f"a former controller did {act.verb}")
            self.acted = act.epoch
            mark = (act.verb, act.attempt, act.subject)
            if act.verb == "quarantine_checkpoint":
                mark = (act.verb, 0, act.subject)
            if act.verb == "launch_gang":
                mark = (act.verb, act.attempt, "-")
            self._demand(mark in self.intended, f"{act.verb} without an intent in the ledger")
        self.seen_acts = len(self.world.acts)

    def _check_world(self) -> None:
        world = self.world
        live = world.live_attempts()
        self._demand(len(live) <= 1, f"attempts {live} live at once")
        for line, steps in world.highest.items():
            self._demand(steps >= self.highest.get(line, 0), f"line {line} lost steps")
            self.highest[line] = steps
        verified = any(c.verified and c.quarantined is None for c in world.shelf.checkpoints)
        is_safe = verified or self.has_damage or not world.shelf.ever_verified
        self._demand(is_safe, "no verified checkpoint is left")


def _mark(key: str) -> tuple[str, int, str]:
    _, attempt, verb, subject, _ = key.split("/", 4)
    return (verb, int(attempt), subject)
