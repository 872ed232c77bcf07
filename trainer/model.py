"""The model: parameters, forward pass and loss of one device's share of the batch.

Shapes: B sequences of this device, L positions, T = B L tokens, D width, V vocabulary, N blocks,
E experts. Blocks are stacked on the first axis and scanned, so that depth costs no compile time.
Everything here runs inside `jax.shard_map`; no float leaves a device except through the transport.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from contract.model import Execution, ModelShape
from trainer.attention import Reach, attend, normalize, reach_of
from trainer.mesh import EXPERT
from trainer.moe.pooled_wave import PooledWave
from trainer.moe.router import count_load, route
from trainer.moe.transport import Drops, Experts, Transport

Params = dict[str, Any]
"""Arrays by name; those of the blocks are under "blocks", stacked."""
EXPERT_WEIGHTS = ("w13", "w2")
"""Sharded over the expert axis; everything else is held by every device."""


class BlockStats(NamedTuple):
    """What one block reports of this device's tokens; stacked over blocks by the scan."""

    margin_te: jax.Array
    """f32. The hero holds 48 x 65,536 x 384 x 4 B = 4.8 GB a device of these (derived)."""
    load_e: jax.Array
    drops: Drops


class LossParts(NamedTuple):
    """Shares of the global means; summed over devices they are the means."""

    cross_entropy: jax.Array
    z: jax.Array


@dataclass(frozen=True)
class Model:
    """A shape with the way its tokens travel.

    `recompute` runs blocks and waves again in the backward pass: less memory, the same bits.
    """

    shape: ModelShape
    execution: Execution
    recompute: bool = False

    @property
    def transport(self) -> Transport:
        """The transport that `execution` names."""
        return PooledWave(self.execution, self.recompute)

    @property
    def dtype(self) -> jnp.dtype:
        """The type of activations; parameters are f32."""
        return jnp.dtype(self.shape.activation)


