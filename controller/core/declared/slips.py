"""Rules against slips of the pen: values that each are allowed and together cannot be meant.

Like those of spec_rules.py, each names the sections it needs and judges only those.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import combinations, pairwise
from typing import cast

from contract.model import flops_per_token
from controller.core.classify import CAUSE_NAMES
from controller.core.declared.fields import UNITS_MS, format_duration
from controller.core.declared.problems import Finding, suggest_name
from controller.core.declared.spec import Source, Spec, Stage
from controller.core.declared.spec_rules import Rule, has_ranks, is_past, stage_start

PERCENT = 100

# --- fleet, model, optimizer, trainer ---

MAX_RANKS = {"local": 1_024, "kubernetes": 100_000}
"""One machine has some 28,000 ports and fewer processes; the largest public run had 24,000 GPUs
(arXiv 2407.21783)."""
MAX_SEED = 2**32 - 1
"""The trainer takes 32 bits."""
BYTE_TOKENS = 256
MIN_PEAK = Fraction(1, 2**126)
"""The smallest normal binary32 number."""
MAX_DECAY = 10


def check_ranks(spec: Spec) -> Iterable[Finding]:
    """A gang has no more ranks than anything can start."""
    fleet = spec.fleet
    if fleet.ranks > (most := MAX_RANKS[fleet.kind]):
        field = "processes" if fleet.kind == "local" else "racks"
        bound = f"it makes {fleet.ranks:,} ranks; at most {most:,} are started"
        yield "fleet.many", f"spec.fleet.{field}", getattr(fleet, field), bound


def check_peak(spec: Spec) -> Iterable[Finding]:
    """The gate demands no more than the devices' declared peak allows."""
    gate, peak = spec.gate, _peak_of(spec)
    if gate is None or peak is None:
        return
    most = peak // _least_flops(spec)
    if gate.min_tokens_per_second > most:
        bound = f"it must be at most {most}: all that fleet.peakFlopsPerDevice allows, at 100% MFU"
        field = "spec.gate.minTokensPerSecond"
        yield "fleet.gate-peak", field, gate.min_tokens_per_second, bound


def _peak_of(spec: Spec) -> int | None:
    """Return the FLOP/s of the whole fleet, None where they are not declared."""
    peak = spec.fleet.peak_flops_per_device
    return None if peak is None or not has_ranks(spec) else peak * spec.fleet.devices


def _least_flops(spec: Spec) -> int:
    """Return the FLOPs of a token in the first context, which is the shortest."""
    return flops_per_token(spec.model.shape, spec.schedule.context[0].length)


def check_seed(spec: Spec) -> Iterable[Finding]:
    """The seed has 32 bits."""
    if spec.seed > MAX_SEED:
        yield "seed.size", "spec.seed", spec.seed, f"it must be at most {MAX_SEED} (32 bits)"


def check_model(spec: Spec) -> Iterable[Finding]:
    """Every byte has a token, and weights and counts mean something."""
    shape = spec.model.shape
    if shape.vocabulary < BYTE_TOKENS:
        bound = f"it must be at least {BYTE_TOKENS}: a byte is a token"
        yield "model.vocabulary", "spec.model.vocabulary", shape.vocabulary, bound
    if not Fraction(shape.router_scale):
        bound = "it must be above 0: routed experts would count for nothing"
        yield "model.router-scale", "spec.model.routerScale", shape.router_scale, bound
    counted = shape.full_kv_heads_counted
    if counted is not None and counted > shape.heads:
        bound = f"it must be at most heads ({shape.heads})"
        yield "model.counted-heads", "spec.model.fullKvHeadsCounted", counted, bound


def check_optimizer(spec: Spec) -> Iterable[Finding]:
    """Adam's averages forget, and its denominator is not 0."""
    given = spec.optimizer
    for name in ("beta1", "beta2"):
        if Fraction(value := getattr(given, name)) >= 1:
            bound = "it must be below 1: the average would never forget, or grow"
            yield "optimizer.beta", f"spec.optimizer.{name}", value, bound
    if not 0 < Fraction(given.epsilon) <= 1:
        bound = "it must be above 0 and at most 1"
        yield "optimizer.epsilon", "spec.optimizer.epsilon", given.epsilon, bound


SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
SHELL_STARTS = ("$", "~/", "`")


