"""When the run will be done, as a distribution in closed form.

Clean time is normal around the measured pace; the time that interruptions will cost is a Gamma
on top, by moments. Everything recorded is whole numbers. docs/forecast.md holds it to account.
"""

from collections.abc import Container, Sequence
from math import floor, hypot, sqrt
from typing import NamedTuple

from contract.plan import Frozen
from controller.core.distribution import NormalPlusGamma
from controller.core.pace import KEPT_OUTAGES, US_PER_MS, Outage, PaceView

PPM = 1_000_000
PERMILLE = 1_000

PRIOR_EXPOSURE_MS = 24 * 3_600_000
PRIOR_DEVICES = 704
"""One interruption a day on 704 accelerators: between the 11.5 to 72 h on record for that size
(arXiv 2407.21783 and 2410.21680, scaled) and the 8 to 24 h that Marin planned for."""
PRIOR_OUTAGES = 2
"""Outages that the prior of their length counts as."""
PRIOR_OUTAGE_CV = 1.5
"""Standard deviation over mean: a lognormal of sigma 1.1, minutes mostly and now and then hours."""
PRIOR_START_MS = 45 * 60_000
"""Launch to first step where none was measured: 23 min to restore, as many to compile, cold
(marin#8538)."""
DETECTION_PER_START = 3
"""Noticing takes a third of restarting: 15 and 45 min in the model case."""

DRIFT_PERCENT = 10
"""Standard deviation of the mean pace of a whole run still ahead, against what is measured now.

Machines are mended, transports exchanged, contexts lengthened. It falls with the square root of
the share that is ahead, as a random walk's would. Chosen by calibration: docs/forecast.md.
"""

P10, P50, P90 = 0.1, 0.5, 0.9


class Work(NamedTuple):
    """Steps that remain at one cost."""

    steps: int
    cost_ppm: int = PPM
    """Of such a step, in parts per million of the step whose time was measured."""


class Hazard(Frozen):
    """How often the run is interrupted and what that costs, prior included."""

    failures: int
    exposure_ms: int
    """Training time in which those happened."""
    prior_exposure_ms: int
    outage_mean_ms: int
    outage_sd_ms: int


class Forecast(Frozen):
    """When the run will be done, as known at one moment."""

    at_wall_ms: int
    step: int
    total_steps: int
    step_us: int
    """Of a clean step now."""
    work_ms: int
    """Expected time in steps from here to the end, saves and evaluations included."""
    lost_ms_mean: int
    """Expected cost of the interruptions on the way."""
    sigma_ms: int
    """Standard deviation of the finish."""
    p10_wall_ms: int
    p50_wall_ms: int
    p90_wall_ms: int
    due_wall_ms: int | None
    on_time_permille: int | None
    """Probability of being done when due; None without a deadline."""


class Lag(Frozen):
    """How far the run is behind an even pace to its deadline: the sum of two causes."""

    lost_ms: int
    """Time that was not spent in steps of the surviving line: infrastructure."""
    slow_ms: int
    """Time that steps slower than the even pace took beyond it. Negative when they were faster."""


def learn_hazard(
    pace: PaceView,
    unplanned: Container[int],
    *,
    settle_ms: int,
    devices: int,
    save_interval_ms: int,
) -> Hazard:
    """Return the hazard by the newest outages of attempts in `unplanned`, once the run settled.

    What broke in the first `settle_ms` of training tells about a run that was new: counting it
    would have cut the model case's horizon by a quarter, for nothing (docs/forecast.md).
    """
    since_ms = settle_ms
    if len(pace.outages) == KEPT_OUTAGES:
        # Older ones are gone: count from the oldest that is known.
        since_ms = max(since_ms, pace.outages[0].trained_ms)
    outages = [
        outage
        for outage in pace.outages
        if outage.attempt in unplanned and outage.trained_ms >= since_ms
    ]
    return make_hazard(
        outages,
        len(outages),
        max(0, pace.trained_ms - since_ms),
        devices=devices,
        save_interval_ms=save_interval_ms,
        start_ms=pace.start_ms,
    )


def make_hazard(
    outages: Sequence[Outage],
    failures: int,
    exposure_ms: int,
    *,
    devices: int,
    save_interval_ms: int,
    start_ms: int,
) -> Hazard:
    """Return the hazard after `failures` interruptions in `exposure_ms` of training.

    Both are of unplanned ends only: leave out what the owner asked for. A failed start belongs to
    the outage that it prolongs and is no failure of its own.
    """
    restart_ms = start_ms or PRIOR_START_MS
    prior_mean = save_interval_ms / 2 + restart_ms + restart_ms / DETECTION_PER_START
    prior_square = prior_mean**2 * (1 + PRIOR_OUTAGE_CV**2)
    weight = PRIOR_OUTAGES + len(outages)
    lost = [outage.lost_ms for outage in outages]
    mean = (PRIOR_OUTAGES * prior_mean + sum(lost)) / weight
    square = (PRIOR_OUTAGES * prior_square + sum(ms * ms for ms in lost)) / weight
    return Hazard(
        failures=failures,
        exposure_ms=exposure_ms,
        prior_exposure_ms=PRIOR_EXPOSURE_MS * PRIOR_DEVICES // devices,
        outage_mean_ms=round(mean),
        outage_sd_ms=round(sqrt(max(0.0, square - mean**2))),
    )


