"""Integer tables: who goes where. Nothing here is differentiated.

Shapes: T tokens, k experts a token, A = T k assignments, S devices on the expert axis, W waves,
N = S pool rows of one wave.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Pools(NamedTuple):
    """Where each assignment lies in the sender's pools."""

    wave_tk: jax.Array
    """Its wave 0..W-1, or W if it was dropped."""
    slot_tk: jax.Array
    """Its row destination * pool + slot within the wave."""
    occupant_wn: jax.Array
    """The inverse: the assignment in each row, or A where the row is empty."""
    dropped: jax.Array
    """int32 scalar: assignments that found no row."""


def rank_in_group(group_n: jax.Array, groups: int) -> jax.Array:
    """Return each element's rank among the earlier elements of its own group (int32).

    A group number of `groups` or more marks elements to ignore; their ranks mean nothing.
    """
    order = jnp.argsort(group_n, stable=True).astype(jnp.int32)
    start = jnp.searchsorted(group_n[order], jnp.arange(groups + 1, dtype=group_n.dtype))
    place = jnp.arange(group_n.size, dtype=jnp.int32)
    ranks = place - start.astype(jnp.int32)[jnp.minimum(group_n[order], groups)]
    return jnp.zeros_like(ranks).at[order].set(ranks, unique_indices=True)


def invert(slot_n: jax.Array, is_kept_n: jax.Array, slots: int) -> jax.Array:
    """Return which element lies in each of `slots` slots, or n where none does (int32)."""
    own = jnp.arange(slot_n.size, dtype=jnp.int32)
    # Each dropped element gets an index of its own past the end, so that indices stay unique.
    target = jnp.where(is_kept_n, slot_n, slots + own)
    empty = jnp.full(slots, slot_n.size, jnp.int32)
    return empty.at[target].set(own, mode="drop", unique_indices=True)


def plan_pools(destination_tk: jax.Array, senders: int, waves: int, pool: int) -> Pools:
    """Assign every (token, choice) a wave and a row; the waves stripe one pool per destination.

    Kept are the first W * pool assignments of each destination in token order, whatever W is.
    """
    flat = destination_tk.reshape(-1)
    rank = rank_in_group(flat, senders)
    wave, slot = rank % waves, rank // waves
    is_kept = slot < pool
    row = flat * pool + slot
    occupant = invert(wave * (senders * pool) + row, is_kept, waves * senders * pool)
    return Pools(
        wave_tk=jnp.where(is_kept, wave, waves).reshape(destination_tk.shape),
        slot_tk=row.reshape(destination_tk.shape),
        occupant_wn=occupant.reshape(waves, senders * pool),
        dropped=jnp.sum(~is_kept, dtype=jnp.int32),
    )


def plan_banks(id_sp: jax.Array, experts: int, bank: int) -> tuple[jax.Array, jax.Array]:
    """Return (slot of each received row, row in each slot) for banks of `bank` rows an expert.

    `id_sp` holds the local expert of each pool position of each sender, -1 where empty. Rows are
    ranked position-major, so that capacity fills round-robin over senders: in sender order the last
    sender alone would pay for an overfull expert. Rows without a slot point past the end.
    """
    id_p = id_sp.T.reshape(-1)
    group = jnp.where(id_p < 0, experts, id_p)
    rank = rank_in_group(group, experts).reshape(id_sp.T.shape).T
    is_kept = (id_sp >= 0) & (rank < bank)
    slot = jnp.where(is_kept, id_sp * bank + rank, experts * bank).reshape(-1)
    return slot, invert(slot, is_kept.reshape(-1), experts * bank)
