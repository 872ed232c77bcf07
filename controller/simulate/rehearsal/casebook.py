"""What struck a simulated run and what it cost, as the world knows it."""

from dataclasses import dataclass, field

from controller.simulate.agenda import Agenda


@dataclass
class Case:
    """One failure, or one end of an attempt without one."""

    at_ms: int
    name: str = ""
    effect: str = ""
    rack: int | None = None
    tray: int | None = None
    attempt: int | None = None
    """That it ended."""
    cost_ms: int = 0
    replayed_steps: int = 0


@dataclass
class Casebook:
    """All of them, oldest first."""

    agenda: Agenda
    cases: list[Case] = field(default_factory=list[Case])
    replayed_steps: int = 0
    striking: Case | None = None
    """What strikes at this moment."""
    open: Case | None = None
    """What the run still recovers from."""

    def begin(self, name: str, effect: str) -> Case:
        """Open the case of a failure that strikes now."""
        case = Case(self.agenda.now_ms, name, effect)
        self.cases.append(case)
        self.striking = case
        return case

    def take_down(self, attempt: int) -> None:
        """The attempt stands; what strikes now is why, else nothing from outside is."""
        self.close()
        case = self.striking
        if case is None:
            case = Case(self.agenda.now_ms)
            self.cases.append(case)
        case.attempt = attempt
        self.open = case

    def replay(self, steps: int) -> None:
        """Computed again, of what the open case cost."""
        self.replayed_steps += steps
        if self.open is not None:
            self.open.replayed_steps += steps

    def close(self) -> None:
        """The step count is back, or the run ends, or something else strikes."""
        if self.open is not None:
            self.open.cost_ms = self.agenda.now_ms - self.open.at_ms
            self.open = None
