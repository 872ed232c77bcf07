"""Rules across the fields of a run file; each names the sections it needs and judges only those."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import pairwise
from math import lcm

from contract import model
from contract.config import SourceFiles
from contract.schedule import MAX_BINARY32
from controller.core.declared.fields import format_duration
from controller.core.declared.problems import Finding, show_value, suggest_name
from controller.core.declared.simulation_rules import (
    check_declared,
    check_failures,
    check_launch,
    check_mfu,
    check_noise,
    check_throughput,
)
from controller.core.declared.spec import FLEET_FIELDS, Context, Fleet, Spec, Stage

DUMP_MS = 10_000
"""What a rank may need to write the stacks of its threads on a loaded machine."""

LEARNING_RATE_GROUPS = ("matrix", "other")

Check = Callable[[Spec], Iterable[Finding]]


@dataclass(frozen=True)
class Rule:
    """A check and the sections that must be readable for it."""

    sections: tuple[str, ...]
    check: Check


# --- fleet and model ---


def check_fleet_kind(spec: Spec) -> Iterable[Finding]:
    """Only fields of the fleet's own kind are given, and racks and trays where there are any."""
    fleet = spec.fleet
    names = {name: field.alias or name for name, field in Fleet.model_fields.items()}
    given = fleet.model_fields_set
    for kind, fields in FLEET_FIELDS.items():
        for name in fields:
            if kind != fleet.kind and name in given:
                bound = f"{names[name]} is of kind {kind}, and this fleet is {fleet.kind}"
                yield "fleet.other-kind", "spec.fleet", None, bound
    for name in ("declared_racks", "declared_trays"):
        if fleet.kind == "kubernetes" and name not in given:
            yield "fleet.missing", f"spec.fleet.{names[name]}", None, "it must be given"


def has_ranks(spec: Spec) -> bool:
    """Return whether spares leave racks and trays to train on."""
    fleet = spec.fleet
    return fleet.spare_racks < fleet.racks and fleet.spare_trays_per_rack < fleet.trays_per_rack


def check_spares(spec: Spec) -> Iterable[Finding]:
    """Spares leave racks and trays to train on."""
    fleet = spec.fleet
    if fleet.spare_racks >= fleet.racks:
        bound = f"it must be below racks ({fleet.racks}), which count the spare ones"
        yield "fleet.spare-racks", "spec.fleet.spareRacks", fleet.spare_racks, bound
    if fleet.spare_trays_per_rack >= fleet.trays_per_rack:
        field = "spec.fleet.spareTraysPerRack"
        bound = f"it must be below traysPerRack ({fleet.trays_per_rack}), which count the spare"
        yield "fleet.spare-trays", field, fleet.spare_trays_per_rack, f"{bound} ones"


def check_fleet(spec: Spec) -> Iterable[Finding]:
    """The expert axis is whole devices and divides them, within a rack."""
    fleet = spec.fleet
    if not has_ranks(spec) or fleet.devices % fleet.axis == 0:
        yield from _check_rack_axis(spec)
        return
    within = "racks x trays x" if fleet.kind == "kubernetes" else "processes x"
    bound = f"it must divide the {fleet.devices} devices ({within} devicesPerProcess)"
    yield "fleet.expert-axis", "spec.fleet.expertAxis", fleet.axis, bound


def _check_rack_axis(spec: Spec) -> Iterable[Finding]:
    fleet = spec.fleet
    devices = fleet.ranks_per_rack * fleet.devices_per_process
    if has_ranks(spec) and fleet.kind == "kubernetes" and devices % fleet.axis:
        bound = (
            f"it must divide the {devices} devices of a rack that train: experts are exchanged"
            " within one"
        )
        yield "fleet.rack-axis", "spec.fleet.expertAxis", fleet.axis, bound


def check_mesh(spec: Spec) -> Iterable[Finding]:
    """The model fits the mesh at every context length."""
    fleet = spec.fleet
    if not has_ranks(spec) or fleet.devices % fleet.axis:
        return
    execution = make_execution(spec)
    told: set[str] = set()
    for stage in spec.schedule.context:
        findings = model.check_mesh(
            spec.model.shape,
            execution,
            fleet.axis,
            fleet.devices // fleet.axis,
            spec.batch.tokens_per_step,
            stage.length,
        )
        for rule, text in findings:
            if text not in told:
                told.add(text)
                yield rule, f"spec.{MESH_FIELDS.get(rule, 'model')}", None, text


MESH_FIELDS = {
    "mesh-sequences": "batch",
    "mesh-batch": "batch",
    "mesh-waves": "execution",
}


