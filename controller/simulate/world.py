"""The world as the ports reach it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from contract.plan import Plan
from contract.wire import ControlDocument, Phase, Restore
from controller.core.actions import LaunchGang
from controller.core.readings import Instant, Unknown
from controller.core.snapshot import (
    ControlView,
    GangView,
    OwnerIntent,
    ProgressView,
    RankReading,
    RankRef,
    RankTelemetry,
    StorageView,
    StoreView,
)
from controller.ports import Damaged, EpochLost, Refused, Unavailable
from controller.runtime.observe import Ports
from controller.simulate.book import Book
from controller.simulate.gang import SimGang, SimRank
from controller.simulate.habitat import Habitat

FREE_BYTES = 10**12
READ_MS = 200
"""Within which a rank sees a control document."""
RANK_BYTES = 10**9
MACHINE_BYTES = 64 * 10**9
MICRO = 1_000_000


@dataclass(frozen=True)
class Act:
    """One effect that reached the world."""

    verb: str
    attempt: int
    epoch: int
    subject: str


@dataclass
class World(Habitat):
    """Everything there is besides controllers."""

    book: Book = field(default_factory=Book)
    gangs: list[SimGang] = field(default_factory=list[SimGang])
    intents: list[OwnerIntent] = field(default_factory=list[OwnerIntent])
    blind: set[str] = field(default_factory=set[str])
    """Ports that cannot be read now."""
    lying: bool = False
    """Every rank's telemetry claims that it does not move."""
    lame_starts: int = 0
    """So many ranks of the coming launches are never started."""
    is_end_wanted: Callable[[], bool] = lambda: False
    """Whether the owner is known to want the living gang to leave."""
    acts: list[Act] = field(default_factory=list[Act])
    status: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def gang(self) -> SimGang | None:
        """The newest attempt."""
        return self.gangs[-1] if self.gangs else None

    def look(self, port: str) -> None:
        """Raise where the port cannot be read now."""
        if port in self.blind:
            raise Unavailable(f"{port} cannot be read")

    def change_pace(self, step_ms: int) -> None:
        """Let steps take `step_ms` from now on; what was completed stays completed."""
        gang = self.gang
        if gang is not None:
            gang.anchor(step_ms)
        self.pace = replace(self.pace, step_ms=step_ms)
        if gang is not None and gang.phase == Phase.STEP and gang.halted_ms is None:
            gang.turn += 1
            gang.plan_next()

    def live_attempts(self) -> list[int]:
        """Return the attempts of which a rank lives."""
        return [gang.number for gang in self.gangs[-4:] if gang.alive()]

    def ports(self) -> Ports:
        """Return the ports of the next controller; effects of older ones are refused from now on.

        The ledger, too, belongs to the new epoch.
        """
        ledger = self.book.open_epoch()
        return Ports(
            clock=SimClock(self),
            fleet=SimFleet(self, ledger.epoch),
            telemetry=SimTelemetry(self),
            progress=SimProgress(self),
            checkpoints=SimCheckpoints(self, ledger.epoch),
            publisher=SimPublisher(self, ledger.epoch),
            intents=SimIntents(self),
            ledger=ledger,
            status=SimStatus(self),
        )


@dataclass
class _Hand:
    """What a controller's effects go through: a former one's are refused."""

    world: World
    epoch: int

    def fence(self) -> None:
        """Raise EpochLost once another controller took over."""
        if self.world.book.epoch > self.epoch:
            raise EpochLost(f"epoch {self.world.book.epoch} took over from {self.epoch}")

    def note(self, verb: str, attempt: int, subject: str) -> None:
        """Record an effect for the checkers."""
        self.world.acts.append(Act(verb, attempt, self.epoch, subject))


@dataclass
class SimClock:
    """Virtual time."""

    world: World

    def now(self) -> Instant:
        """Return the current instant."""
        return self.world.agenda.instant()

    def wait(self, timeout_ms: int) -> None:
        """Let the world go on for `timeout_ms`."""
        self.world.agenda.run_until(self.world.agenda.now_ms + timeout_ms)


