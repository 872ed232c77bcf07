"""What a step said, on the host: the record of the step log and the numbers of /metrics."""

import logging
import time
from dataclasses import dataclass

import jax
import numpy as np

from contract import metrics
from contract.plan import Plan
from contract.wire import STEPS_FILE, Drops, StepRecord
from trainer.files import LineWriter
from trainer.seat import Seat
from trainer.step import Outputs, join_words
from trainer.telemetry import Meter

LOG = logging.getLogger(__name__)

WORD_DIGITS = 16
"""Hexadecimal digits of the plan's sha that a step carries."""


@dataclass(frozen=True)
class Report:
    """A step's outputs as Python numbers; sums over blocks are exact."""

    loss: float
    grad_norm: float
    is_finite: bool
    lr: dict[str, float]
    assignments: int
    dropped_sender: int
    dropped_receiver: int
    router_entropy: float
    router_bias_max: float
    plan_words: tuple[int, int]
    """Smallest and largest over the gang."""

    @property
    def has_one_plan(self) -> bool:
        """Whether all ranks ran the step under one plan."""
        low, high = self.plan_words
        return low >> 1 == high >> 1

    @property
    def has_news(self) -> bool:
        """Whether some rank had news when the step began."""
        return bool(self.plan_words[1] & 1)


def make_word(plan: Plan, *, has_news: bool) -> int:
    """Return the 64 bits that a rank carries through a step: of its plan's sha, and the news bit.

    Where all but the last bit are equal on all ranks, the maximum has the last bit of any.
    """
    return int(plan.sha[:WORD_DIGITS], 16) >> 1 << 1 | has_news


def read_outputs(outputs: Outputs) -> Report:
    """Wait for the step and return what it said; raises what the step failed with."""
    values = jax.device_get(outputs)
    return Report(
        loss=float(values.loss),
        grad_norm=float(values.grad_norm),
        is_finite=bool(values.is_finite),
        lr={group: float(rate) for group, rate in values.lr.items()},
        assignments=_sum_blocks(values.assignments),
        dropped_sender=_sum_blocks(values.dropped_sender),
        dropped_receiver=_sum_blocks(values.dropped_receiver),
        router_entropy=float(values.router_entropy),
        router_bias_max=float(values.router_bias_max),
        plan_words=(join_words(values.plan_word_min), join_words(values.plan_word_max)),
    )


def _sum_blocks(counts: np.ndarray) -> int:
    # 48 blocks of 369,098,752 assignments are above int32.
    return int(np.sum(counts, dtype=np.int64))


@dataclass(frozen=True)
class Timing:
    """How long a step took and what disturbed it."""

    step_s: float
    data_wait_s: float
    entry_s: float
    """From the end of the step before to the entry into this one."""
    tags: tuple[str, ...]


class Reporter:
    """Writes the step log and counts, on rank 0; other ranks count only what each rank serves."""

    def __init__(self, seat: Seat, meter: Meter, code: str) -> None:
        self._seat = seat
        self._meter = meter
        self._code = code
        self._log = LineWriter(seat.attempt_dir / STEPS_FILE)

    def record(self, plan: Plan, step: int, report: Report, timing: Timing) -> None:
        """Record the step `step`, which is complete now."""
        self._meter.add(metrics.RANK_PRECOLLECTIVE, timing.entry_s)
        if not self._seat.is_first:
            return
        self._log.write(self._make_record(plan, step, report, timing).model_dump_json())
        self._count(plan, step, report)

    def flush(self) -> None:
        """Write what a full disk refused, if it now can be."""
        self._log.flush()

    def _make_record(self, plan: Plan, step: int, report: Report, timing: Timing) -> StepRecord:
        return StepRecord.model_validate(
            {
                "line": plan.line.name,
                "step": step,
                "plan_sha": plan.sha,
                "execution_sha": plan.execution_sha,
                "code": self._code,
                "lr": {group: rate.hex() for group, rate in report.lr.items()},
                "loss": report.loss.hex(),
                "grad_norm": report.grad_norm.hex(),
                "tokens": plan.tokens_per_step,
                "assignments": report.assignments,
                "drops": Drops(sender=report.dropped_sender, receiver=report.dropped_receiver),
                "step_s": timing.step_s,
                "data_wait_s": timing.data_wait_s,
                "wall_s": time.time(),
                "tags": list(timing.tags),
            }
        )

    def _count(self, plan: Plan, step: int, report: Report) -> None:
        meter = self._meter
        replay = "true" if step < self._seat.highest_step else "false"
        tokens = plan.tokens_per_step
        meter.set(metrics.STEP, step + 1)
        meter.add(metrics.TOKENS, tokens, replay=replay)
        meter.add(metrics.FLOPS, tokens * plan.context_at(step).flops_per_token)
        meter.set(metrics.LOSS, report.loss)
        meter.set(metrics.GRAD_NORM, report.grad_norm)
        for group, rate in report.lr.items():
            meter.set(metrics.LEARNING_RATE, rate, group=group)
        meter.set(metrics.LAST_STEP_TIMESTAMP, time.time())
        meter.add(metrics.ASSIGNMENTS, report.assignments)
        meter.add(metrics.DROPPED, report.dropped_sender, stage="sender")
        meter.add(metrics.DROPPED, report.dropped_receiver, stage="receiver")
        meter.set(metrics.ENTROPY, report.router_entropy)
        meter.set(metrics.BIAS_MAX, report.router_bias_max)
