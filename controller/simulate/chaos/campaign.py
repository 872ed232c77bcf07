"""Many lives under faults, each told by its seed; and how fast lives pass."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from controller.core.decide import GANG, PLAN
from controller.core.policy import Policy
from controller.core.rules import Rule
from controller.simulate.agenda import FIRST_WALL_MS
from controller.simulate.chaos.faults import AIMS, ENDINGS, FAULTS, Weather
from controller.simulate.chaos.life import Life, Wrap
from controller.simulate.chaos.plan_faults import PLAN_AIMS, PLAN_FAULTS
from controller.simulate.chaos.read_faults import READ_FAULTS
from controller.simulate.chaos.steering_faults import STEERING_FAULTS
from controller.simulate.habitat import Pace
from controller.simulate.scenario import mixed_plan, sim_plan, sim_policy, sim_terms
from controller.simulate.world import World

STEPS = 80
STORM_MS = 1_200_000
"""Faults come within the first 20 minutes of a run that needs 14."""
MAX_FAULTS = 10
LIMIT_MS = 6 * 3_600_000
"""A run that is left in peace finishes within this time."""
DAY_MS = 86_400_000


PLAN_SHARE = 0.6
"""Of the lives have a deadline and weather of the plan."""
DEADLINE_PERCENT = (70, 130)
"""Of the time that the steps take at their pace."""
WINDOWS_PERCENT, FLOORS_PERCENT = (40, 60, 100), (40, 60, 75)
MODES = ("auto", "auto", "auto", "propose", "propose", "propose", "off")
WORDS = ("approve", "approve_late", "approve_twice", "disagree")
HARD_OF_HEARING = MORTAL = 0.5
STEP_MS = Pace().step_ms
STORMS = FAULTS | READ_FAULTS | STEERING_FAULTS
"""What may happen to every life."""
ALL_FAULTS = STORMS | PLAN_FAULTS
SWIZZLED_SHARE = 0.3
"""Of the lives see all that lasts end in one spell, in some order."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Outcome:
    """How one life went."""

    name: str
    """The seed of a life by chance, or the name of a blow."""
    violations: tuple[str, ...]
    reached: frozenset[Pair] = frozenset()
    events: frozenset[Pair] = frozenset()
    met: frozenset[Pair] = frozenset()
    adopted: int = 0
    """Revisions that a gang was seen to run."""
    missed: int = 0
    simulated_ms: int = 0
    passes: int = 0
    attempts: int = 0
    deaths: int = 0
    is_paired: bool = False
    """The second fault of a pair struck."""


def new_random(seed: int | str) -> Random:
    """Return the only source of chance of one life."""
    return Random(seed)  # noqa: S311  # repeatable on purpose; nothing is kept secret by it


def live(
    seed: int,
    *,
    rules: tuple[Rule, ...] = GANG,
    plan_rules: tuple[Rule, ...] = PLAN,
    wrap: Wrap | None = None,
) -> Outcome:
    """Return how the life of `seed` went: a storm, then peace in which it must finish."""
    random = new_random(seed)
    has_deadline = random.random() < PLAN_SHARE
    policy = plan_policy(random) if has_deadline else sim_policy(ranks=random.randrange(1, 5))
    world = World(policy=policy, random=random)
    plan = mixed_plan(STEPS) if has_deadline else sim_plan(STEPS)
    life = Life(world, plan, rules=rules, plan_rules=plan_rules, wrap=wrap)
    weather = plan_weather(life, random) if has_deadline else Weather(life, random, STORMS)
    if random.random() < SWIZZLED_SHARE:
        weather.ending = random.choice(ENDINGS)
        world.agenda.after(random.randrange(STORM_MS), weather.release)
    most = MAX_FAULTS // 2 if has_deadline else MAX_FAULTS
    weather.plan(random.randrange(1, most + 1), STORM_MS)
    life.run(STORM_MS)
    weather.clear()
    life.see_through(world.agenda.now_ms + LIMIT_MS)
    return sum_up(str(seed), life, weather)


def sum_up(name: str, life: Life, weather: Weather, *, is_paired: bool = False) -> Outcome:
    """Return how the life went."""
    memory, world = life.checkers.memory, life.world
    adopted = memory.adopted if memory else []
    return Outcome(
        name=name,
        violations=tuple(world.violations),
        reached=frozenset(weather.reached),
        events=frozenset(weather.events),
        met=frozenset(weather.met),
        adopted=sum(it.adopted_step is not None for it in adopted),
        missed=sum(len(it.missed) for it in adopted),
        simulated_ms=world.agenda.now_ms,
        passes=life.passes,
        attempts=len(world.gangs),
        deaths=life.deaths,
        is_paired=is_paired,
    )


