"""Three row movements whose gradients are gathers too: floats are never scattered.

Shapes: T tokens, k experts a token, N pool rows, L latent width. `slot_tk` holds a token's rows
(N where it has none), `occupant_n` is its inverse (T k where a row is empty): each table is the
other's backward pass.
"""

import jax
import jax.numpy as jnp


def take_rows(x: jax.Array, index: jax.Array) -> jax.Array:
    """Return x[index] along the first axis, zeros where the index lies past the end."""
    return jnp.take(x, index, axis=0, mode="fill", fill_value=0)


def _sum_rows(row_nl: jax.Array, weight_tk: jax.Array | None, slot_tk: jax.Array) -> jax.Array:
    """Return sum_j weight[t,j] row[slot[t,j]] in f32; one choice at a time to stay small."""
    total = None
    for j in range(slot_tk.shape[1]):
        part = take_rows(row_nl, slot_tk[:, j]).astype(jnp.float32)
        part = part if weight_tk is None else part * weight_tk[:, j, None]
        total = part if total is None else total + part
    assert total is not None
    return total


@jax.custom_vjp
def spread(x_tl: jax.Array, slot_tk: jax.Array, occupant_n: jax.Array) -> jax.Array:
    """Return row_nl with row n = x[occupant[n] // k], zeros in empty rows."""
    return take_rows(x_tl, occupant_n // slot_tk.shape[1])


def _spread_forward(
    x_tl: jax.Array, slot_tk: jax.Array, occupant_n: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return spread(x_tl, slot_tk, occupant_n), slot_tk


def _spread_backward(slot_tk: jax.Array, d_nl: jax.Array) -> tuple[jax.Array, None, None]:
    return _sum_rows(d_nl, None, slot_tk).astype(d_nl.dtype), None, None


spread.defvjp(_spread_forward, _spread_backward)


@jax.custom_vjp
def gather_sum(
    row_nl: jax.Array, weight_tk: jax.Array, slot_tk: jax.Array, occupant_n: jax.Array
) -> jax.Array:
    """Return out_tl = sum_j weight[t,j] row[slot[t,j]] in f32; dropped choices add nothing."""
    del occupant_n  # only the backward pass reads it
    return _sum_rows(row_nl, weight_tk, slot_tk)


Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def _gather_forward(
    row_nl: jax.Array, weight_tk: jax.Array, slot_tk: jax.Array, occupant_n: jax.Array
) -> tuple[jax.Array, Saved]:
    out_tl = gather_sum(row_nl, weight_tk, slot_tk, occupant_n)
    return out_tl, (row_nl, weight_tk, slot_tk, occupant_n)


def _gather_backward(saved: Saved, d_tl: jax.Array) -> tuple[jax.Array, jax.Array, None, None]:
    row_nl, weight_tk, slot_tk, occupant_n = saved
    weight_n = take_rows(weight_tk.reshape(-1), occupant_n)
    d_row = take_rows(d_tl, occupant_n // slot_tk.shape[1]) * weight_n[:, None]
    d_weight = [
        jnp.sum(d_tl * take_rows(row_nl, slot_tk[:, j]).astype(jnp.float32), axis=1)
        for j in range(slot_tk.shape[1])
    ]
    return d_row.astype(row_nl.dtype), jnp.stack(d_weight, axis=1), None, None


gather_sum.defvjp(_gather_forward, _gather_backward)


@jax.custom_vjp
def permute(x_ml: jax.Array, source_n: jax.Array, target_m: jax.Array) -> jax.Array:
    """Return row_nl with row n = x[source[n]]; `target` is the inverse of `source`."""
    del target_m  # only the backward pass reads it
    return take_rows(x_ml, source_n)


def _permute_forward(
    x_ml: jax.Array, source_n: jax.Array, target_m: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return permute(x_ml, source_n, target_m), (source_n, target_m)


def _permute_backward(
    saved: tuple[jax.Array, jax.Array], d_nl: jax.Array
) -> tuple[jax.Array, None, None]:
    source_n, target_m = saved
    return permute(d_nl, target_m, source_n), None, None


permute.defvjp(_permute_forward, _permute_backward)
