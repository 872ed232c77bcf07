"""From a process to a rank that can step: plan, rendezvous, restore, compile, each a phase."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import jax

from contract import metrics
from contract.config import TrainerConfig
from contract.exits import Exit
from contract.model import check_mesh
from contract.plan import Plan, PlanError
from contract.wire import Phase
from trainer.batches import Batches, Sources
from trainer.checkpoint import Saver
from trainer.compile_cache import open_cache, storing_programs
from trainer.control import Helm
from trainer.ends import End
from trainer.evaluation import Evaluator
from trainer.gang import Gang, join
from trainer.integrity import state_digests
from trainer.mesh import make_mesh
from trainer.optim import AdamSettings, make_optimizer
from trainer.peak import measure_matrix_flops
from trainer.peers import PeerWatch
from trainer.phases import PhaseClock
from trainer.plans import check_chain, find_saved_chain, read_chain
from trainer.report import Reporter
from trainer.restore import Restored, Restorer
from trainer.seat import Seat
from trainer.step import Step, TrainState, make_step
from trainer.store import CheckpointStore
from trainer.telemetry import Meter
from trainer.version import hash_code

LOG = logging.getLogger(__name__)

PLAN_POLL_S = 0.1


@dataclass(frozen=True)
class Post:
    """What a rank has before it meets the others."""

    seat: Seat
    config: TrainerConfig
    clock: PhaseClock
    meter: Meter


@dataclass
class Rank:
    """A rank at work: its fixed parts, and where it stands."""

    post: Post
    gang: Gang
    peers: PeerWatch
    helm: Helm
    run: Step
    saver: Saver
    reporter: Reporter
    evaluator: Evaluator
    batches: Batches
    state: TrainState
    step: int
    last_loss: str
    code: str
    completed_s: float
    """When the newest step was complete."""
    prepared: set[int]
    """Context lengths whose step is compiled."""
    tags: set[str]
    """What disturbs the step that runs next."""
    staged_step: int
    """The newest step whose state is saved or on its way; at the start, the one restored."""
    restart_at: int | None
    """The step before which the gang leaves, to be started anew with another execution."""

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.helm.plan


def get_ready(post: Post, is_asked_to_leave: Callable[[], bool]) -> Rank:
    """Return the rank at its first step, compiled; raises End or GangError."""
    seat, config = post.seat, post.config
    code = hash_code()
    sources = Sources(seat.run_dir, config)
    sources.verify()
    chain = _find_chain(post)
    gang, peers = _meet(post, chain)
    post.clock.enter(Phase.RESTORE)
    run = _make_step(config, chain[-1])
    restored = _restore(post, gang, chain, run)
    step = restored.manifest.step if restored else 0
    held = hold_execution(chain, step)
    if held != chain:
        run = _make_step(config, held[-1])
    post.clock.enter(Phase.COMPILE, step)
    state, prepared = _compile(post, gang, held[-1], run, restored)
    _publish_facts(post, gang, held[-1], code)
    batches = Batches(config, sources)
    return Rank(
        post=post,
        gang=gang,
        peers=peers,
        helm=Helm(seat, gang, held, post.meter, is_asked_to_leave, chain[len(held) :]),
        run=run,
        saver=Saver(seat, config, gang, post.meter, code),
        reporter=Reporter(seat, post.meter, code),
        evaluator=Evaluator(seat, config, batches, post.meter),
        batches=batches,
        state=state,
        step=step,
        last_loss=restored.manifest.last_loss if restored else "",
        code=code,
        completed_s=time.perf_counter(),
        prepared=prepared,
        tags={"first"},
        staged_step=step,
        restart_at=None if held == chain else chain[len(held)].effective,
    )


def hold_execution(chain: list[Plan], step: int) -> list[Plan]:
    """Return the part of the chain that a gang starting at `step` runs.

    How steps are executed changes at a start only. A gang that had to fall back to before such a
    change runs the plan before it up to there, and restarts.
    """
    for index, plan in enumerate(chain):
        if plan.kind == "execution" and step < plan.effective:
            return chain[:index]
    return chain


def _find_chain(post: Post) -> list[Plan]:
    chain = _wait_for_chain(post.seat, post.config, post.clock)
    check_chain(chain, post.config)
    for plan in chain:
        _check_fit(post.config, plan)
    return chain


def _meet(post: Post, chain: list[Plan]) -> tuple[Gang, PeerWatch]:
    """Join the gang under one plan, with the devices that the config says."""
    config = post.config
    post.clock.enter(Phase.RENDEZVOUS)
    _configure_jax(post.seat, config)
    patience_s = get_patience_s(config, Phase.RENDEZVOUS)
    heartbeat_s = config.limits.heartbeat_s
    gang = join(post.seat, timeout_s=patience_s, heartbeat_s=heartbeat_s)
    peers = PeerWatch(post.clock, post.seat.rank_dir)
    peers.start(gang, post.seat.coordinator.rpartition(":")[0], patience_s)
    _require_one_plan(gang, chain, patience_s)
    _require_devices(config)
    return gang, peers


def _restore(post: Post, gang: Gang, chain: list[Plan], run: Step) -> Restored | None:
    seat = post.seat
    if seat.is_first:
        CheckpointStore(seat.run_dir, seat.attempt).remove_stale_work(chain[-1].lineage)
    restorer = Restorer(seat, gang, chain, get_patience_s(post.config, Phase.RESTORE))
    return restorer.restore(run.abstract_state(), post.clock.advance)


def _compile(
    post: Post, gang: Gang, plan: Plan, run: Step, restored: Restored | None
) -> tuple[TrainState, set[int]]:
    """Compile what the first steps and the first save need; return the state and the lengths."""
    patience_s = get_patience_s(post.config, Phase.COMPILE)
    step = restored.manifest.step if restored else 0
    with storing_programs():
        prepared = _prepare(run, plan, step)
        # Gloo's first collective waits 30 s for its peers, whatever they still compile.
        gang.meet("compiled", patience_s)
        state = restored.state if restored else run.init(plan.seed)
        gang.meet("placed", patience_s)
        # Compiles the digest before the first save has to wait for it.
        state_digests(state)
    return state, prepared


def get_patience_s(config: TrainerConfig, phase: Phase) -> float:
    """Return how long to wait for peers in `phase`: longer than the watchdog lets it last.

    So a rank whose peer is silent ends with its stacks on disk, as one that was stalled.
    """
    return 2.0 * config.limits.deadlines_s[phase]


def _wait_for_chain(seat: Seat, config: TrainerConfig, clock: PhaseClock) -> list[Plan]:
    """Return the chain of the attempt's plan, or of the newest checkpoint if it never appears."""
    limit_s = config.limits.deadlines_s[Phase.START] / 2
    pause = threading.Event()
    while True:
        try:
            return read_chain(seat.run_dir, seat.plan_sha)
        except FileNotFoundError as error:
            if clock.age_s > limit_s:
                return _fall_back(seat, f"{error.filename} did not appear in {limit_s:.0f} s")
        except PlanError as error:
            raise End(Exit.PLAN_MISMATCH, f"plan {seat.plan_sha[:12]}: {error}") from error
        pause.wait(PLAN_POLL_S)


