"""A declared run from its launch to its end in virtual time, under the real core.

The agenda's time 0 is the launch. What is told of the run is in `tale`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from contract.plan import Plan
from contract.wire import Phase
from controller.core.declared.planning import make_genesis, make_policy, wall_ms_of
from controller.core.declared.simulation import DAY_MS, Owner, Simulation
from controller.core.declared.spec import RunFile
from controller.core.declared.supposition import (
    MOST_FAILURES,
    count_declared,
    find_limit_ms,
    make_sources,
)
from controller.core.memory import Memory
from controller.core.snapshot import OwnerIntent
from controller.runtime.reconcile import Reconciler
from controller.simulate.agenda import Agenda
from controller.simulate.habitat import Pace
from controller.simulate.rehearsal.attention import LONGEST_MS, Attention, choose_wake_ms
from controller.simulate.rehearsal.casebook import Casebook
from controller.simulate.rehearsal.cluster import make_cluster
from controller.simulate.rehearsal.course import PERCENT, open_stream, plot_course
from controller.simulate.rehearsal.grounds import Grounds
from controller.simulate.rehearsal.hazards import make_hazards
from controller.simulate.rehearsal.notebook import Notebook, tell_incident
from controller.simulate.rehearsal.scroll import Listener, Scroll
from controller.simulate.rehearsal.site import Site, SiteLog
from controller.simulate.rehearsal.spending import WAITING, Spending
from controller.simulate.rehearsal.tale import Outcome, Rehearsal, SparesTold
from controller.simulate.shelf import Shelf

MOST_CASES = 3 * MOST_FAILURES
"""Failures that strike before a run is given up, however slowly it gets on."""
VAIN_LOOKS, MOST_DOUBLINGS = 500, 20
MOST_RESUMES = 8
"""In a row without a new step: whatever halts it then, the owner's patience does not cure it."""
START_MS = 100_000 * DAY_MS
"""How long ranks may wait for trays: a queue is no failed start, and has no clock."""


