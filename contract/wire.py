"""Names and formats that cross the border between controller and trainer.

Files are relative to the run directory. Instants are seconds since the epoch (`wall_s`) and
seconds of the machine's monotonic clock (`mono_s`); durations are taken within one boot only.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from contract.plan import Count, Frozen, Name, Sha

# Environment of a rank. The rest of what it needs is in the attempt's config file.
ENV_RUN_DIR = "STEERSMAN_RUN_DIR"
"""The run directory, absolute. All other paths are relative to it."""
ENV_RUN_UID = "STEERSMAN_RUN_UID"
"""The run's identity: a document of another run is refused."""
ENV_EPOCH = "STEERSMAN_EPOCH"
"""Epoch of the controller that launched the attempt; a lower one is never obeyed."""
ENV_ATTEMPT = "STEERSMAN_ATTEMPT"
"""Number of this attempt, from 1."""
ENV_RANK = "STEERSMAN_RANK"
"""This rank, from 0."""
ENV_RANKS = "STEERSMAN_RANKS"
"""How many ranks the gang has."""
ENV_COORDINATOR = "STEERSMAN_COORDINATOR"
"""host:port of the coordination service that rank 0 starts."""
ENV_PLAN_SHA = "STEERSMAN_PLAN_SHA"
"""The plan this attempt runs; its file is waited for under a deadline."""
ENV_RESTORE = "STEERSMAN_RESTORE"
"""What the gang may start from: a word of `Restore`."""
ENV_HIGHEST_STEP = "STEERSMAN_HIGHEST_STEP"
"""The most steps any attempt completed on this line: steps below it count as replay."""


class Restore(StrEnum):
    """What a starting gang may start from."""

    NONE = "none"
    """No checkpoint was ever complete: start at step 0 if there is none."""
    REQUIRED = "required"
    """Restore the newest complete admissible one, or exit NO_CHECKPOINT."""
    VERIFIED = "verified"
    """Only a checkpoint with a `verified` mark: after a non-finite loss."""


class Phase(StrEnum):
    """What a run is doing; each second of wall time belongs to exactly one."""

    # Phases of a rank.
    START = "start"
    RENDEZVOUS = "rendezvous"
    RESTORE = "restore"
    COMPILE = "compile"
    FIRST_STEP = "first_step"
    STEP = "step"
    SAVE_BLOCK = "save_block"
    EVAL = "eval"
    DRAIN = "drain"
    # Phases that only the controller knows.
    QUEUED = "queued"
    SCHEDULE = "schedule"
    HALTED = "halted"
    UNKNOWN = "unknown"
    # What the account splits `step` into.
    PRODUCTIVE = "productive"
    REPLAY = "replay"
    DATA_WAIT = "data_wait"
    STALL = "stall"


RANK_PHASES = (
    Phase.START, Phase.RENDEZVOUS, Phase.RESTORE, Phase.COMPILE, Phase.FIRST_STEP,
    Phase.STEP, Phase.SAVE_BLOCK, Phase.EVAL, Phase.DRAIN,
)  # fmt: skip
ACCOUNT_PHASES = tuple(phase for phase in Phase if phase is not Phase.STEP)
"""What the seconds of a run are split into; they sum to wall time."""

# Files of a run.
RUN_FILE = "run.yaml"
IDENTITY_FILE = "identity.json"
CONTROL_FILE = "control.json"
PLANS_DIR = "plans"
INTENTS_DIR = "intents"
LEDGER_DIR = "ledger"
ATTEMPTS_DIR = "attempts"
CHECKPOINTS_DIR = "checkpoints"
DATA_DIR = "data"
PROGRAMS_DIR = ".jax_cache"
"""What a trainer compiled, in its own form. A new run of the same run file may be given it."""
SUMMARY_FILE = "summary.json"
REPORT_FILE = "report.html"
STATUS_FILE = "status.json"
LOCK_FILE = "controller.lock"

# Files of an attempt.
CONFIG_FILE = "config.json"
CLOSED_FILE = "closed"
"""Once it exists, no shim of the attempt may start a rank."""
STEPS_FILE = "steps.jsonl"
EVALS_FILE = "evals.jsonl"

# Files of a rank.
RANK_LOCK_FILE = "lock"
CLAIM_FILE = "claim.json"
ENDPOINT_FILE = "endpoint.json"
EXIT_FILE = "exit.json"
EXIT_BYTES = 256
"""exit.json is preallocated with spaces and overwritten in place, so a full disk cannot lose it."""
STDOUT_FILE = "stdout.log"
STDERR_FILE = "stderr.log"
STACKS_FILE = "stacks.txt"
PHASES_FILE = "phases.jsonl"

# Checkpoints of a line.
WORK_DIR = ".work"
QUARANTINE_DIR = ".quarantine"
MANIFEST_FILE = "manifest.json"
VERIFIED_SUFFIX = ".verified.json"
QUARANTINED_SUFFIX = ".quarantined.json"
STATE_DIR = "state"
"""Where the arrays of a checkpoint lie, in the trainer's own format."""


def plan_file(sha: str) -> str:
    """Return the path of the plan `sha`."""
    return f"{PLANS_DIR}/{sha}.json"


def attempt_dir(attempt: int) -> str:
    """Return the directory of `attempt`."""
    return f"{ATTEMPTS_DIR}/{attempt}"


def rank_dir(attempt: int, rank: int) -> str:
    """Return the directory of one rank of `attempt`."""
    return f"{ATTEMPTS_DIR}/{attempt}/rank-{rank}"


