"""From a run file to the one that a rehearsal takes: whatever is supposed stands in it.

What is declared stays; what is not is scaled from the model case, or worked out from the rest.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeVar

from pydantic.alias_generators import to_camel

from contract.config import SourceFiles
from contract.model import flops_per_token
from controller.core.declared.fields import format_duration
from controller.core.declared.planning import wall_ms_of
from controller.core.declared.problems import Finding, SpecError
from controller.core.declared.run_file import to_problems
from controller.core.declared.simulation import DAY_MS, SECOND_MS, Pace, Restart, Save, Simulation
from controller.core.declared.spec import RunFile, Source, Spec
from controller.core.declared.spec_rules import check_sources

MODEL_DEVICES = 704
"""Of the fleet whose failures the default table tells."""

LOCAL_RESTART = Restart.model_validate(
    {"start": "1s", "rendezvous": "2s", "restore": "1s", "compile": "4s", "firstStep": "1s"}
)
"""One machine: 9.9 s from a kill to the first new step (docs/figures.md)."""
LOCAL_SAVE = Save.model_validate({"block": "50ms", "commit": "1s"})
LOCAL_DETECT_MS = 500

ROOM_PERCENT = 125
"""Of the plan's time: what a deadline is supposed to leave where no launch is declared."""
NO_DEADLINE_LAUNCH = "2026-01-01T00:00:00+00:00"

HELDOUT_TOKENS = 10**12
"""Of text that is only counted: enough for any evaluation."""
MOST_FAILURES, MOST_CHANGES = 20_000, 20_000
"""In the planned time; a rehearsal of more tells nothing and takes hours."""
MOST_SAVES = 200_000
MOST_DAYS = 3_660
"""Ten years: of a plan, and from the launch to the deadline."""

OVERTIME = 3
LEAST_LIMIT_MS = 30 * DAY_MS
"""A run is given up after so many times what its steps need, but not before the deadline and the
plan's time once more, nor before this: restarts, repairs and answers do not get shorter with it."""


def suppose(run_file: RunFile, source_tokens: Mapping[str, int], advice: str) -> RunFile:
    """Return the run file with its simulation worked out and every source as a token count.

    `source_tokens` are those of the sources that are not declared as counts already.

    Raises:
        SpecError: nothing says how fast the fleet is, or the run could not live as supposed.
    """
    spec = run_file.spec
    paces = work_out_throughput(spec)
    if not paces:
        refuse([("simulation.unknown-pace", PACE_FIELD, None, UNKNOWN_PACE)], advice)
    refuse([*_check_span(spec, paces), *_check_step(spec, paces)], advice)
    tokens = {**count_declared(spec), **source_tokens}
    supposed = spec.model_copy(
        update={
            "simulation": _fill(spec, paces),
            "data": spec.data.model_copy(update={"sources": _count(tokens)}),
        }
    )
    refuse([*check_supposed(supposed), *check_sources(spec, make_sources(tokens))], advice)
    return run_file.model_copy(update={"spec": supposed})


def refuse(findings: list[Finding], advice: str) -> None:
    """Raise SpecError where something was found."""
    if findings:
        raise SpecError(to_problems(findings, advice))


PACE_FIELD = "spec.simulation.throughput"

UNKNOWN_PACE = (
    "it must be given, such as [{fromDay: 0, tokensPerSecond: 2_000}]: nothing else here says how"
    " fast the fleet is (mfuPercent with fleet.peakFlopsPerDevice would, or"
    " gate.minTokensPerSecond); of a local fleet, ctl gate measures it"
)


