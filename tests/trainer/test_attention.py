import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.attention import ENDLESS, NORM_EPSILON, ROPE_THETA, Reach, attend, normalize, reach_of
from trainer.model import parameter_sizes

LENGTH = 12


@pytest.fixture(scope="module")
def block(small_shape):
    rng = np.random.default_rng(0)
    sizes = parameter_sizes(small_shape)
    names = ("query", "key", "value", "output", "query_gain", "key_gain")
    return {name: rng.normal(size=sizes[name]).astype(np.float32) for name in names}


@pytest.fixture(scope="module")
def x_bld(small_shape):
    rng = np.random.default_rng(1)
    return rng.normal(size=(2, LENGTH, small_shape.width)).astype(np.float32)


def plain_norm(x, gain):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + NORM_EPSILON) * gain


def plain_rope(x, place):
    """One head vector at one position."""
    quarter = x.size // 4
    out = x.copy()
    for i in range(quarter):
        angle = place * ROPE_THETA ** (-i / quarter)
        a, b = x[i], x[i + quarter]
        out[i] = a * np.cos(angle) - b * np.sin(angle)
        out[i + quarter] = a * np.sin(angle) + b * np.cos(angle)
    return out


def plain_attention(x_ld, block, window, is_rotated):
    """One query and one key at a time, in f64."""
    block = {name: value.astype(np.float64) for name, value in block.items()}
    width = block["query_gain"].size
    query, key, value = (
        (x_ld.astype(np.float64) @ block[n]).reshape(len(x_ld), -1, width)
        for n in ("query", "key", "value")
    )
    query, key = plain_norm(query, block["query_gain"]), plain_norm(key, block["key_gain"])
    out = np.zeros_like(query)
    group = query.shape[1] // key.shape[1]
    for here in range(len(x_ld)):
        for head in range(query.shape[1]):
            seen = range(max(0, here - window + 1), here + 1)
            turn = plain_rope if is_rotated else lambda vector, _: vector
            q = turn(query[here, head], here)
            score = [q @ turn(key[m, head // group], m) * width**-0.5 for m in seen]
            share = np.exp(score - np.max(score))
            share /= share.sum()
            out[here, head] = sum(
                s * value[m, head // group] for s, m in zip(share, seen, strict=True)
            )
    return out.reshape(len(x_ld), -1) @ block["output"]


@pytest.mark.parametrize(("window", "rotation"), [(4, 1.0), (ENDLESS, 0.0), (ENDLESS, 1.0)])
def test_attention_equals_the_plain_loop(block, x_bld, window, rotation):
    reach = Reach(jnp.int32(window), jnp.float32(rotation))
    got = jax.jit(attend)(x_bld, block, reach)
    want = [plain_attention(x, block, window, rotation == 1.0) for x in x_bld]
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_attention_later_tokens_leave_earlier_outputs(block, x_bld):
    reach = Reach(jnp.int32(ENDLESS), jnp.float32(0))
    changed = x_bld.copy()
    changed[:, LENGTH // 2 :] += 1
    run = jax.jit(attend)
    before, after = run(x_bld, block, reach), run(changed, block, reach)
    np.testing.assert_array_equal(before[:, : LENGTH // 2], after[:, : LENGTH // 2])
    assert np.any(before[:, LENGTH // 2 :] != after[:, LENGTH // 2 :])


def test_reach_full_blocks_are_endless_and_unrotated(small_shape):
    reach = reach_of(small_shape.model_copy(update={"blocks": 5}))
    assert reach.window.tolist() == [4, ENDLESS, 4, ENDLESS, ENDLESS]
    assert reach.rotation.tolist() == [1, 0, 1, 0, 0]


def test_normalize_keeps_the_type_and_counts_in_f32():
    x = jnp.full((1, 4), 300, jnp.bfloat16)
    y = normalize(x, jnp.ones(4, jnp.float32))
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(y, np.float32), 1, rtol=1e-2)
