"""Pooled-wave all-to-all: one fixed pool of rows per destination device, sent in equal waves.

Shapes, besides those of transport.py: S devices on the expert axis, W waves, N = S pool rows of one
wave. All shapes are static: what does not fit is dropped and counted, at the sender (its pool) or
at the receiver (an expert's bank).
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from contract.model import MAX_LOCAL_EXPERTS, Execution, bank_rows, pool_rows
from trainer.mesh import EXPERT
from trainer.moe.rows import gather_sum, permute, spread
from trainer.moe.tables import Pools, plan_banks, plan_pools
from trainer.moe.transport import Drops, Experts, run_experts

Carry = tuple[jax.Array, jax.Array, jax.Array]
"""Running sum_tl in f32, kept, dropped at the receiver."""


@dataclass(frozen=True)
class Sizes:
    """Static row counts of one layer on one device."""

    devices: int
    local: int
    waves: int
    pool: int
    bank: int


def size_of(execution: Execution, assignments: int, devices: int, local: int) -> Sizes:
    """Return the row counts for `assignments` a device; refuses ids the payload would round."""
    assert local <= MAX_LOCAL_EXPERTS, f"{local} local experts; ids are exact up to 255"
    return Sizes(
        devices=devices,
        local=local,
        waves=execution.waves,
        pool=pool_rows(execution, assignments, devices),
        bank=bank_rows(execution, assignments, local),
    )


@dataclass(frozen=True)
class PooledWave:
    """The transport. `recompute` keeps no wave for the backward pass: 6 all-to-alls each, not 4."""

    execution: Execution
    recompute: bool = False

    def __call__(
        self, x_tl: jax.Array, expert_tk: jax.Array, weight_tk: jax.Array, experts: Experts
    ) -> tuple[jax.Array, Drops]:
        """Return y_tl in f32 and the drops of this device."""
        local = experts.w13_elf.shape[0]
        sizes = size_of(self.execution, expert_tk.size, lax.axis_size(EXPERT), local)
        pools = plan_pools(expert_tk // local, sizes.devices, sizes.waves, sizes.pool)
        run_wave = _make_wave(sizes, pools, x_tl, expert_tk % local, weight_tk, experts)
        body = jax.checkpoint(run_wave, prevent_cse=False) if self.recompute else run_wave
        # A scan has one body and one set of buffers; unrolled waves would all be alive at once.
        waves = (jnp.arange(sizes.waves, dtype=jnp.int32), pools.occupant_wn)
        start = _zeros_like_varying(x_tl)
        (y_tl, kept, lost), _ = lax.scan(lambda c, w: (body(c, w), None), start, waves)
        return y_tl, Drops(kept=kept, sender=pools.dropped, receiver=lost)


def _zeros_like_varying(x_tl: jax.Array) -> Carry:
    zeros = (jnp.zeros(x_tl.shape, jnp.float32), jnp.int32(0), jnp.int32(0))
    axes = tuple(jax.typeof(x_tl).mat.varying)
    return jax.tree.map(lambda z: lax.pcast(z, axes, to="varying"), zeros) if axes else zeros


def _make_wave(
    sizes: Sizes,
    pools: Pools,
    x_tl: jax.Array,
    id_tk: jax.Array,
    weight_tk: jax.Array,
    experts: Experts,
) -> Callable[[Carry, tuple[jax.Array, jax.Array]], Carry]:
    """Return the function that runs one wave: send, compute, send back, add."""

    def run_wave(carry: Carry, wave: tuple[jax.Array, jax.Array]) -> Carry:
        y_tl, kept, lost = carry
        number, occupant_n = wave
        slot_tk = jnp.where(pools.wave_tk == number, pools.slot_tk, sizes.devices * sizes.pool)
        payload = pack(spread(x_tl, slot_tk, occupant_n), id_tk, occupant_n, sizes)
        id_sp, row_nl = unpack(exchange(payload), sizes)
        slot_n, occupant_b = plan_banks(id_sp, sizes.local, sizes.bank)
        bank = permute(row_nl, occupant_b, slot_n).reshape(sizes.local, sizes.bank, -1)
        result = run_experts(bank, experts).reshape(sizes.local * sizes.bank, -1)
        back = permute(result, slot_n, occupant_b).reshape(sizes.devices, sizes.pool, -1)
        returned_nl = exchange(back).reshape(row_nl.shape)
        y_tl = y_tl + gather_sum(returned_nl, weight_tk, slot_tk, occupant_n)
        computed = jnp.sum(slot_n < sizes.local * sizes.bank, dtype=jnp.int32)
        arrived = jnp.sum(id_sp >= 0, dtype=jnp.int32)
        return y_tl, kept + computed, lost + arrived - computed

    return run_wave


def exchange(x: jax.Array) -> jax.Array:
    """Send block s of the first axis to device s of the expert axis; its own inverse."""
    return lax.all_to_all(x, EXPERT, 0, 0, tiled=True)


def header_rows(sizes: Sizes, latent: int) -> int:
    """Return the payload rows that hold one id for each pool position."""
    return -(-sizes.pool // latent)


def pack(row_nl: jax.Array, id_tk: jax.Array, occupant_n: jax.Array, sizes: Sizes) -> jax.Array:
    """Return [S, head + pool, L]: header rows with local id + 1 (0 is empty), then the rows.

    Ids are cast, never bit-cast: backends may change the bits of a float that is a NaN or denormal.
    """
    latent = row_nl.shape[-1]
    head = header_rows(sizes, latent)
    id_n = jnp.take(id_tk.reshape(-1) + 1, occupant_n, mode="fill", fill_value=0)
    id_sp = id_n.reshape(sizes.devices, sizes.pool)
    padded = jnp.pad(id_sp, ((0, 0), (0, head * latent - sizes.pool)))
    header = padded.reshape(sizes.devices, head, latent).astype(row_nl.dtype)
    return jnp.concatenate([header, row_nl.reshape(sizes.devices, sizes.pool, latent)], axis=1)


def unpack(payload: jax.Array, sizes: Sizes) -> tuple[jax.Array, jax.Array]:
    """Return (local id of each position or -1 as [S, pool], rows as [N, L])."""
    latent = payload.shape[-1]
    head = header_rows(sizes, latent)
    header = lax.stop_gradient(payload[:, :head]).reshape(sizes.devices, -1)
    id_sp = header[:, : sizes.pool].astype(jnp.int32) - 1
    return id_sp, payload[:, head:].reshape(-1, latent)
