"""When the only controller of a rehearsal looks: after what can be seen, and when it has to.

A real one looks several times a second, mostly to see nothing new. Here an event that can be seen
wakes it as much later as it takes to be detected, and quiet months cost nothing.
"""

from dataclasses import dataclass

from controller.core.actions import Decision
from controller.core.declared.simulation import DAY_MS, MINUTE_MS
from controller.core.memory import Memory
from controller.core.readings import age_ms
from controller.core.rules import live_attempt
from controller.simulate.agenda import Agenda
from controller.simulate.rehearsal.site import Site

RECHECK_MS, RECHECKS = 10 * MINUTE_MS, 20
"""How soon to look again while an evaluation is due and waits for clean steps: at most so long, or
such a part of its interval."""
LEAST_MS = 500
"""As often as a real controller looks."""
LONGEST_MS = 7 * DAY_MS


@dataclass
class Attention:
    """The moment of the next look."""

    agenda: Agenda
    detect_ms: int
    poll_ms: int | None = None
    """Looks at least so often, to see that it changes nothing."""
    _due_ms: int | None = None

    def alert(self) -> None:
        """Something happened that can be seen."""
        due_ms = self.agenda.now_ms + self.detect_ms
        self._due_ms = due_ms if self._due_ms is None else min(self._due_ms, due_ms)
        self.agenda.hasten(self._due_ms)

    def rest(self, wake_ms: int) -> None:
        """Let the world go on until the next look, `wake_ms` from now at the latest."""
        if self.poll_ms is not None:
            wake_ms = min(wake_ms, self.poll_ms)
        end_ms = self.agenda.now_ms + wake_ms
        if self._due_ms is not None:
            end_ms = min(end_ms, self._due_ms)
        self.agenda.run_until(end_ms)
        if self._due_ms is not None and self._due_ms <= self.agenda.now_ms:
            self._due_ms = None


def choose_wake_ms(site: Site, memory: Memory, decision: Decision, detect_ms: int) -> int:
    """Return for how long the controller may rest if nothing happens."""
    if decision.wake_in_ms == 0:
        return 0
    if is_waiting(site, memory):
        return LONGEST_MS
    if decision.wake_in_ms < site.policy.wake_ms:
        return decision.wake_in_ms
    if not is_calm(site, memory):
        return max(detect_ms, LEAST_MS)
    return find_evaluation_ms(site, memory, detect_ms)


def is_waiting(site: Site, memory: Memory) -> bool:
    """Return whether nothing will be done until the owner speaks or the storage takes files."""
    is_down = live_attempt(memory) is None
    return memory.halted is not None or memory.rest is not None or (is_down and site.disk_full)


def is_calm(site: Site, memory: Memory) -> bool:
    """Return whether nothing is under way that the controller has to see through."""
    attempt, gang = live_attempt(memory), site.crew
    if attempt is None or gang is None or attempt.closed or not attempt.launched:
        return False
    if memory.approval is not None or memory.revision is not None or memory.asks:
        return False
    is_whole = gang.living == len(gang.ranks) or not gang.ranks[0].has_started
    return gang.number == attempt.number and is_whole


def find_evaluation_ms(site: Site, memory: Memory, detect_ms: int) -> int:
    """Return how long it is until an evaluation is due."""
    terms, gang = memory.policy.terms, site.crew
    if terms.deadline_wall_ms is None or gang is None or not gang.has_begun:
        return LONGEST_MS
    if memory.evaluated_at is not None:
        left_ms = terms.evaluate_every_ms - age_ms(memory.evaluated_at, site.agenda.instant())
    else:
        left_ms = terms.evaluate_every_ms - site.log.trained_ms
    if left_ms > 0:
        return left_ms
    return max(min(RECHECK_MS, terms.evaluate_every_ms // RECHECKS), detect_ms, LEAST_MS)
