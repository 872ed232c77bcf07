"""Digests of arrays: the same two numbers on every mesh, on the device and on the host.

The words of an array are the bits of its elements in row-major order, each zero-extended to uint32
(a 64-bit element is two words, the low one first). With i the index of word w_i in the whole array:
S0 = sum w_i, S1 = sum w_i (2 i + 1), both mod 2^32. Any one changed word moves S0, nearly any swap
moves S1, and sums over parts of an array add up to the sums of the whole.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Tree = Any
"""A pytree of arrays; JAX has no type for it."""
Digest = tuple[int, int]
"""(S0, S1), each 0..2^32-1."""
WORD = 2**32
WORD_BYTES = 4


def state_digests(state: Tree) -> dict[str, Digest]:
    """Return the digest of every array of the tree, by path ("params/blocks/w13").

    Arrays that are cut lie on one mesh. A key array counts by its data. One compiled call, with one
    collective for each set of axes that arrays are cut over: every process calls it at one point.
    """
    paths, leaves = zip(*jax.tree_util.tree_leaves_with_path(state), strict=True)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]
    raw = tuple(_raw(leaf) for leaf in leaves)
    mesh, specs = _layout_of(raw)
    sums = jax.device_get(_digester(mesh, specs, tuple(leaf.shape for leaf in raw))(raw))
    return {name: (int(s0), int(s1)) for name, (s0, s1) in zip(names, sums, strict=True)}


def digest_numpy(
    block: np.ndarray, *, start: Sequence[int] | None = None, whole: Sequence[int] | None = None
) -> Digest:
    """Return the digest of a host array; or the share of a block at `start` of a `whole` shape."""
    words = _host_words(block)
    each = words.shape[-1]
    index = np.arange(each, dtype=np.uint32).reshape((1,) * block.ndim + (each,))
    for axis, stride in enumerate(_strides(block.shape if whole is None else whole)):
        first = 0 if start is None else start[axis]
        place = np.arange(first, first + block.shape[axis], dtype=np.uint32)
        step = np.uint32(stride * each % WORD)
        index = index + (place * step).reshape((-1,) + (1,) * (block.ndim - axis))
    odd = index * np.uint32(2) + np.uint32(1)
    return int(np.sum(words, dtype=np.uint32)), int(np.sum(words * odd, dtype=np.uint32))


def add_digests(parts: Iterable[Digest]) -> Digest:
    """Return the digest of an array from the shares of its parts."""
    pairs = list(parts)
    return sum(pair[0] for pair in pairs) % WORD, sum(pair[1] for pair in pairs) % WORD


def _host_words(block: np.ndarray) -> np.ndarray:
    """Return uint32 with the words of each element on a last axis."""
    size = block.dtype.itemsize
    lone = np.ascontiguousarray(block).reshape(*block.shape, 1)
    if size == 2 * WORD_BYTES:
        return lone.view("<u4")
    assert size <= WORD_BYTES, f"{block.dtype} has no words"
    return lone.view(f"<u{size}").astype(np.uint32)


def _strides(shape: Sequence[int]) -> list[int]:
    """Return how many elements one step along each axis of a row-major array moves."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def _raw(leaf: jax.Array) -> jax.Array:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _layout_of(
    leaves: tuple[jax.Array, ...],
) -> tuple[Mesh | AbstractMesh | None, tuple[P, ...]]:
    """Return the one mesh of the arrays and how each is cut on it."""
    shardings = [leaf.sharding for leaf in leaves]
    meshes = {s.mesh for s in shardings if isinstance(s, NamedSharding)}
    assert len(meshes) <= 1, "digests are of arrays on one mesh"
    specs = tuple(s.spec if isinstance(s, NamedSharding) else P() for s in shardings)
    return (meshes.pop() if meshes else None), specs


@lru_cache(maxsize=8)
def _digester(
    mesh: Mesh | AbstractMesh | None, specs: tuple[P, ...], shapes: tuple[tuple[int, ...], ...]
) -> Callable[[tuple[jax.Array, ...]], jax.Array]:
    """Return the compiled function from arrays to uint32[arrays, 2]; kept, so it compiles once."""

    def run(blocks: tuple[jax.Array, ...]) -> jax.Array:
        sums = [_sum_block(*each) for each in zip(blocks, specs, shapes, strict=True)]
        return jnp.stack(_add_over_devices(sums, [_axes_of(spec) for spec in specs]))

    if mesh is None:
        return jax.jit(run)
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=(specs,), out_specs=P()))


def _add_over_devices(sums: list[jax.Array], axes: list[tuple[str, ...]]) -> list[jax.Array]:
    """Return the sums over the axes that each array is cut over, by one psum for each set of axes.

    An array that is not cut is summed whole by every device, and needs none.
    """
    totals = list(sums)
    for group in sorted(set(axes) - {()}):
        members = [n for n, cut in enumerate(axes) if cut == group]
        added = lax.psum(jnp.stack([sums[n] for n in members]), group)
        for place, n in enumerate(members):
            totals[n] = added[place]
    return totals


def _axes_of(spec: P) -> tuple[str, ...]:
    return tuple(sorted(axis for entry in spec for axis in _names(entry)))


def _names(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if entry is None:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def _sum_block(block: jax.Array, spec: P, whole: tuple[int, ...]) -> jax.Array:
    """Return uint32[2]: the sums over the words of this device's block of an array."""
    entries = tuple(spec) + (None,) * (block.ndim - len(spec))
    index = jnp.zeros(block.shape, jnp.uint32)
    for axis, stride in enumerate(_strides(whole)):
        place = lax.broadcasted_iota(jnp.uint32, block.shape, axis)
        first = _block_number(entries[axis]) * jnp.uint32(block.shape[axis])
        index = index + (place + first) * jnp.uint32(stride % WORD)
    word = _device_words(block)
    odd = index * jnp.uint32(2) + jnp.uint32(1)
    return jnp.stack([jnp.sum(word, dtype=jnp.uint32), jnp.sum(word * odd, dtype=jnp.uint32)])


def _block_number(entry: str | tuple[str, ...] | None) -> jax.Array:
    """Return which block along an array axis this device holds."""
    number = jnp.uint32(0)
    for name in _names(entry):
        here = lax.axis_index(name).astype(jnp.uint32)
        number = number * jnp.uint32(lax.axis_size(name)) + here
    return number


def _device_words(x: jax.Array) -> jax.Array:
    """Return the bits of each element, zero-extended to uint32."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint32)
    size = x.dtype.itemsize
    assert size <= WORD_BYTES, f"{x.dtype} is no device type of the state"
    return lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * size}")).astype(jnp.uint32)
