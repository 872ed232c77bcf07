"""What may become of a single read: no answer, an old one again, or answers in another order."""

from controller.simulate.chaos.faults import NOTHING, Fault, Need, Strike, Weather
from controller.simulate.chaos.reads import READ_PORTS

MAX_BACK = 6
"""Answers; half a minute at the usual pace."""


def blind(port: str) -> Strike:
    """Return the fault after which one field is Unknown for a while."""

    def strike(weather: Weather) -> None:
        world = weather.life.world
        world.blind.add(port)
        weather.later(lambda: world.blind.discard(port))

    return strike


def stale(port: str) -> Strike:
    """Return the fault after which a read answers for a while what it answered before."""

    def strike(weather: Weather) -> None:
        reads = weather.life.reads
        reads.freeze(port, weather.random.randrange(MAX_BACK))
        weather.later(lambda: reads.restore(port))

    return strike


def reorder(port: str) -> Strike:
    """Return the fault after which every second answer comes after the next one, for a while."""

    def strike(weather: Weather) -> None:
        reads = weather.life.reads
        reads.swap(port)
        weather.later(lambda: reads.restore(port))

    return strike


def was_read(port: str) -> Need:
    """Return the need of an answer that can come again."""
    return Need(f"{port} was never read", lambda weather: port in weather.life.reads.seen)


WORDS = {
    "blind": "The read of {} gives no answer for a while.",
    "stale": "The read of {} gives an old answer again, for a while.",
    "reorder": "Answers of {} come in another order for a while.",
}
READ_FAULTS: dict[str, Fault] = {
    f"{kind}_{port}": Fault(
        make(port), WORDS[kind].format(port), NOTHING if kind == "blind" else was_read(port)
    )
    for kind, make in {"blind": blind, "stale": stale, "reorder": reorder}.items()
    for port in READ_PORTS
}
