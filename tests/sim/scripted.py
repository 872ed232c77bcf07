"""One short life with everything in it: launch, crash, restart, suspend, resume, finish."""

from controller.simulate.campaign import new_random
from controller.simulate.habitat import Pace
from controller.simulate.life import Life
from controller.simulate.scenario import sim_plan, sim_policy
from controller.simulate.world import World

LIMIT_MS = 7_200_000
STEPS = 30


def scripted_life(at: tuple[int, str] | None = None) -> Life:
    """Live the script; the controller is killed before or after its n-th port call if `at`."""
    policy = sim_policy(ranks=2, wake_ms=15_000)
    world = World(policy=policy, random=new_random(1), pace=Pace(save_every=5))
    life = Life(world, sim_plan(STEPS))
    life.killer.at = at
    world.agenda.after(105_000, lambda: kill_worker(world))
    world.agenda.after(210_000, lambda: life.ask("suspend"))
    life.see_through(LIMIT_MS)
    return life


def kill_worker(world: World) -> None:
    """SIGKILL of rank 1, where there is one."""
    gang = world.gang
    if gang is not None and gang.ranks[1].alive:
        gang.kill(gang.ranks[1])
