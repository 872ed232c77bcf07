import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from trainer.integrity import add_digests, digest_numpy, state_digests
from trainer.mesh import make_mesh

SPECS = [P(), P("expert"), P(None, "expert"), P(("replica", "expert")), P("replica", "expert")]
WORD = 2**32


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def plain_digest(words):
    values = [int(w) for w in words]
    odd = sum(w * (2 * i + 1) for i, w in enumerate(values))
    return sum(values) % WORD, odd % WORD


def test_host_digest_equals_the_definition():
    x = draw(3, 5)
    assert digest_numpy(x) == plain_digest(x.view(np.uint32).reshape(-1))
    assert digest_numpy(x.T) == plain_digest(np.ascontiguousarray(x.T).view(np.uint32).reshape(-1))


def test_host_digest_64_bit_elements_are_two_words():
    x = np.array([[1.5, -2.5], [1e300, 0.0]])
    assert digest_numpy(x) == plain_digest(x.view("<u4").reshape(-1))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, ml_dtypes.bfloat16, np.bool_])
def test_host_digest_narrow_elements_are_extended(dtype):
    x = np.array([1, 0, 3, 7]).astype(dtype)
    assert digest_numpy(x) == plain_digest(x.view(f"u{x.itemsize}"))


def test_host_digest_parts_add_up():
    x = draw(8, 6)
    parts = [
        digest_numpy(x[i : i + 4, j : j + 3], start=(i, j), whole=x.shape)
        for i in (0, 4)
        for j in (0, 3)
    ]
    assert add_digests(parts) == digest_numpy(x)


def test_device_digests_equal_the_host_over_all_shardings():
    x = draw(8, 16)
    for expert_axis in (8, 4, 2):
        mesh = make_mesh(expert_axis)
        state = {str(spec): jax.device_put(x, NamedSharding(mesh, spec)) for spec in SPECS}
        assert set(state_digests(state).values()) == {digest_numpy(x)}


def test_device_digests_without_a_mesh_name_every_array():
    state = {
        "a": {"b": jnp.asarray(draw(3)), "flag": jnp.asarray([True, False, True])},
        "narrow": jnp.asarray(draw(4)).astype(jnp.bfloat16),
        "count": jnp.int32(7),
        "key": jax.random.key(3),
    }
    digests = state_digests(state)
    assert list(digests) == ["a/b", "a/flag", "count", "key", "narrow"]
    assert digests["a/b"] == digest_numpy(draw(3))
    assert digests["a/flag"] == digest_numpy(np.array([True, False, True]))
    assert digests["narrow"] == digest_numpy(np.asarray(state["narrow"]))
    assert digests["count"] == (7, 7)
    assert digests["key"] == digest_numpy(np.asarray(jax.random.key_data(state["key"])))


def test_every_flip_and_swap_is_found():
    rng = np.random.default_rng(1)
    x = draw(64, 8)
    want = digest_numpy(x)
    for _ in range(300):
        bits = x.copy().view(np.uint32).reshape(-1)
        place, bit = rng.integers(bits.size), rng.integers(32)
        bits[place] ^= np.uint32(1 << int(bit))
        assert digest_numpy(bits.reshape(x.shape))[0] != want[0]
    for _ in range(300):
        flat = x.copy().reshape(-1)
        a, b = rng.choice(flat.size, 2, replace=False)
        flat[[a, b]] = flat[[b, a]]
        assert digest_numpy(flat.reshape(x.shape))[1] != want[1]


def test_device_digest_finds_a_flip_in_a_shard():
    mesh = make_mesh(8)
    x = draw(16, 4)
    bad = x.copy()
    bad.view(np.uint32)[9, 2] ^= 1
    put = [jax.device_put(a, NamedSharding(mesh, P("expert"))) for a in (x, bad)]
    good_sums, bad_sums = (state_digests({"x": a})["x"] for a in put)
    assert good_sums[0] != bad_sums[0]
