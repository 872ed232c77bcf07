"""What may happen to controllers: dead, overtaken, cut off, with a record half written."""

from controller.simulate.chaos.faults import (
    CONTROLLER,
    LASTS_MS,
    NOTHING,
    Fault,
    Weather,
    name_faults,
)
from controller.simulate.chaos.reads import LEDGER

MANY_CALLS, SOON_CALLS = 60, 16
"""Port calls of some eight passes, and of two."""
SIDES = ("before", "after")


def kill_controller(weather: Weather) -> None:
    """SIGKILL of the controller before or after one of its next port calls."""
    aim(weather, MANY_CALLS)


def kill_controller_soon(weather: Weather) -> None:
    """SIGKILL of the controller before or after one of the very next port calls."""
    aim(weather, SOON_CALLS)


def aim(weather: Weather, calls: int) -> None:
    """Let the killer strike at one of the next port calls."""
    killer = weather.life.killer
    killer.deed = None
    killer.at = (killer.calls + weather.random.randrange(1, calls), weather.random.choice(SIDES))


def overtake_controller(weather: Weather) -> None:
    """The controller stands still at one of its next port calls while another one takes over."""
    aim(weather, SOON_CALLS)
    weather.life.killer.deed = weather.life.usurp


def second_controller(weather: Weather) -> None:
    """Another controller takes over from a living one, which then wakes up."""
    weather.life.late = True


def lose_controller(weather: Weather) -> None:
    """SIGKILL of the controller, and nobody takes over for a while."""
    life = weather.life
    life.reconciler = None
    life.absent_until_ms = life.world.agenda.now_ms + weather.random.randrange(*LASTS_MS)


def cut_controller(weather: Weather) -> None:
    """The controller reaches nothing for a while; another one takes over, then it comes back."""
    weather.life.cut_off(lasts_ms=weather.random.randrange(*LASTS_MS))


def mute_controller(weather: Weather) -> None:
    """The controller reads everything and cannot write its ledger; another one takes over."""
    weather.life.cut_off(LEDGER, lasts_ms=weather.random.randrange(*LASTS_MS))


def tear_ledger(weather: Weather) -> None:
    """The next record is written by half, and its controller dies of it."""
    weather.life.world.book.is_tearing = True


STEERING_FAULTS: dict[str, Fault] = {
    **name_faults(
        NOTHING,
        kill_controller, kill_controller_soon, overtake_controller, second_controller, tear_ledger,
    ),
    **name_faults(CONTROLLER, lose_controller, cut_controller, mute_controller),
}  # fmt: skip
