"""Seeded faults: what may go wrong, and when."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from contract.exits import Exit
from contract.wire import ControlDocument, LedgerHead, Phase
from controller.core.actions import Action, PublishPlan
from controller.simulate.chaos.life import Life
from controller.simulate.chaos.reads import READ_PORTS
from controller.simulate.gang import SimGang, SimRank
from controller.simulate.shelf import SimCheckpoint

LASTS_MS = (20_000, 240_000)
"""How long weather lasts."""
JUMPS_FORWARD_MS, JUMPS_BACK_MS = (90_000, 3_600_000, 86_400_000), (-90_000, -3_600_000)
UNDEAD_MS = 90_000
AIMS = ("start", "rendezvous", "restore", "compile", "first_step", "drain", "save_block")
COMMIT = "commit"
"""While steps go on, the newest save is on its way."""
MAX_STEP = 80
AIMED_SHARE = 0.6
IMMEDIATE_SHARE = 0.6
AIM_MS = 2_000
"""No phase of the simulated trainers is shorter."""
MOMENTS = {
    "propose": "proposed",
    "approve": "approved",
    "close_proposal": "closed",
    "record_adoption": "recorded",
}
OWNER_VERBS = ("suspend", "stop", "restart", "resume", "resume_from")

ENDINGS = ("timed", "reversed", "together", "shuffled")
"""How lasting faults end: each in its own time, or all from one moment on, in some order."""
BETWEEN_ENDINGS_MS = 15_000

Strike = Callable[["Weather"], None]


@dataclass(frozen=True)
class Need:
    """What a fault needs to strike at."""

    reason: str
    """Why it cannot strike, where it is not there."""
    is_met: Callable[["Weather"], bool]


@dataclass(frozen=True)
class Fault:
    """What may go wrong."""

    deed: Strike
    words: str
    need: Need


NOTHING = Need("", lambda _: True)
RANK = Need("no rank lives", lambda weather: weather.gang() is not None)
RANK_0 = Need("rank 0 does not live", lambda weather: weather.has_rank_0())
CHECKPOINT = Need("there is no checkpoint", lambda weather: bool(weather.checkpoints()))
CONTROL = Need(
    "no control document was published", lambda weather: weather.life.world.control is not None
)
CONTROLLER = Need("no controller lives", lambda weather: weather.life.reconciler is not None)


@dataclass
class Weather:
    """Brings faults over one life, and takes them away in the end."""

    life: Life
    random: Random
    faults: Mapping[str, Fault] = field(default_factory=lambda: FAULTS)
    aims: tuple[str, ...] = AIMS
    reached: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """(fault, phase it came in) pairs."""
    aimed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(fault, phase): waits for the next gang to come into the phase."""
    events: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """(event of the plan, phase it came in) pairs."""
    met: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """(fault, state of the plan, or of a save, it came in) pairs."""
    is_over: bool = False
    ending: str = "timed"
    """One of ENDINGS."""
    lasting: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """Ends of lasting faults that wait for the moment from which on they end."""

    def __post_init__(self) -> None:
        self.life.world.on_phase.append(self.greet)
        self.life.checkers.on_action.append(self.hear)

    def hear(self, action: Action) -> None:
        """Take note of what the plan track recorded, and let faults strike that wait for it."""
        is_revision = isinstance(action, PublishPlan) and action.proposal is not None
        moment = "published" if is_revision else MOMENTS.get(action.verb)
        if moment is not None:
            self.events.add((moment, self.phase()))
            self.greet(moment)

    def phase(self) -> str:
        """Return what the newest gang is at."""
        gang = self.life.world.gang
        if gang is None or not gang.alive():
            return "down"
        return gang.phase.value if gang.moving else "ending"

    def plan_state(self) -> str:
        """Return how far a change of plan has come."""
        memory, gang = self.life.checkers.memory, self.gang()
        if memory is None or (memory.proposal is None and memory.revision is None):
            return "settled"
        if memory.revision is not None:
            return "pending" if gang is not None and gang.follower.pending else "published"
        return "proposed" if memory.approval is None else "approved"

    def is_committing(self) -> bool:
        """Return whether the gang steps on while its newest save is written and read back."""
        gang = self.gang()
        if gang is None or not gang.moving or gang.phase != Phase.STEP or gang.base == gang.first:
            return False
        world = self.life.world
        is_save = gang.base > 0 and gang.base % world.pace.save_every == 0
        lasts_ms = world.pace.commit_ms + world.pace.verify_ms
        return is_save and world.agenda.now_ms < gang.since_ms + lasts_ms

    def greet(self, phase: str) -> None:
        """Let faults that were aimed at this phase strike within it."""
        for shot in [shot for shot in self.aimed if shot[1] == phase]:
            self.aimed.remove(shot)
            is_within = self.random.random() < IMMEDIATE_SHARE
            delay_ms = 0 if is_within else self.random.randrange(0, AIM_MS)
            self.life.world.agenda.after(delay_ms, lambda name=shot[0]: self.strike(name))

    def can(self, name: str) -> bool:
        """Return whether there is what the fault needs."""
        return self.faults[name].need.is_met(self)

    def strike(self, name: str) -> None:
        """Let the fault happen now, if there is what it needs."""
        if self.is_over or not self.can(name):
            return
        self.reached.add((name, self.phase()))
        self.met.add((name, self.plan_state()))
        if self.is_committing():
            self.met.add((name, COMMIT))
        self.faults[name].deed(self)

    def plan(self, count: int, until_ms: int) -> None:
        """Aim some of `count` faults at phases, and the others at times before `until_ms`."""
        agenda = self.life.world.agenda
        for _ in range(count):
            name = self.random.choice(sorted(self.faults))
            if self.random.random() < AIMED_SHARE:
                self.aimed.append((name, self.random.choice(self.aims)))
                continue
            at_ms = self.random.randrange(0, until_ms)
            agenda.after(at_ms, lambda name=name: self.strike(name))

    def clear(self) -> None:
        """No more faults; what lasted ends."""
        world = self.life.world
        self.is_over = True
        self.life.reads.clear()
        self.life.absent_until_ms = 0
        for exile in self.life.exiles:
            exile.heals_ms = 0
        world.blind.clear()
        world.poison.clear()
        world.is_deaf = world.is_split = False
        world.disk_full = world.lying = world.book.is_full = False
        world.lame_starts = 0
        for gang in world.gangs:
            revive(gang)
        if world.gang is not None:
            world.gang.look()

    # Help for the faults.

    def gang(self) -> SimGang | None:
        """Return the newest attempt if a rank of it lives."""
        gang = self.life.world.gang
        return gang if gang is not None and gang.alive() else None

    def rank(self) -> tuple[SimGang, SimRank] | None:
        """Return a live rank by chance."""
        gang = self.gang()
        return (gang, self.random.choice(gang.alive())) if gang else None

    def has_rank_0(self) -> bool:
        """Return whether rank 0 of the newest attempt lives."""
        gang = self.gang()
        return gang is not None and gang.ranks[0].alive

    def checkpoints(self) -> list[SimCheckpoint]:
        """Return what lies on the shelf."""
        return self.life.world.shelf.checkpoints

    def later(self, happening: Callable[[], None]) -> None:
        """Let the end of something lasting happen after a while."""
        if self.ending == "timed":
            self.life.world.agenda.after(self.random.randrange(*LASTS_MS), happening)
        else:
            self.lasting.append(happening)

    def release(self) -> None:
        """End what lasts, in the order of `ending`."""
        ends, self.lasting, apart_ms = self.lasting, [], BETWEEN_ENDINGS_MS
        if self.ending == "reversed":
            ends.reverse()
        elif self.ending == "shuffled":
            self.random.shuffle(ends)
        else:
            apart_ms = 0
        self.ending = "timed"
        for number, end in enumerate(ends):
            self.life.world.agenda.after(number * apart_ms, end)


