"""Each movement against its plain form, whose gradient autodiff finds by scattering."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.moe.rows import gather_sum, permute, spread
from trainer.moe.tables import plan_pools

TOKENS, CHOICES, LATENT, ROWS = 10, 2, 3, 15


@pytest.fixture(scope="module")
def tables():
    destination = np.random.default_rng(0).integers(0, 3, (TOKENS, CHOICES))
    pools = plan_pools(jnp.asarray(destination, jnp.int32), 3, 1, ROWS // 3)
    assert pools.dropped > 0
    slot = jnp.where(pools.wave_tk == 0, pools.slot_tk, ROWS)
    return slot, pools.occupant_wn[0]


def draw(*shape):
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape), jnp.float32)


def padded(x):
    return jnp.concatenate([x, jnp.zeros((1, *x.shape[1:]), x.dtype)])


def assert_same(fast, plain, *args):
    every = tuple(range(len(args)))
    weight = draw(*jax.eval_shape(plain, *args).shape)
    np.testing.assert_allclose(fast(*args), plain(*args), rtol=1e-6)
    got, want = (
        jax.grad(lambda *a, f=f: jnp.sum(f(*a) * weight), every)(*args) for f in (fast, plain)
    )
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_spread_and_its_gradient(tables):
    slot, occupant = tables
    assert_same(
        lambda x: spread(x, slot, occupant),
        lambda x: padded(x)[occupant // CHOICES],
        draw(TOKENS, LATENT),
    )


def test_gather_sum_and_its_gradients(tables):
    slot, occupant = tables
    assert_same(
        lambda y, w: gather_sum(y, w, slot, occupant),
        lambda y, w: jnp.sum(w[..., None] * padded(y)[slot], axis=1),
        draw(ROWS, LATENT),
        draw(TOKENS, CHOICES),
    )


def test_permute_and_its_gradient():
    source = jnp.array([2, 0, 4, 1], jnp.int32)
    target = jnp.array([1, 3, 0, 4], jnp.int32)
    assert_same(lambda x: permute(x, source, target), lambda x: padded(x)[source], draw(4, LATENT))
