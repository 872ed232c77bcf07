"""The life of a run in the simulated world: controllers come and go, the owner looks after it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from contract.plan import Plan
from controller.core.decide import GANG, PLAN
from controller.core.memory import Memory
from controller.core.proposal import Change
from controller.core.rules import Rule
from controller.core.snapshot import OwnerIntent, Snapshot
from controller.core.terms import Terms
from controller.ports import EpochLost, Unavailable
from controller.runtime.observe import Ports
from controller.runtime.reconcile import Reconciler
from controller.simulate.chaos.checkers import Checkers
from controller.simulate.chaos.reads import EVERYWHERE, Link, Reads, connect
from controller.simulate.tap import ControllerKilled, Killer, tap
from controller.simulate.world import World

Wrap = Callable[[Ports], Ports]

RESTART_MS = 15_000
"""How long a dead controller is missed."""
OWNER_MS = 120_000
"""How long the owner takes to answer a halt."""


def build_status(memory: Memory, snapshot: Snapshot) -> Mapping[str, object]:
    """Return a status of the least size."""
    return {"attempt": memory.attempt.number if memory.attempt else 0, "epoch": snapshot.epoch}


@dataclass
class Exile:
    """A controller that is cut off."""

    controller: Reconciler
    link: Link
    heals_ms: int
    """When its link works again; it still does not know whether it was replaced."""
    epoch: int


@dataclass
class Life:
    """A run from its launch on."""

    world: World
    plan: Plan
    rules: tuple[Rule, ...] = GANG
    plan_rules: tuple[Rule, ...] = PLAN
    wrap: Wrap | None = None
    """Breaks ports on purpose."""
    is_checked: bool = True
    """False: no checkers, and no controller is killed; for speed."""
    killer: Killer = field(default_factory=Killer)
    reads: Reads = field(default_factory=Reads)
    link: Link = field(default_factory=Link)
    """Of the newest controller."""
    exiles: list[Exile] = field(default_factory=list[Exile])
    absent_until_ms: int = 0
    """No controller starts before."""
    reconciler: Reconciler | None = None
    late: bool = False
    """Another controller takes over before the next pass of this one."""
    passes: int = 0
    deaths: int = 0
    asked: int = 0
    checkers: Checkers = field(init=False)

    def __post_init__(self) -> None:
        self.checkers = Checkers(self.world, self.rules, self.plan_rules)
        self.world.is_end_wanted = self.is_end_wanted

    # Controllers.

    def start_controller(self) -> Reconciler:
        """Let a controller take over: it records its epoch and rebuilds its memory."""
        ports = self.world.ports()
        if self.is_checked:
            self.link = Link()
            ports = tap(connect(ports, self.reads, self.link), self.killer)
        if self.wrap is not None:
            ports = self.wrap(ports)
        now = ports.clock.now()
        if not self.world.book.records:
            body = {
                "policy": self.world.policy.model_dump(mode="json"),
                "plan": self.plan.model_dump(mode="json"),
            }
            ports.ledger.append("run", body, now)
        ports.ledger.append("epoch", {"pid": 1, "host": "sim", "takeover": False}, now)
        reconciler = Reconciler(ports, build_status, rules=self.rules, plan_rules=self.plan_rules)
        reconciler.resume()
        return reconciler

    def tick(self) -> None:
        """Let the controller pass once, check, and let the world go on until it wakes."""
        wake_ms = RESTART_MS
        self.hear_exiles()
        try:
            if self.world.agenda.now_ms >= self.absent_until_ms:
                wake_ms = self._steer()
        except ControllerKilled:
            self.deaths += 1
            self.reconciler = None
        except EpochLost:
            wake_ms = RESTART_MS  # overtaken while it started: the other one steers
        except Unavailable:
            wake_ms = self.world.policy.wake_ms
        if self.is_checked:
            self.checkers.look(self.reconciler.memory if self.reconciler else None)
        self.world.agenda.run_until(self.world.agenda.now_ms + wake_ms)

    def _steer(self) -> int:
        """Let the newest controller pass once; return in how many milliseconds it wakes."""
        if self.reconciler is None:
            self.reconciler = self.start_controller()
        if self.late:
            self.late = False
            self.wake_former()
        steering = self.reconciler
        try:
            decision = steering.pass_once()
        except EpochLost:
            if self.reconciler is steering:
                self.reconciler = None
            return RESTART_MS
        self.passes += 1
        return decision.wake_in_ms

    def wake_former(self) -> None:
        """Let a controller that was replaced, and does not know it, do a pass: it gets nowhere."""
        late = self.reconciler
        if late is None:
            return
        try:
            self.reconciler = self.start_controller()
        except Unavailable:
            return
        # Without an act to do it may end its pass none the wiser.
        with suppress(EpochLost, Unavailable):
            self._pass_in_vain(late)

    def _pass_in_vain(self, late: Reconciler) -> None:
        """Let a former controller pass; nothing may come of it."""
        acts, records = len(self.world.acts), len(self.world.book.records)
        try:
            with self.killer.paused():
                late.pass_once()
        finally:
            if len(self.world.acts) > acts or len(self.world.book.records) > records:
                self.world.violate("a former controller acted")

    def cut_off(self, ports: frozenset[str] = EVERYWHERE, *, lasts_ms: int) -> None:
        """Cut the controller off from `ports` for a while; another one takes over meanwhile."""
        if self.reconciler is None:
            return
        self.link.down = ports
        heals_ms = self.world.agenda.now_ms + lasts_ms
        exile = Exile(self.reconciler, self.link, heals_ms, self.world.book.epoch)
        self.exiles.append(exile)
        self.reconciler = None

    def hear_exiles(self) -> None:
        """Let every controller that was cut off pass; one that reaches the ledger again ends."""
        for exile in list(self.exiles):
            if exile.heals_ms <= self.world.agenda.now_ms:
                exile.link.down = frozenset()
                if self.world.book.epoch == exile.epoch:
                    # Nobody took over meanwhile: it steers on.
                    self.exiles.remove(exile)
                    self.reconciler, self.link = exile.controller, exile.link
                    continue
            try:
                self._pass_in_vain(exile.controller)
            except EpochLost:
                self.exiles.remove(exile)
            except Unavailable:
                continue

    def usurp(self) -> None:
        """Let another controller take over and pass once, whatever the present one is at."""
        self.reconciler = self.start_controller()
        self.reconciler.pass_once()

    # The owner.

    @property
    def memory(self) -> Memory | None:
        """What the controller that lives remembers."""
        return self.reconciler.memory if self.reconciler else None

    def approve(self, proposal: str | None = None, *, verb: str = "approve") -> None:
        """Drop the owner's word on the open proposal, or on another one."""
        if proposal is None:
            there = self.checkers.memory and self.checkers.memory.proposal
            proposal = there.id if there else "0" * 12
        self._drop({"verb": verb, "proposal": proposal})

    def propose(self, change: Change) -> None:
        """Drop an owner's proposal."""
        self._drop({"verb": "propose", "change": change})

    def amend(self, **changes: object) -> None:
        """Drop an edit of deadline or contingency."""
        memory = self.checkers.memory
        terms: Terms = memory.policy.terms if memory else self.world.policy.terms
        self._drop({"verb": "amend", "terms": terms.model_copy(update=changes)})

    def ask(self, verb: str, step: int | None = None, line: str | None = None) -> None:
        """Drop an intent of the owner."""
        self._drop({"verb": verb, "line": line, "step": step})

    def _drop(self, wish: Mapping[str, object]) -> None:
        self.asked += 1
        intent = OwnerIntent.model_validate(
            {
                **wish,
                "nonce": f"owner-{self.asked}",
                "user": "owner",
                "wall_ms": self.world.agenda.wall_ms,
            }
        )
        self.world.intents.append(intent)

    def is_end_wanted(self) -> bool:
        """Return whether the ledger says that the owner wants the gang to leave."""
        memory = self.checkers.memory if self.is_checked else self.memory
        if memory is None:
            return False
        wanted, attempt = memory.wanted, memory.attempt
        is_leaving = attempt is not None and attempt.drain is not None
        is_new = wanted.restart_nonce is not None or wanted.resume_from is not None
        return is_leaving or is_new or wanted.state != "run"

    def needs_owner(self) -> bool:
        """Return whether the run rests, unfinished."""
        memory = self.memory
        if memory is None:
            return False
        return memory.halted is not None or memory.rest in ("suspended", "stopped")

    @property
    def is_completed(self) -> bool:
        """Whether the run reached its horizon."""
        return self.memory is not None and self.memory.rest == "completed"

    def run(self, until_ms: int) -> None:
        """Live until the run is completed or the time is over."""
        while self.world.agenda.now_ms < until_ms and not self.is_completed:
            self.tick()

    def see_through(self, until_ms: int) -> None:
        """Live on with an owner who resumes whatever rests; the run must finish in time.

        A run of which every checkpoint is lost is halted for good, rightly.
        """
        while self.world.agenda.now_ms < until_ms and not self.is_completed:
            self.tick()
            if self.needs_owner():
                if self.is_lost:
                    return
                self.world.agenda.run_until(self.world.agenda.now_ms + OWNER_MS)
                self.ask("resume")
        if not self.is_completed:
            memory = self.memory
            rest = memory and (memory.halted or memory.rest or memory.last_decision)
            self.world.violate(f"the run did not finish after the faults stopped: {rest}")

    @property
    def is_lost(self) -> bool:
        """Whether there were checkpoints, and nothing is left that the plan may start from."""
        return self.memory is not None and self.world.has_nothing_left(self.memory)