def forecast(  # noqa: PLR0913  # the facts of one moment, each from another reader
    now_wall_ms: int,
    work: Sequence[Work],
    pace: PaceView,
    hazard: Hazard,
    due_wall_ms: int | None,
    *,
    step: int,
    total_steps: int,
) -> Forecast:
    """Return when `work` will be done if nothing is changed.

    `due_wall_ms` is the deadline less its reserve. `step` counts from the step that runs next: in
    a replay that is the replayed one.
    """
    left = spread_time(work, pace, hazard, total_steps=total_steps)
    quantiles = [
        max(0, round(left.quantile(share))) if left.mean else 0 for share in (P10, P50, P90)
    ]
    return Forecast(
        at_wall_ms=now_wall_ms,
        step=step,
        total_steps=total_steps,
        step_us=pace.step_us,
        work_ms=round(left.mean),
        lost_ms_mean=round(left.lost_mean),
        sigma_ms=round(hypot(left.sd, sqrt(left.lost_variance))),
        p10_wall_ms=now_wall_ms + quantiles[0],
        p50_wall_ms=now_wall_ms + quantiles[1],
        p90_wall_ms=now_wall_ms + quantiles[2],
        due_wall_ms=due_wall_ms,
        on_time_permille=find_permille(left, now_wall_ms, due_wall_ms),
    )


def find_chance(
    now_wall_ms: int,
    work: Sequence[Work],
    pace: PaceView,
    hazard: Hazard,
    due_wall_ms: int,
    *,
    total_steps: int,
) -> int:
    """Return P(on time) alone, in whole permille: a third of a whole forecast's time."""
    left = spread_time(work, pace, hazard, total_steps=total_steps)
    permille = find_permille(left, now_wall_ms, due_wall_ms)
    assert permille is not None
    return permille


def spread_time(
    work: Sequence[Work],
    pace: PaceView,
    hazard: Hazard,
    *,
    total_steps: int,
    drift_percent: int = DRIFT_PERCENT,
) -> NormalPlusGamma:
    """Return the distribution of the time that `work` will take, in milliseconds."""
    steps = sum(part.steps for part in work)
    clean_us = sum(part.steps * part.cost_ppm for part in work) * pace.step_us / PPM
    mean_ms = (clean_us + steps * pace.extra_us) / US_PER_MS
    ahead = min(1.0, steps / max(1, total_steps))
    drift = drift_percent / 100 * sqrt(ahead)
    relative = hypot(pace.error_us / pace.step_us, drift)
    return add_lost_time(mean_ms, relative, hazard)


def add_lost_time(mean_ms: float, relative: float, hazard: Hazard) -> NormalPlusGamma:
    """Return clean time of a mean and relative sd, and what interruptions add to it.

    With a rate of Gamma(1 + failures, exposure), the lost time's mean is t rate m; its variance
    that of a compound Poisson sum, of the rate and of the mean outage m itself. Slower steps mean
    more interruptions, hence the factor on the normal's sd.
    """
    exposure_ms = hazard.exposure_ms + hazard.prior_exposure_ms
    rate = (1 + hazard.failures) / exposure_ms
    cost, square = hazard.outage_mean_ms, hazard.outage_sd_ms**2
    expected = mean_ms * rate
    variance = expected * (cost**2 + square)
    variance += (expected * cost) ** 2 / (1 + hazard.failures)
    variance += expected**2 * square / (PRIOR_OUTAGES + hazard.failures)
    return NormalPlusGamma(
        mean=mean_ms,
        sd=mean_ms * (1 + rate * cost) * relative,
        lost_mean=expected * cost,
        lost_variance=variance,
    )


def find_permille(left: NormalPlusGamma, now_wall_ms: int, due_wall_ms: int | None) -> int | None:
    """Return the probability, in whole permille, that the time left ends when due."""
    if due_wall_ms is None:
        return None
    if left.mean <= 0.0:
        return PERMILLE if now_wall_ms <= due_wall_ms else 0
    if due_wall_ms <= now_wall_ms:
        return 0
    return round(PERMILLE * left.cdf(due_wall_ms - now_wall_ms))


def split_lag(elapsed_ms: int, pace: PaceView, *, total_steps: int, span_ms: int) -> Lag:
    """Return the lag behind an even pace over `span_ms`, from launch to when the run is due.

    The sum of both parts is the time elapsed less the time that an even pace would have taken.
    """
    even_ms = floor(pace.until_step * span_ms / total_steps)
    return Lag(lost_ms=elapsed_ms - pace.trained_ms, slow_ms=pace.trained_ms - even_ms)
