"""The pooled wave on eight devices against the dense reference.

Shapes: S 8 devices (two groups of four), T tokens a device, k choices, E experts in a group.
"""

from dataclasses import dataclass, replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from contract.model import Execution, pool_rows
from trainer.mesh import BATCH, EXPERT, make_mesh
from trainer.moe.dense import run_dense
from trainer.moe.pooled_wave import PooledWave, Sizes, pack, size_of, unpack
from trainer.moe.transport import Drops, Experts

AXIS, TOKENS, CHOICES, EXPERTS, LATENT, WIDTH = 4, 24, 2, 8, 8, 12
DEVICES = 8
AMPLE = Execution(sender_capacity_percent=800, receiver_capacity_percent=800)
TIGHT = Execution(sender_capacity_percent=90, receiver_capacity_percent=90)


@dataclass(frozen=True)
class Case:
    x: np.ndarray
    expert: np.ndarray
    weight: np.ndarray
    experts: Experts

    @property
    def arguments(self):
        return self.x, self.weight, self.experts


def draw_case(seed=0, expert=None):
    rng = np.random.default_rng(seed)
    tokens = DEVICES * TOKENS
    if expert is None:
        expert = np.argsort(rng.normal(size=(tokens, EXPERTS)), axis=1)[:, :CHOICES]
    normal = partial(rng.normal, size=None)
    return Case(
        x=rng.normal(size=(tokens, LATENT)).astype(np.float32),
        expert=np.asarray(expert, np.int32),
        weight=(1 + abs(normal(size=(tokens, CHOICES)))).astype(np.float32),
        experts=Experts(
            0.5 * rng.normal(size=(EXPERTS, LATENT, 2 * WIDTH)).astype(np.float32),
            0.5 * rng.normal(size=(EXPERTS, WIDTH, LATENT)).astype(np.float32),
        ),
    )


def mapped(transport):
    """Return (x, weight, experts, expert) -> y, drops by device; over the mesh, not yet jitted."""

    def run(x, weight, experts, expert):
        y, drops = transport(x, expert, weight, experts)
        return y, jax.tree.map(lambda n: n[None], drops)

    return jax.shard_map(
        run,
        mesh=make_mesh(AXIS),
        in_specs=(BATCH, BATCH, P(EXPERT), BATCH),
        out_specs=(BATCH, BATCH),
    )


def differentiate(run, x, weight, experts, expert, factor):
    def lose(x, weight, experts):
        y, drops = run(x, weight, experts, expert)
        return jnp.sum(y * factor), (y, drops)

    grads, (y, drops) = jax.grad(lose, (0, 1, 2), has_aux=True)(x, weight, experts)
    return y, drops, grads


def factor_of(case):
    return np.random.default_rng(9).normal(size=case.x.shape).astype(np.float32)


@cache
def compiled(transport):
    return jax.jit(partial(differentiate, mapped(transport)))


@cache
def compiled_forward(transport):
    return jax.jit(mapped(transport))


def send(case, execution, **options):
    """Return (y, drops by device, gradients) of the pooled wave."""
    run = compiled(PooledWave(execution, **options))
    return jax.device_get(run(*case.arguments, case.expert, factor_of(case)))


def send_forward(case, execution):
    """Return (y, drops by device) of the pooled wave."""
    return jax.device_get(compiled_forward(PooledWave(execution))(*case.arguments, case.expert))


@cache
def dense_run():
    return jax.jit(
        partial(
            differentiate, lambda x, weight, experts, expert: run_dense(x, expert, weight, experts)
        )
    )


def reference(case):
    return jax.device_get(dense_run()(*case.arguments, case.expert, factor_of(case)))


