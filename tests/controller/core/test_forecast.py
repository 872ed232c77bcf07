"""The forecast: ordered quantiles, every cause in its direction, an example computed apart."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.forecast import (
    PPM,
    Hazard,
    Lag,
    Work,
    find_chance,
    forecast,
    learn_hazard,
    make_hazard,
    split_lag,
    spread_time,
)
from controller.core.pace import KEPT_OUTAGES, Outage, PaceView

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HERO_STEPS = 390_251
HERO_LEFT = HERO_STEPS - 97_562
NOW_MS = 1_790_000_000_000


def a_pace(step_us=18_500_000, **changes):
    fields = {
        "since_step": 0,
        "until_step": 97_562,
        "clean_steps": 4_000,
        "step_us": step_us,
        "error_us": step_us // 200,
        "extra_us": 0,
        "trained_ms": 20 * DAY_MS,
        "first_wall_ms": 0,
        "start_ms": 0,
        "changed_step": None,
        "context_length": 4_096,
        "execution_sha": "e" * 64,
        "outages": [],
    }
    return PaceView(**(fields | changes))


def a_hazard(failures=14, mtbf_h=34, mean_h=1.75, sd_h=1.75):
    return Hazard(
        failures=failures,
        exposure_ms=round((failures + 1) * mtbf_h * HOUR_MS) - DAY_MS,
        prior_exposure_ms=DAY_MS,
        outage_mean_ms=round(mean_h * HOUR_MS),
        outage_sd_ms=round(sd_h * HOUR_MS),
    )


def hero(due_ms=None, *, steps=HERO_LEFT, pace=None, hazard=None, now_ms=NOW_MS):
    return forecast(
        now_ms,
        [Work(steps)],
        pace or a_pace(),
        hazard or a_hazard(),
        None if due_ms is None else now_ms + due_ms,
        step=HERO_STEPS - steps,
        total_steps=HERO_STEPS,
    )


def days(cast):
    return [
        (at - cast.at_wall_ms) / DAY_MS
        for at in (cast.p10_wall_ms, cast.p50_wall_ms, cast.p90_wall_ms)
    ]


@pytest.mark.parametrize(("mtbf_h", "apart"), [(34, (64.7, 65.9, 67.5)), (12, (68.9, 72.0, 75.6))])
def test_example_computed_apart_is_reproduced_without_drift(mtbf_h, apart):
    # 4.5T tokens done at 2.494M a second, 1.75 h an interruption. The uncertainty of those 1.75 h
    # is ours, hence up to a day and a half wider.
    hazard = a_hazard(mtbf_h=mtbf_h)
    left = spread_time(
        [Work(HERO_LEFT)], a_pace(error_us=0), hazard, total_steps=HERO_STEPS, drift_percent=0
    )
    ours = [left.quantile(share) / DAY_MS for share in (0.1, 0.5, 0.9)]
    assert ours == pytest.approx(apart, abs=1.3)
    assert ours[1] == pytest.approx(apart[1], abs=0.7)
    assert ours[0] < apart[0] + 0.1
    assert ours[2] > apart[2] - 0.1


def test_drift_of_the_pace_widens_the_same_example():
    p10, p50, p90 = days(hero())
    assert p50 == pytest.approx(65.9, abs=0.3)
    assert p10 < 64
    assert p90 > 68.5


def test_no_deadline_has_no_probability():
    assert hero().on_time_permille is None


@pytest.mark.parametrize(("due_ms", "permille"), [(0, 1_000), (5, 1_000), (-1, 0)])
def test_no_work_left_is_done_now(due_ms, permille):
    cast = hero(due_ms, steps=0)
    assert days(cast) == [0, 0, 0]
    assert cast.on_time_permille == permille


def test_deadline_passed_with_work_left_is_certain_to_be_missed():
    assert hero(0).on_time_permille == 0


def test_one_step_pace_without_error_or_outage_is_certain():
    hazard = Hazard(
        failures=0, exposure_ms=0, prior_exposure_ms=DAY_MS, outage_mean_ms=0, outage_sd_ms=0
    )
    cast = hero(10 * DAY_MS, steps=1, pace=a_pace(error_us=0), hazard=hazard)
    assert cast.p50_wall_ms - NOW_MS == pytest.approx(18_500, abs=2)
    assert cast.on_time_permille == 1_000
    assert cast.lost_ms_mean == 0


def test_four_ranks_for_three_minutes_expect_no_interruption():
    hazard = make_hazard([], 0, 20_000, devices=4, save_interval_ms=5_000, start_ms=9_000)
    assert hazard.prior_exposure_ms == 24 * HOUR_MS * 176
    cast = forecast(0, [Work(700)], a_pace(200_000), hazard, 150_000, step=100, total_steps=800)
    assert cast.p50_wall_ms == pytest.approx(140_000, abs=100)
    assert cast.lost_ms_mean <= 1
    assert 700 < cast.on_time_permille < 950


def test_costlier_context_and_saves_take_longer():
    parts = [Work(100), Work(50, 2 * PPM)]
    left = spread_time(parts, a_pace(extra_us=500_000), a_hazard(), total_steps=HERO_STEPS)
    assert left.mean == pytest.approx(200 * 18_500 + 150 * 500)


def test_prior_outage_is_half_an_interval_and_a_restart():
    none = make_hazard([], 0, 0, devices=704, save_interval_ms=2_000, start_ms=6_000)
    assert none.outage_mean_ms == 1_000 + 6_000 + 2_000
    outages = [Outage(attempt=n, lost_ms=30_000) for n in range(1, 7)]
    some = make_hazard(outages, 6, DAY_MS, devices=704, save_interval_ms=2_000, start_ms=6_000)
    assert some.outage_mean_ms == (2 * 9_000 + 6 * 30_000) / 8
    assert some.prior_exposure_ms == DAY_MS


def an_outage(attempt, day, lost_ms=HOUR_MS):
    return Outage(attempt=attempt, lost_ms=lost_ms, trained_ms=day * DAY_MS)


def learned(*outages, unplanned=range(1_000), trained_d=20):
    pace = a_pace(outages=list(outages), trained_ms=trained_d * DAY_MS)
    return learn_hazard(
        pace, unplanned, settle_ms=4 * DAY_MS, devices=704, save_interval_ms=HOUR_MS
    )


def test_hazard_leaves_out_the_settling_time_and_what_was_planned():
    outages = [an_outage(1, 1), an_outage(2, 3), an_outage(3, 5), an_outage(4, 6), an_outage(5, 9)]
    hazard = learned(*outages, unplanned={1, 2, 3, 5})
    assert (hazard.failures, hazard.exposure_ms) == (2, 16 * DAY_MS)


def test_hazard_of_an_unsettled_run_is_the_prior():
    hazard = learned(an_outage(1, 1), an_outage(2, 2), trained_d=3)
    assert (hazard.failures, hazard.exposure_ms) == (0, 0)
    assert hazard == learned(trained_d=1)


def test_hazard_counts_from_the_oldest_outage_that_is_known():
    outages = [an_outage(n, 5 + n // 8) for n in range(KEPT_OUTAGES)]
    assert learned(*outages).exposure_ms == 15 * DAY_MS
    assert learned(*outages[1:]).exposure_ms == 16 * DAY_MS


def test_chance_alone_is_that_of_the_whole_forecast():
    cast = hero(68 * DAY_MS)
    work = [Work(HERO_LEFT)]
    due_ms = NOW_MS + 68 * DAY_MS
    chance = find_chance(NOW_MS, work, a_pace(), a_hazard(), due_ms, total_steps=HERO_STEPS)
    assert chance == cast.on_time_permille
    assert 500 < chance < 900


def test_lag_is_lost_time_and_slow_steps():
    # A quarter of the steps in 25 of 80 days, 20 of them in steps.
    pace = a_pace(until_step=100, trained_ms=21 * DAY_MS)
    lag = split_lag(25 * DAY_MS, pace, total_steps=400, span_ms=80 * DAY_MS)
    assert lag == Lag(lost_ms=4 * DAY_MS, slow_ms=DAY_MS)


steady = settings(deadline=None)
"""A busy machine is no failure."""

RUNS = st.fixed_dictionaries(
    {
        "steps": st.integers(1, 400_000),
        "step_us": st.integers(1_000, 60_000_000),
        "error_permille": st.integers(0, 1_000),
        "failures": st.integers(0, 400),
        "exposure_ms": st.integers(0, 100 * DAY_MS),
        "prior_exposure_ms": st.integers(HOUR_MS, 10_000 * HOUR_MS),
        "outage_mean_ms": st.integers(0, 10 * HOUR_MS),
        "outage_sd_ms": st.integers(0, 10 * HOUR_MS),
    }
)


def cast_of(run, due_ms=None, now_ms=NOW_MS):
    hazard = Hazard(**{name: run[name] for name in Hazard.model_fields})
    pace = a_pace(run["step_us"], error_us=run["step_us"] * run["error_permille"] // 1_000)
    return forecast(
        now_ms, [Work(run["steps"])], pace, hazard,
        None if due_ms is None else now_ms + due_ms, step=0, total_steps=400_000,
    )  # fmt: skip


@steady
@given(RUNS, st.integers(-(10**13), 10**13))
def test_quantiles_are_ordered_and_move_with_now(run, shift_ms):
    cast, moved = cast_of(run, 1_000), cast_of(run, 1_000, NOW_MS + shift_ms)
    assert NOW_MS <= cast.p10_wall_ms <= cast.p50_wall_ms <= cast.p90_wall_ms
    assert days(moved) == days(cast)
    assert moved.on_time_permille == cast.on_time_permille
    assert 0 <= cast.on_time_permille <= 1_000


@steady
@given(RUNS)
def test_probability_agrees_with_the_quantiles(run):
    cast = cast_of(run)
    for at, permille in ((cast.p10_wall_ms, 100), (cast.p50_wall_ms, 500), (cast.p90_wall_ms, 900)):
        # Recorded in whole milliseconds: the exact quantile lies within one.
        below, above = (cast_of(run, at - NOW_MS + ms).on_time_permille for ms in (-1, 1))
        assert below - 1 <= permille <= above + 1


@steady
@given(RUNS, st.integers(0, 100 * DAY_MS), st.integers(0, 100 * DAY_MS))
def test_later_deadline_is_never_less_likely(run, one_ms, other_ms):
    early, late = sorted((one_ms, other_ms))
    assert cast_of(run, early).on_time_permille <= cast_of(run, late).on_time_permille


BURDENS = st.sampled_from(["steps", "step_us", "failures", "outage_mean_ms"])


@steady
@given(RUNS, BURDENS, st.integers(1, 50), st.integers(0, 400))
def test_more_of_any_burden_is_never_earlier(run, burden, percent, spread_percent):
    # At the errors of a measured pace, and outages whose spread is up to four times their mean: a
    # pace known to 50%, or one outage in a million that takes hours, may well start lower.
    run = run | {"error_permille": run["error_permille"] // 20}
    more = run | {burden: run[burden] + max(1, run[burden] * percent // 100)}
    for it in (run, more):
        it["outage_sd_ms"] = it["outage_mean_ms"] * spread_percent // 100
    less, heavier = cast_of(run), cast_of(more)
    slack = 1 + less.sigma_ms // 200
    assert heavier.p50_wall_ms >= less.p50_wall_ms - slack
    assert heavier.p90_wall_ms >= less.p90_wall_ms - slack
