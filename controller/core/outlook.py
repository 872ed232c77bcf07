"""From what was measured to forecasts of a plan: how far, how likely, what a cut would cost."""

from collections.abc import Sequence
from fractions import Fraction

from contract.plan import ContextStage, Plan
from controller.core.chance import PERMILLE
from controller.core.forecast import (
    Forecast,
    Hazard,
    Lag,
    Work,
    find_chance,
    forecast,
    learn_hazard,
    split_lag,
)
from controller.core.memory import Memory
from controller.core.pace import PaceView
from controller.core.proposal import LossCost
from controller.core.readings import Instant
from controller.core.revise import move_context

PPM = 1_000_000
US_PER_MS = 1_000

LOW_EXPONENT, HIGH_EXPONENT = 0.05, 0.15
LOW_SHARE, HIGH_SHARE = 0.25, 1.0
ASSUMPTION = (
    "the reducible part of the loss, 25% to 100% of today's, falls with tokens to the power of"
    " -0.05 to -0.15"
)


def list_work(context: Sequence[ContextStage], step: int, total_steps: int) -> list[Work]:
    """Return the steps from `step` to `total_steps` by context stage, with their cost.

    The cost is relative to a step of the stage that governs `step`, by FLOPs a token: at another
    length nothing was measured yet.
    """
    governing = [stage for stage in context if stage.start <= step] or list(context[:1])
    here = governing[-1].flops_per_token
    ends = [*(stage.start for stage in context[1:]), total_steps]
    found: list[Work] = []
    for stage, end in zip(context, ends, strict=True):
        steps = min(end, total_steps) - max(stage.start, step)
        if steps > 0:
            found.append(Work(steps=steps, cost_ppm=PPM * stage.flops_per_token // here))
    return found


def look_ahead(memory: Memory, pace: PaceView, now: Instant, plan: Plan) -> Forecast:
    """Return the forecast of the finish under `plan`, the run standing where `pace` says."""
    return _forecast(memory, pace, now, plan.context, plan.total_steps)


def look_shorter(memory: Memory, pace: PaceView, now: Instant, total_steps: int) -> Forecast:
    """Return the forecast of the finish if the plan in force ended after `total_steps`."""
    context = move_context(memory.plan, pace.until_step, total_steps)
    return _forecast(memory, pace, now, context, total_steps)


def _forecast(
    memory: Memory,
    pace: PaceView,
    now: Instant,
    context: Sequence[ContextStage],
    total_steps: int,
) -> Forecast:
    return forecast(
        now.wall_ms,
        list_work(context, pace.until_step, total_steps),
        pace,
        gather_hazard(memory, pace),
        memory.policy.terms.due_wall_ms,
        step=pace.until_step,
        total_steps=total_steps,
    )


def gather_hazard(memory: Memory, pace: PaceView) -> Hazard:
    """Return what interruptions are to be expected, by this run's record and the prior."""
    terms = memory.policy.terms
    return learn_hazard(
        pace,
        {incident.attempt for incident in memory.incidents},
        settle_ms=terms.settle_ms,
        devices=terms.devices,
        save_interval_ms=terms.save_every_steps * pace.step_us // US_PER_MS,
    )


def find_horizon(
    memory: Memory, pace: PaceView, now: Instant, floor_steps: int
) -> tuple[int, Forecast]:
    """Return the largest number of steps with P(on time) at its target, and that forecast.

    At least `floor_steps`, whose P may be below the target: then the deadline cannot be met.
    """
    terms, hazard = memory.policy.terms, gather_hazard(memory, pace)
    assert terms.due_wall_ms is not None
    due_wall_ms, target = terms.due_wall_ms, terms.target_percent * PERMILLE

    def meets_target(total_steps: int) -> bool:
        context = move_context(memory.plan, pace.until_step, total_steps)
        work = list_work(context, pace.until_step, total_steps)
        permille = find_chance(
            now.wall_ms, work, pace, hazard, due_wall_ms, total_steps=total_steps
        )
        return permille >= target

    low, high = floor_steps, memory.plan.total_steps
    if meets_target(low):
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if meets_target(middle) else (low, middle - 1)
    return low, look_shorter(memory, pace, now, low)


def measure_lag(memory: Memory, pace: PaceView, now: Instant) -> Lag | None:
    """Return how far behind the even pace to the due instant the run is; None without one."""
    terms = memory.policy.terms
    if terms.due_wall_ms is None:
        return None
    return split_lag(
        now.wall_ms - terms.launched_wall_ms,
        pace,
        total_steps=memory.plan.total_steps,
        span_ms=terms.due_wall_ms - terms.launched_wall_ms,
    )


def estimate_loss_cost(loss_micronats: int | None, before: int, after: int) -> LossCost | None:
    """Return what training `after` instead of `before` steps may cost in loss; None: not known."""
    if loss_micronats is None or after >= before:
        return None
    ratio = float(Fraction(before, after))
    low = LOW_SHARE * loss_micronats * (ratio**LOW_EXPONENT - 1)
    high = HIGH_SHARE * loss_micronats * (ratio**HIGH_EXPONENT - 1)
    return LossCost(low_micronats=round(low), high_micronats=round(high), assumption=ASSUMPTION)
