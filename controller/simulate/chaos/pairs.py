"""Every fault in every phase, alone and after another one: lives in which just these strike.

Not by luck: each life brings the run into the phase and waits there for the moment to strike.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from controller.core.policy import Policy
from controller.simulate.agenda import FIRST_WALL_MS
from controller.simulate.chaos.campaign import (
    ALL_FAULTS,
    LIMIT_MS,
    Outcome,
    new_random,
    sum_up,
)
from controller.simulate.chaos.faults import (
    COMMIT,
    CONTROL,
    CONTROLLER,
    ENDINGS,
    NOTHING,
    RANK,
    RANK_0,
    Fault,
    Weather,
)
from controller.simulate.chaos.life import OWNER_MS, Life
from controller.simulate.chaos.plan_faults import DEADLINE, PLAN_FAULTS
from controller.simulate.scenario import mixed_plan, sim_plan, sim_policy, sim_terms
from controller.simulate.world import World

GANG_PHASES = (
    "start", "rendezvous", "restore", "compile", "first_step", "step", COMMIT, "save_block",
    "drain", "ending", "down",
)  # fmt: skip
PLAN_STATES = ("proposed", "approved", "published", "pending")
PHASES = GANG_PHASES + PLAN_STATES

LACKING = {RANK: ("down",), RANK_0: ("down",)}
"""Need -> phases in which it is never met."""

EARLY = (NOTHING, RANK, RANK_0, CONTROL, CONTROLLER, DEADLINE)
"""Needs that are met from the first launch on."""

STEPS = 80
DEADLINE_MS = FIRST_WALL_MS + 690_000
"""Of a run that needs 822 s, and 622 s at its floor."""
RESTART_MS = (170_000, 260_000)
"""When the owner asks for a restart: there is a verified checkpoint, and no proposal yet."""
FIRST_ATTEMPT_ENDS = ("drain", "ending", "down")
APPROVAL_MS = 30_000
LOOK_MS, CLOSE_LOOK_MS = 100, 20
"""No phase but the end of a drained gang is shorter than the first."""
SOON_MS = 2_000
RECOVERY_MS = 60_000
RELEASE_MS = (60_000, 200_000)
AFTERMATH_MS, SECOND_MS = 300_000, 100_000
"""For how long faults last after the first one, and after the second at least."""
STORM_MS = 1_500_000
GAPS = ("at_once", "soon", "recovery", "recovery")
COMPANIONS = (
    "", "", "", "", "lose_controller", "kill_controller_soon", "overtake_controller",
    "cut_controller", "mute_controller", "tear_ledger",
)  # fmt: skip
SEPARATOR = "/"
EVEN = 0.5


@dataclass(frozen=True)
class Blow:
    """One fault in one phase, and perhaps another one at or after it."""

    seed: int
    fault: str
    phase: str
    second: str = ""

    @property
    def name(self) -> str:
        """What a failure prints, and `read_blow` reads."""
        parts = [str(self.seed), self.fault, self.phase, self.second]
        return SEPARATOR.join(part for part in parts if part)


def read_blow(name: str) -> Blow:
    """Return the blow of a name.

    Raises:
        ValueError: there is no such fault or phase.
    """
    seed, fault, phase, *rest = name.split(SEPARATOR)
    second = rest[0] if rest else ""
    if fault not in ALL_FAULTS or phase not in PHASES or (second and second not in ALL_FAULTS):
        raise ValueError(f"{name} is not SEED/FAULT/PHASE or SEED/FAULT/PHASE/FAULT")
    return Blow(int(seed), fault, phase, second)


def explain_impossible(fault: str, phase: str) -> str | None:
    """Return why the fault cannot strike in the phase, None where it can."""
    need = ALL_FAULTS[fault].need
    return need.reason if phase in LACKING.get(need, ()) else None


def list_singles(seed: int) -> list[Blow]:
    """Return every fault in every phase that it can strike in."""
    return [
        Blow(seed, fault, phase)
        for fault, phase in product(sorted(ALL_FAULTS), PHASES)
        if explain_impossible(fault, phase) is None
    ]


def list_pairs(seed: int) -> Iterator[Blow]:
    """Return every ordered pair of faults once; the phase moves on with the seed."""
    names = sorted(ALL_FAULTS)
    possible = {
        name: [phase for phase in PHASES if explain_impossible(name, phase) is None]
        for name in names
    }
    for number, (first, second) in enumerate(product(names, repeat=2)):
        phases = possible[first]
        yield Blow(seed, first, phases[(number + seed) % len(phases)], second)


@dataclass
class Scene:
    """One life, brought into the phase of its blow."""

    blow: Blow
    life: Life
    weather: Weather
    struck_ms: int | None = None
    paired_ms: int | None = None
    """When the second fault struck."""
    attempt: int = field(init=False)
    """Whose phase it is."""

    def __post_init__(self) -> None:
        self.attempt = self._choose_attempt()
        self.weather.ending = self.weather.random.choice(ENDINGS)
        agenda = self.life.world.agenda
        if self.blow.phase in PLAN_STATES:
            self.life.checkers.on_action.append(lambda _: agenda.after(0, self._strike_first))
            self._repeat(self._approve, APPROVAL_MS)
            self._watch()
        elif self.attempt == 1 and self.blow.phase not in FIRST_ATTEMPT_ENDS:
            self._watch()
        else:
            agenda.after(self.weather.random.randrange(*RESTART_MS), self._restart)

    def _choose_attempt(self) -> int:
        blow = self.blow
        if blow.phase in (*FIRST_ATTEMPT_ENDS, *PLAN_STATES):
            return 1
        faults = [self.weather.faults[name] for name in (blow.fault, blow.second) if name]
        needs_past = any(fault.need not in EARLY for fault in faults)
        return 2 if needs_past or blow.phase == "save_block" else self.weather.random.choice((1, 2))

    def _restart(self) -> None:
        # Between two attempts the run may be down for a moment only; suspended, it is for long.
        self.life.ask("suspend" if self.blow.phase == "down" else "restart")
        self._watch()

    def _approve(self) -> None:
        if self.struck_ms is None and self.weather.plan_state() == "proposed":
            self.life.approve()

    def _repeat(self, deed: Callable[[], None], every_ms: int) -> None:
        """Do `deed` again and again, until the first fault struck."""
        deed()
        if self.struck_ms is None:
            agenda = self.life.world.agenda
            agenda.after(every_ms, lambda: self._repeat(deed, every_ms))

    # The first fault.

    def _watch(self) -> None:
        """Strike in the phase, as soon as there is what the fault needs."""
        self._repeat(self._strike_first, CLOSE_LOOK_MS if self.blow.phase == "ending" else LOOK_MS)

    def _is_there(self) -> bool:
        """Return whether the run is in the phase."""
        phase, gang = self.blow.phase, self.life.world.gang
        if phase in PLAN_STATES:
            return self.weather.plan_state() == phase
        if phase == COMMIT:
            return self.weather.is_committing()
        is_whose = gang is not None and gang.number == self.attempt
        return is_whose and self.weather.phase() == phase

    def _strike_first(self) -> None:
        blow, weather = self.blow, self.weather
        if self.struck_ms is not None or not self._is_there() or not weather.can(blow.fault):
            return
        agenda, random = self.life.world.agenda, weather.random
        self.struck_ms = agenda.now_ms
        weather.strike(blow.fault)
        agenda.after(random.randrange(*RELEASE_MS), weather.release)
        if not blow.second:
            return
        if companion := random.choice(COMPANIONS):
            weather.strike(companion)
        gap = random.choice(GAPS)
        if gap == "at_once":
            self._strike_second()
        elif gap == "soon" or blow.phase == "save_block":
            agenda.after(random.randrange(SOON_MS), self._strike_second)
        else:
            self._await_recovery(agenda.now_ms + RECOVERY_MS)

    # The second one.

    def _await_recovery(self, until_ms: int) -> None:
        """Strike in whatever phase comes after the first fault's."""
        agenda = self.life.world.agenda
        if self._is_there() and agenda.now_ms < until_ms:
            agenda.after(LOOK_MS, lambda: self._await_recovery(until_ms))
        else:
            agenda.after(self.weather.random.randrange(SOON_MS), self._strike_second)

    def _strike_second(self) -> None:
        """Strike as soon as there is what the second fault needs."""
        if self.weather.is_over:
            return
        if self.weather.can(self.blow.second):
            self.paired_ms = self.life.world.agenda.now_ms
            self.weather.strike(self.blow.second)
        else:
            self.life.world.agenda.after(LOOK_MS, self._strike_second)

    # All of it.

    @property
    def is_over(self) -> bool:
        """Return whether faults came for long enough."""
        now_ms = self.life.world.agenda.now_ms
        if self.struck_ms is None or (self.blow.second and self.paired_ms is None):
            return now_ms >= STORM_MS
        paired_ms = self.struck_ms if self.paired_ms is None else self.paired_ms
        return now_ms >= max(self.struck_ms + AFTERMATH_MS, paired_ms + SECOND_MS)

    def endure(self) -> None:
        """Live through the faults, with an owner who resumes whatever rests."""
        life = self.life
        while not self.is_over and not life.is_completed:
            life.tick()
            if life.needs_owner() and not life.is_lost:
                life.world.agenda.run_until(life.world.agenda.now_ms + OWNER_MS)
                life.ask("resume")


