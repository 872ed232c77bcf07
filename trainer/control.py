"""The control document: rank 0 reads it, all ranks act on it at one agreed step.

A rank with news puts it into the gang's store with a step at which to act, three ahead, and says
so by one bit of the word that it carries through the step. The step takes the maximum of the words
in a reduction that it has anyway, so after it all ranks know that there is news, look before the
next step, and a step without news costs no question. Each rank validates a new plan by itself and
votes; unanimous votes make it pending, and it governs from its own effective step on. The newest
document wins: a sibling takes the place of a pending revision, also where not all can follow it.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contract import metrics
from contract.plan import Plan
from contract.wire import CONTROL_FILE, ControlDocument, ControlError, ControlRefusal, read_control
from trainer.gang import Gang
from trainer.plans import read_revision, require_succession
from trainer.seat import Seat
from trainer.telemetry import Meter

LOG = logging.getLogger(__name__)

POLL_S = 0.2
ACT_AFTER_STEPS = 3
"""One step carries the news, in the next all ranks vote, the third is spare."""
ACCEPTED = "accepted"
PLAN_REFUSALS = tuple(reason for reason in ControlRefusal if reason.startswith("plan_"))
FOLDER = "control"
VOTES = "votes"


class ControlFile:
    """The file as rank 0 sees it: looked at now and then, parsed when it changed."""

    def __init__(self, seat: Seat) -> None:
        self._path = seat.run_dir / CONTROL_FILE
        self._seat = seat
        self._looked_s = float("-inf")
        self._signature: tuple[int, int, int] | None = None
        self.newest: ControlDocument | None = None

    def poll(self, *, again: bool = False, now_s: float | None = None) -> ControlDocument | None:
        """Return the document if the file changed since the last call; five looks a second at most.

        `again`: return it unchanged, too.

        Raises:
            ControlError: the file changed into something that must not be obeyed.
        """
        now_s = time.monotonic() if now_s is None else now_s
        if now_s - self._looked_s < POLL_S:
            return None
        self._looked_s = now_s
        try:
            stat = self._path.stat()
            signature = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if signature == self._signature and not again:
                return None
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ControlError(ControlRefusal.UNREADABLE, str(error)) from error
        self._signature = signature
        return self._read(data)

    def _read(self, data: bytes) -> ControlDocument:
        document = read_control(data, run_uid=self._seat.run_uid, newest=self.newest)
        if document.epoch < self._seat.epoch:
            detail = f"epoch {document.epoch}; the attempt was launched by epoch {self._seat.epoch}"
            raise ControlError(ControlRefusal.STALE, detail)
        self.newest = document
        return document


@dataclass(frozen=True)
class Message:
    """What one rank wants all to do at step `act_at`."""

    act_at: int
    document: ControlDocument | None
    """None: this rank was asked to leave by SIGTERM."""

    def encode(self) -> str:
        """Return the text for the store."""
        return f"{self.act_at} {self.document.model_dump_json() if self.document else ''}"


def read_message(text: str) -> Message:
    """Return the message that `encode` wrote."""
    act_at, _, document = text.partition(" ")
    return Message(int(act_at), ControlDocument.model_validate_json(document) if document else None)


@dataclass(frozen=True)
class Orders:
    """What the gang agreed on for the step that comes next."""

    drain: str | None = None
    """Mode of the drain to begin now; `stop` after a SIGTERM."""
    adopted: Plan | None = None
    """The plan that governs from this step on."""


class Helm:
    """One rank's side of the agreement."""

    def __init__(
        self,
        seat: Seat,
        gang: Gang,
        chain: list[Plan],
        meter: Meter,
        is_asked_to_leave: Callable[[], bool],
        ahead: Sequence[Plan] = (),
    ) -> None:
        """`ahead`: revisions of the chain that the gang is to take up by a restart."""
        self._seat = seat
        self._gang = gang
        self._meter = meter
        self._file = ControlFile(seat)
        self._number = 0
        self._posted: ControlDocument | None = None
        self._seen: set[str] = set()
        self._waiting: dict[str, Message] = {}
        self._is_asked_to_leave = is_asked_to_leave
        self._must_look = False
        self.has_news = False
        """Whether this rank put a message into the store since the step before."""
        self._told_to_leave = False
        self._ballots: dict[str, list[Plan] | None] = {}
        self._counted: list[str] = []
        self._refusal: ControlRefusal | None = None
        self._refused = ""
        self._must_retry = False
        """A plan was missing when the ranks voted: rank 0 asks them again."""
        self._ahead = {plan.sha for plan in ahead}
        self.chain = chain
        self.pending: list[Plan] | None = None
        self.accepted: ControlDocument | None = None
        """The newest document obeyed; its ledger head goes into manifests."""

    @property
    def plan(self) -> Plan:
        """The plan held now."""
        return self.chain[-1]

    def take_orders(self, step: int) -> Orders:
        """Return what to do before `step`; every rank gets the same answer at the same step."""
        self.has_news = False
        if self._seat.is_first:
            self._post_file(step)
        self._post_signal(step)
        if self._must_look:
            self._collect()
        drain = None
        for key in sorted(self._waiting, key=_order):
            message = self._waiting[key]
            if message.act_at > step:
                continue
            del self._waiting[key]
            drain = drain or self._act(key, message)
            if self._seat.is_first:
                self._gang.store.forget(f"{FOLDER}/{key}")
        return Orders(drain, self._adopt(step))

    def hear(self, *, has_news: bool) -> None:
        """Take what the step carried: whether any rank has news. Called after each step."""
        self._must_look = has_news

    def _post_file(self, step: int) -> None:
        try:
            document = self._file.poll(again=self._must_retry)
            if document is None:
                return
            is_news = document != self._posted
            if is_news or not self._must_retry:
                self._clear_refusals()
            if is_news or self._must_retry:
                self._number += 1
                self._posted, self._must_retry = document, False
                self._post(f"{self._number}", step, document)
        except ControlError as error:
            self._refuse(error)

    def _post_signal(self, step: int) -> None:
        if self._is_asked_to_leave() and not self._told_to_leave:
            self._told_to_leave = True
            self._post(f"0-{self._seat.rank}", step, None)

    def _post(self, key: str, step: int, document: ControlDocument | None) -> None:
        self.has_news = True
        message = Message(step + ACT_AFTER_STEPS, document)
        self._gang.store.put(f"{FOLDER}/{key}", message.encode())

    def _collect(self) -> None:
        for path, text in self._gang.store.entries(FOLDER).items():
            key = path.rpartition("/")[2]
            if key in self._seen:
                continue
            self._seen.add(key)
            self._waiting[key] = read_message(text)
            self._vote(key, self._waiting[key])

    def _vote(self, key: str, message: Message) -> None:
        document = message.document
        if document is None or document.plan_sha in self._shas():
            return
        try:
            chain = read_revision(self._seat.run_dir, document.plan_sha, self.chain, message.act_at)
            require_succession(self.pending or [], chain)
            vote = ACCEPTED
        except ControlError as error:
            chain, vote = None, str(error)
        self._ballots[key] = chain
        self._gang.store.put(f"{VOTES}/{key}/{self._seat.rank}", vote)

    def _shas(self) -> set[str]:
        return {plan.sha for plan in (*self.chain, *(self.pending or ()))} | self._ahead

    def _act(self, key: str, message: Message) -> str | None:
        document = message.document
        if document is None:
            return "stop"
        if key in self._ballots:
            self._count_votes(key, self._ballots.pop(key))
        else:
            if not self._seat.is_first:
                self._clear_refusals()
            self._hold_up_to(document.plan_sha)
        self.accepted = document
        return document.drain.mode if document.drain else None

    def _count_votes(self, key: str, chain: list[Plan] | None) -> None:
        votes = self._gang.store.entries(f"{VOTES}/{key}")
        self._forget_votes(key)
        against = sorted(vote for vote in votes.values() if vote != ACCEPTED)
        if not against and len(votes) < self._gang.ranks:
            against = [f"{ControlRefusal.PLAN_MISSING}: no vote of {self._missing_voters(votes)}"]
        if chain is not None and not against and chain[: len(self.chain)] != self.chain:
            # What was pending at the vote governs by now.
            against = [f"{ControlRefusal.PLAN_CHAIN}: it does not descend from the plan in force"]
        if chain is not None and not against:
            self._hold(chain)
            if self._refusal in PLAN_REFUSALS or not self._seat.is_first:
                self._clear_refusals()
            return
        if ACCEPTED in votes.values():
            # Some rank could follow: what was pending before is superseded, whoever missed it.
            self._hold(None)
        reason, _, detail = against[0].partition(": ")
        self._must_retry = reason == ControlRefusal.PLAN_MISSING
        self._refuse(ControlError(ControlRefusal(reason), detail))

    def _missing_voters(self, votes: dict[str, str]) -> str:
        voted = {path.rpartition("/")[2] for path in votes}
        return ", ".join(f"rank {n}" for n in range(self._gang.ranks) if str(n) not in voted)

    def _forget_votes(self, key: str) -> None:
        """Drop the votes of the count before this one: a step lies between, all have read them."""
        self._counted.append(key)
        if self._seat.is_first and len(self._counted) > 1:
            self._gang.store.forget(f"{VOTES}/{self._counted.pop(0)}")

    def _hold(self, chain: list[Plan] | None) -> None:
        self.pending = chain
        self._meter.set(metrics.RANK_PLAN_PENDING, chain is not None)
        if chain is not None:
            LOG.info("plan %s is pending until step %d", chain[-1].sha[:12], chain[-1].effective)

    def _hold_up_to(self, sha: str) -> None:
        """Keep pending what a document names that names nothing new, and nothing beyond it."""
        shas = [plan.sha for plan in self.pending or ()]
        if not shas or sha == shas[-1]:
            return
        kept = shas.index(sha) + 1 if sha in shas else 0
        self._hold((self.pending or [])[:kept] if kept > len(self.chain) else None)

    def _adopt(self, step: int) -> Plan | None:
        adopted = None
        # Several revisions may be pending at once; each governs from its own effective step.
        while self.pending is not None and self.pending[len(self.chain)].effective <= step:
            self.chain = self.pending[: len(self.chain) + 1]
            adopted = self.plan
            LOG.info("plan %s governs from step %d", adopted.sha[:12], step)
            if len(self.chain) == len(self.pending):
                self._hold(None)
        return adopted

    def _refuse(self, error: ControlError) -> None:
        if str(error) == self._refused:
            return
        self._clear_refusals()
        self._refusal, self._refused = error.refusal, str(error)
        self._meter.set(metrics.RANK_CONTROL_REFUSED, 1, reason=error.refusal)
        LOG.warning("the control document is refused, training goes on: %s", error)

    def _clear_refusals(self) -> None:
        self._refusal, self._refused = None, ""
        for refusal in ControlRefusal:
            self._meter.set(metrics.RANK_CONTROL_REFUSED, 0, reason=refusal)


def _order(key: str) -> tuple[int, str]:
    number = key.partition("-")[0]
    return int(number), key
