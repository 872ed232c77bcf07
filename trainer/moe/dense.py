"""The reference: every expert computes every token, and a mask picks. Slow, plain, never drops."""

import jax
import jax.numpy as jnp

from trainer.moe.transport import Drops, Experts, run_experts


def run_dense(
    x_tl: jax.Array, expert_tk: jax.Array, weight_tk: jax.Array, experts: Experts
) -> tuple[jax.Array, Drops]:
    """Return the weighted sum of each token's experts in f32; `experts` holds all of them.

    A transport with drops equals this with the weights of the dropped assignments set to zero.
    """
    count = experts.w13_elf.shape[0]
    y_tl = jnp.zeros(x_tl.shape, jnp.float32)
    for expert in range(count):
        one = Experts(experts.w13_elf[expert : expert + 1], experts.w2_efl[expert : expert + 1])
        out_tl = run_experts(x_tl[None], one)[0].astype(jnp.float32)
        share_t = jnp.sum(jnp.where(expert_tk == expert, weight_tk, 0), axis=1)
        y_tl = y_tl + share_t[:, None] * out_tl
    none = jnp.int32(0)
    return y_tl, Drops(kept=jnp.int32(expert_tk.size), sender=none, receiver=none)
