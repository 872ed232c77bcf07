"""The training step: one jitted function whose schedule values are data.

The state is made under jit with its final shardings (made outside, the second step would compile
again), is donated to each step and never lies on a host. Compiling is apart from running
(`prepare`), because the first collective between processes waits only 30 s for its peers.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from contract.model import Execution, ModelShape
from trainer.mesh import AXES, BATCH, REPLICA, REPLICATED, place_words
from trainer.model import (
    EXPERT_WEIGHTS,
    BlockStats,
    Model,
    Params,
    compute_logits,
    compute_loss,
    init_params,
    spec_of,
)
from trainer.moe.router import balance, count_margins, measure_range
from trainer.optim import GROUPS, make_optimizer, name_of
from trainer.reduce import Tree, find_extremes, make_varying, sum_together


class TrainState(NamedTuple):
    """All that a checkpoint holds of the computation."""

    params: Params
    opt_state: optax.OptState
    router_bias: jax.Array
    """f32[N, E]: chosen by the last global batch, used by the next."""
    rng: jax.Array
    """uint32[2]: key data of the run's root key. Step s would draw from fold_in(rng, s); nothing
    does yet."""


class Scheduled(NamedTuple):
    """What the plan says about one step. Values, never constants: a new plan compiles nothing."""

    lr: Mapping[Any, Any]
    """One f32 scalar for each of trainer.optim.GROUPS."""
    weight_decay: Any
    """f32 scalar."""
    plan_word: Any
    """uint32[devices, 2] over the mesh: 64 bits of the plan sha that each process holds."""


class Outputs(NamedTuple):
    """What a step reports, equal on every device. N blocks."""

    loss: jax.Array
    """Mean cross entropy over the global batch, before the update; f32."""
    total_loss: jax.Array
    """`loss` + z-loss: what is differentiated."""
    grad_norm: jax.Array
    is_finite: jax.Array
    """bool: loss and gradient norm are finite."""
    lr: Mapping[str, jax.Array]
    """As received inside the step."""
    assignments: jax.Array
    """int32[N]: kept + dropped_sender + dropped_receiver. Add blocks in int64: 48 overflow."""
    kept: jax.Array
    dropped_sender: jax.Array
    dropped_receiver: jax.Array
    router_entropy: jax.Array
    """Mean over blocks of the entropy (nats) of the experts' load; ln E when balanced."""
    router_bias_max: jax.Array
    """Largest magnitude of the new router bias."""
    plan_word_min: jax.Array
    """uint32[2], word by word over devices: equal to the maximum iff all hold the same plan."""
    plan_word_max: jax.Array


class _Counts(NamedTuple):
    """Integers summed over all devices in one collective."""

    margin_neb: jax.Array
    load_ne: jax.Array
    drops_3n: jax.Array
    """Kept, dropped at the sender, dropped at the receiver."""


class _Floats(NamedTuple):
    """Floats summed over all devices in one collective."""

    dense: Params
    losses: tuple[jax.Array, jax.Array]
    """Cross entropy, total loss."""
    expert_square: jax.Array
    """Squared norm of the gradients of this device's experts, divided among its replicas."""


def make_scheduled(
    mesh: Mesh, lr: Mapping[str, float], weight_decay: float, plan_word: int
) -> Scheduled:
    """Return the step's values from this process's view; `plan_word` is an unsigned 64-bit int."""
    words = (plan_word >> 32, plan_word & 0xFFFF_FFFF)
    rates = {name: np.float32(rate) for name, rate in sorted(lr.items())}
    return Scheduled(rates, np.float32(weight_decay), place_words(mesh, words))


def join_words(words: jax.Array | np.ndarray) -> int:
    """Return the 64-bit plan word of uint32[2]: what `make_scheduled` took."""
    high, low = (int(word) for word in np.asarray(words))
    return high << 32 | low


