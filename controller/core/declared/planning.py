"""From the run file and the text it names to what is launched: policy, trainer config, first plan.

Pure: the same run file and the same text give the same bytes.
"""

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction

from contract.config import (
    Checkpointing,
    Evaluation,
    Limits,
    Mesh,
    SourceFiles,
    TrainerConfig,
    config_sha,
    data_digest,
)
from contract.model import flops_per_token
from contract.plan import ROOT_LINE, ContextStage, Line, Mixture, MixtureStage, Plan, check_plan
from contract.schedule import format_fraction, warm_up_and_decay
from controller.core.declared.spec import RunFile, Spec
from controller.core.declared.spec_rules import make_execution, stage_start, warmup_steps
from controller.core.policy import Budget, Policy
from controller.core.terms import Fit, Terms

MS_PER_S = 1_000


LOCAL_SKEW_MS = 50
"""All ranks share one clock; what is left is how late a busy machine lets a shim note an end."""


def make_policy(
    run_file: RunFile,
    run_uid: str,
    sources: Mapping[str, SourceFiles] | None = None,
    launched_wall_ms: int = 0,
) -> Policy:
    """Return the numbers that the decisions of this run rest on.

    `sources` and `launched_wall_ms` are what the launch found out: the lag counts from it.
    """
    faults, restarts = run_file.spec.faults, run_file.spec.faults.restarts
    return Policy(
        run_uid=run_uid,
        run_name=run_file.metadata.name,
        ranks=run_file.spec.fleet.ranks,
        deadlines_ms=faults.deadlines.by_phase(),
        margin_ms=faults.margin,
        cascade_ms=faults.cascade,
        clock_skew_ms=LOCAL_SKEW_MS,
        start_ms=faults.claim,
        heartbeat_ms=faults.heartbeat,
        budget=Budget(
            window_ms=restarts.window,
            window_restarts=restarts.in_window,
            no_progress_incidents=restarts.without_progress,
            per_cause=restarts.per_cause,
            delay_ms=restarts.delay,
            max_delay_ms=restarts.max_delay,
        ),
        terms=make_terms(run_file.spec, sources or {}, launched_wall_ms),
    )


LOCAL_LEAD_MS = 2_000
"""A rank looks for news five times a second; the rest is for a loaded machine."""


def make_terms(spec: Spec, sources: Mapping[str, SourceFiles], launched_wall_ms: int) -> Terms:
    """Return deadline and contingency in the form that decisions rest on."""
    plan, deadline = spec.contingency, spec.deadline
    return Terms(
        mode=plan.mode,
        deadline_wall_ms=wall_ms_of(deadline.at) if deadline else None,
        reserve_ms=deadline.reserve if deadline else 0,
        window_percent=plan.window_percent,
        floor_percent=plan.floor_percent,
        on_time_percent=plan.on_time_percent,
        clear_above_percent=plan.clear_above_percent,
        target_percent=plan.target_percent,
        evaluate_every_ms=plan.evaluate_every,
        evaluations=plan.evaluations,
        settle_ms=plan.settle,
        min_clean_steps=plan.min_clean_steps,
        min_change_percent=plan.min_change_percent,
        max_revisions=plan.max_revisions,
        cool_down_ms=plan.cool_down,
        midtrain_min_tokens=plan.midtrain_min_tokens,
        max_epochs=plan.max_epochs,
        lead_ms=LOCAL_LEAD_MS,
        launched_wall_ms=launched_wall_ms,
        devices=spec.fleet.devices,
        save_every_steps=spec.checkpoints.every_steps,
        source_tokens={name: files.train_tokens for name, files in sources.items()},
        data_budget_tokens=spec.budget.data_budget_tokens,
        fit=_make_fit(spec),
    )


def wall_ms_of(instant: str) -> int:
    """Return the milliseconds since the epoch of an instant that was checked."""
    return round(datetime.fromisoformat(instant).timestamp() * MS_PER_S)


def _make_fit(spec: Spec) -> Fit | None:
    if spec.trainer.command is not None:
        return None
    return Fit(
        shape=spec.model.shape,
        expert_axis=spec.fleet.axis,
        replicas=spec.fleet.devices // spec.fleet.axis,
        devices_per_rank=spec.fleet.devices_per_process,
    )


