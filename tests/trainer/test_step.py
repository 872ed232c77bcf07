"""The jitted step on eight virtual devices: two replicas of four expert shards."""

import jax
import numpy as np
import pytest

from contract.model import PRESETS, Execution, parameters
from trainer.integrity import digest_numpy, state_digests
from trainer.mesh import make_mesh, place_batch
from trainer.moe.dense import run_dense
from trainer.step import TrainState, join_words, make_scheduled, make_step

SEQUENCES, LENGTH = 16, 8
LR = {"matrix": 0.013, "other": 0.007}
WORD = 0x0123_4567_89AB_CDEF


def draw_batch(mesh, seed=0, length=LENGTH):
    rows = np.random.default_rng(seed).integers(0, 32, (SEQUENCES, length + 1)).astype(np.int32)
    return tuple(place_batch(mesh, r, SEQUENCES) for r in (rows[:, :-1], rows[:, 1:]))


@pytest.fixture(scope="module")
def step(small_shape):
    return make_step(small_shape, Execution(), make_mesh(4))


def schedule(step, lr=None, weight_decay=0.1, word=WORD):
    return make_scheduled(step.mesh, lr or LR, weight_decay, word)


def train(step, steps, *, seed=0, **scheduled):
    state = step.init(seed)
    outputs = []
    for number in range(steps):
        state, out = step(state, *draw_batch(step.mesh, number), schedule(step, **scheduled))
        outputs.append(jax.device_get(out))
    return state, outputs


def test_step_same_inputs_give_the_same_bits(step):
    (first, outputs), (second, again) = train(step, 3), train(step, 3)
    jax.tree.map(np.testing.assert_array_equal, outputs, again)
    assert state_digests(first) == state_digests(second)
    assert state_digests(first) != state_digests(step.init(0))


def test_step_learns_the_batch_it_sees(step):
    state, batch = step.init(0), draw_batch(step.mesh)
    losses = []
    for _ in range(25):
        state, out = step(state, *batch, schedule(step))
        losses.append(float(out.loss))
    assert abs(losses[0] - np.log(32)) < 0.2
    assert losses[-1] < losses[0] - 1
    assert step.evaluate(state, *batch) < losses[-1] + 0.05


def test_step_traces_once_for_each_context_length(step):
    step.prepare(SEQUENCES, LENGTH)
    state = step.init(0)
    for number in range(3):
        values = schedule(step, {"matrix": 0.01 * number, "other": 0.1}, number * 0.1, number)
        state, _ = step(state, *draw_batch(step.mesh), values)
    assert step.trace_count == 1
    state, _ = step(state, *draw_batch(step.mesh, length=2 * LENGTH), schedule(step))
    step(state, *draw_batch(step.mesh, length=2 * LENGTH), schedule(step))
    assert step.trace_count == 2


def test_step_echoes_the_schedule_bit_for_bit(step):
    _, (out,) = train(step, 1, lr={"matrix": 0.1, "other": 1 / 3})
    assert out.lr["matrix"].tobytes() == np.float32(0.1).tobytes()
    assert out.lr["other"].tobytes() == np.float32(1 / 3).tobytes()


def test_step_uses_the_schedule_it_is_given(step):
    still, _ = train(step, 1, lr={"matrix": 0.0, "other": 0.0})
    start = state_digests(step.init(0))
    moved = {n for n, d in state_digests(still).items() if d != start[n]}
    assert not any(name.startswith("params/") for name in moved)
    one_group, _ = train(step, 1, lr={"matrix": 0.0, "other": 0.01})
    moved = {n for n, d in state_digests(one_group).items() if d != start[n]}
    assert "params/embedding" in moved
    assert "params/blocks/w13" not in moved


def test_step_assignments_add_up_exactly(step):
    _, outputs = train(step, 3)
    for out in outputs:
        total = out.kept + out.dropped_sender + out.dropped_receiver
        want = SEQUENCES * LENGTH * step.model.shape.experts_per_token
        assert out.assignments.tolist() == total.tolist() == [want] * 2
        assert out.assignments.dtype == np.int32
    assert sum(out.dropped_sender.sum() for out in outputs) > 0
    assert sum(out.dropped_receiver.sum() for out in outputs) > 0