def _fill(spec: Spec, paces: list[Pace]) -> Simulation:
    given = spec.simulation
    update: dict[str, object] = {
        "throughput": paces,
        "launch_at": given.launch_at or _work_out_launch(spec, paces),
    }
    if "failures" not in given.model_fields_set:
        update["failures"] = {
            name: it.model_copy(update={"every": it.every * MODEL_DEVICES // spec.fleet.devices})
            for name, it in given.failures.items()
        }
    if spec.fleet.kind == "local":
        update["restart"] = _override(LOCAL_RESTART, given.restart)
        update["save"] = _override(LOCAL_SAVE, given.save)
        is_given = "detect" in given.model_fields_set
        update["detect"] = given.detect if is_given else LOCAL_DETECT_MS
    return given.model_copy(update=update)


Part = TypeVar("Part", Restart, Save)


def _override(default: Part, given: Part) -> Part:
    """Return the default with what was declared in place of its own."""
    declared = {name: getattr(given, name) for name in given.model_fields_set}
    return default.model_copy(update=declared)


# --- how fast, and from when ---


def work_out_throughput(spec: Spec) -> list[Pace]:
    """Return the paces as declared, or by the MFU, or by the gate; empty: nothing says."""
    declared, fleet = spec.simulation, spec.fleet
    if declared.throughput:
        return declared.throughput
    if declared.mfu_percent is not None and fleet.peak_flops_per_device is not None:
        flops = fleet.devices * fleet.peak_flops_per_device * declared.mfu_percent // 100
        per_token = flops_per_token(spec.model.shape, spec.schedule.context[0].length)
        return [_constant(flops // per_token)]
    return [_constant(spec.gate.min_tokens_per_second)] if spec.gate is not None else []


def _constant(tokens_per_second: int) -> Pace:
    return Pace.model_validate({"fromDay": 0, "tokensPerSecond": max(1, tokens_per_second)})


def plan_ms(spec: Spec, paces: list[Pace]) -> int:
    """Return how long the plan takes when nothing fails, saves and evaluations left out."""
    tokens, passed_ms = _weigh_tokens(spec), 0
    for pace, after in pairwise(paces):
        span_ms = (after.from_day - pace.from_day) * DAY_MS
        done = span_ms * pace.tokens_per_second // SECOND_MS
        if done >= tokens:
            return passed_ms + tokens * SECOND_MS // pace.tokens_per_second
        tokens, passed_ms = tokens - done, passed_ms + span_ms
    return passed_ms + tokens * SECOND_MS // paces[-1].tokens_per_second


def find_limit_ms(spec: Spec) -> int:
    """Return how long after its launch a run that is not done is given up; of a supposed one."""
    planned_ms = plan_ms(spec, spec.simulation.throughput)
    span_ms = _find_span_ms(spec)
    return max(OVERTIME * planned_ms, (span_ms or 0) + planned_ms, LEAST_LIMIT_MS)


def _find_span_ms(spec: Spec) -> int | None:
    """Return the time from the launch to the deadline, where both are given."""
    launch, deadline = spec.simulation.launch_at, spec.deadline
    if launch is None or deadline is None:
        return None
    return wall_ms_of(deadline.at) - wall_ms_of(launch)


def _weigh_tokens(spec: Spec) -> int:
    """Return the tokens of the plan, each counted by its FLOPs over those of the first context."""
    stages, total = spec.schedule.context, spec.total_steps
    starts = [stage.from_percent * total // 100 for stage in stages]
    flops = [flops_per_token(spec.model.shape, stage.length) for stage in stages]
    steps = (end - start for start, end in pairwise([*starts, total]))
    work = sum(count * cost for count, cost in zip(steps, flops, strict=True))
    return work * spec.batch.tokens_per_step // flops[0]


def _work_out_launch(spec: Spec, paces: list[Pace]) -> str:
    """Return the instant of launch that leaves the plan a fourth more than it takes."""
    deadline = spec.deadline
    if deadline is None:
        return NO_DEADLINE_LAUNCH
    room_ms = deadline.reserve + plan_ms(spec, paces) * ROOM_PERCENT // 100
    due = datetime.fromtimestamp(wall_ms_of(deadline.at) // SECOND_MS, UTC)
    return (due - timedelta(seconds=room_ms // SECOND_MS)).isoformat()


# --- text that is only counted ---


def count_declared(spec: Spec) -> dict[str, int]:
    """Return the tokens of the sources that are declared as counts."""
    counted: dict[str, int] = {}
    for name, source in spec.data.sources.items():
        tokens = source.options.get("tokens")
        if source.kind == "declared" and isinstance(tokens, int):
            counted[name] = tokens
    return counted


def _count(tokens: Mapping[str, int]) -> dict[str, Source]:
    return {
        name: Source(kind="declared", options={"tokens": count}) for name, count in tokens.items()
    }


def make_sources(tokens: Mapping[str, int]) -> dict[str, SourceFiles]:
    """Return token counts as the sources of a run whose text nobody reads."""
    return {
        name: SourceFiles(
            train="-", heldout="-", train_sha256="0" * 64, heldout_sha256="0" * 64,
            train_tokens=count, heldout_tokens=HELDOUT_TOKENS,
        )
        for name, count in tokens.items()
    }  # fmt: skip


# --- whether the run could live as supposed ---


def _check_span(spec: Spec, paces: list[Pace]) -> Iterable[Finding]:
    """The plan and the deadline end within what can be rehearsed."""
    days, launch = plan_ms(spec, paces) // DAY_MS, spec.simulation.launch_at
    if days > MOST_DAYS:
        bound = f"the plan takes {days} days at that pace; at most {MOST_DAYS} are rehearsed"
        slowest = min(it.tokens_per_second for it in paces)
        yield "simulation.long", _name_pace(spec), slowest, bound
    span_ms = _find_span_ms(spec)
    if span_ms is not None and spec.deadline is not None and span_ms > MOST_DAYS * DAY_MS:
        bound = f"it must lie within {MOST_DAYS} days of simulation.launchAt ({launch})"
        yield "simulation.far", "spec.deadline.at", spec.deadline.at, bound


def _name_pace(spec: Spec) -> str:
    """Return the field that the pace comes from."""
    if spec.simulation.throughput:
        return PACE_FIELD
    is_share = spec.simulation.mfu_percent is not None
    return "spec.simulation.mfuPercent" if is_share else "spec.gate.minTokensPerSecond"


def check_supposed(spec: Spec) -> Iterable[Finding]:
    """A restart and a save end within the deadlines of their phases, and failures can be told."""
    supposed, faults = spec.simulation, spec.faults
    phases = {name: to_camel(name) for name in Restart.model_fields}
    rows = [
        (f"restart.{shown}", getattr(supposed.restart, name), f"deadlines.{shown}", limit_ms)
        for name, shown in phases.items()
        for limit_ms in [getattr(faults.deadlines, name)]
    ]
    rows.append(
        ("save.block", supposed.save.block, "deadlines.saveBlock", faults.deadlines.save_block)
    )
    rows.append(("save.commit", supposed.save.commit, "commit", faults.commit))
    for name, supposed_ms, limit, limit_ms in rows:
        if supposed_ms >= limit_ms:
            bound = f"it must be below faults.{limit} ({format_duration(limit_ms)})"
            shown = format_duration(supposed_ms)
            yield "simulation.limit", f"spec.simulation.{name}", shown, bound
    yield from _check_count(spec)


def _check_count(spec: Spec) -> Iterable[Finding]:
    supposed = spec.simulation
    planned_ms = plan_ms(spec, supposed.throughput)
    count = sum(planned_ms // it.every for it in supposed.failures.values())
    if count > MOST_FAILURES:
        bound = (
            f"{count} failures are to be expected in the {format_duration(planned_ms)} of the plan;"
            f" at most {MOST_FAILURES} are rehearsed"
        )
        yield "simulation.many", "spec.simulation.failures", None, bound
    every_ms = supposed.changes.every
    if every_ms and planned_ms // every_ms > MOST_CHANGES:
        least = format_duration(-(-planned_ms // MOST_CHANGES))
        bound = f"at most {MOST_CHANGES} changes are rehearsed: it must be at least {least}"
        shown = format_duration(every_ms)
        yield "simulation.many-changes", "spec.simulation.changes.every", shown, bound
    every = spec.checkpoints.every_steps
    if spec.total_steps // every > MOST_SAVES:
        bound = f"at most {MOST_SAVES} saves are rehearsed, of {spec.total_steps} steps"
        yield "simulation.many-saves", "spec.checkpoints.everySteps", every, bound


def _check_step(spec: Spec, paces: list[Pace]) -> Iterable[Finding]:
    """A step takes a millisecond, the grain of virtual time, and ends before it counts as stuck."""
    fastest = max(it.tokens_per_second for it in paces)
    most = spec.batch.tokens_per_step * SECOND_MS
    if fastest > most:
        bound = f"it must be at most {most}: a step of {spec.batch.tokens_per_step} tokens in 1 ms"
        yield "simulation.fast", _name_pace(spec), fastest, bound
    slowest, limit_ms = min(it.tokens_per_second for it in paces), spec.faults.deadlines.step
    if most >= slowest * limit_ms:
        limit = f"faults.deadlines.step ({format_duration(limit_ms)})"
        bound = f"a step of {spec.batch.tokens_per_step} tokens must end within {limit}"
        yield "simulation.slow", _name_pace(spec), slowest, bound