def make_config(
    run_file: RunFile, run_uid: str, sources: Mapping[str, SourceFiles]
) -> TrainerConfig:
    """Return the config that every attempt's ranks read."""
    spec = run_file.spec
    return TrainerConfig(
        run_uid=run_uid,
        run_name=run_file.metadata.name,
        model=spec.model.shape,
        optimizer=spec.optimizer,
        sources=dict(sources),
        mesh=Mesh(
            ranks=spec.fleet.ranks,
            devices_per_rank=spec.fleet.devices_per_process,
            expert_axis=spec.fleet.axis,
        ),
        evaluation=Evaluation(
            every_steps=spec.evaluation.every_steps,
            sequences=spec.evaluation.sequences,
            final_sequences=spec.evaluation.final_sequences,
        ),
        checkpointing=Checkpointing(
            every_steps=spec.checkpoints.every_steps,
            keep=spec.checkpoints.keep,
            permanent_every_steps=spec.checkpoints.permanent_every_steps,
        ),
        limits=_make_limits(spec),
        peak_flops_per_device=spec.fleet.peak_flops_per_device,
    )


def _make_limits(spec: Spec) -> Limits:
    faults = spec.faults
    return Limits(
        deadlines_s={
            phase: _whole_seconds(limit) for phase, limit in faults.deadlines.by_phase().items()
        },
        step_factor=faults.step_factor,
        commit_s=_whole_seconds(faults.commit),
        heartbeat_s=_whole_seconds(faults.heartbeat),
    )


def _whole_seconds(duration_ms: int) -> int:
    """Round up: a deadline is never shorter than declared."""
    return -(-duration_ms // MS_PER_S)


def make_genesis(run_file: RunFile, run_uid: str, sources: Mapping[str, SourceFiles]) -> Plan:
    """Return the first plan of the run."""
    spec = run_file.spec
    plan = Plan(
        format=1,
        run_uid=run_uid,
        kind="genesis",
        parent=None,
        effective=0,
        supersedes=None,
        author="run file",
        reason="as declared before launch",
        config_sha=config_sha(spec.model.shape, spec.optimizer),
        data_digest=data_digest(dict(sources)),
        seed=spec.seed,
        tokens_per_step=spec.batch.tokens_per_step,
        total_steps=spec.total_steps,
        peaks=_make_peaks(spec),
        anneals=_make_anneals(spec),
        mixture=Mixture(
            block_tokens=spec.data.block_tokens,
            unit_tokens=spec.unit_tokens,
            stages=[
                MixtureStage(
                    start=stage_start(spec, stage.from_percent),
                    from_percent=stage.from_percent,
                    parts=stage.parts,
                )
                for stage in spec.data.mixture
            ],
        ),
        context=_make_context(spec),
        execution=make_execution(spec),
        lineage=[Line(name=ROOT_LINE, fork_step=0, offset_blocks=0)],
    )
    problems = check_plan(plan)
    assert not problems, problems
    return plan


def _make_peaks(spec: Spec) -> dict[str, dict[str, str]]:
    peaks = {"learning_rate": dict(spec.schedule.peak_learning_rate)}
    if spec.schedule.weight_decay is not None:
        peaks["weight_decay"] = {"matrix": spec.schedule.weight_decay.peak}
    return peaks


def _make_anneals(spec: Spec) -> dict[str, list[tuple[int, str]]]:
    total = spec.total_steps
    final = Fraction(spec.schedule.final_percent, 100)
    knots = {"learning_rate": warm_up_and_decay(warmup_steps(spec), total, final)}
    if (decay := spec.schedule.weight_decay) is not None:
        end = Fraction(decay.final_percent, 100)
        knots["weight_decay"] = [(0, Fraction(1)), (total - 1, end)]
    return {
        name: [(step, format_fraction(value)) for step, value in pairs]
        for name, pairs in knots.items()
    }


def _make_context(spec: Spec) -> list[ContextStage]:
    return [
        ContextStage(
            start=stage.from_percent * spec.total_steps // 100,
            from_percent=stage.from_percent,
            length=stage.length,
            flops_per_token=flops_per_token(spec.model.shape, stage.length),
        )
        for stage in spec.schedule.context
    ]
