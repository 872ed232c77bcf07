"""When which failure strikes where, and for how long: by class, each from a stream of its own.

A class's strikes are the same under one seed, however the run reacts to them: only the time in
which the gang trains counts towards the next one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp
from random import Random

from controller.core.declared.simulation import Failure, Simulation
from controller.simulate.agenda import Agenda
from controller.simulate.rehearsal.course import PERCENT, draw_normal, draw_wait, open_stream


@dataclass(frozen=True)
class Strike:
    """One failure."""

    name: str
    failure: Failure
    place: float
    """Where, as a share of all ranks or trays that train."""
    repair_ms: int


@dataclass
class Hazard:
    """One class of failure, and how much training is left before it strikes."""

    name: str
    failure: Failure
    spread_percent: int
    random: Random
    left_ms: int = 0
    since_ms: int = 0

    def __post_init__(self) -> None:
        self.draw_next()

    def draw_next(self) -> None:
        """Draw the time to the next strike."""
        self.left_ms = draw_wait(self.random.random(), self.failure.every)

    def draw_strike(self) -> Strike:
        """Draw where it strikes and how long its repair takes."""
        place, z = self.random.random(), draw_normal(self.random.random())
        spread = exp(self.spread_percent / PERCENT * z)
        return Strike(self.name, self.failure, place, round(self.failure.repair * spread))


@dataclass
class Hazards:
    """All classes, running while the gang trains."""

    agenda: Agenda
    all: list[Hazard]
    strike: Callable[[Strike], None] = field(default=lambda _: None)
    turn: int = 0
    is_running: bool = False

    def begin(self) -> None:
        """The gang trains from now on."""
        if self.is_running:
            return
        self.is_running = True
        self.turn += 1
        for hazard in self.all:
            self._await(hazard)

    def pause(self) -> None:
        """The gang stands from now on."""
        if not self.is_running:
            return
        self.is_running = False
        self.turn += 1
        for hazard in self.all:
            hazard.left_ms -= self.agenda.now_ms - hazard.since_ms

    def _await(self, hazard: Hazard) -> None:
        hazard.since_ms, turn = self.agenda.now_ms, self.turn

        def fire() -> None:
            if turn != self.turn:
                return
            strike = hazard.draw_strike()
            hazard.draw_next()
            # Before it strikes: what strikes may end the gang, and then nothing runs any more.
            self._await(hazard)
            self.strike(strike)

        self.agenda.after(hazard.left_ms, fire)


def make_hazards(supposed: Simulation, seed: int, agenda: Agenda) -> Hazards:
    """Return the declared classes under `seed`."""
    spread = supposed.repair_spread_percent
    return Hazards(
        agenda,
        [
            Hazard(name, it, spread, open_stream(seed, f"failures/{name}"))
            for name, it in sorted(supposed.failures.items())
        ],
    )