def revive(gang: SimGang) -> None:
    """Let killed ranks that hung in the kernel go at last."""
    for rank in gang.ranks:
        if rank.is_undead:
            rank.is_undead = False
            gang.kill(rank)


def kill_worker(weather: Weather) -> None:
    """SIGKILL of one rank."""
    if found := weather.rank():
        found[0].kill(found[1])


def kill_first(weather: Weather) -> None:
    """SIGKILL of rank 0."""
    if gang := weather.gang():
        gang.kill(gang.ranks[0])


def kill_all(weather: Weather) -> None:
    """SIGKILL of every rank."""
    if gang := weather.gang():
        for rank in gang.alive():
            gang.kill(rank)


def freeze(weather: Weather) -> None:
    """SIGSTOP of one rank."""
    if found := weather.rank():
        found[0].freeze(found[1])


def freeze_all(weather: Weather) -> None:
    """SIGSTOP of every rank: no watchdog is left to say so."""
    if gang := weather.gang():
        for rank in gang.alive():
            gang.freeze(rank)


def hang(weather: Weather) -> None:
    """Every rank waits for ever; the watchdogs fire."""
    if gang := weather.gang():
        gang.healthy = False
        gang.halt()
        gang.arm()


def hang_unwatched(weather: Weather) -> None:
    """Every rank waits for ever, and the watchdogs do, too."""
    if gang := weather.gang():
        gang.healthy = gang.has_watchdogs = False
        gang.halt()


def undead(weather: Weather) -> None:
    """A rank hangs in the kernel: SIGKILL has no effect for a while, its peers leave."""
    if found := weather.rank():
        gang, rank = found
        rank.is_undead = True
        gang.healthy = False
        gang.halt()
        gang.alarm_peers()
        weather.life.world.agenda.after(UNDEAD_MS, lambda: revive(gang))


def lose_shim(weather: Weather) -> None:
    """A shim dies and, later, its rank: no end is recorded."""
    if found := weather.rank():
        gang, rank = found
        rank.has_shim = False
        weather.later(lambda: gang.kill(rank))


def lose_claim(weather: Weather) -> None:
    """A live rank's claim file is gone."""
    if found := weather.rank():
        found[1].claimed = False