@dataclass
class SimFleet(_Hand):
    """Simulated processes."""

    def observe(self) -> GangView | None:
        """Return the newest attempt."""
        self.world.look("fleet")
        gang = self.world.gang
        if gang is None:
            return None
        return GangView(
            attempt=gang.number,
            closed=gang.closed,
            ranks=[rank.view() for rank in gang.ranks],
            remains=self.list_remains(),
            memory_bytes=MACHINE_BYTES,
            ranks_per_machine=len(gang.ranks),
        )

    def list_remains(self) -> list[RankRef]:
        """Return the live ranks of older attempts."""
        return [
            RankRef(attempt=old.number, rank=rank.rank)
            for old in self.world.gangs[-4:-1]
            for rank in old.alive()
        ]

    def begin(self, order: LaunchGang) -> bool:
        """Check the order, and note it if its attempt is new; return whether it is."""
        self.fence()
        world, gang = self.world, self.world.gang
        if gang is not None and gang.number > order.attempt:
            raise Refused(f"attempt {order.attempt} is older than {gang.number}")
        if gang is not None and gang.number == order.attempt:
            return False
        self.note("launch_gang", order.attempt, order.plan_sha)
        if world.live_attempts():
            world.violate(f"attempt {order.attempt} starts while an older one lives")
        return True

    def launch(self, order: LaunchGang, *, epoch: int) -> None:
        """Start the ranks that were never started."""
        is_new = self.begin(order)
        world, gang = self.world, self.world.gang
        if is_new or gang is None:
            if order.plan_sha not in world.plans:
                world.violate("ranks start before their plan is written")
                return
            gang = SimGang(world, order, epoch)
            world.gangs.append(gang)
        for rank in gang.ranks:
            self._start(gang, rank)

    def _start(self, gang: SimGang, rank: SimRank) -> None:
        world = self.world
        if world.lame_starts > 0 and not rank.has_started:
            world.lame_starts -= 1
            return
        delay_ms = world.random.randrange(20, world.pace.claim_ms)
        world.agenda.after(delay_ms, lambda: gang.claim(rank))

    def close(self, attempt: int) -> None:
        """Write the fence."""
        self.fence()
        self.note("close_attempt", attempt, "-")
        if all(gang.number < attempt for gang in self.world.gangs):
            # The real fence is a file: it also holds for an attempt that was never launched.
            self.world.gangs.append(SimGang(self.world, unlaunched(attempt), self.epoch))
        for gang in self.world.gangs:
            if gang.number == attempt:
                gang.closed = True

    def kill(self, attempt: int, ranks: Sequence[int]) -> None:
        """SIGKILL those that still live."""
        self.fence()
        self.note("kill_ranks", attempt, ",".join(map(str, ranks)))
        for gang in self.world.gangs[-4:]:
            if gang.number == attempt:
                self._kill(gang, ranks)

    def _kill(self, gang: SimGang, ranks: Sequence[int]) -> None:
        victims = [rank for rank in gang.alive() if rank.rank in ranks]
        control = self.world.control
        is_asked = control is not None and control.drain is not None
        # A drain that could not be published is enforced all the same.
        is_asked = is_asked or self.world.is_end_wanted()
        is_whole = all(rank.has_started for rank in gang.ranks)
        if victims and gang.healthy and gang.moving and is_whole and not is_asked:
            self.world.violate(f"ranks {ranks} of the healthy attempt {gang.number} were killed")
        for rank in victims:
            gang.kill(rank)
        stubborn = [rank for rank in victims if rank.alive]
        if stubborn:
            raise Unavailable(f"ranks {[rank.rank for rank in stubborn]} still live after SIGKILL")


def unlaunched(attempt: int) -> LaunchGang:
    """Return the order of an attempt of which only the fence exists."""
    return LaunchGang(
        reason="", nonce="", attempt=attempt, plan_sha="", restore=Restore.NONE, highest_step=0
    )


@dataclass
class SimTelemetry:
    """What the simulated ranks say."""

    world: World

    def read(self, gang: GangView) -> list[RankReading]:
        """Return one reading per rank."""
        self.world.look("telemetry")
        own = self.world.gang
        if own is None or own.number != gang.attempt:
            raise Unavailable("the attempt is gone")
        return [RankReading(rank=rank.rank, value=self._ask(own, rank)) for rank in own.ranks]

    def _ask(self, gang: SimGang, rank: SimRank) -> RankTelemetry | Unknown:
        if not rank.alive or rank.stopped:
            return Unknown(unknown="no answer")
        world, policy = self.world, self.world.policy
        age_ms = gang.progress_age_ms()
        refused = "unreadable" if world.is_garbage else gang.follower.refusal
        return RankTelemetry(
            attempt=gang.number,
            step=gang.completed() or gang.first or 0,
            phase=gang.phase,
            progress_age_ms=age_ms + (10**9 if world.lying else 0),
            deadline_ms=policy.deadlines_ms[gang.phase],
            plan_sha=gang.plan_sha,
            plan_pending=bool(gang.follower.pending),
            control_refused=refused,
            checkpoint_failures=gang.failures,
            commit_age_ms=0,
            memory_bytes=RANK_BYTES,
        )


