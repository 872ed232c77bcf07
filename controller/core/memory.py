"""What the controller remembers: a pure fold over ledger records, rebuilt by whoever comes next."""

from typing import Literal, TypeVar

from contract.plan import Frozen, Plan
from contract.wire import Drain
from controller.core.actions import Evaluate, LaunchGang
from controller.core.policy import Policy
from controller.core.proposal import Answer, Approval, Closed, Proposal, Revision
from controller.core.readings import Instant
from controller.core.snapshot import OwnerIntent

Model = TypeVar("Model", bound=Frozen)


def alter(model: Model, **changes: object) -> Model:
    """Return a copy of a frozen model with some members replaced."""
    return model.model_copy(update=changes)


class Incident(Frozen):
    """One attempt's end that nobody asked for."""

    attempt: int
    cause: str
    """killed, crashed, non_finite, stall, out_of_memory, error, storage, unknown_end, ..."""
    code: int | None
    root_rank: int | None
    confidence: Literal["high", "low"]
    evidence: str
    """Why this rank and this cause, in words."""
    step: int | None
    fingerprint: str
    verified_step: int | None
    progress_known: bool
    at: Instant
    """When it was recorded."""
    ended_wall_ms: int | None
    """When the first rank ended."""


class Wanted(Frozen):
    """What the owner wants."""

    state: Literal["run", "suspended", "stopped"] = "run"
    nonce: str = ""
    """Of the intent that set the state, empty for the launch itself."""
    restart_nonce: str | None = None
    """A restart that was asked for and not yet begun."""
    resume_from: tuple[str, int, str] | None = None
    """(line, step, nonce) of a new line that was asked for and not yet published."""


class AttemptMemory(Frozen):
    """The newest attempt as intended."""

    number: int
    launched_at: Instant
    closed: bool = False
    killed: list[int] = []  # noqa: RUF012  # frozen model
    """Ranks that we ended ourselves."""
    kill_at: Instant | None = None
    first_end_at: Instant | None = None
    ended: bool = False
    drain: Drain | None = None
    order: LaunchGang | None = None
    """What was ordered; the same order again is the same act."""
    launched: bool = False
    """The launch is known to have been carried out."""
    closed_at: Instant | None = None
    close_cause: Literal["end", "start", "stall", "drain"] = "end"
    suspects: list[int] = []  # noqa: RUF012  # frozen model
    """Ranks that the controller found stuck."""
    drain_at: Instant | None = None
    """When the drain was published."""
    ended_at: Instant | None = None
    end_cause: str = ""
    """done, drained, or the incident's cause; empty while the attempt lives."""


class Memory(Frozen):
    """The whole memory."""

    policy: Policy
    chain: list[Plan]
    """Genesis first, the plan in force last."""
    wanted: Wanted = Wanted()
    attempt: AttemptMemory | None = None
    incidents: list[Incident] = []  # noqa: RUF012  # frozen model
    """All of them, oldest first."""
    planned_ends: int = 0
    """Attempts that ended because they were asked to."""
    no_progress: list[Incident] = []  # noqa: RUF012  # frozen model
    """Incidents since a newer verified checkpoint was first seen."""
    control_plan_sha: str | None = None
    control_drain: Drain | None = None
    halted: str | None = None
    """The reason."""
    rest: Literal["suspended", "stopped", "completed"] | None = None
    restore_verified: bool = False
    """The next attempt may only start from a verified checkpoint."""
    not_before: Instant | None = None
    """Earliest next launch, after a delay began."""
    delay_ms: int = 0
    known_nonces: list[str] = []  # noqa: RUF012  # frozen model
    """Owner's intents already recorded."""
    done_keys: list[str] = []  # noqa: RUF012  # frozen model
    """Keys of the newest actions whose outcome is recorded (bounded)."""
    notes: list[tuple[str, str, Instant]] = []  # noqa: RUF012  # frozen model
    """(subject, text, when): the newest per subject, bounded."""
    epoch: int = 0
    epoch_at: Instant | None = None
    """When this controller began."""
    last_now: Instant | None = None
    seq: int = 0
    """Number of the newest record folded."""
    clock_ref: Instant | None = None
    """What the wall clock is compared with."""
    had_checkpoint: bool = False
    """Some checkpoint existed once, whatever the disk shows now."""
    control_nonce: str = ""
    tries: list[tuple[str, int, Instant]] = []  # noqa: RUF012  # frozen model
    """(key, how often, last when) of the newest acts intended: paces repetitions (bounded)."""
    window_from: int = 0
    """Index of the first incident that the budget counts: an operator's resume moves it."""
    highest_step: int = 0
    """Most completed steps known on the current line."""
    verified_step: int | None = None
    """Newest verified checkpoint that an end was judged with, on the current line."""
    planned_at: list[Instant] = []  # noqa: RUF012  # frozen model
    """When the newest planned ends were recorded (bounded)."""
    last_decision: tuple[str, str, Instant] | None = None
    """(rule, reason, when) of the newest recorded decision that was more than notes."""

    asks: list[OwnerIntent] = []  # noqa: RUF012  # frozen model
    """Wishes about the plan that are not answered yet, oldest first."""
    answers: list[Answer] = []  # noqa: RUF012  # frozen model
    """What became of the newest of them (bounded)."""
    evaluation: Evaluate | None = None
    """The newest one."""
    declined: str | None = None
    """Why the newest evaluation was found to lead to no proposal; None: it was not."""
    evaluated_at: Instant | None = None
    evaluated_step: int = 0
    """Up to which the step log was judged: the next window begins there."""
    first_evaluation: Evaluate | None = None
    """Of the run: what was expected at first."""
    late: int = 0
    """Evaluations in a row that counted and found the run late."""
    proposal: Proposal | None = None
    """The open one; there is at most one."""
    approval: Approval | None = None
    """Of the open proposal, until it is carried out."""
    closed: list[Closed] = []  # noqa: RUF012  # frozen model
    """Proposals that are over, oldest first (bounded)."""
    revision: Revision | None = None
    """Published and not yet adopted."""
    adopted: list[Revision] = []  # noqa: RUF012  # frozen model
    """All of them, oldest first."""

    @property
    def plan(self) -> Plan:
        """The plan in force, or published to be."""
        return self.chain[-1]

    @property
    def genesis(self) -> Plan:
        """The plan of the launch: what window, floor and peaks are measured by."""
        return self.chain[0]

    @property
    def is_between_attempts(self) -> bool:
        """Whether no attempt lives and another one is wanted."""
        is_down = self.attempt is None or self.attempt.ended
        is_wanted = self.wanted.state == "run" and self.wanted.resume_from is None
        return is_down and is_wanted and self.halted is None and self.rest is None

    @property
    def held_plan(self) -> Plan:
        """The plan that the gang is known to hold: the parent of a revision not yet adopted."""
        return self.chain[-2] if self.revision is not None else self.chain[-1]
