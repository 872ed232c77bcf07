"""The run that is simulated: a small plan and a policy of human proportions."""

from fractions import Fraction

from contract.model import PRESETS, Execution
from contract.plan import ContextStage, Line, Mixture, MixtureStage, Plan
from contract.schedule import format_fraction, warm_up_and_decay
from contract.wire import RANK_PHASES, Phase
from controller.core.policy import Budget, Policy
from controller.core.terms import Fit, Terms
from controller.simulate.agenda import FIRST_WALL_MS

DEADLINES_MS = {
    **dict.fromkeys(RANK_PHASES, 120_000),
    Phase.COMPILE: 300_000,
    Phase.RESTORE: 300_000,
}


def sim_plan(total_steps: int = 120, run_uid: str = "sim") -> Plan:
    """Return a genesis plan of `total_steps` steps."""
    knots = warm_up_and_decay(2, total_steps, Fraction(1, 20))
    return Plan(
        format=1,
        run_uid=run_uid,
        kind="genesis",
        parent=None,
        effective=0,
        supersedes=None,
        author="simulator",
        reason="launch",
        config_sha="0" * 64,
        data_digest="1" * 64,
        seed=0,
        tokens_per_step=1024,
        total_steps=total_steps,
        peaks={"learning_rate": {"matrix": "0.003"}},
        anneals={"learning_rate": [(step, format_fraction(value)) for step, value in knots]},
        mixture=Mixture(
            block_tokens=1024,
            unit_tokens=64,
            stages=[MixtureStage(start=0, from_percent=0, parts={"text": 16})],
        ),
        context=[ContextStage(start=0, from_percent=0, length=64, flops_per_token=1)],
        execution=Execution(),
        lineage=[Line(name="main", fork_step=0, offset_blocks=0)],
    )


STAGES = [
    MixtureStage(start=0, from_percent=0, parts={"code": 8, "text": 24}),
    MixtureStage(start=0, from_percent=80, parts={"code": 16, "text": 16}),
]


def mixed_plan(total_steps: int = 120, run_uid: str = "sim") -> Plan:
    """Return a genesis plan of two mixture stages; blocks are whole every second step."""
    plan = sim_plan(total_steps, run_uid)
    first, second = STAGES
    second = second.model_copy(update={"start": 80 * total_steps // 100 // 2 * 2})
    mixture = Mixture(block_tokens=2048, unit_tokens=64, stages=[first, second])
    return plan.model_copy(update={"mixture": mixture})


SIM_FIT = Fit(shape=PRESETS["tiny"], expert_axis=4, replicas=1, devices_per_rank=1)


def sim_terms(**changes: object) -> Terms:
    """Return terms of small intervals for `mixed_plan` at 10 s a step."""
    terms = Terms(
        mode="auto",
        window_percent=60,
        evaluate_every_ms=50_000,
        evaluations=2,
        settle_ms=100_000,
        min_clean_steps=4,
        cool_down_ms=200_000,
        launched_wall_ms=FIRST_WALL_MS,
        save_every_steps=10,
        source_tokens={"code": 10**9, "text": 10**9},
        fit=SIM_FIT,
    )
    return terms.model_copy(update=changes)


def sim_policy(
    *,
    ranks: int = 3,
    wake_ms: int = 5_000,
    run_uid: str = "sim",
    budget: Budget | None = None,
    terms: Terms | None = None,
) -> Policy:
    """Return a policy whose deadlines fit the simulated trainers."""
    return Policy(
        run_uid=run_uid,
        run_name="sim",
        ranks=ranks,
        deadlines_ms=DEADLINES_MS,
        margin_ms=30_000,
        cascade_ms=20_000,
        start_ms=30_000,
        heartbeat_ms=150_000,
        budget=budget or Budget(delay_ms=10_000),
        wake_ms=wake_ms,
        terms=terms or Terms(),
    )
