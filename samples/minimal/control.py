"""The pointer: which plan the gang holds, and what the controller asks of it."""

import time
from collections.abc import Sequence

from contract.plan import Plan
from contract.wire import (
    CONTROL_FILE,
    ControlDocument,
    ControlError,
    ControlRefusal,
    LedgerHead,
    read_control,
)
from minimal.plans import ChainError, read_chain, require_succession
from minimal.settings import Settings
from minimal.telemetry import Telemetry

POLL_EVERY_S = 0.2
LEAD_STEPS = 3
"""Steps between rank 0's reading and the first step a revision may begin at: one to pass the
document on, one for every rank to say that it holds the plan, one to spare."""
RESTART_ONLY = ("execution", "line")
"""Kinds of revisions that a running gang cannot follow."""


class Follower:
    """What one rank obeys; rank 0 reads the document, all judge the plan it points to."""

    def __init__(self, settings: Settings, telemetry: Telemetry, chain: Sequence[Plan]) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._path = settings.run_dir / CONTROL_FILE
        self._next_poll_s = 0.0
        self._seen: bytes | None = None
        self._newest: ControlDocument | None = None
        self._must_retry = False
        self.chain = list(chain)
        self.ahead: list[Plan] = []
        """Revisions of the chain that the gang is to take up by a restart."""
        self.pending: list[Plan] = []
        self.is_plan_missing = False
        self.ledger_head = LedgerHead(seq=0, hash="0" * 64)
        self.drain_mode = ""

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.chain[-1]

    @property
    def pending_sha(self) -> str:
        """The revision that is held but not yet effective; empty without one."""
        return self.pending[-1].sha if self.pending else ""

    @property
    def boundary(self) -> int:
        """The step at which the next pending revision is to govern."""
        return self.pending[len(self.chain)].effective

    @property
    def restart_step(self) -> int | None:
        """The step at which the gang leaves, to be started anew with another execution."""
        return self.ahead[0].effective if self.ahead else None

    def hold_execution(self, step: int) -> None:
        """Run only the part of the chain that a gang starting at `step` may run.

        How steps are executed changes at a start only: before such a change the plan before it.
        """
        for index, plan in enumerate(self.chain):
            if plan.kind == "execution" and step < plan.effective:
                self.chain, self.ahead = self.chain[:index], self.chain[index:]
                self._telemetry.plan_sha = self.plan.sha
                return

    def ask_again(self) -> None:
        """Look at the same document anew: for some rank the plan was missing."""
        self._must_retry = True

    def poll(self) -> str | None:
        """Return a control document that is news to the gang, if there is one. Rank 0 only."""
        now = time.monotonic()
        if now < self._next_poll_s:
            return None
        self._next_poll_s = now + POLL_EVERY_S
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None  # nothing published yet
        except OSError as error:
            self._telemetry.refuse(ControlRefusal.UNREADABLE, str(error))
            return None
        # A plan that is missing may still come; everything else is judged once.
        if data == self._seen and not self._must_retry:
            return None
        self._seen, self._must_retry = data, False
        return self._check(data)

    def _check(self, data: bytes) -> str | None:
        try:
            document = read_control(data, run_uid=self._settings.run_uid, newest=self._newest)
            if document.epoch < self._settings.epoch:
                detail = f"epoch {document.epoch} is before {self._settings.epoch}"
                raise ControlError(ControlRefusal.STALE, detail)
        except ControlError as error:
            self._telemetry.refuse(error.refusal, str(error))
            return None
        return document.model_dump_json()

    def obey(self, text: str, first_step: int) -> None:
        """Take over a document that rank 0 passed on; a revision may begin at `first_step`."""
        document = ControlDocument.model_validate_json(text)
        self._newest = document
        self.ledger_head = document.ledger_head
        self.drain_mode = document.drain.mode if document.drain else ""
        self.is_plan_missing = False
        try:
            self._follow(document.plan_sha, first_step)
        except ChainError as error:
            self.is_plan_missing = error.refusal is ControlRefusal.PLAN_MISSING
            self._telemetry.refuse(error.refusal, str(error))
        else:
            self._telemetry.refusal = None
        self._telemetry.is_plan_pending = bool(self.pending)

    def _follow(self, sha: str, first_step: int) -> None:
        # The newest document wins: what it does not name is not pending any more.
        if sha in [plan.sha for plan in (*self.chain, *self.ahead)]:
            self.pending = []
            return
        shas = [plan.sha for plan in self.pending]
        if sha in shas:
            del self.pending[shas.index(sha) + 1 :]
            return
        chain = read_chain(self._settings.run_dir, sha)
        if chain[: len(self.chain)] != self.chain:
            detail = f"plan {sha[:12]} does not descend from {self.plan.sha[:12]}"
            raise ChainError(ControlRefusal.PLAN_CHAIN, detail)
        require_succession(self.pending, chain)
        for plan in chain[len(self.chain) :]:
            if plan.kind in RESTART_ONLY:
                detail = f"a revision of kind {plan.kind} takes effect at a restart"
                raise ChainError(ControlRefusal.PLAN_EXECUTION, detail)
            if plan.effective < first_step:
                detail = f"effective at {plan.effective}; the gang can follow from {first_step} on"
                raise ChainError(ControlRefusal.PLAN_LATE, detail)
        self.pending = chain

    def adopt(self, agreed_sha: str, step: int) -> bool:
        """Put the pending revision in force at its boundary; return whether the plan changed.

        `agreed_sha` is what all ranks said they hold, empty when they differ: then all keep the
        plan in force, and the missed revision can never be adopted by this gang.
        """
        if not self.pending or step < self.boundary:
            return False
        is_agreed = agreed_sha == self.pending_sha
        if not is_agreed:
            detail = f"not all ranks held {self.pending_sha[:12]} at step {step}"
            self._telemetry.refuse(ControlRefusal.PLAN_LATE, detail)
            self.pending = []
        # Several revisions may be pending at once; each governs from its own effective step.
        while self.pending and self.boundary <= step:
            self.chain = self.pending[: len(self.chain) + 1]
            if len(self.chain) == len(self.pending):
                self.pending = []
        self._telemetry.plan_sha = self.plan.sha
        self._telemetry.is_plan_pending = bool(self.pending)
        return is_agreed