def parameter_sizes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Return the size of each parameter of one block."""
    width, latent, shared = shape.width, shape.latent, shape.shared_experts * shape.shared_width
    return {
        "attention_gain": (width,),
        "query": (width, shape.heads * shape.head_dim),
        "key": (width, shape.kv_heads * shape.head_dim),
        "value": (width, shape.kv_heads * shape.head_dim),
        "query_gain": (shape.head_dim,),
        "key_gain": (shape.head_dim,),
        "output": (shape.heads * shape.head_dim, width),
        "mixture_gain": (width,),
        "router": (width, shape.experts),
        "shared13": (width, 2 * shared),
        "shared2": (shared, width),
        "down": (width, latent),
        "latent_gain": (latent,),
        "w13": (shape.experts, latent, 2 * shape.expert_width),
        "w2": (shape.experts, shape.expert_width, latent),
        "up": (latent, width),
    }


def init_params(shape: ModelShape, key: jax.Array) -> Params:
    """Draw the parameters: matrices normal with deviation 1 / sqrt(fan-in), gains one."""
    sizes = parameter_sizes(shape)
    keys = jax.random.split(key, len(sizes) + 2)
    blocks: Params = {
        name: _draw(keys[n], (shape.blocks, *size), name)
        for n, (name, size) in enumerate(sorted(sizes.items()))
    }
    return {
        "embedding": jax.random.normal(keys[-2], (shape.vocabulary, shape.width), jnp.float32),
        "blocks": blocks,
        "final_gain": jnp.ones(shape.width, jnp.float32),
        # A small head starts the loss at ln V instead of above it.
        "head": 0.1 * _draw(keys[-1], (shape.width, shape.vocabulary), "head"),
    }


def _draw(key: jax.Array, size: tuple[int, ...], name: str) -> jax.Array:
    if name.endswith("_gain"):
        return jnp.ones(size, jnp.float32)
    return jax.random.normal(key, size, jnp.float32) * np.float32(size[-2] ** -0.5)


def spec_of(name: str) -> P:
    """Return how a parameter of that name, or its moments, lies on the mesh."""
    return P(None, EXPERT) if name in EXPERT_WEIGHTS else P()


def compute_logits(
    model: Model, params: Params, bias_ne: jax.Array, token_bl: jax.Array, routed_scale: jax.Array
) -> tuple[jax.Array, BlockStats]:
    """Return f32 logits [B, L, V] and the stacked stats; `routed_scale` 0 silences the experts."""
    blocks, embedding, head, gain = (
        params[name] for name in ("blocks", "embedding", "head", "final_gain")
    )
    x_bld = jnp.take(embedding, token_bl, axis=0).astype(model.dtype)

    def run_block(
        x: jax.Array, layer: tuple[Params, Reach, jax.Array]
    ) -> tuple[jax.Array, BlockStats]:
        return _run_block(model, x, layer, routed_scale)

    body = jax.checkpoint(run_block, prevent_cse=False) if model.recompute else run_block
    reach = jax.tree.map(jnp.asarray, reach_of(model.shape))
    x_bld, stats = lax.scan(body, x_bld, (blocks, reach, bias_ne))
    x_bld = normalize(x_bld, gain)
    return jnp.matmul(x_bld, head.astype(model.dtype), preferred_element_type=jnp.float32), stats


def _run_block(
    model: Model,
    x_bld: jax.Array,
    layer: tuple[Params, Reach, jax.Array],
    routed_scale: jax.Array,
) -> tuple[jax.Array, BlockStats]:
    weights, reach, bias_e = layer
    block = {
        # The router stays in f32: in bf16 2.65% of tokens choose other experts (marin#8435).
        name: weight if name == "router" else weight.astype(model.dtype)
        for name, weight in weights.items()
    }
    x_bld = x_bld + attend(normalize(x_bld, block["attention_gain"]), block, reach)
    x_td = normalize(x_bld, block["mixture_gain"]).reshape(-1, model.shape.width)
    shared_td = run_swiglu(x_td, block["shared13"], block["shared2"])
    routed_td, stats = _run_routed(model, x_td, block, bias_e)
    mixed = shared_td + routed_td * routed_scale.astype(model.dtype)
    return x_bld + mixed.reshape(x_bld.shape), stats


def run_swiglu(x_td: jax.Array, w13: jax.Array, w2: jax.Array) -> jax.Array:
    """Return the shared experts' sum: side by side they are one SwiGLU of their joint width."""
    gate, up = jnp.split(x_td @ w13, 2, axis=-1)
    return (jax.nn.silu(gate) * up) @ w2


def _run_routed(
    model: Model, x_td: jax.Array, block: dict[str, jax.Array], bias_e: jax.Array
) -> tuple[jax.Array, BlockStats]:
    """Down to the latent, through the chosen experts, and up again."""
    shape = model.shape
    logit_te = jnp.matmul(
        x_td.astype(jnp.float32), block["router"], precision=lax.Precision.HIGHEST
    )
    routing = route(logit_te, bias_e, shape.experts_per_token, float(shape.router_scale))
    x_tl = normalize(x_td @ block["down"], block["latent_gain"])
    experts = Experts(block["w13"], block["w2"])
    y_tl, drops = model.transport(x_tl, routing.expert_tk, routing.weight_tk, experts)
    stats = BlockStats(routing.margin_te, count_load(routing.expert_tk, shape.experts), drops)
    return y_tl.astype(model.dtype) @ block["up"], stats


def compute_loss(logit_blv: jax.Array, target_bl: jax.Array, tokens: int) -> LossParts:
    """Return this device's share of the mean cross entropy and of the mean squared logsumexp.

    `tokens` counts the global batch.
    """
    lse_bl = jax.nn.logsumexp(logit_blv, axis=-1)
    hit = target_bl[..., None] == jnp.arange(logit_blv.shape[-1], dtype=target_bl.dtype)[None, None]
    chosen_bl = jnp.sum(jnp.where(hit, logit_blv, 0), axis=-1)
    scale = np.float32(1 / tokens)
    return LossParts(
        cross_entropy=jnp.sum(lse_bl - chosen_bl) * scale,
        z=jnp.sum(jnp.square(lse_bl)) * scale,
    )
