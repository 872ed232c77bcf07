"""The admission test: what a gang's first steps say about the speed of a run, and the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Literal

from contract.wire import StepRecord

WARM_STEPS = 2
"""Not measured: the first steps of a gang also fill caches."""
MIN_STEPS = 4
"""A median of two steps is the least that says anything."""

Verdict = Literal["passed", "failed", "undeclared"]

PEAK_LABELS = {"declared": "declared", "measured": "a GEMM measured on this machine"}


@dataclass(frozen=True)
class Peak:
    """FLOP/s that the gang's devices can reach together, and where that number comes from."""

    flops_per_second: float
    origin: str
    """`declared` in the run file, or `measured` by the trainer as a matrix product at its start."""


@dataclass(frozen=True)
class Evidence:
    """All that the verdict rests on."""

    records: Sequence[StepRecord]
    """The first steps, in order."""
    flops_per_token: int
    """Of the plan, at the first step's context."""
    peak: Peak | None
    memory_bytes: Mapping[int, int]
    """Rank -> its peak."""
    memory_source: str
    """Which figure of whom that is."""
    start_s: float
    """From the launch of the ranks to the end of the first step."""


@dataclass(frozen=True)
class GateReport:
    """The admission test's result."""

    verdict: Verdict
    minimum: int | None
    """Tokens a second that the run file demands."""
    steps: int
    measured_steps: int
    tokens_per_second: float
    """Median over the measured steps."""
    step_s: float
    """Median over the measured steps."""
    p90_step_s: float
    start_s: float
    memory_bytes: Mapping[int, int]
    memory_source: str
    sender_drops_percent: float | None
    receiver_drops_percent: float | None
    mfu_percent: float | None
    peak: Peak | None
    first_loss: float
    """Nats a token."""
    last_loss: float


def judge(evidence: Evidence, minimum: int | None) -> GateReport:
    """Return the report on `evidence`, which holds at least `MIN_STEPS` steps.

    Measured are the steps after the first two; those tagged as disturbed only where no other is.
    """
    records = evidence.records
    assert len(records) >= MIN_STEPS, len(records)
    measured = _measured(records)
    rate = median(it.tokens / it.step_s for it in measured)
    times = sorted(it.step_s for it in measured)
    return GateReport(
        verdict=_verdict(rate, minimum),
        minimum=minimum,
        steps=len(records),
        measured_steps=len(measured),
        tokens_per_second=rate,
        step_s=median(times),
        p90_step_s=times[ceil(0.9 * len(times)) - 1],
        start_s=evidence.start_s,
        memory_bytes=evidence.memory_bytes,
        memory_source=evidence.memory_source,
        sender_drops_percent=_drops_percent(records, "sender"),
        receiver_drops_percent=_drops_percent(records, "receiver"),
        mfu_percent=_mfu_percent(rate, evidence),
        peak=evidence.peak,
        first_loss=float.fromhex(records[0].loss),
        last_loss=float.fromhex(records[-1].loss),
    )


def _measured(records: Sequence[StepRecord]) -> Sequence[StepRecord]:
    warm = records[WARM_STEPS:]
    return [it for it in warm if not it.tags] or warm


def _verdict(rate: float, minimum: int | None) -> Verdict:
    if minimum is None:
        return "undeclared"
    return "passed" if rate >= minimum else "failed"


def _drops_percent(
    records: Sequence[StepRecord], side: Literal["sender", "receiver"]
) -> float | None:
    total = sum(it.assignments for it in records)
    return 100 * sum(getattr(it.drops, side) for it in records) / total if total else None


def _mfu_percent(rate: float, evidence: Evidence) -> float | None:
    if evidence.peak is None:
        return None
    percent = 100 * rate * evidence.flops_per_token / evidence.peak.flops_per_second
    # Beyond the peak nothing runs: the trainer computes another model than the plan counts.
    return percent if percent <= 100 else None  # noqa: PLR2004  # percent


def describe_json(name: str, report: GateReport) -> dict[str, object]:
    """Return the report as JSON-able values, with the keys documented in docs/cli.md."""
    peak = report.peak
    return {
        "format": 1,
        "run": name,
        "verdict": report.verdict,
        "min_tokens_per_second": report.minimum,
        "tokens_per_second": report.tokens_per_second,
        "steps": report.steps,
        "measured_steps": report.measured_steps,
        "step_s": report.step_s,
        "p90_step_s": report.p90_step_s,
        "start_s": report.start_s,
        "memory_bytes": [report.memory_bytes[rank] for rank in sorted(report.memory_bytes)],
        "memory_source": report.memory_source,
        "drops_percent": {
            "sender": report.sender_drops_percent,
            "receiver": report.receiver_drops_percent,
        },
        "mfu_percent": report.mfu_percent,
        "peak_flops_per_second": peak.flops_per_second if peak else None,
        "peak_origin": peak.origin if peak else None,
        "first_loss": report.first_loss,
        "last_loss": report.last_loss,
    }
