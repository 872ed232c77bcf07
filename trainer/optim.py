"""The optimizer: Adam with decoupled weight decay, whose schedule values arrive as data.

Two parameter groups: `matrix` (every block's matrices, experts included) and `other` (embedding,
head, router, gains). Gradients are not clipped. Weight decay applies to matrices alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

GROUPS = ("matrix", "other")
Value = Any
"""An f32 scalar, or one for each group."""
NOT_MATRICES = ("embedding", "head", "router")


class AdamSettings(NamedTuple):
    """Fixed over a run. beta2 0.95 is the public record's (hero run)."""

    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8


def group_of(name: str) -> str:
    """Return the group of the parameter with that name."""
    return "other" if name in NOT_MATRICES or name.endswith("_gain") else "matrix"


def name_of(path: tuple[Any, ...]) -> str:
    """Return the parameter's name: the last key of its path in the tree."""
    return jax.tree_util.keystr(path[-1:], simple=True)


def make_optimizer(settings: AdamSettings | None = None) -> optax.GradientTransformationExtraArgs:
    """Return the transformation; `update` takes `lr` (one f32 a group) and `weight_decay`."""
    settings = settings or AdamSettings()
    adam = optax.scale_by_adam(settings.beta1, settings.beta2, settings.epsilon)

    def update(
        updates: optax.Updates,
        state: optax.OptState,
        params: optax.Params | None = None,
        **scheduled: Value,
    ) -> tuple[optax.Updates, optax.OptState]:
        # optax raises a float to an integer count, which strict promotion (our tests) refuses.
        with jax.numpy_dtype_promotion("standard"):
            directions, state = adam.update(updates, state, params)

        lr, weight_decay = scheduled["lr"], scheduled["weight_decay"]

        def scale(path: tuple[Any, ...], direction: jax.Array, param: jax.Array) -> jax.Array:
            group = group_of(name_of(path))
            decay = weight_decay if group == "matrix" else jnp.zeros_like(weight_decay)
            return -lr[group] * (direction + decay * param)

        return jax.tree_util.tree_map_with_path(scale, directions, params), state

    return optax.GradientTransformationExtraArgs(adam.init, update)
