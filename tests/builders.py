"""Runs in a few words: `a_run().launched().with_end(1, 137).decide()`.

A run here is a ledger's worth of memory and one snapshot; time stands still until it is moved.
"""

import json
from dataclasses import dataclass, field

from contract.exits import Exit
from contract.plan import Plan
from contract.wire import Drain, Phase
from controller.core.actions import Action, Decision, key_of
from controller.core.decide import EFFECTS, decide
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.core.policy import Budget, Policy
from controller.core.readings import Instant, Unknown
from controller.core.recording import body_of
from controller.core.snapshot import (
    CheckpointView,
    ControlView,
    GangView,
    OwnerIntent,
    ProgressView,
    RankEnd,
    RankReading,
    RankRef,
    RankTelemetry,
    RankView,
    Snapshot,
    StorageView,
    StoreView,
)
from controller.simulate.book import Book, BookLedger
from controller.simulate.scenario import sim_plan, sim_policy

START_MS = 1_000_000
WALL_MS = 1_700_000_000_000


def an_instant(mono_ms: int, boot_id: str = "boot-1") -> Instant:
    """Return an instant whose wall clock agrees with the monotonic one."""
    return Instant(wall_ms=WALL_MS + mono_ms, mono_ms=mono_ms, boot_id=boot_id)


def a_checkpoint(step: int, plan: Plan, **changes) -> CheckpointView:
    """Return a complete, verified checkpoint of the main line."""
    view = CheckpointView(
        line="main",
        step=step,
        plan_sha=plan.sha,
        manifest_sha256="a" * 64,
        verified=True,
        quarantined=None,
    )
    return view.model_copy(update=changes)


def a_rank(rank: int, **changes) -> RankView:
    """Return a live rank."""
    view = RankView(rank=rank, claimed=True, alive=True, stopped=False, has_stacks=False, end=None)
    return view.model_copy(update=changes)


def an_end(
    code: int, *, at_ms: int = START_MS, step: int | None = None, detail: str = ""
) -> RankEnd:
    """Return how a rank ended, at a moment of the monotonic clock."""
    return RankEnd(code=code, wall_ms=WALL_MS + at_ms, step=step, detail=detail)


