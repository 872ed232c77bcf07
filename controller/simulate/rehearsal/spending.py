"""Where a simulated run's wall time goes: every millisecond in exactly one phase."""

from dataclasses import dataclass, field

from contract.wire import ACCOUNT_PHASES, Phase
from controller.simulate.agenda import Agenda

WAITING = "waiting"
"""For repairs: too few whole trays to start. Known to a rehearsal only."""
PHASES = (*(phase.value for phase in ACCOUNT_PHASES), WAITING)


@dataclass
class Spending:
    """Milliseconds by phase, of the account's names (controller/core/telling/account.py)."""

    agenda: Agenda
    phase: str = Phase.SCHEDULE.value
    since_ms: int = 0
    spent_ms: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))

    def turn_to(self, phase: str, at_ms: int | None = None) -> None:
        """Charge the time so far to the phase that it was in; from `at_ms` (now) on it is `phase`.

        A moment before the last turn is that turn: no millisecond is charged twice.
        """
        assert phase in self.spent_ms, phase
        end_ms = max(self.since_ms, self.agenda.now_ms if at_ms is None else at_ms)
        self.spent_ms[self.phase] += end_ms - self.since_ms
        self.phase, self.since_ms = phase, end_ms

    def settle(self) -> dict[str, int]:
        """Charge everything up to now, and return all of it."""
        self.turn_to(self.phase)
        return dict(self.spent_ms)

    @property
    def stepped_ms(self) -> int:
        """Time in steps up to now, replayed ones included."""
        spent = self.settle()
        return spent[Phase.PRODUCTIVE.value] + spent[Phase.REPLAY.value]
