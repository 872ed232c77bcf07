"""What every transport takes and gives, and which there are.

Shapes: T tokens, k experts a token, El local experts, L latent width, F expert width.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp


class Drops(NamedTuple):
    """int32 scalars of one device; summed over all devices kept + sender + receiver = T k."""

    kept: jax.Array
    """Assignments that this device's experts computed."""
    sender: jax.Array
    """Assignments of this device's tokens that found no row in a pool."""
    receiver: jax.Array
    """Assignments that arrived at this device and found no row in a bank."""


class Experts(NamedTuple):
    """SwiGLU weights of the local experts."""

    w13_elf: jax.Array
    """[El, L, 2 F]: gate, then up."""
    w2_efl: jax.Array
    """[El, F, L]."""


class Transport(Protocol):
    """Runs inside `jax.shard_map`: x_tl, experts_tk, weights_tk -> y_tl in f32."""

    def __call__(
        self, x_tl: jax.Array, expert_tk: jax.Array, weight_tk: jax.Array, experts: Experts
    ) -> tuple[jax.Array, Drops]:
        """Return the weighted sum of each token's experts, and what was dropped."""
        ...


def run_experts(bank_erl: jax.Array, experts: Experts) -> jax.Array:
    """Return SwiGLU of every bank row: [El, rows, L] -> [El, rows, L]."""
    both = jnp.einsum("erl,elf->erf", bank_erl, experts.w13_elf)
    gate, up = jnp.split(both, 2, axis=-1)
    return jnp.einsum("erf,efl->erl", jax.nn.silu(gate) * up, experts.w2_efl)
