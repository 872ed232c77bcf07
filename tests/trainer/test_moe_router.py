import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.moe.router import (
    BINS,
    balance,
    count_load,
    count_margins,
    measure_range,
    pick,
    route,
)

TOKENS, EXPERTS, CHOICES = 2048, 16, 4


def draw_logits(seed):
    """Some experts are liked by all tokens: the load is far from even."""
    rng = np.random.default_rng(seed)
    liking = np.linspace(-1.5, 1.5, EXPERTS)
    return jnp.asarray(rng.normal(size=(TOKENS, EXPERTS)) + liking, jnp.float32)


@jax.jit
def advance(logit, bias):
    """One step of routing and balancing: (routing, next bias)."""
    routing = route(logit, bias, CHOICES, 2.5)
    margin = routing.margin_te[None]
    low, high = measure_range(margin)
    count = count_margins(margin, low, high)
    return routing, balance(count, low, high, (CHOICES, EXPERTS))[0]


def imbalance(expert_tk):
    load = np.asarray(count_load(expert_tk, EXPERTS))
    return load.max() / load.mean()


def test_route_takes_the_best_biased_and_weighs_the_unbiased():
    logit, bias = draw_logits(0), jnp.asarray(np.linspace(2, -2, EXPERTS), jnp.float32)
    routing = route(logit, bias, CHOICES, 2.5)
    biased = np.asarray(logit) + np.asarray(bias)
    order = np.argsort(-biased, axis=1, kind="stable")
    np.testing.assert_array_equal(routing.expert_tk, order[:, :CHOICES])
    chosen = 1 / (1 + np.exp(-np.take_along_axis(np.asarray(logit), order[:, :CHOICES], 1)))
    want = 2.5 * chosen / chosen.sum(1, keepdims=True)
    np.testing.assert_allclose(routing.weight_tk, want, rtol=1e-5)
    alpha = np.take_along_axis(biased, order[:, CHOICES : CHOICES + 1], 1)
    np.testing.assert_allclose(routing.margin_te, np.asarray(logit) - alpha, rtol=1e-5, atol=1e-6)


def test_route_hopeless_logits_keep_finite_weights():
    routing = route(jnp.full((1, EXPERTS), -1e4, jnp.float32), jnp.zeros(EXPERTS), CHOICES, 2.5)
    np.testing.assert_allclose(jnp.sum(routing.weight_tk), 2.5, rtol=1e-6)


def test_route_needs_one_expert_to_spare():
    with pytest.raises(AssertionError, match="next best expert"):
        route(jnp.zeros((1, 4)), jnp.zeros(4), 4, 2.5)


def test_pick_gradient_lands_on_the_chosen():
    logit = jnp.zeros((2, 5), jnp.float32)
    chosen = jnp.array([[3, 1], [0, 4]], jnp.int32)
    factor = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    gradient = jax.grad(lambda x: jnp.sum(pick(x, chosen) * factor))(logit)
    np.testing.assert_array_equal(gradient, [[0, 2, 0, 1, 0], [3, 0, 0, 0, 4]])


def test_balance_bias_is_the_upper_quantile_of_the_margin():
    logit = draw_logits(1)
    routing, bias = advance(logit, jnp.zeros(EXPERTS, jnp.float32))
    margin = np.asarray(routing.margin_te)
    beta = np.quantile(margin, 1 - CHOICES / EXPERTS, axis=0)
    width = (margin.max() - margin.min()) / BINS
    np.testing.assert_allclose(bias, beta.mean() - beta, atol=3 * width)
    assert abs(float(jnp.mean(bias))) < 1e-6


def test_balance_evens_the_load_in_a_few_steps():
    bias = jnp.zeros(EXPERTS, jnp.float32)
    seen = []
    for step in range(6):
        routing, bias = advance(draw_logits(step), bias)
        seen.append(imbalance(routing.expert_tk))
    assert seen[0] > 2
    # A margin of biased logits swings for ever; alpha of unbiased logits stays above this.
    assert max(seen[3:]) < 1.10


def test_balance_counts_every_token_once():
    margin = jnp.asarray(np.random.default_rng(0).normal(size=(3, 50, 4)), jnp.float32)
    low, high = measure_range(margin)
    count = count_margins(margin, low, high)
    np.testing.assert_array_equal(jnp.sum(count, axis=2, dtype=jnp.int32), np.full((3, 4), 50))


def test_balance_equal_margins_stay_finite():
    margin = jnp.ones((1, 8, 4), jnp.float32)

    @jax.jit
    def run(margin):
        low, high = measure_range(margin)
        return balance(count_margins(margin, low, high), low, high, (1, 4))

    np.testing.assert_array_equal(run(margin), np.zeros((1, 4)))
