"""Causal attention with grouped keys, QK-norm, half-RoPE and a window that is data.

Shapes: B sequences, L positions, D width, H query heads, K key-value heads, C head width.
All blocks share one compiled body: a full block is one with an endless window and no rotation.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from contract.model import ModelShape, is_full_attention

ROPE_THETA = 10_000.0
ENDLESS = 2**30
NORM_EPSILON = 1e-6


class Reach(NamedTuple):
    """What tells one block's attention from another's."""

    window: jax.Array | np.ndarray
    """int32: keys seen, the query's own position included."""
    rotation: jax.Array | np.ndarray
    """f32: 1 rotates half of each head by position, 0 leaves it."""


def reach_of(shape: ModelShape) -> Reach:
    """Return the reach of every block, stacked over blocks."""
    full = np.array([is_full_attention(shape, block) for block in range(shape.blocks)])
    window = np.where(full, ENDLESS, shape.window).astype(np.int32)
    return Reach(window=window, rotation=(~full).astype(np.float32))


def normalize(x: jax.Array, gain: jax.Array) -> jax.Array:
    """Return RMSNorm over the last axis, computed in f32, in the type of `x`."""
    wide = x.astype(jnp.float32)
    scale = lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + NORM_EPSILON)
    gain = gain.astype(jnp.float32).reshape((1,) * (x.ndim - 1) + (-1,))
    return (wide * scale * gain).astype(x.dtype)


def rotate(x_blhc: jax.Array, rotation: jax.Array) -> jax.Array:
    """Rotate the first half of each head by its position; angles are scaled by `rotation`.

    The partner of each component comes by a product with a signed permutation, which is exact and
    cheaper on CPU than cutting the heads up and joining them again.
    """
    length, width = x_blhc.shape[1], x_blhc.shape[3]
    angle_lc, partner_cc = _rope_tables(length, width)
    angle = (jnp.asarray(angle_lc) * rotation)[None, :, None, :]
    wide = x_blhc.astype(jnp.float32)
    turned = wide * jnp.cos(angle) + (wide @ jnp.asarray(partner_cc)) * jnp.sin(angle)
    return turned.astype(x_blhc.dtype)


def _rope_tables(length: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the angle of each component at each position, and the matrix that yields partners."""
    quarter = width // 4
    rate = ROPE_THETA ** -(np.arange(quarter) / quarter)
    angle = np.zeros((length, width), np.float32)
    angle[:, : 2 * quarter] = np.arange(length)[:, None] * np.tile(rate, 2)[None]
    partner = np.zeros((width, width), np.float32)
    first = np.arange(quarter)
    partner[first + quarter, first] = -1
    partner[first, first + quarter] = 1
    return angle, partner


def attend(x_bld: jax.Array, block: dict[str, jax.Array], reach: Reach) -> jax.Array:
    """Return the attention output [B, L, D] for normalised input, before the residual."""
    batch, length, _ = x_bld.shape
    head_dim = block["query_gain"].shape[0]
    query, key, value = (
        (x_bld @ block[name]).reshape(batch, length, -1, head_dim)
        for name in ("query", "key", "value")
    )
    rotation = jnp.asarray(reach.rotation)
    query = rotate(normalize(query, block["query_gain"]), rotation)
    key = rotate(normalize(key, block["key_gain"]), rotation)
    mixed = _mix(query, key, value, jnp.asarray(reach.window))
    return mixed.reshape(batch, length, -1) @ block["output"]


def _mix(query: jax.Array, key: jax.Array, value: jax.Array, window: jax.Array) -> jax.Array:
    """Return the softmax-weighted values [B, L, H, C]; scores and softmax in f32."""
    batch, length, heads, width = query.shape
    grouped = query.reshape(batch, length, key.shape[2], -1, width)
    score = jnp.einsum("blkgc,bmkc->bkglm", grouped, key, preferred_element_type=jnp.float32)
    place = jnp.arange(length, dtype=jnp.int32)
    distance = place[:, None] - place[None]
    is_seen = (distance >= 0) & (distance < window)
    score = jnp.where(is_seen[None, None, None], score * width**-0.5, -jnp.inf)
    share = jax.nn.softmax(score, axis=-1).astype(value.dtype)
    mixed = jnp.einsum("bkglm,bmkc->blkgc", share, value)
    return mixed.reshape(batch, length, heads, width)