@dataclass
class Run:
    """A run as a test sees it."""

    policy: Policy
    plan: Plan
    now: Instant = field(default_factory=lambda: an_instant(START_MS))
    book: Book = field(default_factory=Book)
    memory: Memory = field(init=False)
    ledger: BookLedger = field(init=False)
    seen: dict[str, object] = field(default_factory=dict)

    def __post_init__(self):
        self.ledger = self.book.open_epoch()
        body = {
            "policy": self.policy.model_dump(mode="json"),
            "plan": self.plan.model_dump(mode="json"),
        }
        self.memory = fold(None, self.ledger.append("run", body, self.now))
        self.record("epoch", {"pid": 1, "host": "here", "takeover": False})
        self.seen = {
            "gang": None,
            "telemetry": [],
            "progress": None,
            "store": StoreView(checkpoints=[], ever_complete=False),
            "storage": StorageView(problem=None, free_bytes=10**12),
            "intents": [],
            "control": None,
        }

    # Time and records.

    def record(self, kind, body) -> "Run":
        """Append a record and fold it."""
        self.memory = fold(self.memory, self.ledger.append(kind, body, self.now))
        return self

    def after(self, delay_ms: int, *, wall_jump_ms: int = 0) -> "Run":
        """Let time pass."""
        self.now = self.now.model_copy(
            update={
                "mono_ms": self.now.mono_ms + delay_ms,
                "wall_ms": self.now.wall_ms + delay_ms + wall_jump_ms,
            }
        )
        return self

    def rebooted(self) -> "Run":
        """Let the machine restart."""
        self.now = self.now.model_copy(update={"boot_id": self.now.boot_id + "+", "mono_ms": 5_000})
        return self

    # What is seen.

    def seeing(self, **fields) -> "Run":
        """Replace fields of the snapshot."""
        self.seen |= fields
        return self

    def blind(self, *fields: str) -> "Run":
        """Make fields of the snapshot Unknown."""
        return self.seeing(**{name: Unknown(unknown=f"no {name}") for name in fields})

    @property
    def gang(self) -> GangView:
        """The gang that is seen."""
        gang = self.seen["gang"]
        assert isinstance(gang, GangView)
        return gang

    def with_gang(self, **changes) -> "Run":
        """Change the gang that is seen."""
        return self.seeing(gang=self.gang.model_copy(update=changes))

    def with_rank(self, rank: int, **changes) -> "Run":
        """Change one rank that is seen."""
        ranks = [
            view.model_copy(update=changes) if view.rank == rank else view
            for view in self.gang.ranks
        ]
        return self.with_gang(ranks=ranks)

    def with_end(self, rank: int, code: int | None, **details) -> "Run":
        """Let a rank have ended; None: without a record."""
        details = {"at_ms": self.now.mono_ms} | details
        end = None if code is None else an_end(code, **details)
        return self.with_rank(rank, alive=False, stopped=False, end=end)

    def with_ends(self, *codes: int | None, **details) -> "Run":
        """Let every rank have ended, in the order of ranks."""
        for rank, code in enumerate(codes):
            self.with_end(rank, code, **details)
        return self

    def with_remains(self, attempt: int, rank: int) -> "Run":
        """Let a rank of an older attempt live."""
        return self.with_gang(remains=[*self.gang.remains, RankRef(attempt=attempt, rank=rank)])

    def with_checkpoints(self, *steps: int, **changes) -> "Run":
        """Let these verified checkpoints lie in the store."""
        views = [a_checkpoint(step, self.plan, **changes) for step in steps]
        return self.seeing(store=StoreView(checkpoints=views, ever_complete=True))

    def with_progress(self, completed: int | None, grown_age_ms: int = 100, **changes) -> "Run":
        """Let the step log be so long."""
        view = ProgressView(
            attempt=self.gang.attempt,
            completed_steps=completed,
            grown_age_ms=grown_age_ms,
            highest_step=completed or 0,
            replay_mismatch_step=None,
        )
        return self.seeing(progress=view.model_copy(update=changes))

    def with_telemetry(self, *ranks: int, **changes) -> "Run":
        """Let these ranks answer, and no other."""
        value = RankTelemetry(
            attempt=self.gang.attempt,
            step=10,
            phase=Phase.STEP,
            progress_age_ms=100,
            deadline_ms=self.policy.deadlines_ms[Phase.STEP],
            plan_sha=self.plan.sha,
            plan_pending=False,
            control_refused=None,
            checkpoint_failures=0,
            commit_age_ms=0,
        ).model_copy(update=changes)
        answers = [RankReading(rank=rank, value=value) for rank in ranks]
        silent = [
            RankReading(rank=view.rank, value=Unknown(unknown="no answer"))
            for view in self.gang.ranks
            if view.rank not in ranks
        ]
        return self.seeing(telemetry=sorted([*answers, *silent], key=lambda one: one.rank))

    def asked(self, verb: str, nonce: str = "", **details) -> "Run":
        """Let the owner have asked for something."""
        intent = OwnerIntent(
            nonce=nonce or f"n-{verb}-{self.now.mono_ms}",
            verb=verb,
            user="me",
            wall_ms=self.now.wall_ms,
            **details,
        )
        return self.seeing(intents=[intent])

    # What is decided.

    def snapshot(self) -> Snapshot:
        """Return what is seen now."""
        return Snapshot(now=self.now, epoch=self.ledger.epoch, **self.seen)

    def decide(self) -> Decision:
        """Return what the core would do, and leave it at that."""
        return decide(self.snapshot(), self.memory)

    def pass_once(self, *, ok: bool = True) -> Decision:
        """Record the decision and the outcomes of its effects; the world stays as it is."""
        snapshot = self.snapshot()
        decision = decide(snapshot, self.memory)
        if decision.actions:
            self.record("decision", body_of(decision, snapshot))
        for action in decision.actions:
            if isinstance(action, EFFECTS):
                key = key_of(self.policy.run_uid, action)
                self.record("outcome", {"key": key, "ok": ok, "error": "" if ok else "no"})
        return decision

    def launched(self) -> "Run":
        """Launch the next attempt, and let all its ranks live."""
        decision = self.pass_once()
        assert decision.rule == "launch", decision
        attempt = self.memory.attempt
        assert attempt is not None
        ranks = [a_rank(rank) for rank in range(self.policy.ranks)]
        gang = GangView(attempt=attempt.number, closed=False, ranks=ranks, remains=[])
        control = ControlView(
            epoch=self.ledger.epoch, seq=self.memory.seq, plan_sha=self.plan.sha, drain=None
        )
        return self.seeing(gang=gang, control=control)

    def drained(self, drain: Drain | None) -> "Run":
        """Let the control document ask for a drain."""
        control = self.seen["control"]
        assert isinstance(control, ControlView)
        return self.seeing(control=control.model_copy(update={"drain": drain}))

    def over(self, *codes: int | None, **details) -> "Run":
        """Let every rank end, fenced, and record it."""
        self.with_ends(*codes, **details).with_gang(closed=True)
        assert self.pass_once().rule == "record_end"
        return self

    def relaunched(self) -> "Run":
        """Wait out the delay and launch again."""
        return self.after(self.policy.budget.max_delay_ms * 2).launched()

    def rebuilt(self) -> Memory:
        """Return the memory as another controller would build it."""
        memory = None
        for record in self.book.records:
            copy = record.model_copy(update={"body": json.loads(json.dumps(dict(record.body)))})
            memory = fold(memory, copy)
        assert memory is not None
        return memory


def a_run(*, ranks: int = 4, steps: int = 100, budget: Budget | None = None) -> Run:
    """Return a run before its first launch."""
    policy = sim_policy(ranks=ranks, wake_ms=500, budget=budget)
    return Run(policy=policy, plan=sim_plan(steps))


def verbs_of(decision: Decision) -> list[str]:
    """Return what a decision does, in order, without notes."""
    return [action.verb for action in decision.actions if action.verb != "note"]


def the(decision: Decision, verb: str) -> Action:
    """Return the only action of that kind."""
    [action] = [action for action in decision.actions if action.verb == verb]
    return action


ALL_KILLED = (Exit.KILLED,) * 4