def set_scene(blow: Blow, faults: Mapping[str, Fault] = ALL_FAULTS) -> Scene:
    """Return the life of a blow before its first moment."""
    random = new_random(blow.name)
    is_plain = blow.phase in GANG_PHASES and not needs_deadline(blow) and random.random() < EVEN
    ranks = random.randrange(2, 5)
    policy = sim_policy(ranks=ranks) if is_plain else late_policy(ranks, random.random() < EVEN)
    world = World(policy=policy, random=random)
    life = Life(world, sim_plan(STEPS) if is_plain else mixed_plan(STEPS))
    return Scene(blow, life, Weather(life, random, faults, ()))


def needs_deadline(blow: Blow) -> bool:
    """Return whether a fault of the blow is about the plan."""
    return any(name in PLAN_FAULTS for name in (blow.fault, blow.second))


def late_policy(ranks: int, is_auto: bool) -> Policy:  # noqa: FBT001  # one of two modes
    """Return the policy of a run that is late and may be shortened."""
    mode = "auto" if is_auto else "propose"
    return sim_policy(ranks=ranks, terms=sim_terms(mode=mode, deadline_wall_ms=DEADLINE_MS))


def live_blow(blow: Blow) -> Outcome:
    """Return how the life of a blow went: the faults, then peace in which it must finish."""
    scene = set_scene(blow)
    scene.endure()
    scene.weather.clear()
    scene.life.see_through(scene.life.world.agenda.now_ms + LIMIT_MS)
    return sum_up(blow.name, scene.life, scene.weather, is_paired=scene.paired_ms is not None)
