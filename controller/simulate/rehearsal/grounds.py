"""What the gangs of a rehearsal live among, besides the habitat of every simulated gang."""

from collections.abc import Callable
from dataclasses import dataclass, field

from contract.plan import Plan
from controller.core.declared.simulation import SECOND_MS
from controller.simulate.agenda import Agenda
from controller.simulate.rehearsal.casebook import Case, Casebook
from controller.simulate.rehearsal.cluster import Cluster, Tray
from controller.simulate.rehearsal.course import PERCENT, Course
from controller.simulate.rehearsal.hazards import Hazards
from controller.simulate.rehearsal.spending import Spending


@dataclass(frozen=True)
class Slowing:
    """A slow tray among those that train."""

    case: Case
    tray: Tray
    percent: int
    since_ms: int
    """Time in steps when it began."""


@dataclass
class Grounds:
    """Racks, pace, failures, and the books of what all that comes to."""

    agenda: Agenda
    cluster: Cluster
    course: Course
    hazards: Hazards
    spending: Spending
    casebook: Casebook
    alert: Callable[[], None] = field(default=lambda: None)
    """Something happened that a controller can see."""
    slowings: list[Slowing] = field(default_factory=list[Slowing])

    def begin_slowing(self, case: Case, tray: Tray, percent: int) -> None:
        """Steps take longer for a tray from now on."""
        self.slowings.append(Slowing(case, tray, percent, self.spending.stepped_ms))

    def settle_slowness(self) -> None:
        """Charge what is over: trays that were repaired, or do not train any more."""
        seats = [id(tray) for tray in self.cluster.seats()]
        for it in list(self.slowings):
            if self.cluster.slowness_of(it.tray) and id(it.tray) in seats:
                continue
            stepped_ms = self.spending.stepped_ms - it.since_ms
            it.case.cost_ms = stepped_ms * it.percent // (PERCENT + it.percent)
            self.slowings.remove(it)

    def find_step_ms(self, plan: Plan, step: int) -> int:
        """Return how long a step takes now.

        The course is that of the first context length; at another one a token takes longer by as
        much as it costs more, which is what forecasts assume, too.
        """
        rate = self.course.rate_at(self.agenda.now_ms)
        first, here = plan.context[0], plan.context_at(min(step, plan.total_steps - 1))
        tokens = plan.tokens_per_step * (PERCENT + self.cluster.slow_percent)
        cost = tokens * here.flops_per_token * SECOND_MS
        return max(1, round(cost / (rate * first.flops_per_token * PERCENT)))
