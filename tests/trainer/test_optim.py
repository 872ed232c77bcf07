import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.model import init_params
from trainer.optim import GROUPS, AdamSettings, group_of, make_optimizer, name_of

PARAMS = {
    "embedding": np.full((3, 2), 2.0, np.float32),
    "blocks": {"w2": np.full((1, 2, 2), 2.0, np.float32)},
}
GRADS = jax.tree.map(lambda p: 0.5 * np.ones_like(p), PARAMS)
LR = {"matrix": np.float32(0.1), "other": np.float32(0.01)}


def updates(steps=1, weight_decay=0.0, lr=None):
    optimizer = make_optimizer(AdamSettings(beta2=0.95))
    state = optimizer.init(PARAMS)
    out = None
    for _ in range(steps):
        out, state = optimizer.update(
            GRADS, state, PARAMS, lr=lr or LR, weight_decay=jnp.float32(weight_decay)
        )
    return out


def test_each_group_moves_at_its_own_rate():
    # The first step of Adam is the sign of the gradient.
    out = updates()
    np.testing.assert_allclose(out["embedding"], -0.01, rtol=1e-5)
    np.testing.assert_allclose(out["blocks"]["w2"], -0.1, rtol=1e-5)


def test_weight_decay_is_decoupled_and_of_matrices_alone():
    out = updates(weight_decay=0.3)
    np.testing.assert_allclose(out["embedding"], -0.01, rtol=1e-5)
    np.testing.assert_allclose(out["blocks"]["w2"], -0.1 * (1 + 0.3 * 2), rtol=1e-5)


def test_zero_rates_move_nothing():
    out = updates(lr={group: np.float32(0) for group in GROUPS}, weight_decay=0.3)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(out))


def test_large_gradients_are_not_clipped_but_scaled_by_adam():
    optimizer = make_optimizer()
    huge = jax.tree.map(lambda g: g * 1e6, GRADS)
    out, state = optimizer.update(
        huge, optimizer.init(PARAMS), PARAMS, lr=LR, weight_decay=jnp.float32(0)
    )
    np.testing.assert_allclose(out["blocks"]["w2"], -0.1, rtol=1e-5)
    np.testing.assert_allclose(state.nu["blocks"]["w2"], 0.05 * (0.5e6) ** 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("w13", "matrix"),
        ("query", "matrix"),
        ("down", "matrix"),
        ("embedding", "other"),
        ("head", "other"),
        ("router", "other"),
        ("key_gain", "other"),
    ],
)
def test_group_of(name, group):
    assert group_of(name) == group


def test_every_parameter_has_a_group(small_shape):
    params = jax.eval_shape(lambda: init_params(small_shape, jax.random.key(0)))
    names = [name_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    assert {group_of(name) for name in names} == set(GROUPS)
    # Whatever is larger than a vector within its block is a matrix, but for the three named.
    ranks = {name_of(p): x.ndim for p, x in jax.tree_util.tree_leaves_with_path(params["blocks"])}
    for name, rank in ranks.items():
        assert (group_of(name) == "matrix") == (rank >= 3 and name != "router")
