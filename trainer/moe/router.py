"""The sigmoid router and its quantile balancing.

Shapes: T tokens of this device, E experts, k experts a token, N blocks of the model. No auxiliary
loss: a bias per expert, part of the train state, is replaced after every step so that each expert
would have been wanted by a share k/E of the global batch (published: Marin, Megatron-LM#5349).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

BINS = 10_000
"""Histogram bins of the margin, as published."""
FINE = 100


class Routing(NamedTuple):
    """Which experts a token goes to."""

    expert_tk: jax.Array
    weight_tk: jax.Array
    """f32, sums to `scale` over the k choices."""
    margin_te: jax.Array
    """Unbiased logit minus the token's (k+1)-th biased logit: what it would take to be chosen."""


def route(logit_te: jax.Array, bias_e: jax.Array, experts_per_token: int, scale: float) -> Routing:
    """Choose the top k of the biased logits; weigh them by the sigmoid of the unbiased ones."""
    k = experts_per_token
    assert k < logit_te.shape[1], "quantile balancing reads the next best expert"
    biased_te = lax.stop_gradient(logit_te + bias_e[None])
    best, expert_tk = lax.top_k(biased_te, k + 1)
    expert_tk = expert_tk[:, :k]
    # softmax(log sigmoid) is sigmoid over its sum, and stays finite where every sigmoid underflows.
    chosen_tk = pick(logit_te, expert_tk)
    weight_tk = scale * jax.nn.softmax(jax.nn.log_sigmoid(chosen_tk), axis=1)
    margin_te = lax.stop_gradient(logit_te) - best[:, k:]
    return Routing(expert_tk, weight_tk, margin_te)


def pick(logit_te: jax.Array, expert_tk: jax.Array) -> jax.Array:
    """Return logit[t, expert[t, j]]; by comparing, so that the backward pass scatters nothing."""
    every = jnp.arange(logit_te.shape[1], dtype=expert_tk.dtype)[None]
    columns = [
        jnp.sum(jnp.where(expert_tk[:, j, None] == every, logit_te, 0), axis=1)
        for j in range(expert_tk.shape[1])
    ]
    return jnp.stack(columns, axis=1)


def count_load(expert_tk: jax.Array, experts: int) -> jax.Array:
    """Return int32[E]: how many assignments want each expert."""
    every = jnp.arange(experts, dtype=expert_tk.dtype)
    return jnp.sum(expert_tk.reshape(-1, 1) == every[None], axis=0, dtype=jnp.int32)


def measure_range(margin_nte: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return (lowest, highest) margin of each block on this device: f32[N] each."""
    return jnp.min(margin_nte, axis=(1, 2)), jnp.max(margin_nte, axis=(1, 2))


def count_margins(margin_nte: jax.Array, low_n: jax.Array, high_n: jax.Array) -> jax.Array:
    """Return int32[N, E, BINS]: this device's histogram between the global range of each block."""
    blocks, _, experts = margin_nte.shape
    scale_n = BINS / jnp.maximum(high_n - low_n, jnp.finfo(jnp.float32).tiny)
    place = (margin_nte - low_n[:, None, None]) * scale_n[:, None, None]
    bin_nte = jnp.clip(place.astype(jnp.int32), 0, BINS - 1)
    row = jnp.arange(blocks * experts, dtype=jnp.int32).reshape(blocks, 1, experts)
    empty = jnp.zeros(blocks * experts * BINS, jnp.int32)
    return empty.at[(row * BINS + bin_nte).reshape(-1)].add(1).reshape(blocks, experts, BINS)


def balance(
    count_neb: jax.Array, low_n: jax.Array, high_n: jax.Array, share: tuple[int, int]
) -> jax.Array:
    """Return the next bias f32[N, E] from the histogram of the global batch.

    beta[e] is the margin exceeded by a share k/E of the batch: count down from the top bin to that
    many tokens and interpolate inside the bin. The bias is -(beta - mean beta).
    """
    k, experts = share
    tokens_n = jnp.sum(count_neb[:, 0], axis=-1, dtype=jnp.int32)
    wanted = (tokens_n.astype(jnp.float32) * (k / experts))[:, None]
    coarse = count_neb.reshape(*count_neb.shape[:2], BINS // FINE, FINE)
    # Two short counts instead of one of 10,000 bins, which took a quarter of a small step on CPU.
    group, above = _count_down(jnp.sum(coarse, axis=-1, dtype=jnp.int32), wanted)
    fine = jnp.take_along_axis(coarse, group[..., None, None], axis=2)[:, :, 0]
    place, above_place = _count_down(fine, wanted - above.astype(jnp.float32))
    inside = jnp.take_along_axis(fine, place[..., None], axis=-1)[..., 0]
    missing = wanted - (above + above_place).astype(jnp.float32)
    part = missing / jnp.maximum(inside, 1).astype(jnp.float32)
    top = (group * FINE + place + 1).astype(jnp.float32) - part
    beta = low_n[:, None] + top * ((high_n - low_n) / BINS)[:, None]
    return jnp.mean(beta, axis=1, keepdims=True) - beta


def _count_down(count_neb: jax.Array, wanted_ne: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return (the bin in which the count from the top reaches `wanted`, the count above it)."""
    reached = jnp.flip(jnp.cumsum(jnp.flip(count_neb, -1), axis=-1, dtype=jnp.int32), -1)
    is_reached = reached.astype(jnp.float32) >= wanted_ne[..., None]
    # Counts from the top grow downwards: all bins up to the wanted one have reached it.
    index = jnp.maximum(jnp.sum(is_reached, axis=-1, dtype=jnp.int32) - 1, 0)
    own = jnp.take_along_axis(count_neb, index[..., None], axis=-1)[..., 0]
    return index, jnp.take_along_axis(reached, index[..., None], axis=-1)[..., 0] - own
