"""What must hold of proposals, revisions and what the gangs run, against ledger and world."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from contract.plan import Plan
from contract.schedule import value_at
from controller.core.actions import (
    Action,
    Approve,
    Evaluate,
    LaunchGang,
    Propose,
    PublishPlan,
    RecordAdoption,
)
from controller.core.memory import Memory
from controller.core.proposal import CONTROLLER, Proposal
from controller.core.readings import Instant, age_ms
from controller.core.snapshot import ProgressView, Snapshot
from controller.core.terms import Terms
from controller.simulate.steps import Stretch
from controller.simulate.world import World

PERCENT = 100
FINAL = Fraction(1, 20)
"""Of the peak, in every simulated run."""
END = 10**12


@dataclass
class PlanCheckers:
    """Everything that must hold of the plan, recomputed from knots and stages alone."""

    world: World
    approved: set[str] = field(default_factory=set[str])
    """Proposals with a consent in the ledger."""
    chain: list[Plan] = field(default_factory=list[Plan])
    known: set[str] = field(default_factory=set[str])
    """Identities of the plans of `chain`."""
    is_proven: bool = False
    """The finished run was compared with its plan."""

    def _demand(self, holds: bool, what: str) -> None:  # noqa: FBT001  # reads as a sentence
        if not holds:
            self.world.violate(what)

    # Single acts.

    def check_action(self, action: Action, snapshot: Snapshot, memory: Memory) -> None:
        """Check one action of a decision against the memory that it rests on."""
        match action:
            case Evaluate():
                self._check_evaluation(action, snapshot, memory)
            case Propose():
                self._check_proposal(action.proposal, snapshot, memory)
            case Approve():
                self._check_approval(action, memory)
            case PublishPlan() if action.proposal is not None:
                self._check_revision(action.plan, action.proposal, memory)
            case RecordAdoption():
                self._check_adoption(action, memory)
            case LaunchGang():
                self._check_launch(memory)
            case _:
                pass

    def _check_evaluation(self, action: Evaluate, snapshot: Snapshot, memory: Memory) -> None:
        progress = snapshot.progress
        is_training = isinstance(progress, ProgressView) and not progress.is_replaying
        self._demand(is_training, "evaluated while the gang trains no new steps")
        is_apart = action.pace.since_step >= memory.evaluated_step
        self._demand(is_apart, "two evaluations rest on the same steps")
        self._demand(
            memory.policy.terms.deadline_wall_ms is not None, "evaluated without a deadline"
        )

    def _check_proposal(self, proposal: Proposal, snapshot: Snapshot, memory: Memory) -> None:
        self._demand(memory.proposal is None, "a second proposal is opened")
        self._demand(memory.revision is None, "proposed while a revision is not adopted")
        self._demand(all(it.holds for it in proposal.facts.proofs), "proposed against a proof")
        if proposal.is_own:
            self._check_initiative(proposal, snapshot.now, memory)

    def _check_initiative(self, proposal: Proposal, now: Instant, memory: Memory) -> None:
        terms = memory.policy.terms
        is_asked_for = terms.mode != "off" and terms.deadline_wall_ms is not None
        self._demand(is_asked_for, "the controller proposes unasked")
        horizons = [it for it in memory.adopted if it.kind == "horizon"]
        self._demand(len(horizons) < terms.max_revisions, "more revisions than allowed")
        if horizons and horizons[-1].adopted_at is not None:
            is_cool = age_ms(horizons[-1].adopted_at, now) >= terms.cool_down_ms
            self._demand(is_cool, "proposed within the cool-down")
        is_called = memory.late >= terms.evaluations or proposal.is_last_call
        self._demand(is_called, f"proposed after {memory.late} late evaluations")

    def _check_approval(self, action: Approve, memory: Memory) -> None:
        proposal, terms = memory.proposal, memory.policy.terms
        is_open = proposal is not None and proposal.id == action.proposal
        self._demand(is_open, "approved a proposal that is not open")
        self._demand(memory.approval is None, "a second approval takes effect")
        named = [ask.proposal for ask in memory.asks if ask.nonce == action.nonce]
        self._demand(named in ([], [action.proposal]), "approved what the owner did not name")
        self.approved.add(action.proposal)
        if proposal is not None and action.by.startswith(CONTROLLER):
            may_consent = terms.mode == "auto" and proposal.is_own and not proposal.is_floor
            self._demand(may_consent, "the controller consents where only the owner may")

    def _check_revision(self, child: Plan, proposal_id: str, memory: Memory) -> None:
        self._demand(proposal_id in self.approved, "a revision without an approval")
        before = memory.revision
        if before is not None and before.plan_sha != child.sha:
            is_sibling = child.supersedes == before.plan_sha
            self._demand(is_sibling, "a second revision while one is not adopted")
        if child in memory.chain:
            return  # brought again
        parent = memory.held_plan if before is not None else memory.plan
        for problem in list_faults(memory.genesis, parent, child, memory.policy.terms):
            self.world.violate(f"revision from step {child.effective}: {problem}")

    def _check_adoption(self, action: RecordAdoption, memory: Memory) -> None:
        revision = memory.revision
        is_known = revision is not None and revision.plan_sha == action.plan_sha
        is_asked = is_known and revision is not None and revision.proposal.id in self.approved
        self._demand(is_asked, "adopted without an approval")
        has_run = any(it.plan_sha == action.plan_sha for it in self.world.log.stretches)
        self._demand(has_run, "an adoption that no gang knows of")

    def _check_launch(self, memory: Memory) -> None:
        revision = memory.revision
        if revision is None or revision.kind == "execution":
            return
        parent, line = memory.held_plan.sha, memory.plan.line.name
        proof = [
            it.step
            for it in self.world.shelf.checkpoints
            if (it.plan_sha, it.line) == (parent, line)
            and it.step > revision.fork_step
            and it.damage is None
            and it.quarantined is None
        ]
        self._demand(not proof, f"an attempt under a revision that was missed at step {proof}")

    # Memory, record by record.

    def check_change(self, before: Memory, after: Memory) -> None:
        """Check what one record made of the memory."""
        lost, closed = before.proposal, {it.id for it in after.closed}
        if lost is not None and (after.proposal is None or after.proposal.id != lost.id):
            self._demand(lost.id in closed, f"proposal {lost.id} is lost")
        answered = {it.nonce for it in after.answers} | {it.nonce for it in after.asks}
        unheard = [it.nonce for it in before.asks if it.nonce not in answered]
        self._demand(not unheard, f"wishes {unheard} are forgotten")
        if after.chain is not before.chain:
            links = [(parent.sha, child.parent) for parent, child in pairwise(after.chain)]
            self._demand(all(a == b for a, b in links), "the revisions form no chain")
        if len(after.adopted) != len(before.adopted):
            places = {plan.sha: at for at, plan in enumerate(after.chain)}
            found = [places.get(it.plan_sha, -1) for it in after.adopted]
            is_chain = found == sorted(set(found)) and min(found, default=0) >= 0
            self._demand(is_chain, "adopted revisions are not of one chain")

    # The world.

    def check_world(self, memory: Memory) -> None:
        """Check what the gang runs; and the whole run, once it is completed."""
        gang = self.world.gang
        if gang is not None and gang.alive() and gang.follower.chain:
            if self.chain is not memory.chain:
                self.chain, self.known = memory.chain, {plan.sha for plan in memory.chain}
            self._demand(gang.plan_sha in self.known, "a gang runs a plan outside the chain")
        if memory.rest == "completed" and not self.is_proven:
            self.is_proven = True
            self._check_whole(memory)

    def _check_whole(self, memory: Memory) -> None:
        """Every step of the surviving line ran what the plan in force says of it."""
        plans, last = self.world.plans, memory.plan
        ran = surviving(self.world.log.stretches)
        reached = [(first, end) for first, end, _ in ran]
        ends = [0, *(end for _, end in reached)]
        starts = [*(first for first, _ in reached), last.total_steps]
        self._demand(starts == ends, "steps are missing")
        for first, end, sha in ran:
            if sha != last.sha and (step := find_difference(plans[sha], last, first, end)) >= 0:
                self.world.violate(f"step {step} ran another schedule than the chain's")


def surviving(stretches: Iterable[Stretch]) -> list[tuple[int, int, str]]:
    """Return (first step, end, plan) of the newest computations on the surviving line."""
    ran: list[tuple[int, int, str]] = []
    line = ""
    for stretch in stretches:
        last = END if stretch.line != line else stretch.end
        line = stretch.line
        before = [(low, min(high, stretch.first), sha) for low, high, sha in ran]
        after = [(max(low, last), high, sha) for low, high, sha in ran]
        pieces = [*before, (stretch.first, stretch.end, stretch.plan_sha), *after]
        ran = [piece for piece in pieces if piece[0] < piece[1]]
    return ran


def find_difference(left: Plan, right: Plan, first: int, end: int) -> int:
    """Return the first step from `first` on at which rate or data differ; -1: none below `end`.

    All of it is linear or constant between knots and stages, so the ends of the pieces decide.
    """
    if end > min(left.total_steps, right.total_steps):
        return min(left.total_steps, right.total_steps)
    steps = {first, end - 1}
    for plan in (left, right):
        for knots in plan.anneals.values():
            steps |= {near for step, _ in knots for near in (step - 1, step, step + 1)}
        starts = [stage.start for stage in (*plan.mixture.stages, *plan.context)]
        steps |= {near for start in starts for near in (start - 1, start)}
    wanted = sorted(step for step in steps if first <= step < end)
    return next((step for step in wanted if _values_at(left, step) != _values_at(right, step)), -1)


def _values_at(plan: Plan, step: int) -> tuple[object, ...]:
    rates = {name: value_at(plan.knots_of(name), step) for name in plan.anneals}
    stage = plan.mixture.stages[plan.mixture_index_at(step)]
    return (rates, stage.parts, plan.context_at(step).length)


def list_faults(genesis: Plan, parent: Plan, child: Plan, terms: Terms) -> list[str]:
    """Return what is wrong with a revision, from the raw numbers."""
    faults: list[str] = []
    if child.parent != parent.sha:
        faults.append("it follows another plan")
    fork = child.effective
    if fork and find_difference(parent, child, 0, fork) >= 0:
        faults.append("the past changed")
    if child.kind == "horizon":
        faults += _list_horizon_faults(genesis, parent, child, terms)
    elif (parent.total_steps, parent.anneals) != (child.total_steps, child.anneals):
        faults.append("the schedule changed")
    return faults


def _list_horizon_faults(genesis: Plan, parent: Plan, child: Plan, terms: Terms) -> list[str]:
    before, after = parent.knots_of("learning_rate"), child.knots_of("learning_rate")
    fork, original = child.effective, genesis.total_steps
    later = [value for step, value in after if step > fork]
    rates = [value_at(after, fork), *later]
    found = {
        "the rate jumps at the fork": rates[0] != value_at(before, fork),
        "the rate rises": any(after > before for before, after in pairwise(rates)),
        "the rate ends elsewhere": after[-1] != (child.total_steps - 1, FINAL),
        "the fork is outside the window": fork * PERCENT > terms.window_percent * original,
        "it is below the floor": child.total_steps * PERCENT < terms.floor_percent * original,
    }
    return [what for what, is_so in found.items() if is_so]
