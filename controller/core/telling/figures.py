"""How the run goes right now, from the newest lines of the step log."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from contract.plan import Plan
from contract.wire import StepRecord

RECENT_STEPS = 50
"""Enough for a steady median, short enough to show a change within seconds."""


@dataclass(frozen=True)
class Figures:
    """Of the newest steps; None where nothing says it."""

    loss: float
    """Nats a token."""
    grad_norm: float
    learning_rate: float
    """Of the first parameter group, as received by the step."""
    step_s: float | None
    """Median of clean steps: neither first, nor saving, nor evaluating."""
    tokens_per_second: float | None
    mfu_percent: float | None
    drops_percent: float | None
    """Sender and receiver, of all assignments; None for a model without routing."""


def measure(
    records: Sequence[StepRecord], plan: Plan, peak_flops_per_second: float | None
) -> Figures | None:
    """Return the figures of `records` (newest last); `peak_flops_per_second` is the gang's."""
    if not records:
        return None
    newest, recent = records[-1], records[-RECENT_STEPS:]
    clean = [record.step_s for record in recent if not record.tags]
    step_s = median(clean) if clean else None
    rate = plan.tokens_per_step / step_s if step_s else None
    return Figures(
        loss=float.fromhex(newest.loss),
        grad_norm=float.fromhex(newest.grad_norm),
        learning_rate=float.fromhex(next(iter(newest.lr.values()), "0x0p+0")),
        step_s=step_s,
        tokens_per_second=rate,
        mfu_percent=_mfu_percent(rate, plan, newest.step, peak_flops_per_second),
        drops_percent=drops_percent(recent),
    )


def _mfu_percent(
    rate: float | None, plan: Plan, step: int, peak_flops_per_second: float | None
) -> float | None:
    if rate is None or not peak_flops_per_second:
        return None
    percent = 100 * rate * plan.context_at(step).flops_per_token / peak_flops_per_second
    # Beyond the peak nothing runs: the trainer computes another model than the plan counts.
    return percent if percent <= 100 else None  # noqa: PLR2004  # percent


def drops_percent(records: Sequence[StepRecord]) -> float | None:
    """Return dropped assignments of both sides in percent of all; None without any assignment."""
    total = sum(record.assignments for record in records)
    dropped = sum(record.drops.sender + record.drops.receiver for record in records)
    return 100 * dropped / total if total else None
