import jax
import jax.numpy as jnp
import numpy as np
import pytest

from contract.model import PRESETS, parameters
from trainer.model import compute_loss, init_params, parameter_sizes, run_swiglu, spec_of


def count_weights(shape):
    block = sum(np.prod(size) for n, size in parameter_sizes(shape).items() if "gain" not in n)
    return shape.blocks * int(block) + 2 * shape.vocabulary * shape.width


@pytest.mark.parametrize("preset", ["tiny", "hero"])
def test_parameter_sizes_add_up_to_the_contract(preset):
    assert count_weights(PRESETS[preset]) == parameters(PRESETS[preset])[0]


def test_init_matrices_keep_the_scale_of_their_input(small_shape):
    wide = small_shape.model_copy(update={"width": 256, "latent": 128})
    params = jax.jit(init_params, static_argnums=0)(wide, jax.random.key(0))
    for name, weight in params["blocks"].items():
        if name.endswith("_gain"):
            assert np.all(np.asarray(weight) == 1)
        else:
            np.testing.assert_allclose(np.std(weight) * weight.shape[-2] ** 0.5, 1, rtol=0.1)


def test_init_no_two_parameters_draw_the_same(small_shape):
    params = jax.jit(init_params, static_argnums=0)(small_shape, jax.random.key(0))
    query, output = (np.asarray(params["blocks"][n]).reshape(-1) for n in ("query", "output"))
    assert not np.allclose(query, output)


def test_only_expert_weights_are_cut(small_shape):
    cut = [name for name in parameter_sizes(small_shape) if tuple(spec_of(name))]
    assert sorted(cut) == ["w13", "w2"]


def test_loss_shares_add_up_to_the_means():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 3, 7)).astype(np.float32)
    target = rng.integers(0, 7, (2, 3)).astype(np.int32)
    lse = np.log(np.exp(logits).sum(-1))
    chosen = np.take_along_axis(logits, target[..., None], 2)[..., 0]
    parts = compute_loss(jnp.asarray(logits), jnp.asarray(target), 12)
    np.testing.assert_allclose(parts.cross_entropy, np.sum(lse - chosen) / 12, rtol=1e-6)
    np.testing.assert_allclose(parts.z, np.sum(lse**2) / 12, rtol=1e-6)


def test_shared_experts_side_by_side_are_their_sum():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 4)).astype(np.float32)
    gate, up = rng.normal(size=(2, 4, 6)).astype(np.float32)
    down = rng.normal(size=(6, 4)).astype(np.float32)
    joint = run_swiglu(x, np.concatenate([gate, up], 1), down)
    halves = [
        run_swiglu(x, np.concatenate([gate[:, half], up[:, half]], 1), down[half])
        for half in (slice(0, 3), slice(3, 6))
    ]
    np.testing.assert_allclose(joint, halves[0] + halves[1], rtol=1e-4, atol=1e-5)
