"""What must hold of proposals, revisions and what the gangs run, against ledger and world."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from contract.plan import Plan
from contract.schedule import Knots, value_at
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
from controller.core.readings import Instant
from controller.core.rules import has_passed
from controller.core.snapshot import ProgressView, Snapshot
from controller.core.terms import Terms
from controller.simulate.steps import Stretch
from controller.simulate.world import World

PERCENT = 100


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
        progress, last = snapshot.progress, memory.evaluation
        is_training = isinstance(progress, ProgressView) and not progress.is_replaying
        self._demand(is_training, "evaluated while the gang trains no new steps")
        is_apart = last is None or action.pace.since_step >= last.pace.until_step
        self._demand(is_apart, "two evaluations rest on the same steps")
        self._demand(
            memory.policy.terms.deadline_wall_ms is not None, "evaluated without a deadline"
        )

    def _check_proposal(self, proposal: Proposal, snapshot: Snapshot, memory: Memory) -> None:
        self._demand(memory.proposal is None, "a second proposal is opened")
        self._demand(memory.revision is None, "proposed while a revision is not adopted")
        self._demand(all(it.holds for it in proposal.facts.proofs), "proposed against a proof")
        if proposal.author == CONTROLLER:
            self._check_initiative(proposal, snapshot.now, memory)

    def _check_initiative(self, proposal: Proposal, now: Instant, memory: Memory) -> None:
        terms = memory.policy.terms
        is_asked_for = terms.mode != "off" and terms.deadline_wall_ms is not None
        self._demand(is_asked_for, "the controller proposes unasked")
        horizons = [it for it in memory.adopted if it.kind == "horizon"]
        self._demand(len(horizons) < terms.max_revisions, "more revisions than allowed")
        if horizons and horizons[-1].adopted_at is not None:
            is_cool = has_passed(horizons[-1].adopted_at, terms.cool_down_ms, now)
            self._demand(is_cool, "proposed within the cool-down")
        is_called = memory.late >= terms.evaluations or proposal.is_last_call
        self._demand(is_called, f"proposed after {memory.late} late evaluations")

    def _check_approval(self, action: Approve, memory: Memory) -> None:
        proposal, terms = memory.proposal, memory.policy.terms
        is_open = proposal is not None and proposal.id == action.proposal
        self._demand(is_open, "approved a proposal that is not open")
        self._demand(memory.approval is None, "a second approval takes effect")
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
        self._demand(sorted(ran) == list(range(last.total_steps)), "steps are missing")
        for step, sha in ran.items():
            if sha != last.sha and differs_at(plans[sha], last, step):
                self.world.violate(f"step {step} ran another schedule than the chain's")
                return


def surviving(stretches: Iterable[Stretch]) -> dict[int, str]:
    """Return step -> plan of its newest computation on the surviving line."""
    ran: dict[int, str] = {}
    line = ""
    for stretch in stretches:
        if stretch.line != line:
            ran = {step: sha for step, sha in ran.items() if step < stretch.first}
            line = stretch.line
        ran |= dict.fromkeys(range(stretch.first, stretch.end), stretch.plan_sha)
    return ran


def differs_at(left: Plan, right: Plan, step: int) -> bool:
    """Return whether two plans give the step another rate, mixture, context or execution."""
    if step >= min(left.total_steps, right.total_steps):
        return True
    is_other_rate = any(
        value_at(left.knots_of(name), step) != value_at(right.knots_of(name), step)
        for name in left.anneals
    )
    return is_other_rate or _data_at(left, step) != _data_at(right, step)


def _data_at(plan: Plan, step: int) -> tuple[dict[str, int], int]:
    stage = plan.mixture.stages[plan.mixture_index_at(step)]
    return stage.parts, plan.context_at(step).length


def list_faults(genesis: Plan, parent: Plan, child: Plan, terms: Terms) -> list[str]:
    """Return what is wrong with a revision, from the raw numbers."""
    faults: list[str] = []
    if child.parent != parent.sha:
        faults.append("it follows another plan")
    before, after = parent.knots_of("learning_rate"), child.knots_of("learning_rate")
    fork = child.effective
    if any(value_at(before, step) != value_at(after, step) for step in range(fork)):
        faults.append("the rate's past changed")
    if any(_data_at(parent, step) != _data_at(child, step) for step in range(fork)):
        faults.append("the data's past changed")
    if child.kind == "horizon":
        faults += _list_horizon_faults(genesis, child, terms, (before, after))
    elif (parent.total_steps, parent.anneals) != (child.total_steps, child.anneals):
        faults.append("the schedule changed")
    return faults


def _list_horizon_faults(
    genesis: Plan, child: Plan, terms: Terms, knots: tuple[Knots, Knots]
) -> list[str]:
    before, after = knots
    fork, original = child.effective, genesis.total_steps
    rates = [value_at(after, step) for step in range(fork, child.total_steps)]
    final = Fraction(1, 20)
    found = {
        "the rate jumps at the fork": rates[:1] != [value_at(before, fork)],
        "the rate rises": _rises(rates),
        "the rate ends elsewhere": rates[-1:] != [final],
        "the fork is outside the window": fork * PERCENT > terms.window_percent * original,
        "it is below the floor": child.total_steps * PERCENT < terms.floor_percent * original,
    }
    return [what for what, is_so in found.items() if is_so]


def _rises(rates: Sequence[Fraction]) -> bool:
    return any(later > earlier for earlier, later in pairwise(rates))
