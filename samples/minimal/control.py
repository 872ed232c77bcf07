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
from samples.minimal.plans import ChainError, read_chain
from samples.minimal.settings import Settings
from samples.minimal.telemetry import Telemetry

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
        self.chain = list(chain)
        self.pending: list[Plan] = []
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
        """The first step at which the pending revision and the plan in force may differ."""
        later = self.pending[len(self.chain) :]
        return min(plan.effective for plan in later)

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
        if data == self._seen and self._telemetry.refusal is not ControlRefusal.PLAN_MISSING:
            return None
        self._seen = data
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
        try:
            self._follow(document.plan_sha, first_step)
        except ChainError as error:
            self._telemetry.refuse(error.refusal, str(error))
        else:
            self._telemetry.refusal = None
        self._telemetry.is_plan_pending = bool(self.pending)

    def _follow(self, sha: str, first_step: int) -> None:
        if sha == self.pending_sha:
            return
        if sha == self.plan.sha:
            self.pending = []
            return
        chain = read_chain(self._settings.run_dir, sha)
        if chain[: len(self.chain)] != self.chain:
            detail = f"plan {sha[:12]} does not descend from {self.plan.sha[:12]}"
            raise ChainError(ControlRefusal.PLAN_CHAIN, detail)
        later = chain[len(self.chain) :]
        for plan in later:
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
        if is_agreed:
            self.chain = self.pending
            self._telemetry.plan_sha = self.plan.sha
        else:
            detail = f"not all ranks held {self.pending_sha[:12]} at step {step}"
            self._telemetry.refuse(ControlRefusal.PLAN_LATE, detail)
        self.pending = []
        self._telemetry.is_plan_pending = False
        return is_agreed