def plan_policy(random: Random) -> Policy:
    """Return a policy with a deadline that may be easy, hard or out of reach."""
    percent = random.randrange(*DEADLINE_PERCENT)
    deadline_ms = FIRST_WALL_MS + STEPS * STEP_MS * percent // 100
    terms = sim_terms(
        mode=random.choice(MODES),
        deadline_wall_ms=deadline_ms,
        window_percent=random.choice(WINDOWS_PERCENT),
        floor_percent=random.choice(FLOORS_PERCENT),
        evaluations=random.randrange(1, 4),
    )
    return sim_policy(ranks=random.randrange(1, 5), terms=terms)


def plan_weather(life: Life, random: Random) -> Weather:
    """Return weather of which half concerns the plan, and an owner who answers now and then."""
    weather = Weather(life, random, ALL_FAULTS, AIMS + PLAN_AIMS)
    for _ in range(random.randrange(0, 3)):
        weather.aimed.append((random.choice(WORDS), "proposed"))
    if random.random() < MORTAL:
        weather.aimed.append(("kill_controller_soon", random.choice(PLAN_AIMS)))
    if random.random() < HARD_OF_HEARING:
        weather.aimed.append((random.choice(("deafen", "split")), "approved"))
    for _ in range(random.randrange(0, 5)):
        fault = random.choice(sorted(PLAN_FAULTS))
        life.world.agenda.after(random.randrange(0, STORM_MS), partial(weather.strike, fault))
    return weather


@dataclass
class Tally:
    """What many lives came to."""

    lives: int = 0
    simulated_ms: int = 0
    passes: int = 0
    attempts: int = 0
    deaths: int = 0
    adopted: int = 0
    missed: int = 0
    reached: Counter[Pair] = field(default_factory=Counter[Pair])
    events: Counter[Pair] = field(default_factory=Counter[Pair])
    met: Counter[Pair] = field(default_factory=Counter[Pair])
    failed: list[Outcome] = field(default_factory=list[Outcome])

    def add(self, outcome: Outcome) -> None:
        """Count one more life."""
        self.lives += 1
        self.simulated_ms += outcome.simulated_ms
        self.passes += outcome.passes
        self.attempts += outcome.attempts
        self.deaths += outcome.deaths
        self.adopted += outcome.adopted
        self.missed += outcome.missed
        self.reached.update(outcome.reached)
        self.events.update(outcome.events)
        self.met.update(outcome.met)
        if outcome.violations:
            self.failed.append(outcome)

    def lines(self) -> Iterable[str]:
        """Return the report for people, failures last."""
        for fault, phase in sorted(self.reached):
            yield f"reached {fault} in {phase}: {self.reached[fault, phase]}"
        for event, phase in sorted(self.events):
            yield f"plan {event} in {phase}: {self.events[event, phase]}"
        yield (
            f"{self.lives} lives, {self.attempts} attempts, {self.deaths} controllers killed, "
            f"{self.passes} passes, {self.simulated_ms / DAY_MS:.1f} simulated days, "
            f"{len(self.reached)} distinct (fault, phase) pairs"
        )
        yield (
            f"{self.adopted} revisions adopted, {self.missed} missed before, "
            f"{len(self.events)} distinct (plan event, phase) pairs, "
            f"{len(self.met)} distinct (fault, state of the plan) pairs"
        )
        for outcome in self.failed:
            yield f"seed {outcome.name}: {outcome.violations[0]}"
            yield f"repeat: make sim SEED={outcome.name} N=1"


def campaign(seed: int, count: int) -> Tally:
    """Return what the lives of `count` seeds from `seed` on came to."""
    tally = Tally()
    for one in range(seed, seed + count):
        tally.add(live(one))
    return tally


QUIET_PACE = Pace(step_ms=20_000, save_every=100)
QUIET_WAKE_MS = 3_600_000


def live_quietly(days: int, *, kills: int) -> Life:
    """Return a life of `days` at 20 s a step with `kills` killed ranks, looked at each hour."""
    steps = days * DAY_MS // QUIET_PACE.step_ms
    random = new_random(days)
    policy = sim_policy(wake_ms=QUIET_WAKE_MS)
    world = World(policy=policy, random=random, pace=QUIET_PACE)
    life = Life(world, sim_plan(steps), is_checked=False)
    weather = Weather(life, random)
    for _ in range(kills):
        at_ms = random.randrange(0, days * DAY_MS)
        world.agenda.after(at_ms, lambda: weather.strike("kill_worker"))
    life.see_through(2 * days * DAY_MS)
    return life
