"""Which entries of the ledger tell what: so that each statement of a report can be looked up."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from contract.wire import Restore
from controller.core.actions import (
    Action,
    Approve,
    CloseAttempt,
    CloseProposal,
    Decline,
    Evaluate,
    Halt,
    KillRanks,
    LaunchGang,
    Note,
    Propose,
    PublishControl,
    PublishPlan,
    QuarantineCheckpoint,
    RecordAdoption,
    RecordEnd,
    RecordIntent,
)
from controller.core.fold import Record
from controller.core.readings import Instant
from controller.core.recording import read_actions

QUIET = (Note, Evaluate, PublishControl)
"""Acts of everyday, of which an entry is told only where something else links to it."""


@dataclass(frozen=True)
class Entry:
    """One record of the ledger, in a line."""

    seq: int
    at: Instant
    kind: str
    rule: str
    reason: str
    is_quiet: bool
    """Nothing in it but what happens every day."""


@dataclass(frozen=True)
class Deed:
    """Something that was done about an incident."""

    seq: int
    text: str


@dataclass
class Trail:
    """Everything that was found, oldest first."""

    entries: dict[int, Entry] = field(default_factory=dict[int, Entry])
    """Of decisions, and of a run's and each controller's beginning."""
    launches: dict[int, int] = field(default_factory=dict[int, int])
    """Attempt -> entry."""
    ends: dict[int, int] = field(default_factory=dict[int, int])
    evaluations: list[int] = field(default_factory=list[int])
    proposals: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """Proposal -> the entries that moved it on."""
    plans: dict[str, int] = field(default_factory=dict[str, int])
    """Plan -> the entry that published it."""
    adoptions: dict[str, int] = field(default_factory=dict[str, int])
    deeds: dict[int, list[Deed]] = field(default_factory=dict[int, list[Deed]])
    """Attempt -> what was done about its end, until the next gang was started or none was to be."""
    halts: list[int] = field(default_factory=list[int])
    seq: int = 0
    """The newest entry."""
    _ended: int | None = None
    """The attempt whose end is being dealt with."""

    def take(self, record: Record) -> None:
        """Take one more record."""
        self.seq = record.seq
        if record.kind == "outcome":
            return
        actions = read_actions(record.body) if record.kind == "decision" else []
        is_quiet = bool(actions) and all(isinstance(it, QUIET) for it in actions)
        rule = str(record.body.get("rule", record.kind))
        reason = str(record.body.get("reason", "")) or _tell_beginning(record)
        kept = Entry(record.seq, record.at, record.kind, rule, reason, is_quiet)
        self.entries[record.seq] = kept
        for action in actions:
            self._take_action(action, record.seq)

    def _take_action(self, action: Action, seq: int) -> None:
        self._take_gang(action, seq)
        self._take_plan(action, seq)

    def _take_gang(self, action: Action, seq: int) -> None:
        match action:
            case CloseAttempt() | KillRanks():
                self._note(action.attempt, seq, _tell_deed(action))
            case RecordEnd():
                self._ended = action.attempt
                self.ends.setdefault(action.attempt, seq)
            case LaunchGang():
                self.launches.setdefault(action.attempt, seq)
                self._note(self._ended, seq, _tell_deed(action))
                self._ended = None
            case Halt():
                self.halts.append(seq)
                self._note(self._ended, seq, _tell_deed(action))
            case QuarantineCheckpoint() | RecordIntent():
                self._note(self._ended, seq, _tell_deed(action))
            case _:
                pass

    def _note(self, attempt: int | None, seq: int, text: str) -> None:
        if attempt is not None and text:
            deeds = self.deeds.setdefault(attempt, [])
            if all(it.text != text for it in deeds):
                deeds.append(Deed(seq, text))

    def _take_plan(self, action: Action, seq: int) -> None:
        match action:
            case Evaluate():
                self.evaluations.append(seq)
            case Propose():
                self.proposals.setdefault(action.proposal.id, []).append(seq)
            case Approve() | CloseProposal():
                self.proposals.setdefault(action.proposal, []).append(seq)
            case PublishPlan():
                self.plans.setdefault(action.plan.sha, seq)
                if action.proposal is not None:
                    self.proposals.setdefault(action.proposal, []).append(seq)
            case RecordAdoption():
                self.adoptions.setdefault(action.plan_sha, seq)
            case Decline() | _:
                pass


def follow(records: Iterable[Record]) -> Trail:
    """Return the trail of the records."""
    trail = Trail()
    for record in records:
        trail.take(record)
    return trail


def list_told(trail: Trail, cited: Iterable[int], since: int) -> Iterator[Entry]:
    """Yield the entries after `since` that were cited, and all that were more than everyday."""
    wanted = set(cited)
    for entry in trail.entries.values():
        if entry.seq > since and (entry.seq in wanted or not entry.is_quiet):
            yield entry


def _tell_beginning(record: Record) -> str:
    body = record.body
    match record.kind:
        case "epoch":
            how = "took over as" if body.get("takeover") else "is"
            return f"a controller {how} epoch {record.epoch}"
        case "policy":
            changed = body.get("changed")
            return f"the run file changed: {', '.join(map(str, _list(changed)))}"
        case "run":
            return "the run was launched"
        case _:
            return ""


def _list(value: object) -> Sequence[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


HOW = {
    Restore.NONE: "from step 0, as no checkpoint existed",
    Restore.REQUIRED: "from the newest complete checkpoint",
    Restore.VERIFIED: "from the newest verified checkpoint",
}


def _tell_deed(action: Action) -> str:
    match action:
        case CloseAttempt():
            return f"attempt closed: {action.reason}"
        case KillRanks():
            count = len(action.ranks)
            return f"{count} rank{'s' * (count != 1)} killed: {action.reason}"
        case LaunchGang():
            return f"attempt {action.attempt} started {HOW[action.restore]}"
        case _:
            return _tell_other(action)


def _tell_other(action: Action) -> str:
    match action:
        case Halt():
            return f"halted: {action.reason}"
        case QuarantineCheckpoint():
            return f"checkpoint {action.line}/{action.step} set aside: {action.reason}"
        case RecordIntent():
            return f"{action.intent.user or 'the owner'} asked to {action.intent.verb}"
        case _:
            return ""
