"""The run file: what the owner declares once. Models here; the rules across fields in spec_rules.

Durations are whole milliseconds, percents whole, other reals decimal strings.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from contract.config import Optimizer
from contract.model import ModelShape
from contract.wire import RANK_PHASES, Phase
from controller.core.declared.fields import (
    CapacityPercent,
    Count,
    DecimalString,
    Duration,
    InstantText,
    Percent,
    Positive,
    RunName,
    Section,
    Share,
    Span,
)
from controller.core.declared.simulation import Simulation

MINUTE_MS = 60_000


class Fleet(Section):
    """Where the ranks run: processes of this machine, or racks of trays.

    Racks and trays count the spare ones. A local fleet is one rack, with one tray per process.
    """

    kind: Literal["local", "kubernetes"] = "local"
    processes: Positive = 1
    declared_racks: Annotated[Positive, Field(alias="racks")] = 1
    spare_racks: Count = 0
    declared_trays: Annotated[Positive, Field(alias="traysPerRack")] = 1
    spare_trays_per_rack: Count = 0
    processes_per_tray: Positive = 1
    devices_per_process: Positive = 1
    expert_axis: Positive | None = None
    """Devices over which the experts are spread; when not given, all, or all of a rack."""
    peak_flops_per_device: Positive | None = None
    """For MFU; measured by the trainer at start when not given."""

    @property
    def racks(self) -> int:
        """All racks."""
        return self.declared_racks if self.kind == "kubernetes" else 1

    @property
    def trays_per_rack(self) -> int:
        """All trays of a rack."""
        return self.declared_trays if self.kind == "kubernetes" else self.processes

    @property
    def ranks_per_rack(self) -> int:
        """Processes of a rack that trains."""
        return (self.trays_per_rack - self.spare_trays_per_rack) * self.processes_per_tray

    @property
    def ranks(self) -> int:
        """All processes of the gang."""
        return (self.racks - self.spare_racks) * self.ranks_per_rack

    @property
    def devices(self) -> int:
        """All devices of the gang."""
        return self.ranks * self.devices_per_process

    @property
    def axis(self) -> int:
        """The expert axis in force."""
        return self.expert_axis or self.ranks_per_rack * self.devices_per_process


FLEET_FIELDS: dict[str, tuple[str, ...]] = {
    "local": ("processes",),
    "kubernetes": (
        "declared_racks",
        "spare_racks",
        "declared_trays",
        "spare_trays_per_rack",
        "processes_per_tray",
    ),
}
"""Fields that one kind of fleet has alone."""


class Trainer(Section):
    """The command of one rank; without it, the trainer of this distribution."""

    command: Annotated[list[str], Field(min_length=1)] | None = None


class Model(Section):
    """A preset and what replaces parts of it, worked out to a shape."""

    preset: str
    shape: ModelShape


class Stage(Section):
    """From this percent of the horizon on, a block holds `parts` units of each source."""

    from_percent: Percent
    parts: Annotated[dict[str, Count], Field(min_length=1)]


MAX_STAGES = 100
"""They begin at whole percents."""
MAX_SOURCES = 1_000
Stages = Annotated[list[Stage], Field(min_length=1, max_length=MAX_STAGES)]


class Source(Section):
    """One source of text. `options` are those of its kind."""

    kind: str
    options: dict[str, object]


def _split_source(value: object) -> object:
    """Take what stands beside `kind` as the options of that kind."""
    if not isinstance(value, dict):
        return value
    members: dict[str, object] = dict(value)  # pyright: ignore[reportUnknownArgumentType]  # YAML
    kind = {"kind": members.pop("kind")} if "kind" in members else {}
    return {**kind, "options": members}


class Data(Section):
    """Which text, in which shares."""

    sources: Annotated[
        dict[RunName, Annotated[Source, BeforeValidator(_split_source)]],
        Field(min_length=1, max_length=MAX_SOURCES),
    ]
    block_tokens: Positive
    mixture: Stages
    alternatives: Annotated[dict[RunName, Stages], Field(max_length=MAX_SOURCES)] = {}  # noqa: RUF012  # frozen model
    """Mixtures declared ahead for a later change: `ctl replan NAME --mixture @NAME`."""


class Budget(Section):
    """How many tokens are scheduled, and how many the data provides for."""

    horizon_tokens: Positive
    data_budget_tokens: Positive | None = None


class Batch(Section):
    """What one step takes."""

    tokens_per_step: Positive


class Context(Section):
    """From this percent of the horizon on, sequences have this length."""

    from_percent: Percent
    length: Positive


class WeightDecay(Section):
    """Decoupled weight decay of matrices, linear to its own final percent."""

    peak: DecimalString
    final_percent: Percent = 100


class Schedule(Section):
    """How values move over the steps."""

    warmup_percent: Percent = 1
    peak_learning_rate: Annotated[dict[str, DecimalString], Field(min_length=1)]
    final_percent: Percent = 5
    weight_decay: WeightDecay | None = None
    context: Annotated[list[Context], Field(min_length=1, max_length=MAX_STAGES)]


class Execution(Section):
    """How tokens reach their experts."""

    transport: Literal["pooled_wave"] = "pooled_wave"
    waves: Positive = 3
    sender_capacity_percent: CapacityPercent = 110
    receiver_capacity_percent: CapacityPercent = 115


class Evaluation(Section):
    """Held-out loss: how often, on how many sequences of each source."""

    every_steps: Positive = 100
    sequences: Positive = 16
    final_sequences: Positive = 64


class Checkpoints(Section):
    """When to save and what to keep."""

    every_steps: Positive
    keep: Annotated[int, Field(ge=2)] = 3
    permanent_every_steps: Positive | None = None


class Restarts(Section):
    """How many restarts are allowed before the run halts and waits for its owner."""

    window: Span = 6 * 60 * MINUTE_MS
    in_window: Positive = 6
    without_progress: Positive = 3
    per_cause: dict[str, Count] = {"non_finite": 1, "out_of_memory": 3, "error": 3}  # noqa: RUF012  # frozen model
    delay: Duration = 1_000
    """Grows twofold with each incident without progress; short, as one machine has no queue."""
    max_delay: Duration = 15 * MINUTE_MS


DEADLINES_MS: dict[Phase, int] = {
    Phase.START: 3 * MINUTE_MS,
    Phase.RENDEZVOUS: 5 * MINUTE_MS,
    Phase.RESTORE: 5 * MINUTE_MS,
    Phase.COMPILE: 10 * MINUTE_MS,
    Phase.FIRST_STEP: 5 * MINUTE_MS,
    Phase.STEP: 2 * MINUTE_MS,
    Phase.SAVE_BLOCK: 2 * MINUTE_MS,
    Phase.EVAL: 10 * MINUTE_MS,
    Phase.DRAIN: 5 * MINUTE_MS,
}
"""Defaults for one machine: several times what a loaded laptop needs."""
assert set(DEADLINES_MS) == set(RANK_PHASES)


class Deadlines(Section):
    """Longest silence in each phase; `step` is a floor under stepFactor x p99."""

    start: Span = DEADLINES_MS[Phase.START]
    rendezvous: Span = DEADLINES_MS[Phase.RENDEZVOUS]
    restore: Span = DEADLINES_MS[Phase.RESTORE]
    compile: Span = DEADLINES_MS[Phase.COMPILE]
    first_step: Span = DEADLINES_MS[Phase.FIRST_STEP]
    step: Span = DEADLINES_MS[Phase.STEP]
    save_block: Span = DEADLINES_MS[Phase.SAVE_BLOCK]
    eval: Span = DEADLINES_MS[Phase.EVAL]
    drain: Span = DEADLINES_MS[Phase.DRAIN]

    def by_phase(self) -> dict[Phase, int]:
        """Return rank phase -> milliseconds."""
        return {phase: int(getattr(self, phase.value)) for phase in RANK_PHASES}


class Faults(Section):
    """What counts as stuck, and how often to try again."""

    deadlines: Deadlines = Deadlines()
    step_factor: Positive = 5
    commit: Span = 5 * MINUTE_MS
    """Age at which an asynchronous commit counts as failed."""
    heartbeat: Span = 4 * MINUTE_MS
    """The gang's own; above the longest step or save, so that stacks are dumped first."""
    margin: Span = 10_000
    """The controller's deadlines are the watchdog's plus this."""
    cascade: Span = 10_000
    """How long the other ranks have to end by themselves after the first."""
    claim: Span = 30_000
    """How long a rank may take to be started by its shim."""
    restarts: Restarts = Restarts()
    replay_tolerance: Literal["0"] = "0"
    """Replayed losses must equal the recorded ones in every bit."""


