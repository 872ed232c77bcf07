"""Short lives that hold every kind of moment, for strikes at each port call."""

from collections.abc import Callable
from dataclasses import dataclass

from controller.core.terms import Terms
from controller.simulate.agenda import FIRST_WALL_MS
from controller.simulate.chaos.campaign import new_random
from controller.simulate.chaos.life import Life
from controller.simulate.habitat import Pace
from controller.simulate.scenario import mixed_plan, sim_plan, sim_policy, sim_terms
from controller.simulate.world import World

LIMIT_MS = 7_200_000
LOOK_MS = 1_000
STEPS = 30

Script = Callable[[Life], None]


def crash_and_suspend(life: Life) -> None:
    """A rank is killed; later the owner suspends and resumes."""
    when(life, lambda: has_reached(life, 1, 8), lambda: on_rank(life.world, "kill"))
    when(life, lambda: has_reached(life, 2, 14), lambda: life.ask("suspend"))


def freeze_and_fork(life: Life) -> None:
    """A rank freezes, the newest manifest is lost; later the owner goes back to a new line."""

    def freeze() -> None:
        on_rank(life.world, "freeze")
        damage_newest(life)

    when(life, lambda: has_reached(life, 1, 12), freeze)
    when(
        life,
        lambda: has_reached(life, 2, 14),
        lambda: life.ask("resume_from", step=5, line="main"),
    )


def replan_and_crash(life: Life) -> None:
    """The run is late, the owner approves what is proposed, a rank is killed after the fork."""

    def is_open() -> bool:
        memory = life.checkers.memory
        return memory is not None and memory.proposal is not None

    when(life, is_open, life.approve)
    when(life, lambda: has_adopted(life), lambda: on_rank(life.world, "kill"))


def has_adopted(life: Life) -> bool:
    """Return whether the gang logged two steps under a revision."""
    gang = life.world.gang
    if gang is None or len(gang.follower.chain) < 2:
        return False
    return (gang.completed() or 0) >= gang.plan.effective + 2


LATE = sim_terms(
    mode="propose",
    deadline_wall_ms=FIRST_WALL_MS + 450_000,
    window_percent=80,
    evaluate_every_ms=40_000,
    settle_ms=60_000,
    min_clean_steps=2,
    save_every_steps=5,
)
"""Of a run that needs 500 s, and 370 s at the floor."""


def when(life: Life, condition: Callable[[], bool], deed: Callable[[], None]) -> None:
    """Do `deed` once, as soon as `condition` holds: a delayed life is the same life."""

    def look() -> None:
        if condition():
            deed()
        else:
            life.world.agenda.after(LOOK_MS, look)

    look()


def has_reached(life: Life, attempt: int, step: int) -> bool:
    """Return whether the attempt logged so many steps."""
    gang = life.world.gang
    return gang is not None and gang.number == attempt and (gang.completed() or 0) >= step


@dataclass(frozen=True)
class Expected:
    """What the undisturbed life comes to, and every disturbed one must."""

    script: Script
    attempts: int
    causes: tuple[str, ...]
    line: str
    steps: int = STEPS
    terms: Terms | None = None
    has_revision: bool = False


SCRIPTS = {
    "crash-suspend": Expected(crash_and_suspend, 3, ("killed",), "main"),
    "freeze-fork": Expected(freeze_and_fork, 3, ("stall",), "main-2"),
    "replan-crash": Expected(
        replan_and_crash, 2, ("killed",), "main", steps=48, terms=LATE, has_revision=True
    ),
}


def scripted_life(
    expected: Expected, at: tuple[int, str] | None = None, *, is_usurped: bool = False
) -> Life:
    """Live a script.

    Before or after the n-th port call, if `at`, the controller is killed, or another one takes
    over while this one stands still there and then goes on.
    """
    policy = sim_policy(ranks=2, wake_ms=30_000, terms=expected.terms)
    world = World(policy=policy, random=new_random(1), pace=Pace(save_every=5))
    steps = expected.steps
    life = Life(world, mixed_plan(steps) if expected.has_revision else sim_plan(steps))
    life.killer.at = at
    life.killer.deed = life.usurp if is_usurped else None
    expected.script(life)
    life.see_through(LIMIT_MS)
    return life


def on_rank(world: World, deed: str) -> None:
    """Do something to rank 1, where there is one."""
    gang = world.gang
    if gang is not None and gang.ranks[1].alive:
        getattr(gang, deed)(gang.ranks[1])


def damage_newest(life: Life) -> None:
    """Lose the newest checkpoint's manifest."""
    life.world.shelf.checkpoints[-1].damage = "manifest"
    life.checkers.has_damage = True