def check_shell(spec: Spec) -> Iterable[Finding]:
    """The command holds nothing that only a shell would understand."""
    for index, word in enumerate(spec.trainer.command or ()):
        if word in SHELL_WORDS or word.startswith(SHELL_STARTS):
            bound = "no shell reads the command: it would be passed on as it stands"
            yield "trainer.shell", f"spec.trainer.command.{index}", f'"{word}"', bound


# --- budget and schedule ---

MAX_STEPS = 100_000_000


def check_steps(spec: Spec) -> Iterable[Finding]:
    """The run ends in somebody's lifetime."""
    if spec.total_steps > MAX_STEPS:
        bound = (
            f"it makes {spec.total_steps:,} steps of {spec.batch.tokens_per_step:,} tokens;"
            f" at most {MAX_STEPS:,} are scheduled"
        )
        yield "budget.many-steps", "spec.budget.horizonTokens", spec.budget.horizon_tokens, bound


def check_peaks(spec: Spec) -> Iterable[Finding]:
    """Peaks survive the rounding to binary32, and the decay is none that kills all weights."""
    for name, peak in spec.schedule.peak_learning_rate.items():
        if 0 < Fraction(peak) < MIN_PEAK:
            bound = "it must be at least 1.2e-38: a smaller one is rounded to nothing"
            yield "schedule.tiny-peak", f"spec.schedule.peakLearningRate.{name}", peak, bound
    decay = spec.schedule.weight_decay
    if decay is not None and Fraction(decay.peak) > MAX_DECAY:
        bound = f"it must be at most {MAX_DECAY}"
        yield "schedule.decay-peak", "spec.schedule.weightDecay.peak", decay.peak, bound


def check_context_growth(spec: Spec) -> Iterable[Finding]:
    """Contexts grow from stage to stage."""
    for index, (before, after) in enumerate(pairwise(spec.schedule.context), 1):
        if after.length <= before.length:
            field = f"spec.schedule.context.{index}.length"
            bound = f"it must be above the length of the stage before ({before.length})"
            yield "schedule.context-order", field, after.length, bound


def check_context_starts(spec: Spec) -> Iterable[Finding]:
    """Each context stage has a step of its own to begin at."""
    stages, total = spec.schedule.context, spec.total_steps
    for index, (before, after) in enumerate(pairwise(stages), 1):
        start = after.from_percent * total // PERCENT
        if before.from_percent < after.from_percent and (
            start == before.from_percent * total // PERCENT
        ):
            field = f"spec.schedule.context.{index}.fromPercent"
            bound = f"with {total} steps it begins at step {start}, as the stage before does"
            yield "schedule.context-steps", field, after.from_percent, bound


def check_warmup_stage(spec: Spec) -> Iterable[Finding]:
    """The mixture does not change before the warm-up is over."""
    warmup = spec.schedule.warmup_percent
    for index, stage in enumerate(spec.data.mixture[1:], 1):
        if 0 < stage.from_percent <= warmup:
            bound = f"it must lie above schedule.warmupPercent ({warmup})"
            field = f"spec.data.mixture.{index}.fromPercent"
            yield "schedule.warmup-stage", field, stage.from_percent, bound


# --- data ---

MAX_UNITS = 1_000_000
"""Of a block; the model case has 49,152."""


def check_block_size(spec: Spec) -> Iterable[Finding]:
    """A block ends before the run, and can be dealt out."""
    block, horizon = spec.data.block_tokens, spec.budget.horizon_tokens
    if block // spec.unit_tokens > MAX_UNITS:
        bound = f"it must be at most {MAX_UNITS:,} units of {spec.unit_tokens} tokens"
        yield "data.block-size", "spec.data.blockTokens", block, bound
    elif block > horizon:
        bound = f"it must be at most budget.horizonTokens ({horizon}): no block would be whole"
        yield "data.block-horizon", "spec.data.blockTokens", block, bound


def check_unread(spec: Spec) -> Iterable[Finding]:
    """Every source is named by some stage; with 0 parts it is at least evaluated."""
    mixtures = (spec.data.mixture, *spec.data.alternatives.values())
    named = {name for stages in mixtures for stage in stages for name in stage.parts}
    for name in spec.data.sources:
        if name not in named:
            bound = "no stage names it: give it parts (0: only evaluated), or remove it"
            yield "data.unread-source", f"spec.data.sources.{name}", None, bound