def make_execution(spec: Spec) -> model.Execution:
    """Return the contract's form of the execution section."""
    return model.Execution.model_validate(spec.execution.model_dump())


# --- budget and schedule ---


def check_budget(spec: Spec) -> Iterable[Finding]:
    """The horizon holds steps and stays within the data's budget."""
    horizon, step = spec.budget.horizon_tokens, spec.batch.tokens_per_step
    if horizon < MIN_STEPS * step:
        bound = f"it must be at least {MIN_STEPS} steps of {step} tokens ({MIN_STEPS * step})"
        yield "budget.steps", "spec.budget.horizonTokens", horizon, bound
    provided = spec.budget.data_budget_tokens
    if provided is not None and horizon > provided:
        bound = f"it must be at most dataBudgetTokens ({provided})"
        yield "budget.data", "spec.budget.horizonTokens", horizon, bound


MIN_STEPS = 4


def warmup_steps(spec: Spec) -> int:
    """Return the whole steps of the warm-up, at least one."""
    return max(1, spec.total_steps * spec.schedule.warmup_percent // 100)


def check_warmup(spec: Spec) -> Iterable[Finding]:
    """The warm-up leaves room for the decay."""
    percent = spec.schedule.warmup_percent
    if percent > MAX_WARMUP_PERCENT:
        bound = f"it must be 0 to {MAX_WARMUP_PERCENT}"
        yield "schedule.warmup", "spec.schedule.warmupPercent", percent, bound


MAX_WARMUP_PERCENT = 50


def check_learning_rates(spec: Spec) -> Iterable[Finding]:
    """Every parameter group has a peak above zero, and no other group is named."""
    peaks = spec.schedule.peak_learning_rate
    field = "spec.schedule.peakLearningRate"
    for name in peaks:
        if name not in LEARNING_RATE_GROUPS:
            hint = suggest_name(name, LEARNING_RATE_GROUPS)
            yield "schedule.groups", field, None, f'unknown group "{name}". {hint}'
    for name in LEARNING_RATE_GROUPS:
        if name not in peaks:
            yield "schedule.groups", field, None, f'group "{name}" is missing'
        elif not 0 < Fraction(peaks[name]) <= MAX_BINARY32:
            bound = "it must be above 0 and a binary32 number (below 3.4e38)"
            yield "schedule.peak", f"{field}.{name}", peaks[name], bound


def check_context(spec: Spec) -> Iterable[Finding]:
    """Context stages start at 0, increase, and divide the longest of them."""
    stages = spec.schedule.context
    yield from _check_percents("spec.schedule.context", stages)
    for index, stage in enumerate(stages):
        if spec.unit_tokens % stage.length:
            bound = f"it must divide the longest context ({spec.unit_tokens})"
            yield "schedule.context", f"spec.schedule.context.{index}.length", stage.length, bound


def _check_percents(field: str, stages: Iterable[Stage | Context]) -> Iterable[Finding]:
    percents = [stage.from_percent for stage in stages]
    if percents[0] != 0:
        yield "stage.first", f"{field}.0.fromPercent", percents[0], "the first stage starts at 0"
    for index, (before, after) in enumerate(pairwise(percents), 1):
        if after <= before:
            bound = f"it must be above the stage before ({before})"
            yield "stage.order", f"{field}.{index}.fromPercent", after, bound
    if percents[-1] >= 100:  # noqa: PLR2004  # percent
        last = f"{field}.{len(percents) - 1}.fromPercent"
        yield "stage.last", last, percents[-1], "it must be below 100: no step would be left"


# --- data ---


def check_mixture(spec: Spec) -> Iterable[Finding]:
    """Stages name known sources and their parts fill a block exactly."""
    for field, stages in _mixtures(spec):
        yield from _check_percents(field, stages)
        for index, stage in enumerate(stages):
            yield from _check_parts(spec, f"{field}.{index}.parts", stage)


def _mixtures(spec: Spec) -> Iterable[tuple[str, list[Stage]]]:
    yield "spec.data.mixture", spec.data.mixture
    for name, stages in spec.data.alternatives.items():
        yield f"spec.data.alternatives.{name}", stages


def _check_parts(spec: Spec, field: str, stage: Stage) -> Iterable[Finding]:
    for name in stage.parts:
        if name not in spec.data.sources:
            hint = suggest_name(name, list(spec.data.sources))
            yield "data.unknown-source", field, None, f'unknown source "{name}". {hint}'
    units, rest = divmod(spec.data.block_tokens, spec.unit_tokens)
    total = sum(stage.parts.values())
    if rest == 0 and total != units:
        bound = (
            f"parts sum to {total}; they must sum to {units}"
            f" (blockTokens {spec.data.block_tokens} / longest context {spec.unit_tokens})"
        )
        yield "data.parts-sum", field, None, bound


def check_block(spec: Spec) -> Iterable[Finding]:
    """A block is whole units of the longest context."""
    if spec.data.block_tokens % spec.unit_tokens:
        bound = f"it must be a multiple of the longest context ({spec.unit_tokens})"
        yield "data.block-units", "spec.data.blockTokens", spec.data.block_tokens, bound


def align_steps(spec: Spec) -> int:
    """Return the smallest number of steps that is whole blocks."""
    step = spec.batch.tokens_per_step
    return lcm(spec.data.block_tokens, step) // step


def stage_start(spec: Spec, percent: int) -> int:
    """Return the step at which a mixture stage starts: aligned down to whole blocks."""
    align = align_steps(spec)
    return percent * spec.total_steps // 100 // align * align


def check_stage_starts(spec: Spec) -> Iterable[Finding]:
    """Blocks and steps meet often enough that each stage has a start of its own."""
    for field, stages in _mixtures(spec):
        starts = [stage_start(spec, stage.from_percent) for stage in stages]
        for index, (before, after) in enumerate(pairwise(starts), 1):
            if after <= before:
                bound = (
                    f"blocks of {spec.data.block_tokens} tokens are whole steps only every"
                    f" {align_steps(spec)} steps, so this stage would start at step {after},"
                    f" no later than the one before; make blockTokens a multiple of"
                    f" tokensPerStep ({spec.batch.tokens_per_step}), or smaller"
                )
                place = f"{field}.{index}.fromPercent"
                yield "data.block-steps", place, stages[index].from_percent, bound


# --- faults, checkpoints, deadline ---


def check_heartbeat(spec: Spec) -> Iterable[Finding]:
    """The gang's heartbeat outlasts every step and save, plus the dump of stacks."""
    faults = spec.faults
    longest = max(faults.deadlines.step, faults.deadlines.save_block) + DUMP_MS
    if faults.heartbeat < longest:
        bound = (
            f"it must be at least {format_duration(longest)}: the longer of deadlines.step and"
            f" deadlines.saveBlock, plus {format_duration(DUMP_MS)} to write the stacks"
        )
        shown = format_duration(faults.heartbeat)
        yield "faults.heartbeat", "spec.faults.heartbeat", shown, bound


def check_delays(spec: Spec) -> Iterable[Finding]:
    """The longest delay is not below the first."""
    restarts = spec.faults.restarts
    if restarts.max_delay < restarts.delay:
        shown = format_duration(restarts.max_delay)
        bound = f"it must be at least delay ({format_duration(restarts.delay)})"
        yield "faults.delay", "spec.faults.restarts.maxDelay", shown, bound


def check_cadence(spec: Spec) -> Iterable[Finding]:
    """Saves happen before the end, and permanent ones are among them."""
    saves, total = spec.checkpoints, spec.total_steps
    if saves.every_steps > total >= MIN_STEPS:
        bound = f"it must be at most the run's {total} steps"
        yield "checkpoints.cadence", "spec.checkpoints.everySteps", saves.every_steps, bound
    permanent = saves.permanent_every_steps
    if permanent is not None and permanent % saves.every_steps:
        bound = f"it must be a multiple of everySteps ({saves.every_steps})"
        yield "checkpoints.permanent", "spec.checkpoints.permanentEverySteps", permanent, bound


def check_evaluation(spec: Spec) -> Iterable[Finding]:
    """The last evaluation is no smaller than the regular one."""
    evaluation = spec.evaluation
    if evaluation.final_sequences < evaluation.sequences:
        bound = f"it must be at least sequences ({evaluation.sequences})"
        field = "spec.evaluation.finalSequences"
        yield "evaluation.final", field, evaluation.final_sequences, bound


def check_contingency(spec: Spec) -> Iterable[Finding]:
    """The thresholds are in order, and a mode that acts has a deadline."""
    plan = spec.contingency
    if plan.on_time_percent >= plan.target_percent:
        bound = f"it must lie above onTimePercent ({plan.on_time_percent})"
        yield "contingency.target", "spec.contingency.targetPercent", plan.target_percent, bound
    elif not plan.on_time_percent < plan.clear_above_percent <= plan.target_percent:
        bound = (
            f"it must lie above onTimePercent ({plan.on_time_percent}) and at most at"
            f" targetPercent ({plan.target_percent})"
        )
        field = "spec.contingency.clearAbovePercent"
        yield "contingency.thresholds", field, plan.clear_above_percent, bound
    if plan.floor_percent + plan.min_change_percent > 100:  # noqa: PLR2004  # percent
        bound = (
            f"it must be at most {100 - plan.min_change_percent}: a change of at least"
            f" minChangePercent ({plan.min_change_percent}) has to fit above it"
        )
        yield "contingency.floor", "spec.contingency.floorPercent", plan.floor_percent, bound
    if plan.window_percent <= spec.schedule.warmup_percent:
        bound = (
            f"it must lie above schedule.warmupPercent ({spec.schedule.warmup_percent}):"
            " a horizon forks after the warm-up only"
        )
        yield "contingency.window", "spec.contingency.windowPercent", plan.window_percent, bound
    if plan.mode != "off" and spec.deadline is None:
        bound = "it needs spec.deadline.at; without a deadline it must be off"
        yield "contingency.deadline", "spec.contingency.mode", plan.mode, bound


RULES = (
    Rule(("fleet",), check_fleet_kind),
    Rule(("fleet",), check_spares),
    Rule(("fleet",), check_fleet),
    Rule(("fleet", "model", "execution", "batch", "schedule"), check_mesh),
    Rule(("budget", "batch"), check_budget),
    Rule(("schedule",), check_warmup),
    Rule(("schedule",), check_learning_rates),
    Rule(("schedule",), check_context),
    Rule(("data", "schedule"), check_mixture),
    Rule(("data", "schedule"), check_block),
    Rule(("data", "budget", "batch"), check_stage_starts),
    Rule(("faults",), check_heartbeat),
    Rule(("faults",), check_delays),
    Rule(("checkpoints", "budget", "batch"), check_cadence),
    Rule(("evaluation",), check_evaluation),
    Rule(("contingency", "deadline", "schedule"), check_contingency),
    Rule(("data",), check_declared),
    Rule(("simulation",), check_throughput),
    Rule(("simulation", "fleet"), check_mfu),
    Rule(("simulation",), check_noise),
    Rule(("simulation",), check_failures),
    Rule(("simulation", "deadline"), check_launch),
)


# --- what only the text itself can tell, and the machine ---


def check_sources(spec: Spec, sources: Mapping[str, SourceFiles]) -> Iterable[Finding]:
    """Every source is long enough for one unit, the evaluation and the epochs allowed."""
    for name, files in sources.items():
        field = f"spec.data.sources.{name}"
        if files.train_tokens < spec.unit_tokens:
            bound = f"it must hold at least one unit of the longest context ({spec.unit_tokens})"
            yield "data.short", field, f"{files.train_tokens} tokens", bound
        elif (epochs := _epochs_of(spec, name, files)) > spec.contingency.max_epochs:
            bound = (
                f"the horizon would read it {epochs} times; at most contingency.maxEpochs"
                f" ({spec.contingency.max_epochs})"
            )
            yield "data.epochs", field, f"{files.train_tokens} tokens", bound
        needed = spec.evaluation.final_sequences * spec.unit_tokens + 1
        if files.heldout_tokens < needed:
            bound = f"the last evaluation needs {needed}; lower evaluation.finalSequences"
            yield "evaluation.sequences", field, f"{files.heldout_tokens} held-out tokens", bound


def _epochs_of(spec: Spec, name: str, files: SourceFiles) -> int:
    """Return how often the horizon reads the source, rounded up."""
    stages = spec.data.mixture
    starts = [stage_start(spec, stage.from_percent) for stage in stages]
    share = 0
    for stage, (start, end) in zip(stages, pairwise([*starts, spec.total_steps]), strict=True):
        share += (end - start) * spec.batch.tokens_per_step * stage.parts.get(name, 0)
    wanted = share // sum(stages[0].parts.values())
    return -(-wanted // files.train_tokens)


def is_past(text: str, now_wall_ms: int) -> bool:
    """Return whether the instant in `text` lies before `now_wall_ms`."""
    return datetime.fromisoformat(text).timestamp() * 1000 < now_wall_ms


def check_deadline(spec: Spec, now_wall_ms: int) -> Iterable[Finding]:
    """A deadline, or a due instant, that has passed is a slip of the pen."""
    deadline = spec.deadline
    if deadline is None:
        return
    if is_past(deadline.at, now_wall_ms):
        yield "deadline.past", "spec.deadline.at", deadline.at, "it must lie in the future"
    elif is_past(deadline.at, now_wall_ms + deadline.reserve):
        shown = format_duration(deadline.reserve)
        bound = f"it must be shorter than what is left until deadline.at ({deadline.at})"
        yield "deadline.reserve", "spec.deadline.reserve", shown, bound


def show(value: object) -> str | None:
    """Return how a finding's value is shown; None stays None."""
    return value if value is None or isinstance(value, str) else show_value(value)
