"""The world of a rehearsal: a declared fleet, what breaks in it, and ports that cost little."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from contract.exits import Exit
from contract.wire import Phase
from controller.core.actions import LaunchGang
from controller.core.pace import US_PER_MS, PaceView
from controller.core.readings import Unknown
from controller.core.snapshot import GangView, RankReading
from controller.ports import Unavailable
from controller.runtime.observe import Ports
from controller.simulate.rehearsal.casebook import Case
from controller.simulate.rehearsal.cluster import Tray
from controller.simulate.rehearsal.crew import CrewGang
from controller.simulate.rehearsal.grounds import Grounds
from controller.simulate.rehearsal.hazards import Strike
from controller.simulate.rehearsal.scroll import Scroll
from controller.simulate.steps import SimLog
from controller.simulate.world import SimFleet, SimTelemetry, World

SILENT = Unknown(unknown="no answer")
KEPT_GANGS = 4
HIDDEN = frozenset({"telemetry", "progress"})
"""What cannot be read while the controller is blind."""


@dataclass
class SiteLog(SimLog):
    """The step log of gangs that stand still for their saves: a step after one takes longer."""

    save_every: int = 1
    block_ms: int = 0

    def view(self, since_step: int) -> PaceView | None:
        """Return the pace since `since_step`."""
        found = super().view(since_step)
        if found is None:
            return None
        blocked_ms = found.until_step // self.save_every * self.block_ms
        return found.model_copy(
            update={
                "extra_us": self.block_ms * US_PER_MS // self.save_every,
                "trained_ms": found.trained_ms + blocked_ms,
            }
        )


@dataclass
class Site(World):
    """Everything there is besides the controller."""

    grounds: Grounds = field(kw_only=True)
    full_until_ms: int = 0
    blind_until_ms: int = 0

    def __post_init__(self) -> None:
        self.grounds.hazards.strike = self.strike

    def ports(self) -> Ports:
        """Return the ports of the next controller."""
        ports = super().ports()
        fleet = SiteFleet(self, self.book.epoch)
        return replace(ports, fleet=fleet, telemetry=SiteTelemetry(self))

    @property
    def crew(self) -> CrewGang | None:
        """The newest attempt."""
        gang = self.gang
        assert gang is None or isinstance(gang, CrewGang)
        return gang

    @property
    def scroll(self) -> Scroll:
        """The ledger."""
        assert isinstance(self.book, Scroll)
        return self.book

    def forget_gangs(self) -> None:
        """Let go of the ranks of attempts that nobody looks at any more."""
        for old in self.gangs[:-KEPT_GANGS]:
            old.ranks = []

    # The pace.

    def follow_course(self) -> None:
        """Keep to the course from now on."""
        now_ms = self.agenda.now_ms
        due_ms = self.grounds.course.next_change(now_ms)
        if due_ms is None:
            return

        def turn() -> None:
            self.retune()
            self.follow_course()

        self.agenda.after(due_ms - now_ms, turn)

    def retune(self) -> None:
        """Let a gang that steps take the pace of this moment; any other one takes it later."""
        gang = self.crew
        if gang is None or gang.phase is not Phase.STEP or gang.halted_ms is not None:
            return
        step_ms = self.grounds.find_step_ms(gang.plan, gang.completed() or gang.base)
        if step_ms != self.pace.step_ms:
            self.change_pace(step_ms)

    # What breaks.

    def strike(self, strike: Strike) -> None:
        """Let a failure strike the gang that trains."""
        gang = self.crew
        if gang is None or gang.halted_ms is not None:
            return
        book, failure = self.grounds.casebook, strike.failure
        case = book.begin(strike.name, failure.effect)
        rank = int(strike.place * len(gang.ranks))
        self._effects[failure.effect](gang, case, rank, strike)
        book.striking = None
        self.grounds.alert()

    @property
    def _effects(self) -> dict[str, Callable[[CrewGang, Case, int, Strike], None]]:
        return {
            "rank": self._end_rank,
            "tray": self._take_tray,
            "rack": self._take_rack,
            "hang": self._hang,
            "slow": self._slow_down,
            "storage": self._fill_storage,
            "checkpoint": self._damage_checkpoint,
            "blind": self._blind,
        }

    def _locate(self, case: Case, rank: int) -> Tray:
        tray = self.grounds.cluster.tray_of(rank)
        case.rack, case.tray = tray.rack, tray.number
        return tray

    def _end_rank(self, gang: CrewGang, case: Case, rank: int, _: Strike) -> None:
        self._locate(case, rank)
        gang.end(gang.ranks[rank], Exit.SEGV)

    def _take_tray(self, gang: CrewGang, case: Case, rank: int, strike: Strike) -> None:
        tray = self._locate(case, rank)
        ranks = self.grounds.cluster.ranks_of(tray)
        self._take_out([tray], strike.repair_ms)
        gang.lose(ranks)

    def _take_rack(self, gang: CrewGang, case: Case, rank: int, strike: Strike) -> None:
        cluster, tray = self.grounds.cluster, self._locate(case, rank)
        case.tray = None
        ranks = [
            one for it in cluster.seats() if it.rack == tray.rack for one in cluster.ranks_of(it)
        ]
        self._take_out(cluster.trays[tray.rack], strike.repair_ms)
        gang.lose(ranks)

    def _take_out(self, trays: list[Tray], repair_ms: int) -> None:
        self.grounds.cluster.take_out(trays, repair_ms)
        self.agenda.after(repair_ms, self._return_trays)

    def _return_trays(self) -> None:
        self.grounds.cluster.take_stock()
        if self.crew is not None:
            self.crew.muster()

    def _hang(self, gang: CrewGang, case: Case, rank: int, _: Strike) -> None:
        self._locate(case, rank)
        gang.freeze(gang.ranks[rank])

    def _slow_down(self, _: CrewGang, case: Case, rank: int, strike: Strike) -> None:
        tray, percent = self._locate(case, rank), strike.failure.percent
        self.grounds.cluster.slow_down(tray, percent, strike.repair_ms)
        self.grounds.begin_slowing(case, tray, percent)
        self.retune()

        def mend() -> None:
            self.grounds.settle_slowness()
            self.retune()

        self.agenda.after(strike.repair_ms, mend)

    def _fill_storage(self, _: CrewGang, __: Case, ___: int, strike: Strike) -> None:
        self.full_until_ms = max(self.full_until_ms, self.agenda.now_ms + strike.repair_ms)
        self.disk_full = True

        def clear() -> None:
            if self.full_until_ms <= self.agenda.now_ms:
                self.disk_full = False
                self.grounds.alert()

        self.agenda.after(strike.repair_ms, clear)

    def _damage_checkpoint(self, _: CrewGang, __: Case, ___: int, ____: Strike) -> None:
        usable = [it for it in self.shelf.checkpoints if it.quarantined is None]
        if usable:
            max(usable, key=lambda it: it.step).damage = "data"

    def _blind(self, _: CrewGang, __: Case, ___: int, strike: Strike) -> None:
        self.blind_until_ms = max(self.blind_until_ms, self.agenda.now_ms + strike.repair_ms)
        self.blind |= HIDDEN

        def clear() -> None:
            if self.blind_until_ms <= self.agenda.now_ms:
                self.blind -= HIDDEN
                self.grounds.alert()

        self.agenda.after(strike.repair_ms, clear)


@dataclass
class SiteFleet(SimFleet):
    """The declared fleet, as the controller reaches it."""

    @property
    def site(self) -> Site:
        """The world."""
        assert isinstance(self.world, Site)
        return self.world

    def observe(self) -> GangView | None:
        """Return the newest attempt."""
        self.world.look("fleet")
        gang = self.site.crew
        if gang is None:
            return None
        return gang.look_at(self.list_remains())

    def launch(self, order: LaunchGang, *, epoch: int) -> None:
        """Start the attempt's ranks once there are trays for them."""
        is_new = self.begin(order)
        world, gang = self.site, self.site.crew
        if is_new or gang is None:
            gang = CrewGang(world, order, epoch, grounds=world.grounds)
            world.gangs.append(gang)
            world.forget_gangs()
        world.agenda.after(world.pace.claim_ms, gang.muster)


@dataclass
class SiteTelemetry(SimTelemetry):
    """What the ranks say: all that answer say the same."""

    def read(self, gang: GangView) -> list[RankReading]:
        """Return one reading per rank."""
        self.world.look("telemetry")
        own = self.world.gang
        if own is None or own.number != gang.attempt:
            raise Unavailable("the attempt is gone")
        speaking = next((it for it in own.ranks if it.alive and not it.stopped), None)
        value = SILENT if speaking is None else self._ask(own, speaking)
        return [
            RankReading(rank=it.rank, value=value if it.alive and not it.stopped else SILENT)
            for it in own.ranks
        ]