def check_twin_stages(spec: Spec) -> Iterable[Finding]:
    """A stage differs from the one before, and an alternative from the other ones."""
    plans = {"spec.data.mixture": spec.data.mixture}
    plans |= {f"spec.data.alternatives.{it}": to for it, to in spec.data.alternatives.items()}
    for field, stages in plans.items():
        for index, (before, after) in enumerate(pairwise(stages), 1):
            if _shares_of(before) == _shares_of(after):
                bound = "the parts are those of the stage before: it would change nothing"
                yield "data.same-stage", f"{field}.{index}.parts", None, bound
    for (name, one), (other, two) in combinations(spec.data.alternatives.items(), 2):
        if one == two:
            bound = f"it is the same as {name}"
            yield "data.twin-alternatives", f"spec.data.alternatives.{other}", None, bound


def _shares_of(stage: Stage) -> Mapping[str, int]:
    return {name: parts for name, parts in stage.parts.items() if parts}


SECRETS = (
    ".aws", ".docker", ".env", ".git-credentials", ".gnupg", ".kube", ".netrc", ".pgpass",
    ".pypirc", ".ssh", "id_ed25519", "id_rsa",
)  # fmt: skip
SECRET_ENDS = (".key", ".pem", ".p12", ".pfx", ".kdbx")


def check_paths(spec: Spec) -> Iterable[Finding]:
    """No path stands twice, none is held out and trained on, each names text."""
    for name, source in spec.data.sources.items():
        field = f"spec.data.sources.{name}"
        paths, held_out = _paths_of(source, "paths"), _paths_of(source, "heldOut")
        for member, given in (("paths", paths), ("heldOut", held_out)):
            for path in sorted({it for it in given if given.count(it) > 1}):
                yield "data.twice", f"{field}.{member}", f'"{path}"', "it stands there twice"
            for path in given:
                yield from _check_path(f"{field}.{member}", path)
        for path in sorted({*paths} & {*held_out}):
            bound = "it is in paths, too: held-out text must not be trained on"
            yield "data.held-out-path", f"{field}.heldOut", f'"{path}"', bound


MAX_NAME_BYTES = 255
WHOLE_MACHINE = frozenset({"", "*", "**", "..", "dev", "proc", "sys"})
"""Parts of a path from the root that narrow nothing down, or lead to what is no file."""
MAX_PATHS = 1_000
"""Judged of one list; the rest is only read."""


def _paths_of(source: Source, member: str) -> list[str]:
    """Return the paths of one option, without what means the same place in other words."""
    given = source.options.get(member)
    if source.kind != "files" or not isinstance(given, list):
        return []
    paths = [it for it in cast("list[object]", given)[:MAX_PATHS] if isinstance(it, str)]
    return ["/".join(part for part in it.split("/") if part != ".") or it for it in paths]


def _check_path(field: str, path: str) -> Iterable[Finding]:
    parts, shown = path.split("/"), f'"{path}"'
    if any(part in SECRETS for part in parts) or path.endswith(SECRET_ENDS):
        bound = "it looks like a secret, and what is trained on ends up in the weights"
        yield "data.secret", field, shown, bound
    if path.startswith(SHELL_STARTS) or path == "~":
        yield "data.shell", field, shown, "no shell reads it: write the path out"
    if any("**" in part and part != "**" for part in parts):
        yield "data.glob", field, shown, "** must be a whole part of a path, as in a/**/*.txt"
    if max(len(part.encode()) for part in parts) > MAX_NAME_BYTES:
        bound = f"no part of a path is longer than {MAX_NAME_BYTES} bytes"
        yield "data.long-path", field, shown, bound
    if path.startswith("/") and not {*parts} - WHOLE_MACHINE:
        yield "data.whole-machine", field, shown, "it leads to all of a machine, not to text"


# --- faults, checkpoints, evaluation, record ---

MIN_STEP_FACTOR = 2
MAX_PATIENCE_MS = 7 * UNITS_MS["d"]


def check_causes(spec: Spec) -> Iterable[Finding]:
    """Limits are set for causes that exist."""
    for name in spec.faults.restarts.per_cause:
        if name not in CAUSE_NAMES:
            bound = f'unknown cause "{name}". {suggest_name(name, CAUSE_NAMES)}'
            yield "faults.cause", "spec.faults.restarts.perCause", None, bound