@dataclass
class Drive:
    """The controller, and the owner who answers it."""

    site: Site
    plan: Plan
    owner: Owner
    attention: Attention
    notebook: Notebook = field(default_factory=Notebook)
    passes: int = 0
    _asked: int = 0
    _answered: set[str] = field(default_factory=set[str])
    _is_resuming: bool = False
    _vain_resumes: int = 0
    _resumed_step: int = -1
    _count: int = 0
    _vain_looks: int = 0
    reconciler: Reconciler = field(init=False)

    def __post_init__(self) -> None:
        ports, now = self.site.ports(), self.site.agenda.instant()
        body = {
            "policy": self.site.policy.model_dump(mode="json"),
            "plan": self.plan.model_dump(mode="json"),
        }
        ports.ledger.append("run", body, now)
        ports.ledger.append("epoch", {"pid": 1, "host": "sim", "takeover": False}, now)
        self.reconciler = Reconciler(ports, lambda _, __: {})
        self.reconciler.resume()

    @property
    def memory(self) -> Memory:
        """What the controller remembers."""
        return self.reconciler.memory

    def run(self, limit_ms: int) -> Outcome:
        """Live until the run is completed, given up, or the time is over."""
        cases = self.site.grounds.casebook.cases
        while self.site.agenda.now_ms < limit_ms and len(cases) < MOST_CASES:
            decision = self.reconciler.pass_once()
            self.passes += 1
            memory = self.memory
            self.notebook.look(memory)
            if memory.rest == "completed":
                return "completed"
            if memory.halted is not None and self.site.has_nothing_left(memory):
                return "lost"
            if memory.halted is not None and self._vain_resumes >= MOST_RESUMES:
                return "halted"
            self._answer(memory)
            wake_ms = choose_wake_ms(self.site, memory, decision, self.attention.detect_ms)
            wake_ms = self._stretch(wake_ms)
            self.attention.rest(min(wake_ms, limit_ms - self.site.agenda.now_ms))
        return "unfinished"

    def _stretch(self, wake_ms: int) -> int:
        """Return a rest twice as long for each so many looks after which nothing was recorded.

        Such as while a controller without sight waits to see an end; what happens still wakes it.
        """
        count = self.site.scroll.count
        self._vain_looks = self._vain_looks + 1 if count == self._count else 0
        self._count = count
        return wake_ms << min(self._vain_looks // VAIN_LOOKS, MOST_DOUBLINGS)

    # The owner, who answers everything once.

    def _answer(self, memory: Memory) -> None:
        self._answer_proposal(memory)
        spending = self.site.grounds.spending
        if memory.halted is None and self._is_resuming:
            self._is_resuming = False
            spending.turn_to(Phase.SCHEDULE.value)
        elif memory.halted is not None and not self._is_resuming:
            self._is_resuming = True
            spending.turn_to(Phase.HALTED.value)
            self.site.agenda.after(self.owner.resumes_after, self._resume)

    def _answer_proposal(self, memory: Memory) -> None:
        proposal, patience_ms = memory.proposal, self.owner.approves_after
        if proposal is None or patience_ms is None or proposal.id in self._answered:
            return
        self._answered.add(proposal.id)
        self.site.agenda.after(patience_ms, lambda: self._approve(proposal.id))

    def _approve(self, proposal: str) -> None:
        memory = self.memory
        is_open = memory.proposal is not None and memory.proposal.id == proposal
        if is_open and memory.approval is None:
            self._drop(verb="approve", proposal=proposal)

    def _resume(self) -> None:
        highest = max(self.site.highest.values(), default=0)
        self._vain_resumes = 0 if highest > self._resumed_step else self._vain_resumes + 1
        self._resumed_step = highest
        self._drop(verb="resume")

    def _drop(self, **wish: object) -> None:
        self._asked += 1
        origin = {"nonce": f"owner-{self._asked}", "user": "owner"}
        wall_ms = self.site.agenda.wall_ms
        intent = OwnerIntent.model_validate({**wish, **origin, "wall_ms": wall_ms})
        self.site.intents = [intent]
        self.attention.alert()


def rehearse(
    run_file: RunFile,
    seed: int,
    *,
    on_day: Callable[[int], None] | None = None,
    on_line: Listener | None = None,
    poll_ms: int | None = None,
) -> Rehearsal:
    """Return how the run goes under `seed`; the same on every machine.

    `run_file` is one with all suppositions in it (`supposition.suppose`). `on_day` is told the
    number of each day that passed, `on_line` each record of the ledger. With `poll_ms` the
    controller also looks that often, to see that nothing escapes it otherwise.
    """
    spec = run_file.spec
    limit_ms = find_limit_ms(spec)
    site, plan = _make_site(run_file, seed, limit_ms)
    attention = Attention(site.agenda, spec.simulation.detect, poll_ms)
    site.grounds.alert = attention.alert
    site.scroll.on_line = on_line
    drive = Drive(site, plan, spec.simulation.owner, attention)
    site.follow_course()
    _note_days(drive, on_day)
    outcome = drive.run(limit_ms)
    site.grounds.casebook.close()
    assert not site.violations, site.violations[0]
    return _tell(drive, seed, outcome)


def _make_site(run_file: RunFile, seed: int, most_ms: int) -> tuple[Site, Plan]:
    """Return the world at the launch, and the first plan."""
    spec = run_file.spec
    supposed = spec.simulation
    assert supposed.launch_at is not None, "suppose() comes first"
    launched_wall_ms = wall_ms_of(supposed.launch_at)
    agenda = Agenda(wall_offset_ms=launched_wall_ms)
    sources = make_sources(count_declared(spec))
    uid = f"rehearsal-{seed}"
    grounds = Grounds(
        agenda,
        make_cluster(spec.fleet, agenda),
        plot_course(supposed, seed, most_ms // DAY_MS + 1),
        make_hazards(supposed, seed, agenda),
        Spending(agenda),
        Casebook(agenda),
    )
    policy = make_policy(run_file, uid, sources, launched_wall_ms)
    site = Site(
        policy=policy.model_copy(update={"start_ms": START_MS, "wake_ms": LONGEST_MS}),
        random=open_stream(seed, "world"),
        pace=_make_pace(supposed, spec.checkpoints.every_steps),
        agenda=agenda,
        shelf=Shelf(keep=spec.checkpoints.keep),
        log=SiteLog(save_every=spec.checkpoints.every_steps, block_ms=supposed.save.block),
        book=Scroll(),
        grounds=grounds,
    )
    return site, make_genesis(run_file, uid, sources)


def _make_pace(supposed: Simulation, save_every: int) -> Pace:
    again = supposed.restart
    return Pace(
        phases_ms=(
            (Phase.START, again.start),
            (Phase.RENDEZVOUS, again.rendezvous),
            (Phase.RESTORE, again.restore),
            (Phase.COMPILE, again.compile),
            (Phase.FIRST_STEP, again.first_step),
        ),
        save_every=save_every,
        block_ms=supposed.save.block,
        commit_ms=supposed.save.commit,
    )


def _note_days(drive: Drive, on_day: Callable[[int], None] | None) -> None:
    """Note the progress at the launch and each day after it."""
    agenda = drive.site.agenda

    def note() -> None:
        drive.notebook.progress.append((agenda.wall_ms, count_steps(drive.site)))
        if on_day is not None and agenda.now_ms:
            on_day(agenda.now_ms // DAY_MS)
        agenda.after(DAY_MS, note)

    note()


def count_steps(site: Site) -> int:
    """Return the completed steps of the surviving line."""
    done = [site.highest.get(site.gang.plan.line.name, 0)] if site.gang else [0]
    if site.gang is not None:
        done.append(site.gang.completed() or 0)
    return max(done)


def _tell(drive: Drive, seed: int, outcome: Outcome) -> Rehearsal:
    site, memory, notes = drive.site, drive.memory, drive.notebook
    agenda, terms = site.agenda, memory.policy.terms
    book, steps = site.scroll, count_steps(site)
    finished = agenda.wall_ms if outcome == "completed" else None
    deadline, genesis = terms.deadline_wall_ms, memory.genesis
    judged = {it.attempt: it for it in memory.incidents}
    total, launched = memory.held_plan.total_steps, agenda.wall_offset_ms
    lost = site.grounds.casebook.replayed_steps
    return Rehearsal(
        seed=seed,
        outcome=outcome,
        why="" if finished is not None else (memory.halted or "given up before its last step"),
        launched_wall_ms=launched,
        ended_wall_ms=agenda.wall_ms,
        finished_wall_ms=finished,
        deadline_wall_ms=deadline,
        on_time=None if deadline is None else finished is not None and finished <= deadline,
        horizon_percent=PERCENT * total // genesis.total_steps,
        original_steps=genesis.total_steps,
        total_steps=total,
        steps=steps,
        tokens_trained=steps * genesis.tokens_per_step,
        tokens_lost=lost * genesis.tokens_per_step,
        attempts=len(site.gangs),
        account={name: ms for name, ms in site.grounds.spending.settle().items() if ms},
        incidents=[
            tell_incident(it, judged.get(it.attempt or 0), launched)
            for it in site.grounds.casebook.cases
        ],
        proposals=notes.tell_proposals(memory),
        spares=_tell_spares(site),
        progress=[*notes.progress, (agenda.wall_ms, steps)],
        forecasts=notes.forecasts,
        passes=drive.passes,
        records=book.count,
        ledger_bytes=book.bytes,
    )


def _tell_spares(site: Site) -> SparesTold:
    cluster = site.grounds.cluster
    cluster.take_stock()
    return SparesTold(
        fewest_by_rack=cluster.fewest_by_rack,
        fewest=cluster.fewest,
        bare_days=len(cluster.bare_days),
        tray_moves=cluster.tray_moves,
        rack_moves=cluster.rack_moves,
        waited_ms=site.grounds.spending.settle()[WAITING],
    )