class Step:
    """The compiled computations of one model on one mesh.

    `trace_count` counts how often the training step was traced: once for each batch shape.
    """

    def __init__(
        self, model: Model, mesh: Mesh, optimizer: optax.GradientTransformationExtraArgs
    ) -> None:
        self.model = model
        self.mesh = mesh
        self.trace_count = 0
        self._optimizer = optimizer
        self._compiled: dict[tuple[str, tuple[int, ...]], jax.stages.Compiled] = {}
        shapes = jax.eval_shape(self._draw_state, jax.ShapeDtypeStruct((), jnp.uint32))
        self._shardings = jax.tree_util.tree_map_with_path(self._sharding_of, shapes)
        self._shapes = jax.tree.map(_with_sharding, shapes, self._shardings)
        self._init = jax.jit(self._draw_state, out_shardings=self._shardings)

    def init(self, seed: int) -> TrainState:
        """Return the state of step 0, made where it lies."""
        return self._init(np.uint32(seed))

    def abstract_state(self) -> TrainState:
        """Return the state's shapes, types and shardings: what a restore needs."""
        return self._shapes

    def prepare(self, sequences: int, length: int) -> None:
        """Compile the step for a global batch of that shape, if it is not yet compiled."""
        self._executable("train", (sequences, length))

    def lower(self, sequences: int, length: int) -> jax.stages.Lowered:
        """Trace and lower the step without compiling it; needs no memory, whatever the shape."""
        return self._lower_train((sequences, length))

    def prepare_evaluation(self, sequences: int, length: int) -> None:
        """Compile the evaluation for a global batch of that shape, if it is not yet compiled."""
        self._executable("evaluate", (sequences, length))

    def __call__(
        self, state: TrainState, tokens: jax.Array, targets: jax.Array, scheduled: Scheduled
    ) -> tuple[TrainState, Outputs]:
        """Run one step on int32[sequences, length] tokens; `state` is donated."""
        return self._executable("train", tokens.shape)(state, tokens, targets, scheduled)

    def evaluate(
        self, state: TrainState, tokens: jax.Array, targets: jax.Array, *, use_routed: bool = True
    ) -> float:
        """Return the mean cross entropy in nats a token; the state is neither changed nor donated.

        Routing, bias and capacities are those of training. Without `use_routed` the routed experts
        add nothing.
        """
        run = self._executable("evaluate", tokens.shape)
        return float(run(state.params, state.router_bias, tokens, targets, np.float32(use_routed)))

    def _draw_state(self, seed: jax.Array) -> TrainState:
        root = jax.random.key(seed)
        params = init_params(self.model.shape, jax.random.fold_in(root, 0))
        bias = jnp.zeros((self.model.shape.blocks, self.model.shape.experts), jnp.float32)
        return TrainState(params, self._optimizer.init(params), bias, jax.random.key_data(root))

    def _sharding_of(self, path: tuple[Any, ...], _: jax.ShapeDtypeStruct) -> NamedSharding:
        return NamedSharding(self.mesh, spec_of(name_of(path)))

    def _executable(self, kind: str, shape: tuple[int, ...]) -> jax.stages.Compiled:
        key = (kind, shape)
        if key not in self._compiled:
            lower = self._lower_train if kind == "train" else self._lower_evaluate
            self._compiled[key] = lower(shape).compile()
        return self._compiled[key]

    def _lower_train(self, shape: tuple[int, ...]) -> jax.stages.Lowered:
        everywhere = NamedSharding(self.mesh, REPLICATED)
        run = jax.jit(self._train, donate_argnums=0, out_shardings=(self._shardings, everywhere))
        scalar = jax.ShapeDtypeStruct((), jnp.float32, sharding=everywhere)
        words = self._batch_struct((self.mesh.size, 2), jnp.uint32)
        lr = dict.fromkeys(GROUPS, scalar)
        batch = self._batch_struct(shape, jnp.int32)
        return run.lower(self._shapes, batch, batch, Scheduled(lr, scalar, words))

    def _lower_evaluate(self, shape: tuple[int, ...]) -> jax.stages.Lowered:
        everywhere = NamedSharding(self.mesh, REPLICATED)
        run = jax.jit(self._evaluate, out_shardings=everywhere)
        scalar = jax.ShapeDtypeStruct((), jnp.float32, sharding=everywhere)
        batch = self._batch_struct(shape, jnp.int32)
        return run.lower(self._shapes.params, self._shapes.router_bias, batch, batch, scalar)

    def _batch_struct(self, shape: tuple[int, ...], dtype: type) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(self.mesh, BATCH))

    def _param_specs(self) -> Tree:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: spec_of(name_of(path)), self._shapes.params
        )

    def _train(
        self, state: TrainState, tokens: jax.Array, targets: jax.Array, scheduled: Scheduled
    ) -> tuple[TrainState, Outputs]:
        self.trace_count += 1
        # Without the barrier jit hands the argument back as output; the echo must be what is used.
        lr = lax.optimization_barrier(dict(scheduled.lr))
        specs = self._param_specs()
        run = jax.shard_map(
            self._differentiate,
            mesh=self.mesh,
            in_specs=(specs, P(), BATCH, BATCH, BATCH),
            out_specs=((specs, P()), P(), P()),
        )
        (grads, grad_norm), bias, report = run(
            state.params, state.router_bias, tokens, targets, scheduled.plan_word
        )
        updates, opt_state = self._optimizer.update(
            grads, state.opt_state, state.params, lr=lr, weight_decay=scheduled.weight_decay
        )
        params: Params = jax.tree.map(jnp.add, state.params, updates)
        is_finite = jnp.isfinite(report["total_loss"]) & jnp.isfinite(grad_norm)
        outputs = Outputs(grad_norm=grad_norm, is_finite=is_finite, lr=lr, **report)
        return TrainState(params, opt_state, bias, state.rng), outputs

    def _evaluate(
        self,
        params: Params,
        bias_ne: jax.Array,
        tokens: jax.Array,
        targets: jax.Array,
        routed_scale: jax.Array,
    ) -> jax.Array:
        def run(
            params: Params,
            bias_ne: jax.Array,
            token_bl: jax.Array,
            target_bl: jax.Array,
            scale: jax.Array,
        ) -> jax.Array:
            logits, _ = compute_logits(self.model, params, bias_ne, token_bl, scale)
            return lax.psum(compute_loss(logits, target_bl, tokens.size).cross_entropy, AXES)

        specs = (self._param_specs(), P(), BATCH, BATCH, P())
        mapped = jax.shard_map(run, mesh=self.mesh, in_specs=specs, out_specs=P())
        return mapped(params, bias_ne, tokens, targets, routed_scale)

    def _differentiate(
        self,
        params: Params,
        bias_ne: jax.Array,
        token_bl: jax.Array,
        target_bl: jax.Array,
        word_dw: jax.Array,
    ) -> tuple[tuple[Params, jax.Array], jax.Array, dict[str, jax.Array]]:
        """Return (global gradients, their norm), the next router bias, and the report."""
        tokens = token_bl.size * self.mesh.size
        # Made varying, parameters get gradients of this device alone; they are summed below.
        params = jax.tree.map(lambda x: make_varying(x, AXES), params)

        def lose(params: Params) -> tuple[jax.Array, tuple[jax.Array, BlockStats]]:
            one = jnp.float32(1)
            logits, stats = compute_logits(self.model, params, bias_ne, token_bl, one)
            loss = compute_loss(logits, target_bl, tokens)
            return loss.cross_entropy + self._z_factor * loss.z, (loss.cross_entropy, stats)

        (total, (loss, stats)), grads = jax.value_and_grad(lose, has_aux=True)(params)
        counts, words, ranges = _count(stats, word_dw)
        share = (self.model.shape.experts_per_token, self.model.shape.experts)
        bias = balance(counts.margin_neb, *ranges, share)
        grads, (loss, total), grad_norm = _sum_floats(grads, (loss, total))
        report = _report(counts, words, bias) | {"loss": loss, "total_loss": total}
        return (grads, grad_norm), bias, report

    @property
    def _z_factor(self) -> np.float32:
        return np.float32(self.model.shape.z_loss)


