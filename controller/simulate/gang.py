"""Simulated trainers: one gang in lock step, with the ends and phases of the real ones.

Steps are not simulated one by one: while the gang moves, the step count follows from the time,
and only what interrupts the steps (a save, a drain, a poisoned step, the horizon) is an event.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from contract.exits import PLANNED, Exit
from contract.plan import Plan
from contract.wire import Drain, Phase, Restore
from controller.core.actions import LaunchGang
from controller.core.snapshot import RankEnd, RankView
from controller.simulate.follow import NEWS_LEAD, SimFollower
from controller.simulate.habitat import Habitat
from controller.simulate.shelf import SimCheckpoint
from controller.simulate.steps import Stretch

DRAIN_LEAD = 3
"""Steps between reading a drain and acting on it."""


@dataclass
class SimRank:
    """One rank and its shim."""

    rank: int
    has_started: bool = False
    claimed: bool = False
    """Its claim lies there: not so if it was never started, or the file is lost."""
    alive: bool = False
    stopped: bool = False
    has_stacks: bool = False
    has_shim: bool = True
    is_undead: bool = False
    """In an uninterruptible wait: SIGKILL has no effect yet."""
    end: RankEnd | None = None

    def view(self) -> RankView:
        """Return the rank as the fleet shows it."""
        return RankView(
            rank=self.rank,
            claimed=self.claimed,
            alive=self.alive,
            stopped=self.stopped,
            has_stacks=self.has_stacks,
            end=self.end,
        )


@dataclass
class SimGang:
    """One attempt."""

    home: Habitat
    order: LaunchGang
    epoch: int
    closed: bool = False
    phase: Phase = Phase.START
    base: int = 0
    """Completed steps when stepping began or was last interrupted."""
    first: int | None = None
    """The step that was restored."""
    since_ms: int = 0
    """When `base` was reached."""
    progress_ms: int = 0
    halted_ms: int | None = None
    has_watchdogs: bool = True
    failures: int = 0
    drain: Drain | None = None
    drain_step: int | None = None
    healthy: bool = True
    """No fault touched it: nobody has a reason to kill it."""
    turn: int = 0
    """Counts interruptions, so that an event of an older turn is void."""
    ranks: list[SimRank] = field(default_factory=list[SimRank])

    created_ms: int = 0
    created_wall_ms: int = 0
    logged: int = 0
    """Steps below it are in the step log, or are not this attempt's."""
    follower: SimFollower = field(init=False)

    def __post_init__(self) -> None:
        plans, sha = self.home.plans, self.order.plan_sha
        self.follower = SimFollower(self.home, self.home.chain(sha) if sha in plans else [])
        self.created_wall_ms = self.home.agenda.wall_ms
        self.ranks = [SimRank(rank) for rank in range(self.home.policy.ranks)]
        self.created_ms = self.progress_ms = self.home.agenda.now_ms

    # What can be seen.

    @property
    def number(self) -> int:
        """The attempt number."""
        return self.order.attempt

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.follower.plan

    @property
    def plan_sha(self) -> str:
        """What the ranks say of it, from their start on."""
        return self.follower.names[0] if self.follower.chain else self.order.plan_sha

    def alive(self) -> list[SimRank]:
        """Return the ranks that live."""
        return [rank for rank in self.ranks if rank.alive]

    @property
    def moving(self) -> bool:
        """Whether the main threads make progress."""
        return self.halted_ms is None and bool(self.alive())

    def completed(self) -> int | None:
        """Return the completed steps in the log of this attempt, None before the first."""
        if self.first is None:
            return None
        now = self.home.agenda.now_ms if self.halted_ms is None else self.halted_ms
        steps = self.base
        if self.phase == Phase.STEP:
            steps += (now - self.since_ms) // self.home.pace.step_ms
        steps = min(steps, self.plan.total_steps)
        return steps if steps > self.first else None

    def progress_age_ms(self) -> int:
        """Return for how long the main threads have not moved."""
        now = self.home.agenda.now_ms
        if self.phase != Phase.STEP or self.halted_ms is not None:
            return now - self.progress_ms
        return (now - self.since_ms) % self.home.pace.step_ms

    def log_age_ms(self) -> int:
        """Return since when the step log of this attempt has not grown."""
        if self.completed() is None:
            return self.home.agenda.now_ms - self.created_ms
        return self.progress_age_ms()

    # Life.

    def claim(self, rank: SimRank) -> None:
        """The shim starts its rank, unless the attempt was closed."""
        if self.closed or rank.has_started:
            return
        rank.has_started = rank.claimed = rank.alive = True
        if all(one.has_started for one in self.ranks):
            self.enter(0)

    def enter(self, index: int) -> None:
        """Go through the phases before the first step, one event each."""
        phases = self.home.pace.phases_ms
        if self.halted_ms is not None:
            return
        if index == len(phases):
            self.go_on(self.base)
            return
        self.phase, lasts_ms = phases[index]
        self.progress_ms = self.home.agenda.now_ms
        self.home.enter(self.phase)
        turn = self.turn

        def leave() -> None:
            if turn != self.turn or self.halted_ms is not None:
                return
            if self.phase == Phase.RESTORE and not self.restore():
                return
            self.enter(index + 1)

        self.home.agenda.after(lasts_ms, leave)

    def restore(self) -> bool:
        """Choose a checkpoint; False: the gang ends without one."""
        home, chain = self.home, self.home.chain(self.order.plan_sha)
        if not home.shelf.checkpoints and self.order.restore == Restore.NONE:
            self.first = self.base = self.logged = 0
            return True
        found = home.shelf.choose(chain, self.order.restore)
        if found is None and self.order.restore != Restore.NONE:
            self.leave(Exit.NO_CHECKPOINT, "no listed step restores")
            return False
        if found is None and home.shelf.ever_complete:
            home.violate(f"attempt {self.number} starts at step 0 over old work")
        self.first = self.base = self.logged = found.step if found else 0
        self.follower.hold_execution(self.base)
        return True

    def go_on(self, step: int) -> None:
        """Step from `step` to whatever interrupts next."""
        home = self.home
        self.phase, self.base = Phase.STEP, step
        self.since_ms = self.progress_ms = home.agenda.now_ms
        self.turn += 1
        self.look()
        self.plan_next()

    def plan_next(self) -> None:
        """Make an event of the next interruption."""
        stop, turn = min(self.list_stops()), self.turn
        due_ms = self.since_ms + (stop - self.base) * self.home.pace.step_ms
        self.home.agenda.after(due_ms - self.home.agenda.now_ms, lambda: self.reach(stop, turn))

    def list_stops(self) -> list[int]:
        """Return the steps ahead at which something interrupts, in no order."""
        home, every = self.home, self.home.pace.save_every
        stops = [self.plan.total_steps, (self.base // every + 1) * every]
        stops += [step for step in home.poison if step > self.base]
        stops += [step for step in (self.follower.boundary, self.follower.restart_step) if step]
        if self.drain_step is not None:
            stops.append(max(self.drain_step, self.base))
        return stops

    def reach(self, step: int, turn: int) -> None:
        """The step count arrived at an interruption."""
        if turn != self.turn or self.halted_ms is not None:
            return
        home = self.home
        line = self.plan.line.name
        home.highest[line] = max(home.highest.get(line, 0), step)
        if step in home.poison:
            code, words = home.poison[step]
            self.base, self.since_ms = step, home.agenda.now_ms
            self.fail(code, words, everyone=code == Exit.NON_FINITE)
        elif step == self.drain_step and self.drain is not None:
            self.depart(step, self.drain)
        elif step == self.plan.total_steps:
            self.finish(step)
        elif step == self.follower.restart_step:
            self.depart(step, Drain(nonce="", mode="restart"))
        else:
            is_due = step == self.follower.boundary
            if (is_due and self.adopt(step)) or step % home.pace.save_every == 0:
                self.pause(step)
            else:
                self.go_on(step)

    def pause(self, step: int) -> None:
        """Begin a save, and go on."""
        self.save(step)
        self.go_on(step)

    def adopt(self, step: int) -> bool:
        """Put what is pending in force; what ran before is logged under the plan before it."""
        self.log_steps(step)
        return self.follower.adopt(step)

    def log_steps(self, end: int) -> None:
        """Write the steps below `end` into the step log."""
        if end <= self.logged:
            return
        agenda, step_ms = self.home.agenda, self.home.pace.step_ms
        end_ms = self.since_ms + (end - self.base) * step_ms
        self.home.log.take(
            Stretch(
                attempt=self.number,
                line=self.plan.line.name,
                first=self.logged,
                end=end,
                plan_sha=self.plan_sha,
                execution_sha=self.follower.names[1],
                length=self.plan.context_at(min(end, self.plan.total_steps) - 1).length,
                step_ms=step_ms,
                end_wall_ms=agenda.wall_ms - (agenda.now_ms - end_ms),
                launched_wall_ms=self.created_wall_ms,
            )
        )
        self.logged = end

    def log_now(self) -> None:
        """Write what was completed by now into the step log."""
        self.log_steps(self.completed() or 0)

    def anchor(self, step_ms: int) -> None:
        """Count anew from the newest completed step; the one under way goes on at `step_ms`."""
        if self.phase != Phase.STEP or self.first is None:
            return
        self.log_now()
        now_ms = self.home.agenda.now_ms if self.halted_ms is None else self.halted_ms
        done, part_ms = divmod(now_ms - self.since_ms, self.home.pace.step_ms)
        self.base += done
        self.since_ms = now_ms - part_ms * step_ms // self.home.pace.step_ms

    def save(self, step: int, then: Callable[[], None] | None = None) -> None:
        """Save, commit after a while, read back after another while."""
        home = self.home
        made = SimCheckpoint(self.plan.line.name, step, self.plan_sha, self.number)

        def commit() -> None:
            if not self.ranks[0].alive or self.ranks[0].stopped:
                return
            if home.disk_full:
                self.failures += 1
            else:
                home.shelf.add(made)
                home.agenda.after(home.pace.verify_ms, verify)
            if then is not None and home.disk_full:
                then()

        def verify() -> None:
            if self.ranks[0].alive and not self.ranks[0].stopped:
                home.shelf.verify(made)
                if then is not None:
                    then()

        home.agenda.after(home.pace.commit_ms, commit)

    def finish(self, step: int) -> None:
        """Save at the horizon; done once it is verified, STORAGE when it cannot be saved."""
        self.base, self.since_ms = step, self.home.agenda.now_ms
        self.phase, self.progress_ms = Phase.SAVE_BLOCK, self.home.agenda.now_ms
        self.home.enter(self.phase)
        self.turn += 1

        def end() -> None:
            found = self.home.shelf.find(self.plan.line.name, step)
            if found is not None and found.verified:
                self.leave(Exit.DONE, "")
            else:
                self.fail(Exit.STORAGE, "the last checkpoint cannot be saved", everyone=True)

        self.save(step, end)

    # Orders.

    def look(self) -> None:
        """Read the control document, as rank 0 does at each step."""
        if self.halted_ms is not None or self.phase != Phase.STEP or self.home.is_deaf:
            return
        document = self.home.says(self.epoch)
        if document is None or not self.follower.must_judge(document):
            return
        self.home.obeyed = document.order
        done = self.base + (self.home.agenda.now_ms - self.since_ms) // self.home.pace.step_ms
        self.follower.obey(document, done + NEWS_LEAD)
        if document.drain != self.drain:
            self.drain = document.drain
            is_leaving = self.drain is not None
            self.drain_step = min(done + DRAIN_LEAD, self.plan.total_steps) if is_leaving else None
        self.turn += 1
        self.plan_next()

    def depart(self, step: int, drain: Drain) -> None:
        """Save, then leave with the code that the drain asks for."""
        home = self.home
        self.base, self.since_ms = step, home.agenda.now_ms
        self.phase, self.progress_ms = Phase.DRAIN, home.agenda.now_ms
        home.enter(self.phase)
        self.turn += 1
        code = Exit.RESTART if drain.mode == "restart" else Exit.DRAINED
        self.save(step, lambda: self.leave(code, ""))

    def leave(self, code: int, words: str) -> None:
        """All ranks end with the same code within a moment."""
        if self.halted_ms is not None:
            return
        self.halt()
        for rank in self.alive():
            delay_ms = self.home.random.randrange(50, 900)
            self.home.agenda.after(delay_ms, lambda rank=rank: self.end(rank, code, words))

    # Ends.

    def halt(self) -> None:
        """The gang's collective stands still from now on."""
        if self.halted_ms is None:
            line = self.plan.line.name
            done = self.completed() or 0
            self.home.highest[line] = max(self.home.highest.get(line, 0), done)
            self.log_steps(done)
            self.halted_ms = self.home.agenda.now_ms
            self.progress_ms = self.home.agenda.now_ms - self.progress_age_before()

    def progress_age_before(self) -> int:
        """Return the progress age at the moment of the halt."""
        if self.phase != Phase.STEP:
            return self.home.agenda.now_ms - self.progress_ms
        return (self.home.agenda.now_ms - self.since_ms) % self.home.pace.step_ms

    def fail(self, code: int, words: str, *, everyone: bool = False, rank: int = 0) -> None:
        """A rank ends by itself, or all do; peers follow."""
        self.healthy = False
        self.halt()
        for one in self.alive():
            if everyone or one.rank == rank:
                self.end(one, code, words)

    def end(self, rank: SimRank, code: int, words: str = "") -> None:
        """The rank is gone, and its peers notice after a while."""
        if not rank.alive or rank.is_undead:
            return
        self.halt()
        steps = self.base if words else None
        rank.alive = rank.stopped = False
        if rank.has_shim:
            wall_ms = self.home.agenda.wall_ms
            rank.end = RankEnd(code=code, wall_ms=wall_ms, step=steps, detail=words)
        if code not in PLANNED:
            self.healthy = False
            self.alarm_peers()

    def alarm_peers(self) -> None:
        """Let the others notice that a rank is gone."""
        low, high = self.home.pace.cascade_ms
        for peer in self.alive():
            delay_ms = self.home.random.randrange(low, high)
            code = self.home.random.choice((Exit.ABORTED, Exit.PEER_LOST))

            def follow(peer: SimRank = peer, code: int = code) -> None:
                if not peer.stopped:
                    self.end(peer, code)

            self.home.agenda.after(delay_ms, follow)

    def kill(self, rank: SimRank) -> None:
        """SIGKILL."""
        self.end(rank, Exit.KILLED)

    def freeze(self, rank: SimRank) -> None:
        """SIGSTOP: the rank keeps its lock, the others stand and wait for it."""
        if not rank.alive:
            return
        rank.stopped = True
        self.healthy = False
        self.halt()
        self.arm()

    def arm(self) -> None:
        """Let the watchdogs of the responding ranks fire at the phase's deadline."""
        if not self.has_watchdogs:
            return
        deadline_ms = self.home.policy.deadlines_ms[self.phase]

        def fire() -> None:
            stuck = [rank for rank in self.alive() if not rank.stopped]
            for rank in stuck:
                rank.has_stacks = True
            for rank in stuck:
                self.end(rank, Exit.STALL, "watchdog")

        age_ms = self.home.agenda.now_ms - self.progress_ms
        self.home.agenda.after(max(0, deadline_ms - age_ms), fire)