def _fall_back(seat: Seat, problem: str) -> list[Plan]:
    chain = find_saved_chain(seat.run_dir, seat.run_uid)
    if chain is None:
        raise End(Exit.CONFIG, f"{problem}, and no checkpoint carries a plan")
    LOG.warning("%s: going on under the plan of the newest checkpoint", problem)
    return chain


def _check_fit(config: TrainerConfig, plan: Plan) -> None:
    mesh = config.mesh
    if mesh.devices % mesh.expert_axis:
        raise End(
            Exit.CONFIG,
            f"mesh.expert_axis is {mesh.expert_axis}; it must divide the {mesh.devices} devices",
        )
    for stage in plan.context:
        findings = check_mesh(
            config.model,
            plan.execution,
            mesh.expert_axis,
            mesh.replicas,
            plan.tokens_per_step,
            stage.length,
        )
        if findings:
            raise End(Exit.CONFIG, "; ".join(text for _, text in findings))


def _configure_jax(seat: Seat, config: TrainerConfig) -> None:
    # Counts only where the CPU computes; an accelerator's devices are what they are.
    jax.config.update("jax_num_cpu_devices", config.mesh.devices_per_rank)
    open_cache(seat)


def _require_one_plan(gang: Gang, chain: list[Plan], timeout_s: float) -> None:
    shas = gang.gather("plan", chain[-1].sha, timeout_s)
    if len(set(shas)) > 1:
        held = ", ".join(f"rank {rank} {sha[:12]}" for rank, sha in enumerate(shas))
        raise End(Exit.ERROR, f"the ranks hold different plans: {held}")


def _require_devices(config: TrainerConfig) -> None:
    found, wanted = jax.local_device_count(), config.mesh.devices_per_rank
    if found != wanted:
        text = f"mesh.devices_per_rank is {wanted}; this rank has {found} devices"
        raise End(Exit.CONFIG, text)


def _make_step(config: TrainerConfig, plan: Plan) -> Step:
    settings = config.optimizer
    adam = AdamSettings(float(settings.beta1), float(settings.beta2), float(settings.epsilon))
    mesh = make_mesh(config.mesh.expert_axis)
    return make_step(config.model, plan.execution, mesh, make_optimizer(adam))


def _prepare(run: Step, plan: Plan, step: int) -> set[int]:
    """Compile for the context of `step`; return the lengths that are compiled now."""
    if step >= plan.total_steps:
        return set()
    length = plan.context_at(step).length
    run.prepare(plan.tokens_per_step // length, length)
    return {length}


def _publish_facts(post: Post, gang: Gang, plan: Plan, code: str) -> None:
    seat, config, meter = post.seat, post.config, post.meter
    declared = config.peak_flops_per_device
    timeout_s = get_patience_s(config, Phase.COMPILE)
    if declared is not None:
        peak, origin = float(declared * config.mesh.devices), "declared"
    else:
        gang.meet("measure", timeout_s)
        rates = gang.gather("peak", f"{measure_matrix_flops():.0f}", timeout_s)
        peak, origin = float(sum(map(int, rates))), "measured"
    publish_plan(post, plan, code)
    if seat.is_first:
        meter.set(metrics.PEAK_FLOPS, peak, origin=origin)


def publish_plan(post: Post, plan: Plan, code: str) -> None:
    """Say on /metrics which plan is in force."""
    seat, config, meter = post.seat, post.config, post.meter
    meter.clear(metrics.RANK_IDENTITY)
    labels = {"run_uid": seat.run_uid, "attempt": str(seat.attempt), "rank": str(seat.rank)}
    meter.set(metrics.RANK_IDENTITY, 1, plan_sha=plan.sha, **labels)
    if seat.is_first:
        mesh = f"{config.mesh.replicas}x{config.mesh.expert_axis}"
        meter.clear(metrics.INFO)
        meter.set(
            metrics.INFO,
            1,
            plan_sha=plan.sha,
            config_sha=config.config_sha,
            code=code,
            mesh=mesh,
        )
