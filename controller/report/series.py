"""Speed, loss and drops over tokens: medians of buckets, so that a million steps stay small."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from statistics import median

from contract.plan import Plan
from contract.wire import StepRecord
from controller.core.telling.summary import Evidence

MAX_BUCKETS = 300
PERCENT = 100


@dataclass(frozen=True)
class Bucket:
    """Neighbouring steps of the surviving line; None: nothing says it."""

    tokens: int
    """Trained when half of its steps were."""
    steps: int
    """Logged ones."""
    tokens_per_second: float | None
    mfu_percent: float | None
    loss: float | None
    """Nats a token."""
    sender_percent: float | None
    """Of all assignments."""
    receiver_percent: float | None


@dataclass(frozen=True)
class SeriesScene:
    """What the steps did over tokens."""

    buckets: Sequence[Bucket | None]
    """In order, None where no step of the bucket was logged: a gap, not a zero."""
    bucket_steps: int
    starts: Sequence[int]
    """Tokens at which each later attempt began, its restored steps counted."""
    forks: Sequence[int]
    """Tokens at which revisions took effect."""
    has_peak: bool
    """The devices' peak is known, so that there can be an MFU."""


def set_series(evidence: Evidence) -> SeriesScene:
    """Return the series of the surviving line."""
    plan, surviving = evidence.memory.held_plan, evidence.course.surviving
    first, last = min(surviving, default=0), max(surviving, default=-1)
    size = max(1, -(-(last + 1 - first) // MAX_BUCKETS))
    peak = evidence.peak_flops_per_second
    found = dict(_fill(surviving, plan, size, peak))
    per_step = plan.tokens_per_step
    wanted = range(first // size, last // size + 1) if surviving else ()
    return SeriesScene(
        buckets=[found.get(index) for index in wanted],
        bucket_steps=size,
        starts=sorted({it.steps[0].step * per_step for it in evidence.histories[1:] if it.steps}),
        forks=[it.fork_step * per_step for it in evidence.memory.adopted],
        has_peak=bool(peak),
    )


def _fill(
    surviving: Mapping[int, StepRecord], plan: Plan, size: int, peak: float | None
) -> Iterator[tuple[int, Bucket]]:
    for index, steps in groupby(surviving.values(), lambda it: it.step // size):
        yield index, _sum_up(list(steps), plan, peak)


def _sum_up(records: Sequence[StepRecord], plan: Plan, peak: float | None) -> Bucket:
    rate = _rate_of(records, plan)
    losses = [float.fromhex(it.loss) for it in records]
    finite = [it for it in losses if isfinite(it)]
    middle = records[len(records) // 2].step
    return Bucket(
        tokens=(middle + 1) * plan.tokens_per_step,
        steps=len(records),
        tokens_per_second=rate,
        mfu_percent=_mfu_of(rate, plan, middle, peak),
        loss=median(finite) if finite else None,
        sender_percent=_share(records, "sender"),
        receiver_percent=_share(records, "receiver"),
    )


def _rate_of(records: Sequence[StepRecord], plan: Plan) -> float | None:
    """Return tokens a second by the median clean step, or any but a first where none is clean."""
    clean = [it.step_s for it in records if not it.tags]
    times = clean or [it.step_s for it in records if "first" not in it.tags]
    middle = median(times) if times else 0.0
    return plan.tokens_per_step / middle if middle else None


def _mfu_of(rate: float | None, plan: Plan, step: int, peak: float | None) -> float | None:
    if rate is None or not peak or step >= plan.total_steps:
        return None
    percent = PERCENT * rate * plan.context_at(step).flops_per_token / peak
    # Beyond the peak nothing runs: the trainer computes another model than the plan counts.
    return percent if percent <= PERCENT else None


def _share(records: Sequence[StepRecord], side: str) -> float | None:
    total = sum(it.assignments for it in records)
    return PERCENT * sum(getattr(it.drops, side) for it in records) / total if total else None
