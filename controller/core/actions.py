"""What may be done: data with a key and a reason. The ledger holds each before it is done.

Actions of one half have an effect through a port; those of the other half only change memory,
by being recorded. Doing one twice equals doing it once.
"""

from typing import Annotated, Literal

from pydantic import Field

from contract.plan import Frozen, Plan
from contract.wire import Drain, Restore
from controller.core.forecast import Forecast
from controller.core.pace import PaceView
from controller.core.proposal import Proposal
from controller.core.snapshot import OwnerIntent, RankView


class _Action(Frozen):
    reason: str
    """In words, for people."""
    nonce: str
    """Makes a repetition on purpose another action; the same nonce is the same action."""

    @property
    def attempt_of(self) -> int:
        """The attempt the action is about, 0 for none."""
        return getattr(self, "attempt", 0)

    @property
    def subject_of(self) -> str:
        """What the action is done to, beside the attempt; part of its key."""
        return "-"


class LaunchGang(_Action):
    """Start all ranks of a new attempt."""

    verb: Literal["launch_gang"] = "launch_gang"
    attempt: int
    plan_sha: str
    restore: Restore
    highest_step: int


class CloseAttempt(_Action):
    """See to it that no further rank of the attempt can start."""

    verb: Literal["close_attempt"] = "close_attempt"
    attempt: int
    cause: Literal["end", "start", "stall", "drain"] = "end"
    """Why: a rank ended, ranks never started, ranks are stuck, a drain was not obeyed."""
    suspects: list[int] = []  # noqa: RUF012  # frozen model
    """The ranks that are to blame, where the controller itself found them."""


class KillRanks(_Action):
    """End ranks by SIGKILL, each identified beyond doubt."""

    verb: Literal["kill_ranks"] = "kill_ranks"
    attempt: int
    ranks: list[int]

    @property
    def subject_of(self) -> str:
        """See `_Action`."""
        return ",".join(map(str, self.ranks))


class PublishPlan(_Action):
    """Write a plan file; harmless until the control document names it."""

    verb: Literal["publish_plan"] = "publish_plan"
    plan: Plan
    proposal: str | None = None
    """The approved proposal that the plan carries out; it is taken into the chain for it."""

    @property
    def subject_of(self) -> str:
        """See `_Action`."""
        return self.plan.sha


class PublishControl(_Action):
    """Replace the control document."""

    verb: Literal["publish_control"] = "publish_control"
    plan_sha: str
    drain: Drain | None

    @property
    def subject_of(self) -> str:
        """See `_Action`."""
        return self.plan_sha


class QuarantineCheckpoint(_Action):
    """Mark a checkpoint as not to be used, and keep it."""

    verb: Literal["quarantine_checkpoint"] = "quarantine_checkpoint"
    line: str
    step: int

    @property
    def subject_of(self) -> str:
        """See `_Action`."""
        return f"{self.line}:{self.step}"


class RecordIntent(_Action):
    """Take the owner's wish into memory; its file may go."""

    verb: Literal["record_intent"] = "record_intent"
    intent: OwnerIntent


class RecordEnd(_Action):
    """Take the end of an attempt into memory, with the facts that it is judged by."""

    verb: Literal["record_end"] = "record_end"
    attempt: int
    ranks: list[RankView]
    completed_steps: int | None
    """None: unreadable or no step."""
    progress_known: bool
    verified_step: int | None
    """Newest verified checkpoint at that time; None: none or unreadable."""
    killed_by_us: list[int]


class Halt(_Action):
    """Give up until the owner says otherwise."""

    verb: Literal["halt"] = "halt"
    cause: str


class Complete(_Action):
    """The horizon is reached and the last checkpoint is verified."""

    verb: Literal["complete"] = "complete"
    step: int


class Rest(_Action):
    """The gang is down because the owner wanted it: suspended or stopped."""

    verb: Literal["rest"] = "rest"
    state: Literal["suspended", "stopped"]


class Note(_Action):
    """Something people should see in status; changes nothing else."""

    verb: Literal["note"] = "note"
    subject: str

    @property
    def subject_of(self) -> str:
        """See `_Action`."""
        return self.subject


class Evaluate(_Action):
    """Take a forecast into memory, with the pace that it rests on."""

    verb: Literal["evaluate"] = "evaluate"
    pace: PaceView
    forecast: Forecast
    """Under the plan in force."""
    proposed: Forecast | None
    """Under the open proposal, if one shortens the horizon."""
    counts: bool
    """The run had its time to settle."""
    is_late: bool
    """P(on time) is below what the run file tolerates."""
    is_last_call: bool
    """No other evaluation will come before the window closes."""


class Propose(_Action):
    """Put a change up for consent."""

    verb: Literal["propose"] = "propose"
    proposal: Proposal

    @property
    def subject_of(self) -> str:
        """See `_Action`."""
        return self.proposal.id


class Approve(_Action):
    """Consent to the open proposal."""

    verb: Literal["approve"] = "approve"
    proposal: str
    by: str

    @property
    def subject_of(self) -> str:
        """See `_Action`."""
        return self.proposal


class CloseProposal(_Action):
    """End a proposal that will not be carried out."""

    verb: Literal["close_proposal"] = "close_proposal"
    proposal: str
    outcome: Literal["rejected", "expired", "void"]
    by: str

    @property
    def subject_of(self) -> str:
        """See `_Action`."""
        return self.proposal


class Decline(_Action):
    """Answer a wish about the plan that cannot be met, or an evaluation that leads to nothing."""

    verb: Literal["decline"] = "decline"


class RecordAdoption(_Action):
    """The gang runs the published revision: the ranks say so."""

    verb: Literal["record_adoption"] = "record_adoption"
    plan_sha: str
    step: int

    @property
    def subject_of(self) -> str:
        """See `_Action`."""
        return self.plan_sha


Action = Annotated[
    LaunchGang | CloseAttempt | KillRanks | PublishPlan | PublishControl | QuarantineCheckpoint
    | RecordIntent | RecordEnd | Halt | Complete | Rest | Note
    | Evaluate | Propose | Approve | CloseProposal | Decline | RecordAdoption,
    Field(discriminator="verb"),
]  # fmt: skip

DESTRUCTIVE = (KillRanks, QuarantineCheckpoint)
"""Re-validated against a fresh observation right before they are done."""


def key_of(run_uid: str, action: Action) -> str:
    """Return the idempotency key: (run uid, attempt, verb, subject, nonce)."""
    return f"{run_uid}/{action.attempt_of}/{action.verb}/{action.subject_of}/{action.nonce}"


class Decision(Frozen):
    """What to do now, which rule of which track said so, and when to look again at the latest."""

    rule: str
    """Empty when no rule had anything to say."""
    reason: str
    actions: list[Action]
    wake_in_ms: int
