"""The arithmetic of the forecast: against closed forms, and against draws."""

from math import erf, exp, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.distribution import NORMAL_SHAPE, NormalPlusGamma, find_root, gamma_cdf

steady = settings(deadline=None)
SHAPES = st.floats(1e-6, 1e5)


@pytest.mark.parametrize("x", [1e-9, 0.1, 1.0, 1.9, 2.1, 7.0, 40.0])
def test_gamma_of_known_shapes_is_their_closed_form(x):
    assert gamma_cdf(1.0, x) == pytest.approx(1 - exp(-x), rel=1e-9)
    assert gamma_cdf(0.5, x) == pytest.approx(erf(sqrt(x)), rel=1e-9)
    assert gamma_cdf(3.0, x) == pytest.approx(1 - exp(-x) * (1 + x + x * x / 2), abs=1e-11)


def test_gamma_of_large_shapes_goes_on_where_the_exact_one_ends():
    below, above = NORMAL_SHAPE * (1 - 1e-9), NORMAL_SHAPE * (1 + 1e-9)
    for x in (250.0, 290.0, 300.0, 310.0, 350.0):
        assert gamma_cdf(above, x) == pytest.approx(gamma_cdf(below, x), abs=2e-5)


@steady
@given(SHAPES, st.floats(0, 1e6), st.floats(0, 1e6))
def test_gamma_rises_from_zero_to_one(shape, one, other):
    low, high = sorted((one, other))
    assert 0.0 <= gamma_cdf(shape, low) <= gamma_cdf(shape, high) + 1e-9 <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("sd", "shape", "scale"),
    [(5.0, 4.0, 3.0), (0.5, 0.3, 20.0), (20.0, 1.0, 1.0), (1.0, 90.0, 0.5), (0.01, 0.01, 50.0)],
)
def test_quantiles_agree_with_draws(sd, shape, scale):
    random, count = Random(1), 20_000
    draws = sorted(random.gauss(100, sd) + random.gammavariate(shape, scale) for _ in range(count))
    total = NormalPlusGamma(100.0, sd, shape * scale, shape * scale**2)
    for share in (0.02, 0.1, 0.5, 0.9, 0.98):
        assert total.cdf(draws[int(share * count)]) == pytest.approx(share, abs=0.012)
        assert total.cdf(total.quantile(share)) == pytest.approx(share, abs=1e-4)


def test_sum_without_lost_time_is_the_normal():
    total = NormalPlusGamma(100.0, 10.0, 0.0, 0.0)
    assert total.quantile(0.5) == pytest.approx(100.0, abs=1e-4)
    assert total.quantile(0.9) == pytest.approx(112.8155, abs=1e-3)


def test_sum_of_certain_times_is_their_sum():
    total = NormalPlusGamma(100.0, 0.0, 7.0, 0.0)
    assert total.quantile(0.1) == pytest.approx(107.0, abs=1e-3)
    assert (total.cdf(106.0), total.cdf(108.0)) == (0.0, 1.0)


def test_almost_certain_absence_of_lost_time_adds_nothing():
    # One interruption in ten million such runs, hours long: its mean must not be smeared over all.
    total = NormalPlusGamma(100_000.0, 1.0, 1.0, 1e13)
    for share in (0.1, 0.5, 0.9):
        assert total.cdf(total.quantile(share)) == pytest.approx(share, abs=1e-3)
    assert total.quantile(0.5) == pytest.approx(100_000.0, abs=0.1)


@steady
@given(st.floats(0, 1e3), st.floats(1e-3, 1e4), st.floats(1e-6, 1e7), st.floats(-1e4, 1e4))
def test_distribution_rises_everywhere(sd, lost_mean, variance, x):
    total = NormalPlusGamma(1_000.0, sd, lost_mean, variance)
    assert 0.0 <= total.cdf(x) <= total.cdf(x + 10.0) + 1e-9 <= 1.0 + 2e-9


def test_root_is_found_far_from_where_it_was_looked_for():
    assert find_root(lambda x: x - 1_000.0, 0.0, 1.0, 1e-4) == pytest.approx(1_000.0, abs=1e-3)
    assert find_root(lambda x: (x + 50.0) ** 3, 0.0, 1.0, 1e-4) == pytest.approx(-50.0, abs=1e-3)