def line_dir(line: str) -> str:
    """Return the directory of the checkpoints of `line`."""
    return f"{CHECKPOINTS_DIR}/{line}"


def checkpoint_dir(line: str, step: int) -> str:
    """Return the directory of a complete checkpoint: that it exists is the marker."""
    return f"{CHECKPOINTS_DIR}/{line}/{step}"


class LedgerHead(Frozen):
    """The newest ledger record: its number and its hash."""

    seq: Count
    hash: Sha


class Drain(Frozen):
    """A request to checkpoint and leave."""

    nonce: str
    mode: Literal["stop", "suspend", "restart"]


class ControlDocument(Frozen):
    """What the controller publishes to a running gang; replaced atomically."""

    format: Literal[1] = 1
    run_uid: str
    epoch: Count
    seq: Count
    plan_sha: Sha
    drain: Drain | None
    ledger_head: LedgerHead

    @property
    def order(self) -> tuple[int, int]:
        """Documents with a lower order than one already obeyed are refused."""
        return (self.epoch, self.seq)


class ControlRefusal(StrEnum):
    """Why a trainer keeps the control document it has."""

    UNREADABLE = "unreadable"
    FOREIGN_RUN = "foreign_run"
    STALE = "stale"
    PLAN_MISSING = "plan_missing"
    PLAN_INVALID = "plan_invalid"
    PLAN_CHAIN = "plan_chain"
    PLAN_PAST = "plan_past"
    PLAN_LATE = "plan_late"
    """The effective step is not ahead of the step the gang is at."""
    PLAN_EXECUTION = "plan_execution"
    """The change takes effect at a restart only."""


class ControlError(ValueError):
    """A control document that a trainer must not obey."""

    def __init__(self, refusal: ControlRefusal, detail: str) -> None:
        self.refusal = refusal
        super().__init__(f"{refusal.value}: {detail}")


def read_control(data: bytes, *, run_uid: str, newest: ControlDocument | None) -> ControlDocument:
    """Return the control document in `data` if a trainer that obeyed `newest` may obey it.

    Raises:
        ControlError: garbage, another run's document, or one older than `newest`.
    """
    try:
        document = ControlDocument.model_validate_json(data)
    except ValidationError as error:
        detail = f"{error.error_count()} errors, first: {error.errors()[0]['msg']}"
        raise ControlError(ControlRefusal.UNREADABLE, detail) from error
    if document.run_uid != run_uid:
        raise ControlError(ControlRefusal.FOREIGN_RUN, document.run_uid)
    if newest is not None and document.order < newest.order:
        detail = f"(epoch, seq) {document.order} is before {newest.order}"
        raise ControlError(ControlRefusal.STALE, detail)
    return document


class ProcessIdentity(Frozen):
    """A process that cannot be confused with a later one of the same number."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat, in clock ticks since boot."""
    boot_id: str


class Claim(Frozen):
    """Written once, O_EXCL, by the shim that starts a rank."""

    format: Literal[1] = 1
    attempt: int
    rank: int
    epoch: int
    shim: ProcessIdentity
    process: ProcessIdentity
    wall_s: float


class Endpoint(Frozen):
    """Where a rank serves /metrics; the port is chosen by the kernel.

    The host is an IP address, or `localhost`: no name is looked up, a look-up has no deadline.
    """

    format: Literal[1] = 1
    host: str
    port: Annotated[int, Field(ge=1, le=65535)]


class ExitRecord(Frozen):
    """How a rank ended: its code (128 + signal for a signal) and when the shim reaped it."""

    format: Literal[1] = 1
    code: int
    signal: int | None
    wall_s: float
    detail: str = ""
    """One line of the trainer's own words (see `DETAIL_FILE`), empty if it left none."""


DETAIL_FILE = "detail.json"
"""What a rank says about its own end before it leaves: {"step": n, "text": "..."}."""


class EndDetail(Frozen):
    """A rank's own words about its end: the step it was at, and the cause with its subject."""

    step: int
    text: str


class Drops(Frozen):
    """Assignments dropped on each side in one step, summed over layers and devices."""

    sender: int
    receiver: int


class StepRecord(Frozen):
    """One line of steps.jsonl, written by rank 0 after the step's values were read.

    Floats of the computation are hexadecimal (`float.hex()` of the binary32 value), so that a
    replay can be compared bit for bit.
    """

    line: Name
    step: Count
    plan_sha: Sha
    execution_sha: Sha
    code: str
    """Version of the trainer's code: replays are compared only where it is equal."""
    lr: dict[str, str]
    """Parameter group -> learning rate as received back from the step."""
    loss: str
    grad_norm: str
    tokens: int
    assignments: int
    drops: Drops
    step_s: float
    """Completion to completion on rank 0."""
    data_wait_s: float
    wall_s: float
    tags: list[Literal["first", "save", "eval", "compile", "plan"]]
    """What disturbed this step's time; a clean step has none."""


class EvalRecord(Frozen):
    """One line of evals.jsonl: mean cross-entropy in nats on one source's held-out text."""

    step: Count
    source: Name
    loss: str
    tokens: int
    variant: Literal["model", "no_routed_experts"] = "model"
    wall_s: float


class PhaseRecord(Frozen):
    """One line of phases.jsonl: the rank entered `phase` at this instant."""

    phase: Phase
    step: Count
    wall_s: float
    mono_s: float
    boot_id: str


class Identity(Frozen):
    """Who a run directory belongs to; a copied folder no longer matches its own place."""

    format: Literal[1] = 1
    run_uid: str
    name: Name
    directory: str
    """The directory's path and inode at launch, so that a copy is told from the original."""
    inode: int
    created_wall_s: float