def check_patience(spec: Spec) -> Iterable[Finding]:
    """Deadlines tell a stuck rank from a slow one."""
    faults, field = spec.faults, "spec.faults"
    limits = faults.deadlines
    if faults.step_factor < MIN_STEP_FACTOR:
        bound = f"it must be at least {MIN_STEP_FACTOR}: one step in a hundred exceeds 1 x p99"
        yield "faults.step-factor", f"{field}.stepFactor", faults.step_factor, bound
    if limits.drain < limits.save_block:
        bound = f"it must be at least saveBlock ({format_duration(limits.save_block)}): a gang"
        bound += " that is asked to leave saves first"
        yield "faults.drain", f"{field}.deadlines.drain", format_duration(limits.drain), bound
    for phase, limit_ms in limits.by_phase().items():
        if limit_ms > MAX_PATIENCE_MS:
            name = type(limits).model_fields[phase.value].alias or phase.value
            bound = f"it must be at most {format_duration(MAX_PATIENCE_MS)}: till then all ranks"
            bound += " would wait for one that is stuck"
            place = f"{field}.deadlines.{name}"
            yield "faults.patience", place, format_duration(limit_ms), bound


def check_restart_window(spec: Spec) -> Iterable[Finding]:
    """The window is longer than the time between two restarts, or it would hold one only."""
    restarts = spec.faults.restarts
    if restarts.window < restarts.max_delay:
        bound = f"it must be at least maxDelay ({format_duration(restarts.max_delay)}): else no"
        bound += " two restarts fall into one window"
        shown = format_duration(restarts.window)
        yield "faults.window", "spec.faults.restarts.window", shown, bound


def check_permanent(spec: Spec) -> Iterable[Finding]:
    """A permanent checkpoint, where wanted, is made before the end."""
    every, total = spec.checkpoints.permanent_every_steps, spec.total_steps
    if every is not None and every > total > spec.checkpoints.every_steps:
        bound = f"it must be at most the run's {total} steps: there would be none"
        yield "checkpoints.no-permanent", "spec.checkpoints.permanentEverySteps", every, bound


def check_evaluation_cadence(spec: Spec) -> Iterable[Finding]:
    """An interval that somebody wrote is within the run."""
    given, total = spec.evaluation, spec.total_steps
    if "every_steps" in given.model_fields_set and given.every_steps > total:
        bound = f"it must be at most the run's {total} steps"
        yield "evaluation.cadence", "spec.evaluation.everySteps", given.every_steps, bound


MAX_TEXT = 4_000
MAX_TEXTS = 100
LINKS = ("http://", "https://")


def check_record(spec: Spec) -> Iterable[Finding]:
    """What is said before the launch is a page, not a book, and links lead to the web."""
    said, field = spec.record, "spec.record"
    if len(said.hypothesis) > MAX_TEXT:
        yield from _too_long(f"{field}.hypothesis", said.hypothesis)
    for name, texts in (("goals", said.goals), ("links", said.links)):
        if len(texts) > MAX_TEXTS:
            bound = f"it must be at most {MAX_TEXTS} texts"
            yield "record.many", f"{field}.{name}", f"{len(texts):,} texts", bound
        for index, text in enumerate(texts[:MAX_TEXTS]):
            if len(text) > MAX_TEXT:
                yield from _too_long(f"{field}.{name}.{index}", text)
    for index, link in enumerate(said.links[:MAX_TEXTS]):
        if not link.startswith(LINKS) or any(letter.isspace() for letter in link):
            bound = "it must begin with https:// or http:// and hold no spaces"
            yield "record.link", f"{field}.links.{index}", f'"{link[:MAX_TEXT]}"', bound


def _too_long(field: str, text: str) -> Iterable[Finding]:
    bound = f"it must be at most {MAX_TEXT:,}"
    yield "record.size", field, f"{len(text):,} characters", bound


# --- contingency and deadline ---


def check_reach(spec: Spec) -> Iterable[Finding]:
    """What a contingency may do can happen at all."""
    plan, field = spec.contingency, "spec.contingency"
    if plan.window_percent >= plan.floor_percent:
        bound = (
            f"it must lie below floorPercent ({plan.floor_percent}):"
            " a shorter run would end before the last place to shorten it"
        )
        yield "contingency.window-floor", f"{field}.windowPercent", plan.window_percent, bound
    if plan.mode != "off" and plan.max_revisions == 0:
        bound = f"it must be at least 1 with mode {plan.mode}, which could never act"
        yield "contingency.revisions", f"{field}.maxRevisions", plan.max_revisions, bound
    window = plan.window_percent * spec.total_steps // PERCENT
    declared = "min_clean_steps" in plan.model_fields_set
    if plan.mode != "off" and declared and plan.min_clean_steps > window:
        bound = f"it must be at most the {window} steps of the window (windowPercent)"
        yield "contingency.clean-steps", f"{field}.minCleanSteps", plan.min_clean_steps, bound


