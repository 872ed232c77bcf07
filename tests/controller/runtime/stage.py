"""A simulated world with a launched gang, and the ports of a controller on it."""

from dataclasses import dataclass, replace

from controller.core.memory import Memory
from controller.runtime.observe import Observer, Ports
from controller.runtime.reconcile import Reconciler
from controller.simulate.chaos.campaign import new_random
from controller.simulate.chaos.life import build_status
from controller.simulate.scenario import sim_plan, sim_policy
from controller.simulate.world import World


@dataclass
class Stage:
    """A world, and what one controller holds of it."""

    world: World
    ports: Ports
    reconciler: Reconciler
    plan: object

    @property
    def memory(self) -> Memory:
        return self.reconciler.memory

    def after(self, delay_ms: int) -> "Stage":
        """Let the world go on."""
        self.world.agenda.run_until(self.world.agenda.now_ms + delay_ms)
        return self

    def observer(self, **replaced) -> Observer:
        """Return a new observer, some ports replaced."""
        return Observer(replace(self.ports, **replaced), 1)

    def decided(self) -> list[str]:
        """Return the rules of all recorded decisions."""
        return [r.body["rule"] for r in self.world.book.records if r.kind == "decision"]

    def kinds(self) -> list[str]:
        """Return the kinds of all records."""
        return [record.kind for record in self.world.book.records]


def a_stage(*, launched: bool = True, wrap=None, steps: int = 120) -> Stage:
    """Return a run whose first controller passed once."""
    world = World(policy=sim_policy(), random=new_random(0))
    plan = sim_plan(steps)
    ports = world.ports()
    now = ports.clock.now()
    body = {
        "policy": world.policy.model_dump(mode="json"),
        "plan": plan.model_dump(mode="json"),
    }
    ports.ledger.append("run", body, now)
    ports.ledger.append("epoch", {"pid": 1, "host": "here", "takeover": False}, now)
    if wrap is not None:
        ports = wrap(ports)
    reconciler = Reconciler(ports, build_status)
    reconciler.resume()
    stage = Stage(world, ports, reconciler, plan)
    if launched:
        reconciler.pass_once()
    return stage
