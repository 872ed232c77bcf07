"""Which plans a simulated gang holds: in force, on their way, or waiting for a restart."""

from dataclasses import dataclass, field
from itertools import pairwise

from contract.plan import Plan, PlanError, check_child, check_plan
from contract.wire import ControlDocument, ControlError, ControlRefusal
from controller.simulate.habitat import Habitat

NEWS_LEAD = 3
"""Steps between reading a revision and the first one that it may govern."""
RESTART_ONLY = ("execution", "line")
"""Kinds that a gang takes up by a restart."""


@dataclass
class SimFollower:
    """What one gang obeys; its ranks agree, unless the weather says otherwise."""

    home: Habitat
    chain: list[Plan]
    """Genesis first, the plan in force last; empty where the plan was never written."""
    ahead: list[Plan] = field(default_factory=list[Plan])
    """Revisions of the chain that need a restart."""
    pending: list[Plan] = field(default_factory=list[Plan])
    """The whole chain that is held and not yet in force."""
    refusal: str | None = None
    judged: tuple[int, int] | None = None
    """(epoch, seq) of the newest document that was obeyed or refused."""
    _named: tuple[Plan, str, str] | None = None
    """Hashing a plan is the dearest thing that happens in a simulated step."""

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.chain[-1]

    @property
    def names(self) -> tuple[str, str]:
        """The identities of the plan in force and of its execution."""
        plan = self.plan
        if self._named is None or self._named[0] is not plan:
            self._named = (plan, plan.sha, plan.execution_sha)
        return self._named[1:]

    @property
    def boundary(self) -> int | None:
        """The step at which the next pending revision is to govern."""
        return self.pending[len(self.chain)].effective if self.pending else None

    @property
    def restart_step(self) -> int | None:
        """The step at which the gang leaves, to be started anew with another execution."""
        return self.ahead[0].effective if self.ahead else None

    def hold_execution(self, step: int) -> None:
        """Run only the part of the chain that a gang starting at `step` may run."""
        for index, plan in enumerate(self.chain):
            if plan.kind == "execution" and step < plan.effective:
                self.chain, self.ahead = self.chain[:index], self.chain[index:]
                return

    def must_judge(self, document: ControlDocument) -> bool:
        """Return whether the document is news, or its plan was missing before."""
        is_missing = self.refusal == ControlRefusal.PLAN_MISSING.value
        return is_missing or document.order != self.judged

    def obey(self, document: ControlDocument, first_step: int) -> None:
        """Judge the plan that the document names; it may govern from `first_step` on."""
        self.judged = document.order
        try:
            self._follow(document.plan_sha, first_step)
        except ControlError as error:
            self.refusal = error.refusal.value
        else:
            self.refusal = None

    def _follow(self, sha: str, first_step: int) -> None:
        # The newest document wins: what it does not name is not pending any more.
        if sha in [plan.sha for plan in (*self.chain, *self.ahead)]:
            self.pending = []
            return
        shas = [plan.sha for plan in self.pending]
        if sha in shas:
            del self.pending[shas.index(sha) + 1 :]
            return
        chain = self._read_chain(sha)
        for plan in chain[len(self.chain) :]:
            if plan.kind in RESTART_ONLY:
                raise ControlError(ControlRefusal.PLAN_EXECUTION, plan.kind)
            if plan.effective < first_step:
                raise ControlError(ControlRefusal.PLAN_LATE, str(plan.effective))
        self.pending = chain
        self.home.tell("pending")

    def _read_chain(self, sha: str) -> list[Plan]:
        try:
            chain = self.home.chain(sha)
        except PlanError as error:
            raise ControlError(ControlRefusal.PLAN_MISSING, str(error)) from error
        if chain[: len(self.chain)] != self.chain:
            raise ControlError(ControlRefusal.PLAN_CHAIN, sha)
        for parent, child in pairwise(chain):
            problems = [*check_plan(child), *check_child(parent, child)]
            if problems:
                self.home.violate(f"a trainer refuses a revision: {problems[0]}")
                raise ControlError(ControlRefusal.PLAN_PAST, problems[0])
        return chain

    def adopt(self, step: int) -> bool:
        """Put the pending revision in force at its boundary; False: the ranks disagree."""
        if self.home.is_split:
            self.pending = []
            self.refusal = ControlRefusal.PLAN_LATE.value
            self.home.tell("missed")
            return False
        while self.boundary is not None and self.boundary <= step:
            self.chain = self.pending[: len(self.chain) + 1]
            if len(self.chain) == len(self.pending):
                self.pending = []
        self.home.tell("adopted")
        return True
