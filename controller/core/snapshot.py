"""What one observation saw: every field is a value or Unknown, whole numbers throughout."""

from typing import Literal

from pydantic import model_validator

from contract.plan import Frozen
from contract.wire import Drain, Phase
from controller.core.pace import PaceView
from controller.core.proposal import Change
from controller.core.readings import Instant, Unknown
from controller.core.terms import Terms


class RankEnd(Frozen):
    """How a rank ended, as its shim recorded it."""

    code: int
    wall_ms: int
    step: int | None
    """The step the rank itself named, if it left a word."""
    detail: str
    """The rank's own words, empty if it left none."""


class RankView(Frozen):
    """One rank of an attempt, by facts of the operating system."""

    rank: int
    claimed: bool
    """Its shim started it (or was about to)."""
    alive: bool
    """Its lock is held: shim or rank still exists, running or stopped."""
    stopped: bool
    """The process is stopped by a signal (state T)."""
    has_stacks: bool
    """It dumped its stacks."""
    end: RankEnd | None
    """None with `claimed` and not `alive` is an unknown end, never a success."""


class RankRef(Frozen):
    """A rank of some attempt."""

    attempt: int
    rank: int


class GangView(Frozen):
    """The newest attempt, and what lives on of older ones."""

    attempt: int
    closed: bool
    """No further rank of this attempt can start."""
    ranks: list[RankView]
    remains: list[RankRef]
    """Live ranks of older attempts."""
    memory_bytes: int | None = None
    """Of the machine with the least that holds ranks; None: not known."""
    ranks_per_machine: int = 1


class RankTelemetry(Frozen):
    """What a rank says about itself; ages, not timestamps."""

    attempt: int
    step: int
    phase: Phase
    progress_age_ms: int
    deadline_ms: int
    """Progress age at which the rank's own watchdog ends it."""
    plan_sha: str
    plan_pending: bool
    control_refused: str | None
    checkpoint_failures: int
    commit_age_ms: int
    memory_bytes: int | None = None
    """Resident; None: the rank does not say."""


class RankReading(Frozen):
    """One rank's telemetry, or why there is none."""

    rank: int
    value: RankTelemetry | Unknown


class ProgressView(Frozen):
    """The newest attempt's step log, and the highest step of the current line."""

    attempt: int
    completed_steps: int | None
    """Of this attempt; None before its first step."""
    grown_age_ms: int
    """Since the log last grew while this controller watched."""
    highest_step: int
    """Most completed steps any attempt reached on the plan's line."""
    replay_mismatch_step: int | None
    """First step whose replayed loss differs in any bit from the recorded one."""
    plan_sha: str | None = None
    """Under which the newest step ran: all ranks did, the step's reduction says so."""
    is_replaying: bool = False
    """The newest step had been completed before, by an earlier attempt on this line."""
    loss_micronats: int | None = None
    """Mean over the newest steps; None: no step, or not finite."""
    pace: PaceView | None = None
    """How fast steps come, since the step that the memory asks about; None: too early."""


class CheckpointView(Frozen):
    """One checkpoint directory: its existence is the marker of completeness."""

    line: str
    step: int
    plan_sha: str | None
    """None: the manifest is missing or damaged."""
    manifest_sha256: str | None
    verified: bool
    quarantined: str | None
    """The reason, None when it may be used."""


class StoreView(Frozen):
    """Every checkpoint of the run, newest step last within each line."""

    checkpoints: list[CheckpointView]
    ever_complete: bool
    """Some checkpoint was complete once, even if it is damaged or gone now."""
    set_aside: list[CheckpointView] = []  # noqa: RUF012  # frozen model
    """Quarantined ones whose step was saved anew: told to people, and no checkpoints any more."""


class StorageView(Frozen):
    """The last write-rename-delete probe of the checkpoint directory."""

    problem: str | None
    free_bytes: int


class OwnerIntent(Frozen):
    """What the owner asked for, once (the nonce), not yet recorded."""

    nonce: str
    verb: Literal[
        "suspend", "resume", "stop", "restart", "resume_from",
        "propose", "approve", "reject", "amend",
    ]  # fmt: skip
    line: str | None = None
    step: int | None = None
    proposal: str | None = None
    """Id, for approve and reject."""
    change: Change | None = None
    """For propose."""
    terms: Terms | None = None
    """For amend: deadline and contingency as they are from now on."""
    user: str
    wall_ms: int

    @model_validator(mode="after")
    def _require_what_is_meant(self) -> "OwnerIntent":
        needed = {"propose": "change", "approve": "proposal", "reject": "proposal"}
        name = needed.get(self.verb, "")
        if name and getattr(self, name) is None:
            raise ValueError(f"{self.verb} needs {name}")
        return self


class ControlView(Frozen):
    """The control document as it lies there now."""

    epoch: int
    seq: int
    plan_sha: str
    drain: Drain | None


class Snapshot(Frozen):
    """Everything a decision may rest on."""

    now: Instant
    epoch: int
    gang: GangView | Unknown | None
    """None: no attempt was ever started."""
    telemetry: list[RankReading]
    progress: ProgressView | Unknown | None
    """None: no attempt ever logged a step."""
    store: StoreView | Unknown
    storage: StorageView | Unknown
    intents: list[OwnerIntent] | Unknown
    control: ControlView | Unknown | None
    """None: never published; Unknown: unreadable or garbage."""
