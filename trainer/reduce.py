"""Sums and extremes over devices, many values in one collective.

A small collective costs milliseconds between processes whatever it carries, so everything that can
travel together does: gradients with the loss, histograms with drop counts, ranges with plan words.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from trainer.mesh import AXES

SIGN = 0x8000_0000
Tree = Any
"""A pytree of arrays; JAX has no type for it."""


def sum_together(tree: Tree, axes: str | tuple[str, ...]) -> Tree:
    """Return the tree with every array summed over `axes`, by one psum of their joined values.

    All arrays are of one type. psum and not psum_scatter: on CPU under `jax.distributed` the latter
    is now and then wrong without an error (jax#40830).
    """
    leaves, structure = jax.tree.flatten(tree)
    total = lax.psum(_join(leaves), axes)
    parts, start = [], 0
    for leaf in leaves:
        parts.append(total[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return jax.tree.unflatten(structure, parts)


def _join(leaves: list[jax.Array]) -> jax.Array:
    """Return all values in one row; by updates, for XLA:CPU takes 10 ms to concatenate 320,000."""
    joined, start = jnp.zeros(sum(leaf.size for leaf in leaves), leaves[0].dtype), 0
    for leaf in leaves:
        assert leaf.dtype == joined.dtype, "one collective carries one type"
        joined = lax.dynamic_update_slice(_vary_like(joined, leaf), leaf.reshape(-1), (start,))
        start += leaf.size
    return joined


def _vary_like(x: jax.Array, like: jax.Array) -> jax.Array:
    return make_varying(x, tuple(jax.typeof(like).mat.varying))


def make_varying(x: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """Return `x` typed as different on each device of `axes`; costs nothing."""
    missing = tuple(axis for axis in axes if axis not in jax.typeof(x).mat.varying)
    return lax.pcast(x, missing, to="varying") if missing else x


def find_extremes(
    low_n: jax.Array, high_n: jax.Array, word_w: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return (min low, max high, min word, max word) over all devices, by one pmax.

    Floats travel as integers of the same order; a minimum is the complement of the complements'
    maximum.
    """
    parts = [order_bits(high_n), ~order_bits(low_n), word_w, ~word_w]
    most = lax.pmax(jnp.concatenate(parts), AXES)
    size, words = low_n.size, word_w.size
    high, low, word = most[:size], ~most[size : 2 * size], most[2 * size : 2 * size + words]
    return unorder_bits(low), unorder_bits(high), ~most[2 * size + words :], word


def order_bits(x: jax.Array) -> jax.Array:
    """Return uint32 in the order of the floats: positives above, negatives complemented."""
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.where(bits >= jnp.uint32(SIGN), ~bits, bits | jnp.uint32(SIGN))


def unorder_bits(bits: jax.Array) -> jax.Array:
    """Undo `order_bits`."""
    back = jnp.where(bits >= jnp.uint32(SIGN), bits ^ jnp.uint32(SIGN), ~bits)
    return lax.bitcast_convert_type(back, jnp.float32)