class Deadline(Section):
    """By when the run must be done; `reserve` is taken off, for what comes after the last step."""

    at: InstantText
    reserve: Duration = 0


class Contingency(Section):
    """What to do when the deadline is out of reach."""

    mode: Literal["propose", "auto", "off"] = "off"
    window_percent: Share = 25
    floor_percent: Share = 75
    on_time_percent: Share = 10
    clear_above_percent: Share = 30
    target_percent: Share = 80
    evaluate_every: Span = 24 * 60 * MINUTE_MS
    evaluations: Positive = 3
    settle: Duration = 4 * 24 * 60 * MINUTE_MS
    min_clean_steps: Positive = 500
    min_change_percent: Share = 2
    max_revisions: Count = 2
    cool_down: Duration = 7 * 24 * 60 * MINUTE_MS
    midtrain_min_tokens: Count = 0
    max_epochs: Positive = 8


class Gate(Section):
    """What the admission test `ctl gate` demands."""

    min_tokens_per_second: Positive


class Telemetry(Section):
    """Where figures go besides the run's own directory: nowhere yet."""

    prometheus: Literal["none"] = "none"
    wandb: Literal["disabled"] = "disabled"


class Record(Section):
    """What the owner wants to have said before the launch."""

    hypothesis: str = ""
    goals: list[str] = []  # noqa: RUF012  # frozen model
    links: list[str] = []  # noqa: RUF012  # frozen model


class Metadata(Section):
    """What the run is called; also its directory's name."""

    name: RunName


class Spec(Section):
    """Everything about the run besides its name."""

    fleet: Fleet = Fleet()
    trainer: Trainer = Trainer()
    seed: Count = 0
    model: Model
    data: Data
    budget: Budget
    batch: Batch
    schedule: Schedule
    optimizer: Optimizer = Optimizer()
    execution: Execution = Execution()
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints
    faults: Faults = Faults()
    deadline: Deadline | None = None
    contingency: Contingency = Contingency()
    gate: Gate | None = None
    telemetry: Telemetry = Telemetry()
    record: Record = Record()
    simulation: Simulation = Simulation()

    @property
    def total_steps(self) -> int:
        """Whole steps in the horizon."""
        return self.budget.horizon_tokens // self.batch.tokens_per_step

    @property
    def unit_tokens(self) -> int:
        """The longest declared context: the grain of the data order."""
        return max(stage.length for stage in self.schedule.context)


class RunFile(Section):
    """The run file, whole."""

    api_version: Literal["steersman.dev/v1alpha1"]
    kind: Literal["TrainingRun"]
    metadata: Metadata
    spec: Spec