def test_step_reports_router_and_finite(step):
    _, (out,) = train(step, 1)
    assert out.is_finite
    assert 0 < out.router_entropy <= np.log(step.model.shape.experts) + 1e-6
    assert out.router_bias_max > 0
    # The z-loss at the start: the output logits are near zero, so logsumexp is near ln V.
    assert out.total_loss - out.loss == pytest.approx(1e-4 * np.log(32) ** 2, rel=0.05)


def test_step_non_finite_is_reported(step):
    _, outputs = train(step, 3, lr={"matrix": 1e30, "other": 1e30})
    assert not outputs[-1].is_finite


def test_plan_words_agree_or_differ(step):
    _, (out,) = train(step, 1)
    assert join_words(out.plan_word_min) == join_words(out.plan_word_max) == WORD
    words = np.tile(np.array([1, 2**31 + 5], np.uint32), (8, 1))
    words[3] = [0, 2**32 - 1]
    scheduled = schedule(step)
    scheduled = scheduled._replace(plan_word=jax.device_put(words, scheduled.plan_word.sharding))
    _, out = step(step.init(0), *draw_batch(step.mesh), scheduled)
    assert np.asarray(out.plan_word_min).tolist() == [0, 2**31 + 5]
    assert np.asarray(out.plan_word_max).tolist() == [1, 2**32 - 1]


def test_state_is_donated(step):
    state = step.init(0)
    step(state, *draw_batch(step.mesh), schedule(step))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.params))


def test_abstract_state_describes_the_real_one(step):
    state, _ = train(step, 1)

    def describe(x):
        return x.shape, x.dtype, x.sharding

    assert isinstance(step.abstract_state(), TrainState)
    assert jax.tree.map(describe, step.abstract_state()) == jax.tree.map(describe, state)


def test_evaluation_changes_nothing_and_can_silence_the_experts(step):
    state, _ = train(step, 2)
    before = state_digests(state)
    batch = draw_batch(step.mesh, 5)
    loss, silenced = step.evaluate(state, *batch), step.evaluate(state, *batch, use_routed=False)
    assert loss != silenced
    assert step.evaluate(state, *batch) == loss
    assert state_digests(state) == before


def test_digests_equal_those_of_the_host(step):
    state, _ = train(step, 1)
    for (_, x), digest in zip(
        jax.tree_util.tree_leaves_with_path(state), state_digests(state).values(), strict=True
    ):
        assert digest_numpy(np.asarray(x)) == digest


def test_eight_devices_equal_one_dense_device(small_shape, ample, monkeypatch):
    many = make_step(small_shape, ample, make_mesh(4))
    state, (first, second) = train(many, 2, lr={"matrix": 0.001, "other": 0.001})
    assert first.dropped_sender.sum() == first.dropped_receiver.sum() == 0
    monkeypatch.setattr("trainer.model.PooledWave", lambda *_: run_dense)
    monkeypatch.setattr("trainer.mesh.jax.devices", lambda: [jax.local_devices()[0]])
    one = make_step(small_shape, ample, make_mesh(1))
    dense_state, (dense_first, dense_second) = train(one, 2, lr={"matrix": 0.001, "other": 0.001})
    for a, b in [(first, dense_first), (second, dense_second)]:
        np.testing.assert_allclose(a.loss, b.loss, rtol=1e-6)
        np.testing.assert_allclose(a.grad_norm, b.grad_norm, rtol=1e-5)
    np.testing.assert_allclose(state.router_bias, dense_state.router_bias, atol=1e-4)
    first_moments = jax.device_get((state.opt_state.mu, dense_state.opt_state.mu))
    for a, b in zip(*map(jax.tree.leaves, first_moments), strict=True):
        assert np.max(np.abs(a - b)) <= 1e-5 * np.max(np.abs(b))


def test_hero_shape_lowers_without_being_run():
    # 96 local experts instead of six; shapes and types are those of the 535B model, in bf16.
    step = make_step(PRESETS["hero"], Execution(), make_mesh(4), recompute=True)
    state = step.abstract_state()
    held = sum(np.prod(x.shape) for x in jax.tree.leaves(state.params))
    assert held == pytest.approx(parameters(PRESETS["hero"])[0], rel=1e-4)
    text = step.lower(8, 4096).as_text()
    assert step.trace_count == 1
    # One wave's body stands once, whatever the depth: forward 2, recomputed forward 4, backward 2.
    assert text.count("stablehlo.all_to_all") <= 8