def assert_close(got, want, bound=5e-7):
    """Every array within `bound` of the reference, relative to its largest element."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.max(np.abs(a - b)) <= bound * np.max(np.abs(b))


@pytest.fixture(scope="module")
def case():
    return draw_case()


@pytest.fixture(scope="module")
def ample_run(case):
    return send(case, AMPLE)


@pytest.fixture(scope="module")
def tight_run(case):
    return send(case, TIGHT)


def test_ample_capacity_equals_dense_with_every_gradient(case, ample_run):
    y, drops, grads = ample_run
    want_y, _, want_grads = reference(case)
    assert sum(drops.sender) == sum(drops.receiver) == 0
    assert_close(y, want_y)
    assert_close(grads, want_grads)


def test_tight_capacity_equals_dense_masked_by_what_was_kept(case, tight_run):
    y, drops, (dx, dweight, dexperts) = tight_run
    # A dropped assignment has no influence; a kept one always has some.
    is_kept = dweight != 0
    lost = np.sum(drops.sender) + np.sum(drops.receiver)
    assert np.sum(drops.sender) > 0
    assert np.sum(drops.receiver) > 0
    assert np.sum(is_kept) == case.expert.size - lost == np.sum(drops.kept)
    masked = replace(case, weight=np.where(is_kept, case.weight, 0))
    want_y, _, (want_dx, want_dweight, want_dexperts) = reference(masked)
    assert_close(y, want_y)
    assert_close((dx, dexperts), (want_dx, want_dexperts))
    assert_close(dweight, np.where(is_kept, want_dweight, 0))


def test_recomputed_waves_are_bit_equal(case, tight_run):
    jax.tree.map(np.testing.assert_array_equal, send(case, TIGHT, recompute=True), tight_run)


def test_looped_waves_equal_scanned_ones(case, tight_run, monkeypatch):
    def loop(body, carry, xs):
        for number in range(TIGHT.waves):
            carry, _ = body(carry, jax.tree.map(lambda x, n=number: x[n], xs))
        return carry, None

    monkeypatch.setattr("trainer.moe.pooled_wave.lax.scan", loop)
    y, drops = jax.device_get(jax.jit(mapped(PooledWave(TIGHT)))(*case.arguments, case.expert))
    jax.tree.map(np.testing.assert_array_equal, drops, tight_run[1])
    # Unrolled bodies are fused otherwise than a loop's: equal to rounding, not in every bit.
    assert_close(y, tight_run[0])


def count_kept(case, execution):
    """Return how many assignments of each token were computed, and the drops.

    Every assignment returns silu(1) in each latent: x is 1, and so are gate and up of the first
    hidden unit of every expert.
    """
    w13 = np.zeros((EXPERTS, LATENT, 2 * WIDTH), np.float32)
    w13[:, 0, [0, WIDTH]] = 1
    w2 = np.zeros((EXPERTS, WIDTH, LATENT), np.float32)
    w2[:, 0] = 1
    ones = Case(np.ones_like(case.x), case.expert, np.ones_like(case.weight), Experts(w13, w2))
    y, drops = send_forward(ones, execution)
    counts = y / float(jax.nn.silu(1.0))
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-6)
    return np.round(counts[:, 0]), drops


def test_ones_come_back_as_the_count_of_kept_rows(tight_run, case):
    counts, drops = count_kept(case, TIGHT)
    assert counts.sum() == np.sum(drops.kept)
    np.testing.assert_array_equal(counts, np.sum(tight_run[2][1] != 0, axis=1))


def routes():
    tokens = DEVICES * TOKENS
    rng = np.random.default_rng(3)
    yield "to one expert", np.zeros((tokens, CHOICES), np.int32)
    yield "to one device", rng.integers(2, 4, (tokens, CHOICES))
    yield "unevenly", np.minimum(rng.geometric(0.4, (tokens, CHOICES)) - 1, EXPERTS - 1)


@pytest.mark.parametrize(("name", "expert"), list(routes()))
def test_drops_follow_the_formula_and_add_up(name, expert):
    _, drops = send_forward(draw_case(expert=expert), TIGHT)
    pool = pool_rows(TIGHT, TOKENS * CHOICES, AXIS)
    local = EXPERTS // AXIS
    by_device = expert.reshape(DEVICES, -1) // local
    load = np.stack([np.bincount(row, minlength=AXIS) for row in by_device])
    want = np.maximum(0, load - TIGHT.waves * pool).sum(axis=1)
    np.testing.assert_array_equal(drops.sender, want)
    assert np.sum(drops.kept) + np.sum(drops.sender) + np.sum(drops.receiver) == expert.size
    assert np.sum(drops.receiver) > 0


ONLY_RECEIVER = Execution(sender_capacity_percent=800, receiver_capacity_percent=80)
ONLY_SENDER = Execution(sender_capacity_percent=90, receiver_capacity_percent=800)


def test_receiver_capacity_is_shared_by_all_senders(case):
    expert = np.random.default_rng(5).integers(0, EXPERTS, case.expert.shape)
    counts, drops = count_kept(draw_case(expert=expert), ONLY_RECEIVER)
    assert np.sum(drops.sender) == 0
    lost = CHOICES - counts.reshape(DEVICES, -1).mean(axis=1)
    assert lost.mean() > 0.3
    # In sender order the last sender of each group would lose several times the mean.
    assert lost.max() < 2 * lost.mean()


def test_later_tokens_leave_earlier_outputs_alone(case):
    # One sequence a device: new tokens and routes in the second half of every device's share.
    late = (np.arange(DEVICES * TOKENS) % TOKENS) >= TOKENS // 2
    other = draw_case(seed=8)
    changed = Case(
        x=np.where(late[:, None], other.x, case.x),
        expert=np.where(late[:, None], other.expert, case.expert),
        weight=case.weight,
        experts=case.experts,
    )
    before, after = send_forward(case, ONLY_SENDER), send_forward(changed, ONLY_SENDER)
    assert np.sum(before[1].sender) > 0
    np.testing.assert_array_equal(before[0][~late], after[0][~late])


def test_permuted_tokens_get_permuted_outputs(case, ample_run):
    order = np.random.default_rng(4).permutation(TOKENS)
    rows = (np.arange(DEVICES)[:, None] * TOKENS + order[None]).reshape(-1)
    moved = replace(case, x=case.x[rows], expert=case.expert[rows], weight=case.weight[rows])
    y, _, _ = send(moved, AMPLE)
    assert_close(y, ample_run[0][rows])


def test_two_runs_are_bit_equal(case, tight_run):
    jax.tree.map(np.testing.assert_array_equal, send(case, TIGHT), tight_run)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_header_255_local_ids_survive_the_payload(dtype):
    ids = jnp.arange(255, dtype=jnp.int32)
    sizes = Sizes(devices=1, local=255, waves=1, pool=256, bank=1)
    occupant = jnp.append(jnp.arange(255, dtype=jnp.int32), 255)
    carry = jax.jit(lambda rows: unpack(pack(rows, ids, occupant, sizes), sizes)[0])
    got = carry(jnp.zeros((256, 8), dtype))
    assert got[0].tolist() == [*range(255), -1]


def test_header_256_local_experts_are_refused():
    size_of(Execution(), 1024, 4, 255)
    with pytest.raises(AssertionError, match="exact up to 255"):
        size_of(Execution(), 1024, 4, 256)


def test_drops_are_counted_as_int32(tight_run):
    assert all(leaf.dtype == np.int32 for leaf in Drops(*tight_run[1]))


def test_bf16_stays_near_the_f32_reference(case):
    narrow = replace(
        case,
        x=case.x.astype(jnp.bfloat16),
        experts=Experts(*(w.astype(jnp.bfloat16) for w in case.experts)),
    )
    y, _ = send_forward(narrow, AMPLE)
    assert_close(y, reference(case)[0], 1e-2)