def poison_step(weather: Weather) -> None:
    """A step that crashes each time it is tried."""
    weather.life.world.poison[weather.random.randrange(1, MAX_STEP)] = (
        Exit.ERROR,
        "data/x: unreadable",
    )


def poison_numbers(weather: Weather) -> None:
    """A step whose loss is not finite."""
    words = "loss is not finite"
    weather.life.world.poison[weather.random.randrange(1, MAX_STEP)] = (Exit.NON_FINITE, words)


def refuse(weather: Weather) -> None:
    """A rank ends with a code that no restart cures."""
    if gang := weather.gang():
        gang.fail(Exit.CONFIG, "data/x changed", everyone=True)


def disagree_replicas(weather: Weather) -> None:
    """The ranks' own digest vote finds a replica that differs."""
    if gang := weather.gang():
        gang.fail(Exit.REPLICA_MISMATCH, "replica 1 differs", everyone=True)


def damage_manifest(weather: Weather) -> None:
    """The newest checkpoint's manifest is lost."""
    if found := weather.life.world.shelf.checkpoints:
        found[-1].damage = "manifest"
        weather.life.checkers.has_damage = True


def damage_data(weather: Weather) -> None:
    """A bit of the newest checkpoint flips."""
    if found := weather.life.world.shelf.checkpoints:
        found[-1].damage = "data"
        weather.life.checkers.has_damage = True


def fill_disk(weather: Weather) -> None:
    """The disk is full for a while."""
    world = weather.life.world

    def free() -> None:
        world.disk_full = False

    world.disk_full = True
    weather.later(free)


def fill_ledger(weather: Weather) -> None:
    """Even the ledger's reserve is used up for a while: nothing may be done."""
    book = weather.life.world.book

    def free() -> None:
        book.is_full = False

    book.is_full = True
    weather.later(free)


def blind_all(weather: Weather) -> None:
    """No port can be read for a while, by anybody."""
    weather.life.world.blind.update(READ_PORTS)
    weather.later(weather.life.world.blind.clear)


def lie(weather: Weather) -> None:
    """Telemetry claims for a while that nothing moves, which the step log denies."""
    world = weather.life.world

    def stop() -> None:
        world.lying = False

    world.lying = True
    weather.later(stop)


def jump_clock_forward(weather: Weather) -> None:
    """The wall clock jumps ahead."""
    weather.life.world.agenda.wall_offset_ms += weather.random.choice(JUMPS_FORWARD_MS)


def jump_clock_back(weather: Weather) -> None:
    """The wall clock jumps back."""
    weather.life.world.agenda.wall_offset_ms += weather.random.choice(JUMPS_BACK_MS)


def reboot(weather: Weather) -> None:
    """The machine restarts: ranks are gone without a record, the controller is, too."""
    world = weather.life.world
    for gang in world.gangs:
        for rank in gang.alive():
            rank.has_shim = rank.is_undead = False
            gang.kill(rank)
    world.agenda.reboot()
    weather.life.reconciler = None


def spoil_control(weather: Weather) -> None:
    """The control document is replaced by garbage."""
    weather.life.world.is_garbage = weather.life.world.control is not None


def replace_control(weather: Weather) -> None:
    """The control document is replaced by one of another plan."""
    world = weather.life.world
    if world.control is not None:
        head = LedgerHead(seq=0, hash="0" * 64)
        world.control = ControlDocument(
            run_uid=world.policy.run_uid,
            epoch=world.control.epoch,
            seq=world.control.seq + 1,
            plan_sha="f" * 64,
            drain=None,
            ledger_head=head,
        )
        if world.gang is not None:
            world.gang.look()


def lame_start(weather: Weather) -> None:
    """A rank of the next launch never starts."""
    weather.life.world.lame_starts += 1


def owner(weather: Weather) -> None:
    """The owner changes their mind."""
    verb = weather.random.choice(OWNER_VERBS)
    if verb != "resume_from":
        weather.life.ask(verb)
        return
    checkpoints = weather.life.world.shelf.checkpoints
    if checkpoints:
        chosen = weather.random.choice(checkpoints)
        weather.life.ask(verb, step=chosen.step, line=chosen.line)


def name_faults(need: Need, *deeds: Strike) -> dict[str, Fault]:
    """Return the faults of one need by the names of their functions."""
    return {deed.__name__: Fault(deed, (deed.__doc__ or "").split("\n")[0], need) for deed in deeds}


FAULTS: dict[str, Fault] = {
    **name_faults(
        RANK,
        kill_worker, kill_all, freeze, freeze_all, hang, hang_unwatched, undead, lose_shim,
        lose_claim, refuse, disagree_replicas,
    ),
    **name_faults(RANK_0, kill_first),
    **name_faults(CHECKPOINT, damage_manifest, damage_data),
    **name_faults(CONTROL, spoil_control, replace_control),
    **name_faults(
        NOTHING,
        poison_step, poison_numbers, fill_disk, fill_ledger, blind_all, lie, jump_clock_forward,
        jump_clock_back, reboot, lame_start, owner,
    ),
}  # fmt: skip
