"""What a proposal is: the change it asks for, the facts it rests on, and what became of it."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from contract.canonical import hash_canonical
from contract.model import Execution
from contract.plan import Count, Frozen, Name, Positive, Sha, StagePercent
from controller.core.chance import count_of
from controller.core.forecast import Forecast, Lag
from controller.core.readings import Instant

ID_CHARS = 12
"""Of a sha256: enough to be told apart by eye, short enough to be typed."""

EXPIRY_EVALUATIONS = 7
"""An unanswered proposal expires after as many evaluation intervals: its facts have aged."""

MAX_OVERSHOOT_PERMILLE = 100
"""A proposal whose new horizon falls this far under its target is void."""


class WantedStage(Frozen):
    """From this percent of the horizon on, a block holds `parts` units of each source."""

    from_percent: StagePercent
    parts: Annotated[dict[Name, Count], Field(min_length=1)]


class Change(Frozen):
    """What a revision changes; exactly the member that its kind names is set."""

    kind: Literal["horizon", "mixture", "execution"]
    total_steps: Positive | None = None
    stages: Annotated[list[WantedStage], Field(min_length=1)] | None = None
    execution: Execution | None = None

    @model_validator(mode="after")
    def _require_the_member(self) -> "Change":
        members = {
            "horizon": self.total_steps,
            "mixture": self.stages,
            "execution": self.execution,
        }
        if [kind for kind, value in members.items() if value is not None] != [self.kind]:
            raise ValueError(f"a change of kind {self.kind} holds that and nothing else")
        return self

    def describe(self) -> str:
        """Return the change in words."""
        match self.kind:
            case "horizon":
                return f"end after {self.total_steps:,} steps"
            case "mixture":
                return f"another mixture of {count_of(len(self.stages or ()), 'stage')}"
            case "execution":
                return "another execution"


class Proof(Frozen):
    """One thing that was checked: its name, what was found, and what it must be."""

    name: str
    holds: bool
    value: str
    bound: str

    def __str__(self) -> str:
        """Return the line that people see."""
        return f"{self.name}: {self.value} ({'holds' if self.holds else 'FAILS'}: {self.bound})"


class LossCost(Frozen):
    """What the tokens given up are expected to cost, as an interval."""

    low_micronats: int
    high_micronats: int
    assumption: str


class Facts(Frozen):
    """What a proposal rests on; shown to whoever decides, and recorded."""

    before: Forecast | None
    """Under the plan in force; None where nothing can be said yet."""
    after: Forecast | None
    lag: Lag | None
    due_wall_ms: int | None
    tokens_given_up: int
    loss_cost: LossCost | None
    shortfall_ms: int
    """By how much the median finish still misses the due instant; 0 where it does not."""
    rank_bytes: int | None
    """Resident bytes of the largest rank; None: not measured."""
    proofs: list[Proof]
    """Of the revision as it would be at the first possible step."""


class Proposal(Frozen):
    """A change that waits for consent. `id` is a hash of all the rest and of its place."""

    id: str
    parent: Sha
    change: Change
    fork_first: Count
    fork_last: Count
    """The effective step lies between these, both included."""
    author: str
    """For people: whoever asked may be called anything."""
    wish: str | None = None
    """Nonce of the owner's wish that it answers; None: the controller's own idea."""
    reason: str
    is_floor: bool
    """The target cannot be met by any horizon allowed: never approved by the controller."""
    is_last_call: bool
    facts: Facts
    at: Instant

    @property
    def is_own(self) -> bool:
        """Whether the controller made it."""
        return self.wish is None


CONTROLLER = "controller"


def make_id(proposal: Proposal, seq: int) -> str:
    """Return the id of a proposal that record `seq` holds: an equal one later has another."""
    content = proposal.model_dump(mode="json", exclude={"id"})
    return hash_canonical({"content": content, "seq": seq})[:ID_CHARS]


class Approval(Frozen):
    """Who consented to a proposal."""

    by: str
    at: Instant


Outcome = Literal["approved", "rejected", "expired", "void"]


class Closed(Frozen):
    """A proposal that is over."""

    id: str
    kind: str
    outcome: Outcome
    by: str
    reason: str
    at: Instant


class Revision(Frozen):
    """A published revision: the plan, where it came from, and whether the gang runs it."""

    plan_sha: Sha
    kind: str
    fork_step: int
    total_steps: int
    proposal: Proposal
    approval: Approval
    published_at: Instant
    published_step: int | None = None
    """Completed steps at that time; None: no gang trained."""
    adopted_at: Instant | None = None
    adopted_step: int | None = None
    """Completed steps when the gang was first seen to run it."""
    missed: list[Sha] = []  # noqa: RUF012  # frozen model
    """Siblings that it supersedes, oldest first."""

    def tell(self) -> dict[str, object]:
        """Return what status and summary both tell of it, as JSON-able values."""
        return {
            "sha": self.plan_sha,
            "kind": self.kind,
            "fork_step": self.fork_step,
            "total_steps": self.total_steps,
            "proposal": self.proposal.id,
            "author": self.proposal.author,
            "approved_by": self.approval.by,
            "missed": list(self.missed),
        }


class Answer(Frozen):
    """What became of a wish of the owner about the plan."""

    nonce: str
    accepted: bool
    text: str