def make_step(
    shape: ModelShape,
    execution: Execution,
    mesh: Mesh,
    optimizer: optax.GradientTransformationExtraArgs | None = None,
    *,
    recompute: bool = False,
) -> Step:
    """Return the step of a model on a mesh; `contract.model.check_mesh` says whether it fits."""
    return Step(Model(shape, execution, recompute), mesh, optimizer or make_optimizer())


def _with_sharding(x: jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _count(
    stats: BlockStats, word_dw: jax.Array
) -> tuple[_Counts, tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """Return global counts, (min, max) of the plan words, (low, high) of the margins by block."""
    extremes = find_extremes(*measure_range(stats.margin_te), word_dw.reshape(-1))
    low_n, high_n, word_min, word_max = extremes
    margins = count_margins(stats.margin_te, low_n, high_n)
    drops = jnp.stack([stats.drops.kept, stats.drops.sender, stats.drops.receiver])
    counts = sum_together(_Counts(margins, stats.load_e, drops), AXES)
    return counts, (word_min, word_max), (low_n, high_n)


def _sum_floats(
    grads: Params, losses: tuple[jax.Array, jax.Array]
) -> tuple[Params, tuple[jax.Array, jax.Array], jax.Array]:
    """Return global gradients and losses, and the norm of all gradients, in two collectives.

    Expert gradients are summed over replicas alone: the first collective, none with one replica.
    """
    blocks = dict(grads["blocks"])
    experts = sum_together({name: blocks.pop(name) for name in EXPERT_WEIGHTS}, REPLICA)
    square = _square(experts) / np.float32(lax.axis_size(REPLICA))
    square = make_varying(square, AXES)
    floats = sum_together(_Floats(grads | {"blocks": blocks}, losses, square), AXES)
    norm = jnp.sqrt(_square(floats.dense) + floats.expert_square)
    grads = floats.dense | {"blocks": floats.dense["blocks"] | experts}
    return grads, floats.losses, norm


def _square(tree: Tree) -> jax.Array:
    total = jnp.float32(0)
    for leaf in jax.tree.leaves(tree):
        total = total + jnp.sum(jnp.square(leaf))
    return total


def _report(
    counts: _Counts, words: tuple[jax.Array, jax.Array], bias_ne: jax.Array
) -> dict[str, jax.Array]:
    share_ne = counts.load_ne / jnp.sum(counts.load_ne, axis=1, keepdims=True)
    entropy_n = -jnp.sum(jax.scipy.special.xlogy(share_ne, share_ne), axis=1)
    kept, sender, receiver = counts.drops_3n
    return {
        "assignments": kept + sender + receiver,
        "kept": kept,
        "dropped_sender": sender,
        "dropped_receiver": receiver,
        "router_entropy": jnp.mean(entropy_n),
        "router_bias_max": jnp.max(jnp.abs(bias_ne)),
        "plan_word_min": words[0],
        "plan_word_max": words[1],
    }
