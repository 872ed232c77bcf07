"""Rules of the run file's `simulation` section, and of text that is only counted."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise

from controller.core.declared.problems import Finding, show_value
from controller.core.declared.simulation import Failure
from controller.core.declared.spec import Spec

REPAIRED = frozenset({"tray", "rack", "slow", "storage", "blind"})
"""Effects that last until something is repaired; the others end with the restart."""

MOST_PACES = 1_000
MOST_DRIFT_PERMILLE = 100
MOST_CHANGE_PERCENT = 90
MOST_SPREAD_PERCENT = 300
"""A sigma of 3: one repair in forty takes 400 times the median."""


def check_throughput(spec: Spec) -> Iterable[Finding]:
    """Paces begin with the launch and are in order."""
    paces, field = spec.simulation.throughput, "spec.simulation.throughput"
    if len(paces) > MOST_PACES:
        yield "simulation.paces", field, f"of {len(paces)} paces", f"at most {MOST_PACES}"
    if paces and paces[0].from_day != 0:
        bound = "the first begins with the launch: it must be 0"
        yield "simulation.first-pace", f"{field}.0.fromDay", paces[0].from_day, bound
    for index, (before, after) in enumerate(pairwise(paces), 1):
        if after.from_day <= before.from_day:
            bound = f"it must be above the day before it ({before.from_day})"
            yield "simulation.pace-order", f"{field}.{index}.fromDay", after.from_day, bound


def check_mfu(spec: Spec) -> Iterable[Finding]:
    """An MFU has a peak to be a share of, and no second word on the throughput beside it."""
    supposed, field = spec.simulation, "spec.simulation.mfuPercent"
    if supposed.mfu_percent is None:
        return
    if spec.fleet.peak_flops_per_device is None:
        bound = "it needs fleet.peakFlopsPerDevice, of which it is a share"
        yield "simulation.peak", field, supposed.mfu_percent, bound
    if supposed.throughput:
        bound = "throughput says how fast the fleet is already: give one of them"
        yield "simulation.two-paces", field, supposed.mfu_percent, bound


def check_noise(spec: Spec) -> Iterable[Finding]:
    """Drift, changes of pace and spread are such as machines show."""
    supposed, field = spec.simulation, "spec.simulation"
    if supposed.drift_permille > MOST_DRIFT_PERMILLE:
        bound = f"it must be 0 to {MOST_DRIFT_PERMILLE} a day"
        yield "simulation.drift", f"{field}.driftPermille", supposed.drift_permille, bound
    if supposed.repair_spread_percent > MOST_SPREAD_PERCENT:
        bound, spread = f"it must be 0 to {MOST_SPREAD_PERCENT}", supposed.repair_spread_percent
        yield "simulation.spread", f"{field}.repairSpreadPercent", spread, bound
    changes = supposed.changes
    if changes.percent > MOST_CHANGE_PERCENT or (changes.every and not changes.percent):
        bound = f"it must be 1 to {MOST_CHANGE_PERCENT} where changes.every is given"
        yield "simulation.changes", f"{field}.changes.percent", changes.percent, bound


def check_failures(spec: Spec) -> Iterable[Finding]:
    """What breaks is repaired, and nothing else is."""
    for name, failure in spec.simulation.failures.items():
        field = f"spec.simulation.failures.{name}"
        if failure.effect in REPAIRED and not failure.repair:
            bound = f"it must be given: {failure.effect} lasts until it is repaired"
            yield "simulation.repair", f"{field}.repair", None, bound
        yield from _check_spare_fields(field, failure)


def _check_spare_fields(field: str, failure: Failure) -> Iterable[Finding]:
    if failure.effect not in REPAIRED and failure.repair:
        bound = f"{failure.effect} needs none: a restart ends it"
        yield "simulation.no-repair", f"{field}.repair", None, bound
    if failure.effect != "slow" and "percent" in failure.model_fields_set:
        bound = f"only slow has one, and this is {failure.effect}"
        yield "simulation.no-percent", f"{field}.percent", None, bound


def check_launch(spec: Spec) -> Iterable[Finding]:
    """The supposed launch lies before the deadline."""
    launch, deadline = spec.simulation.launch_at, spec.deadline
    if launch is None or deadline is None:
        return
    if datetime.fromisoformat(launch) >= datetime.fromisoformat(deadline.at):
        bound = f"it must lie before deadline.at ({deadline.at})"
        yield "simulation.launch", "spec.simulation.launchAt", launch, bound


def check_declared(spec: Spec) -> Iterable[Finding]:
    """Text that is only counted has a count, and nothing else."""
    for name, source in spec.data.sources.items():
        if source.kind != "declared":
            continue
        field, options = f"spec.data.sources.{name}", source.options
        yield from _check_tokens(field, options)
        for option in sorted(set(options) - {"tokens"}):
            bound = f'unknown option "{option}": declared text has tokens only'
            yield "data.declared-option", field, None, bound


def _check_tokens(field: str, options: Mapping[str, object]) -> Iterable[Finding]:
    tokens = options.get("tokens")
    if type(tokens) is not int or tokens < 1:
        shown = None if tokens is None else show_value(tokens)
        yield "data.declared-tokens", f"{field}.tokens", shown, "it must be a whole number above 0"