@dataclass
class SimProgress:
    """The simulated step logs."""

    world: World

    def read(
        self, gang: GangView, line: str, now: Instant, since_step: int = 0
    ) -> ProgressView | None:
        """Return the progress of the newest attempt."""
        self.world.look("progress")
        own = self.world.gang
        assert now == self.world.agenda.instant()
        if own is None or (not self.world.highest and own.completed() is None):
            return None
        done = own.completed()
        own.log_now()
        highest = self.world.highest.get(line, 0)
        if done is not None and own.plan.line.name == line:
            highest = max(highest, done)
        return ProgressView(
            attempt=gang.attempt,
            completed_steps=done,
            grown_age_ms=own.log_age_ms(),
            highest_step=highest,
            replay_mismatch_step=None,
            plan_sha=None if done is None else self.world.log.stretches[-1].plan_sha,
            is_replaying=done is not None and done < highest,
            loss_micronats=None if done is None else loss_at(done),
            pace=self.world.log.view(since_step),
        )


def loss_at(step: int) -> int:
    """Return a loss that falls as losses do."""
    return round(3 * MICRO / (1 + step) ** 0.1)


@dataclass
class SimCheckpoints(_Hand):
    """The simulated store."""

    def observe(self) -> StoreView:
        """Return every checkpoint."""
        self.world.look("store")
        return self.world.shelf.view()

    def probe(self) -> StorageView:
        """Return whether the disk takes files."""
        self.world.look("storage")
        if self.world.disk_full:
            return StorageView(problem="no space left", free_bytes=0)
        return StorageView(problem=None, free_bytes=FREE_BYTES)

    def quarantine(self, line: str, step: int, reason: str, attempt: int) -> None:
        """Mark a checkpoint."""
        self.fence()
        self.note("quarantine_checkpoint", attempt, f"{line}:{step}")
        found = self.world.shelf.find(line, step)
        if found is None or found.quarantined is not None:
            return
        if found.damage is None:
            self.world.violate(f"the intact checkpoint {line}/{step} was quarantined")
        found.quarantined = reason


@dataclass
class SimPublisher(_Hand):
    """Simulated plan files and control document."""

    def read_control(self) -> ControlView | None:
        """Return the control document."""
        self.world.look("control")
        if self.world.is_garbage:
            raise Damaged("not a control document")
        document = self.world.control
        if document is None:
            return None
        return ControlView(
            epoch=document.epoch,
            seq=document.seq,
            plan_sha=document.plan_sha,
            drain=document.drain,
        )

    def publish_control(self, document: ControlDocument) -> None:
        """Replace the control document."""
        self.fence()
        world = self.world
        if world.disk_full:
            raise Unavailable("cannot write the control document: no space left")
        self.note("publish_control", 0, document.plan_sha)
        if document.order <= world.obeyed:
            world.violate(f"a control document {document.order} below {world.obeyed}")
        world.control, world.is_garbage = document, False
        if world.gang is not None:
            world.agenda.after(READ_MS, world.gang.look)

    def publish_plan(self, plan: Plan) -> None:
        """Write the plan's file."""
        self.fence()
        if self.world.disk_full:
            raise Unavailable("cannot write the plan: no space left")
        self.note("publish_plan", 0, plan.sha)
        self.world.plans[plan.sha] = plan
        if self.world.gang is not None:
            self.world.agenda.after(READ_MS, self.world.gang.look)


@dataclass
class SimIntents:
    """What the simulated owner asked for."""

    world: World

    def read(self, known: Sequence[str]) -> list[OwnerIntent]:
        """Return the intents that are not known."""
        self.world.look("intents")
        return [intent for intent in self.world.intents if intent.nonce not in known]


@dataclass
class SimStatus:
    """Where the status goes."""

    world: World

    def write(self, status: Mapping[str, object]) -> None:
        """Keep the status."""
        if self.world.disk_full:
            raise Unavailable("cannot write the status: no space left")
        self.world.status = status
