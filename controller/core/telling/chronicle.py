"""What happened to the plan, and when: everything a ledger tells that memory does not keep."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from controller.core.actions import (
    Action,
    Approve,
    CloseProposal,
    Complete,
    Evaluate,
    Halt,
    LaunchGang,
    Propose,
    PublishPlan,
    RecordAdoption,
    RecordIntent,
    Rest,
)
from controller.core.fold import Record
from controller.core.policy import Policy
from controller.core.proposal import Proposal
from controller.core.readings import Instant
from controller.core.recording import read_actions
from controller.core.terms import Terms

Fate = Literal["open", "approved", "rejected", "expired", "void"]


@dataclass(frozen=True)
class Evaluation:
    """A forecast as it was made."""

    facts: Evaluate
    at: Instant


@dataclass(frozen=True)
class Story:
    """A proposal and what became of it."""

    proposal: Proposal
    outcome: Fate = "open"
    by: str | None = None
    """Who consented to it or ended it; None while it is open."""
    reason: str | None = None
    """Why it ended as it did; None while it is open."""
    ended_at: Instant | None = None


@dataclass(frozen=True)
class Adoption:
    """The moment in which the gang was first seen to run a revision."""

    plan_sha: str
    at: Instant
    attempts: int
    """Gangs started until then."""


@dataclass(frozen=True)
class Deadline:
    """A deadline, and since when it was the one."""

    at: Instant
    """Of the launch, or when the ledger took the change."""
    by: str | None
    """Who moved it; None: the launch, or the run file as the next controller found it."""
    deadline_wall_ms: int | None
    due_wall_ms: int | None


@dataclass(frozen=True)
class Chronicle:
    """The ledger's records about the plan, oldest first."""

    evaluations: Sequence[Evaluation] = ()
    stories: Sequence[Story] = ()
    adoptions: Sequence[Adoption] = ()
    deadlines: Sequence[Deadline] = ()
    """That of the launch first, then one for each time it was moved."""
    rests: Sequence[Instant] = ()
    """When the owner's word, or a halt, had brought the gang down."""
    completed_at: Instant | None = None
    """When the horizon was reached and the last checkpoint verified; None where a gang was started
    after that, or it never was."""
    read_at: Instant | None = None
    """Of the newest record."""


@dataclass
class _Scribe:
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])
    stories: dict[str, Story] = field(default_factory=dict[str, Story])
    adoptions: dict[str, Adoption] = field(default_factory=dict[str, Adoption])
    deadlines: list[Deadline] = field(default_factory=list[Deadline])
    rests: list[Instant] = field(default_factory=list[Instant])
    completed_at: Instant | None = None
    attempts: int = 0

    def take(self, action: Action, at: Instant) -> None:
        """Take what is about the plan, and the course of attempts beside it."""
        match action:
            case Evaluate():
                self.evaluations.append(Evaluation(action, at))
            case LaunchGang():
                self.attempts = max(self.attempts, action.attempt)
                self.completed_at = None
            case Complete():
                self.completed_at = self.completed_at or at
            case Rest() | Halt():
                self.rests.append(at)
            case RecordAdoption():
                adoption = Adoption(action.plan_sha, at, self.attempts)
                self.adoptions.setdefault(action.plan_sha, adoption)
            case RecordIntent() if action.intent.terms is not None:
                self.set_deadline(action.intent.terms, at, action.intent.user)
            case _:
                self._take_proposal(action, at)

    def set_deadline(self, terms: Terms, at: Instant, by: str | None) -> None:
        """Take the deadline of `terms`, unless it holds already."""
        found = Deadline(at, by, terms.deadline_wall_ms, terms.due_wall_ms)
        newest = self.deadlines[-1] if self.deadlines else None
        if newest is None or _dates(found) != _dates(newest):
            self.deadlines.append(found)

    def _take_proposal(self, action: Action, at: Instant) -> None:
        match action:
            case Propose():
                self.stories[action.proposal.id] = Story(action.proposal)
            case Approve():
                self._end(action.proposal, "approved", action.by, action.reason, at)
            case CloseProposal():
                self._end(action.proposal, action.outcome, action.by, action.reason, at)
            case PublishPlan() if action.plan.kind == "line":
                self._leave_line(action.reason, at)
            case _:
                pass

    def _end(self, key: str, outcome: Fate, by: str, reason: str, at: Instant) -> None:
        if key in self.stories:
            story = self.stories[key]
            ended = replace(story, outcome=outcome, by=by, reason=reason, ended_at=at)
            self.stories[key] = ended

    def _leave_line(self, reason: str, at: Instant) -> None:
        """A proposal that is open when the run leaves its line is forgotten with it."""
        for key, story in self.stories.items():
            if story.outcome == "open":
                self._end(key, "void", "owner", reason, at)


def _dates(deadline: Deadline) -> tuple[int | None, int | None]:
    return deadline.deadline_wall_ms, deadline.due_wall_ms


def read_chronicle(records: Iterable[Record]) -> Chronicle:
    """Return what the records tell about the plan.

    Raises:
        ValueError: a decision is not of the form that this version reads.
    """
    scribe, read_at = _Scribe(), None
    for record in records:
        read_at = record.at
        if record.kind in ("run", "policy"):
            policy = Policy.model_validate_json(json.dumps(record.body["policy"]))
            scribe.set_deadline(policy.terms, record.at, None)
        for action in read_actions(record.body) if record.kind == "decision" else ():
            scribe.take(action, record.at)
    return Chronicle(
        evaluations=tuple(scribe.evaluations),
        stories=tuple(scribe.stories.values()),
        adoptions=tuple(scribe.adoptions.values()),
        deadlines=tuple(scribe.deadlines),
        rests=tuple(scribe.rests),
        completed_at=scribe.completed_at,
        read_at=read_at,
    )
