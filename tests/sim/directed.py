"""Lives in which just what is named happens, for bugs planted on purpose."""

from controller.core.decide import GANG, PLAN
from controller.simulate.agenda import FIRST_WALL_MS
from controller.simulate.chaos.campaign import ALL_FAULTS, live, new_random
from controller.simulate.chaos.faults import AIMS, Weather
from controller.simulate.chaos.life import Life
from controller.simulate.chaos.plan_faults import PLAN_AIMS
from controller.simulate.scenario import mixed_plan, sim_plan, sim_policy, sim_terms
from controller.simulate.world import World

SEEDS = 24
STEPS = 120
LATE_MS = 1_000_000
"""Deadline that 120 steps of 10 s miss, and that 92 do not."""
HARD_MS = 860_000
"""Deadline that the floor meets at a chance, and at less than the target."""
DEAF = [(214_000, "deafen"), (420_000, "kill_worker")]
"""The gang does not hear of the revision from step 26, saves at 30, and is killed at 34."""
KILLS = [(at_ms, "kill_worker") for at_ms in (300_000, 800_000, 1_300_000, 1_800_000)]
MANY_KILLS = [(at_ms, "kill_worker") for at_ms in range(200_000, 2_400_000, 250_000)]


def gang_violations(happenings=(), *, reads_back=True, rules=GANG, plan_rules=PLAN, wrap=None):
    """Return the violations of a life without a deadline."""
    random = new_random(3)
    world = World(policy=sim_policy(), random=random)
    world.shelf.reads_back = reads_back
    life = Life(world, sim_plan(200), rules=rules, plan_rules=plan_rules, wrap=wrap)
    happen(Weather(life, random, ALL_FAULTS), happenings)
    life.run(3_000_000)
    return world.violations


def a_plan_life(deadline_ms=LATE_MS, rules=GANG, plan_rules=PLAN, wrap=None, **terms):
    """Return a life with a deadline, and its weather."""
    policy = sim_policy(terms=sim_terms(deadline_wall_ms=FIRST_WALL_MS + deadline_ms, **terms))
    random = new_random(3)
    world = World(policy=policy, random=random)
    life = Life(world, mixed_plan(STEPS), rules=rules, plan_rules=plan_rules, wrap=wrap)
    return life, Weather(life, random, ALL_FAULTS, AIMS + PLAN_AIMS)


def plan_violations(happenings=(), **changes):
    """Return the violations of a life with a deadline."""
    life, weather = a_plan_life(**changes)
    happen(weather, happenings)
    life.run(1_500_000)
    return life.world.violations


def happen(weather, happenings):
    """Let the named faults happen at their times."""
    for at_ms, name in happenings:
        weather.life.world.agenda.after(at_ms, lambda name=name: weather.strike(name))


def seed_violations(**changes):
    """Return the violations of the first lives by chance, up to one that shows any."""
    for seed in range(SEEDS):
        if found := live(seed, **changes).violations:
            return found
    return ()
