"""What may happen to a plan on its way: another pace, owners of two minds, gangs that are deaf."""

from controller.core.proposal import Change, WantedStage
from controller.simulate.chaos.faults import NOTHING, Fault, Need, Weather, name_faults

PLAN_AIMS = ("proposed", "approved", "published", "pending", "adopted", "recorded", "missed")
"""Moments in the life of a revision that faults may be aimed at."""
SLOWER_PERCENT = (115, 200)
FASTER_PERCENT = (40, 90)
DRIFTS, DRIFT_PERCENT, DRIFT_EVERY_MS = 10, 103, 40_000
BURST, BURST_EVERY_MS = 3, 90_000
HORIZON_PERCENT = (40, 100)
DEADLINE_EDIT_MS = (-300_000, 600_000)
LATER_MS = 60_000


def scale_pace(weather: Weather, percent: int) -> None:
    """Let steps take so many percent of what they take now."""
    world = weather.life.world
    world.change_pace(max(1_000, world.pace.step_ms * percent // 100))


def slow_down(weather: Weather) -> None:
    """Steps take longer, for good."""
    scale_pace(weather, weather.random.randrange(*SLOWER_PERCENT))


def speed_up(weather: Weather) -> None:
    """Steps take less time, for good."""
    scale_pace(weather, weather.random.randrange(*FASTER_PERCENT))


def slow_spell(weather: Weather) -> None:
    """Steps take longer for a while."""
    world = weather.life.world
    usual_ms = world.pace.step_ms
    slow_down(weather)
    weather.later(lambda: world.change_pace(usual_ms))


def drift(weather: Weather) -> None:
    """Steps take a little longer each time, with no step at which it changed."""
    for n in range(DRIFTS):
        happening = lambda: scale_pace(weather, DRIFT_PERCENT)  # noqa: E731  # a deed of one line
        weather.life.world.agenda.after(n * DRIFT_EVERY_MS, happening)


def burst(weather: Weather) -> None:
    """Failures come one after the other."""
    for n in range(BURST):
        weather.life.world.agenda.after(n * BURST_EVERY_MS, lambda: weather.strike("kill_worker"))


def approve(weather: Weather) -> None:
    """The owner approves whatever is open, or what is not."""
    weather.life.approve()


def approve_late(weather: Weather) -> None:
    """The owner approves what is open now, later."""
    memory = weather.life.checkers.memory
    found = memory.proposal.id if memory and memory.proposal else None
    weather.life.world.agenda.after(LATER_MS, lambda: weather.life.approve(found))


def approve_twice(weather: Weather) -> None:
    """Two owners approve at once."""
    weather.life.approve()
    weather.life.approve()


def disagree(weather: Weather) -> None:
    """Two owners say yes and no at once, in either order."""
    words = ["approve", "reject"]
    weather.random.shuffle(words)
    for word in words:
        weather.life.approve(verb=word)


def approve_wrong(weather: Weather) -> None:
    """The owner approves a proposal that never was."""
    weather.life.approve("f" * 12)


def reject(weather: Weather) -> None:
    """The owner rejects whatever is open."""
    weather.life.approve(verb="reject")


def propose_horizon(weather: Weather) -> None:
    """The owner wants another horizon, allowed or not."""
    percent = weather.random.randrange(*HORIZON_PERCENT)
    total = weather.life.plan.total_steps * percent // 100
    weather.life.propose(Change(kind="horizon", total_steps=total))


def propose_mixture(weather: Weather) -> None:
    """The owner wants another mixture."""
    code = weather.random.randrange(1, 31)
    parts = {"code": code, "text": 32 - code}
    stages = [WantedStage(from_percent=weather.random.choice((0, 50, 90)), parts=parts)]
    weather.life.propose(Change(kind="mixture", stages=stages))


def propose_execution(weather: Weather) -> None:
    """The owner wants other capacities, from the next restart on."""
    capacity = weather.random.randrange(100, 160)
    update = {"receiver_capacity_percent": capacity}
    execution = weather.life.plan.execution.model_copy(update=update)
    weather.life.propose(Change(kind="execution", execution=execution))
    weather.later(weather.life.approve)
    weather.later(lambda: weather.strike("kill_worker"))


def edit_deadline(weather: Weather) -> None:
    """The owner moves the deadline."""
    memory = weather.life.checkers.memory
    deadline_ms = memory.policy.terms.deadline_wall_ms if memory else None
    if deadline_ms is not None:
        moved_ms = deadline_ms + weather.random.randrange(*DEADLINE_EDIT_MS)
        weather.life.amend(deadline_wall_ms=moved_ms)


def deafen(weather: Weather) -> None:
    """Ranks do not read the control document for a while."""
    world = weather.life.world

    def hear() -> None:
        world.is_deaf = False
        if world.gang is not None:
            world.gang.look()

    world.is_deaf = True
    weather.later(hear)


def split(weather: Weather) -> None:
    """Some rank cannot read plans for a while, so that no boundary is unanimous."""
    world = weather.life.world

    def heal() -> None:
        world.is_split = False

    world.is_split = True
    weather.later(heal)


def has_deadline(weather: Weather) -> bool:
    """Return whether the owner has a deadline to move."""
    memory = weather.life.checkers.memory
    return memory is not None and memory.policy.terms.deadline_wall_ms is not None


DEADLINE = Need("no deadline is declared", has_deadline)

PLAN_FAULTS: dict[str, Fault] = {
    **name_faults(
        NOTHING,
        slow_down, speed_up, slow_spell, drift, burst, approve, approve_late, approve_twice,
        disagree, approve_wrong, reject, propose_horizon, propose_mixture, propose_execution,
        deafen, split,
    ),
    **name_faults(DEADLINE, edit_deadline),
}  # fmt: skip