def check_midtrain(spec: Spec) -> Iterable[Finding]:
    """The last stage holds what it is to keep."""
    wanted = spec.contingency.midtrain_min_tokens
    start = stage_start(spec, spec.data.mixture[-1].from_percent)
    there = (spec.total_steps - start) * spec.batch.tokens_per_step
    if wanted > there:
        bound = f"it must be at most what the last mixture stage has ({there})"
        yield "contingency.midtrain", "spec.contingency.midtrainMinTokens", wanted, bound


SLIPS = (
    Rule(("fleet",), check_ranks),
    Rule(("fleet", "model", "schedule", "gate"), check_peak),
    Rule(("seed",), check_seed),
    Rule(("model",), check_model),
    Rule(("optimizer",), check_optimizer),
    Rule(("trainer",), check_shell),
    Rule(("budget", "batch"), check_steps),
    Rule(("schedule",), check_peaks),
    Rule(("schedule",), check_context_growth),
    Rule(("schedule", "budget", "batch"), check_context_starts),
    Rule(("schedule", "data"), check_warmup_stage),
    Rule(("data", "budget", "schedule"), check_block_size),
    Rule(("data",), check_unread),
    Rule(("data",), check_twin_stages),
    Rule(("data",), check_paths),
    Rule(("faults",), check_causes),
    Rule(("faults",), check_patience),
    Rule(("faults",), check_restart_window),
    Rule(("checkpoints", "budget", "batch"), check_permanent),
    Rule(("evaluation", "budget", "batch"), check_evaluation_cadence),
    Rule(("record",), check_record),
    Rule(("contingency", "budget", "batch"), check_reach),
    Rule(("contingency", "data", "budget", "batch"), check_midtrain),
)


# --- what only the instant of the launch can tell ---


def check_room(spec: Spec, now_wall_ms: int) -> Iterable[Finding]:
    """From a first launch on, there is time for what is declared until the run is due."""
    deadline = spec.deadline
    if deadline is None or is_past(deadline.at, now_wall_ms + deadline.reserve):
        return
    if (peak := _peak_of(spec)) is not None:
        needed_ms = 1_000 * spec.budget.horizon_tokens * _least_flops(spec) // peak
        if is_past(deadline.at, now_wall_ms + deadline.reserve + needed_ms):
            bound = (
                f"the horizon takes {_show_days(needed_ms)} even at all of"
                " fleet.peakFlopsPerDevice: too long for this deadline"
            )
            yield "deadline.peak", "spec.deadline.at", deadline.at, bound
    plan = spec.contingency
    needed_ms = plan.settle + plan.evaluations * plan.evaluate_every
    if plan.mode != "off" and is_past(deadline.at, now_wall_ms + deadline.reserve + needed_ms):
        bound = (
            f"mode {plan.mode} could say nothing before it: settle and {plan.evaluations} x"
            f" evaluateEvery take {_show_days(needed_ms)}; shorten them"
        )
        yield "deadline.evaluations", "spec.deadline.at", deadline.at, bound
    declared = "cool_down" in plan.model_fields_set
    if declared and plan.mode != "off" and plan.max_revisions > 1:
        yield from _check_cool_down(spec, now_wall_ms)


def _check_cool_down(spec: Spec, now_wall_ms: int) -> Iterable[Finding]:
    deadline, plan = spec.deadline, spec.contingency
    if deadline is not None and is_past(deadline.at, now_wall_ms + plan.cool_down):
        bound = (
            f"it must end before deadline.at ({deadline.at}): of {plan.max_revisions} revisions"
            " (maxRevisions) only the first could be made"
        )
        shown = format_duration(plan.cool_down)
        yield "deadline.cool-down", "spec.contingency.coolDown", shown, bound


def _show_days(duration_ms: int) -> str:
    """Return a duration in the two largest units that it has."""
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, duration_ms = divmod(duration_ms, UNITS_MS[unit])
        parts += [f"{count}{unit}"] if count else []
    return " ".join(parts[:2]) or "no time"
