"""A gang on racks, in few events however many ranks it has.

All start at once, peers follow a lost one together, and a failure takes whole trays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from contract.exits import PLANNED, Exit
from contract.wire import Drain, Phase
from controller.core.snapshot import GangView, RankRef
from controller.simulate.gang import SimGang, SimRank
from controller.simulate.rehearsal.grounds import Grounds
from controller.simulate.rehearsal.spending import WAITING
from controller.simulate.world import MACHINE_BYTES


@dataclass
class CrewGang(SimGang):
    """One attempt of a rehearsed run."""

    grounds: Grounds = field(kw_only=True)
    replay_until: int = 0
    """Steps below it were completed before, by an earlier attempt."""
    has_begun: bool = False
    """It completed its start."""
    is_leaving: bool = False
    """All ranks end because they were asked to."""
    is_alarmed: bool = False
    is_waiting_for_commit: bool = False
    living: int = 0
    _alive: list[SimRank] | None = None
    _view: GangView | None = None

    # What can be seen: nothing is built anew until something changed.

    def touch(self) -> None:
        """Something about a rank changed."""
        self._alive = self._view = None

    def alive(self) -> list[SimRank]:
        """Return the ranks that live."""
        if self._alive is None:
            self._alive = super().alive() if self.living else []
        return self._alive

    def look_at(self, remains: list[RankRef]) -> GangView:
        """Return the gang as the fleet shows it, the same object while it is the same."""
        view = self._view
        if view is None or view.closed != self.closed or view.remains != remains:
            view = GangView(
                attempt=self.number,
                closed=self.closed,
                ranks=[rank.view() for rank in self.ranks],
                remains=remains,
                memory_bytes=MACHINE_BYTES,
                ranks_per_machine=self.grounds.cluster.processes_per_tray,
            )
            self._view = view
        return view

    def progress_age_ms(self) -> int:
        """Return for how long the main threads have not moved."""
        if self.is_waiting_for_commit and self.halted_ms is None:
            return 0  # A rank that waits for its last save counts the bytes that get through.
        return super().progress_age_ms()

    # Life.

    def muster(self) -> None:
        """Start all ranks if there are whole trays for all of them, else wait for repairs.

        All or none, as a queue admits a gang whole: ranks that waited for others would look stuck.
        """
        if self.closed or self.ranks[0].has_started:
            return
        if not self.grounds.cluster.place():
            self.grounds.spending.turn_to(WAITING)
            return
        self.grounds.settle_slowness()
        for rank in self.ranks:
            rank.has_started = rank.claimed = rank.alive = True
        self.living = len(self.ranks)
        self.touch()
        self.grounds.alert()
        self.enter(0)

    def enter(self, index: int) -> None:
        """Go through the phases before the first step."""
        super().enter(index)
        if self.halted_ms is None and self.phase is not Phase.STEP:
            self.grounds.spending.turn_to(self.phase.value)

    def go_on(self, step: int) -> None:
        """Step from `step`, at the pace of this moment, to whatever interrupts next."""
        self.log_steps(step)
        self.home.pace = replace(self.home.pace, step_ms=self.grounds.find_step_ms(self.plan, step))
        if not self.has_begun:
            self._begin()
        is_replay = step < self.replay_until
        if not is_replay and self.grounds.casebook.open is not None:
            self._tell_replay(step)
            self.grounds.casebook.close()
            self.grounds.alert()
        super().go_on(step)
        phase = Phase.REPLAY if is_replay else Phase.PRODUCTIVE
        self.grounds.spending.turn_to(phase.value)

    def _begin(self) -> None:
        self.has_begun = True
        self.replay_until = self.home.highest.get(self.plan.line.name, 0)
        self.grounds.hazards.begin()
        self.grounds.alert()

    def _tell_replay(self, done: int) -> None:
        """Note the steps up to `done` that were computed again."""
        if self.has_begun and self.first is not None:
            self.grounds.casebook.replay(max(0, min(done, self.replay_until) - self.first))

    def list_stops(self) -> list[int]:
        """Return the steps ahead at which something interrupts."""
        starts = [stage.start for stage in self.plan.context]
        more = [step for step in (*starts, self.replay_until) if step > self.base]
        return [*super().list_stops(), *more]

    def pause(self, step: int) -> None:
        """Save, standing still for a moment."""
        self.log_steps(step)
        self._stand(step, Phase.SAVE_BLOCK)
        self.grounds.spending.turn_to(Phase.SAVE_BLOCK.value)
        self.turn += 1
        turn = self.turn
        self.save(step)

        def go_on() -> None:
            if turn == self.turn and self.halted_ms is None:
                self.go_on(step)

        self.home.agenda.after(self.home.pace.block_ms, go_on)

    def _stand(self, step: int, phase: Phase) -> None:
        self.base, self.phase = step, phase
        self.since_ms = self.progress_ms = self.home.agenda.now_ms

    def finish(self, step: int) -> None:
        """Save at the horizon."""
        self._stop_training(step)
        super().finish(step)
        self.grounds.spending.turn_to(Phase.SAVE_BLOCK.value)

    def depart(self, step: int, drain: Drain) -> None:
        """Save, then leave."""
        self._stop_training(step)
        super().depart(step, drain)
        self.grounds.spending.turn_to(Phase.DRAIN.value)

    def _stop_training(self, step: int) -> None:
        self.log_steps(step)
        self.is_waiting_for_commit = True
        self.grounds.hazards.pause()

    def leave(self, code: int, words: str) -> None:
        """All ranks end with the same code within a moment."""
        self.is_leaving = code in PLANNED
        super().leave(code, words)

    # Ends.

    def halt(self) -> None:
        """The gang's collective stands still from now on."""
        if self.halted_ms is not None:
            return
        last_ms = self._last_step_ms()
        super().halt()
        self.grounds.hazards.pause()
        if self.grounds.casebook.open is not None:
            self._tell_replay(self.completed() or 0)
        if not self.is_leaving:
            self.grounds.casebook.take_down(self.number)
            self.grounds.spending.turn_to(Phase.STALL.value, last_ms)
        self.grounds.alert()

    def _last_step_ms(self) -> int:
        """Return when the newest step was completed: what came of the next one is lost."""
        now_ms = self.home.agenda.now_ms
        if self.phase is not Phase.STEP:
            return now_ms
        return now_ms - (now_ms - self.since_ms) % self.home.pace.step_ms

    def end(self, rank: SimRank, code: int, words: str = "") -> None:
        """The rank is gone, and its peers notice after a while."""
        was_alive = rank.alive
        super().end(rank, code, words)
        if not was_alive or rank.alive:
            return
        if rank.end is not None and words:
            # The step it was at, not the one that its gang was last interrupted at.
            step = self.completed() or self.base
            rank.end = rank.end.model_copy(update={"step": step})
        self.living -= 1
        self.touch()
        self.grounds.alert()
        if not self.living:
            self.grounds.spending.turn_to(Phase.SCHEDULE.value)

    def alarm_peers(self) -> None:
        """Let the others notice, all at once, that a rank is gone."""
        if self.is_alarmed:
            return
        self.is_alarmed = True

        def follow() -> None:
            for peer in self.alive():
                if not peer.stopped:
                    self.end(peer, Exit.ABORTED)

        self.home.agenda.after(self.home.random.randrange(*self.home.pace.cascade_ms), follow)

    def freeze(self, rank: SimRank) -> None:
        """SIGSTOP."""
        super().freeze(rank)
        self.touch()

    def lose(self, ranks: Sequence[int]) -> None:
        """The machines of these ranks are gone, and nobody is left to record how."""
        for number in ranks:
            self.ranks[number].has_shim = False
            self.end(self.ranks[number], Exit.KILLED)
