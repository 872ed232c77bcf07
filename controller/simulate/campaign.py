"""Many lives under faults, each told by its seed; and how fast lives pass."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from controller.core.decide import GANG
from controller.core.rules import Rule
from controller.simulate.faults import Weather
from controller.simulate.habitat import Pace
from controller.simulate.life import Life, Wrap
from controller.simulate.scenario import sim_plan, sim_policy
from controller.simulate.world import World

STEPS = 80
STORM_MS = 1_200_000
"""Faults come within the first 20 minutes of a run that needs 14."""
MAX_FAULTS = 10
LIMIT_MS = 6 * 3_600_000
"""A run that is left in peace finishes within this time."""
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Outcome:
    """How one life went."""

    seed: int
    violations: tuple[str, ...]
    reached: frozenset[tuple[str, str]]
    simulated_ms: int
    passes: int
    attempts: int
    deaths: int


def new_random(seed: int) -> Random:
    """Return the only source of chance of one life."""
    return Random(seed)  # noqa: S311  # repeatable on purpose; nothing is kept secret by it


def live(seed: int, *, rules: tuple[Rule, ...] = GANG, wrap: Wrap | None = None) -> Outcome:
    """Return how the life of `seed` went: a storm, then peace in which it must finish."""
    random = new_random(seed)
    world = World(policy=sim_policy(ranks=random.randrange(1, 5)), random=random)
    life = Life(world, sim_plan(STEPS), rules=rules, wrap=wrap)
    weather = Weather(life, random)
    weather.plan(random.randrange(1, MAX_FAULTS + 1), STORM_MS)
    life.run(STORM_MS)
    weather.clear()
    life.see_through(world.agenda.now_ms + LIMIT_MS)
    return Outcome(
        seed=seed,
        violations=tuple(world.violations),
        reached=frozenset(weather.reached),
        simulated_ms=world.agenda.now_ms,
        passes=life.passes,
        attempts=len(world.gangs),
        deaths=life.deaths,
    )


@dataclass
class Tally:
    """What many lives came to."""

    lives: int = 0
    simulated_ms: int = 0
    passes: int = 0
    attempts: int = 0
    deaths: int = 0
    reached: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    failed: list[Outcome] = field(default_factory=list[Outcome])

    def add(self, outcome: Outcome) -> None:
        """Count one more life."""
        self.lives += 1
        self.simulated_ms += outcome.simulated_ms
        self.passes += outcome.passes
        self.attempts += outcome.attempts
        self.deaths += outcome.deaths
        for pair in outcome.reached:
            self.reached[pair] = self.reached.get(pair, 0) + 1
        if outcome.violations:
            self.failed.append(outcome)

    def lines(self) -> Iterable[str]:
        """Return the report for people, failures last."""
        for fault, phase in sorted(self.reached):
            yield f"reached {fault} in {phase}: {self.reached[fault, phase]}"
        yield (
            f"{self.lives} lives, {self.attempts} attempts, {self.deaths} controllers killed, "
            f"{self.passes} passes, {self.simulated_ms / DAY_MS:.1f} simulated days, "
            f"{len(self.reached)} distinct (fault, phase) pairs"
        )
        for outcome in self.failed:
            yield f"seed {outcome.seed}: {outcome.violations[0]}"
            yield f"repeat: make sim SEED={outcome.seed} N=1"


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
