"""Plans of every shape that the contract allows, and revisions of them."""

from fractions import Fraction
from math import lcm

from hypothesis import strategies as st

from contract.model import Execution
from contract.plan import ContextStage, Line, Mixture, MixtureStage, Plan
from contract.schedule import format_fraction, retime, warm_up_and_decay

SOURCES = ("code", "docs", "web")
FINAL = Fraction(1, 20)


def a_plan(**changes: object) -> Plan:
    """Return a plan of 400 steps with two mixture and two context stages."""
    knots = warm_up_and_decay(20, 400, FINAL)
    plan = Plan(
        format=1,
        run_uid="u",
        kind="genesis",
        parent=None,
        effective=0,
        supersedes=None,
        author="a",
        reason="r",
        config_sha="0" * 64,
        data_digest="1" * 64,
        seed=0,
        tokens_per_step=1_024,
        total_steps=400,
        peaks={
            "learning_rate": {"matrix": "0.003", "other": "0.004"},
            "weight_decay": {"matrix": "0.1", "other": "0"},
        },
        anneals={
            "learning_rate": write(knots),
            "weight_decay": [(0, "1/1"), (399, "1/2")],
        },
        mixture=Mixture(
            block_tokens=2_048,
            unit_tokens=128,
            stages=[
                MixtureStage(start=0, from_percent=0, parts={"code": 10, "docs": 6}),
                MixtureStage(start=320, from_percent=80, parts={"code": 4, "docs": 12}),
            ],
        ),
        context=[
            ContextStage(start=0, from_percent=0, length=64, flops_per_token=1),
            ContextStage(start=200, from_percent=50, length=128, flops_per_token=2),
        ],
        execution=Execution(),
        lineage=[Line(name="main", fork_step=0, offset_blocks=0)],
    )
    return change(plan, **changes)


def change(plan: Plan, **changes: object) -> Plan:
    """Return the plan with some members replaced, whatever that makes of it."""
    return plan.model_copy(update=changes)


def write(knots: list[tuple[int, Fraction]]) -> list[tuple[int, str]]:
    """Return knots as plans hold them."""
    return [(step, format_fraction(value)) for step, value in knots]


def a_horizon(parent: Plan, effective: int, total_steps: int, **changes: object) -> Plan:
    """Return a revision to another horizon; stages after the fork are dropped."""
    anneals = {
        name: write(retime(parent.knots_of(name), effective, total_steps))
        for name in parent.anneals
    }
    stages = [
        s for s in parent.mixture.stages if s.start < min(effective, total_steps) or not s.start
    ]
    context = [s for s in parent.context if s.start < min(effective, total_steps) or not s.start]
    revision = change(
        parent,
        kind="horizon",
        parent=parent.sha,
        effective=effective,
        total_steps=total_steps,
        anneals=anneals,
        mixture=parent.mixture.model_copy(update={"stages": stages}),
        context=context,
    )
    return change(revision, **changes)


def a_line(parent: Plan, name: str, fork_step: int, offset_blocks: int = 0) -> Plan:
    """Return a plan on a new line."""
    line = Line(name=name, fork_step=fork_step, offset_blocks=offset_blocks)
    return change(
        parent,
        kind="line",
        parent=parent.sha,
        effective=fork_step,
        lineage=[*parent.lineage, line],
    )


@st.composite
def parts_of(draw: st.DrawFn, units: int) -> dict[str, int]:
    """Draw how a block of `units` is shared; some source may have none."""
    cuts = sorted(draw(st.integers(0, units)) for _ in range(len(SOURCES) - 1))
    counts = [b - a for a, b in zip([0, *cuts], [*cuts, units], strict=True)]
    parts = dict(zip(SOURCES, counts, strict=True))
    return {name: count for name, count in parts.items() if count or name == SOURCES[0]}


@st.composite
def plans(draw: st.DrawFn, min_steps: int = 8) -> Plan:
    """Draw a genesis plan: any grain, any stages, any warm-up."""
    lengths = draw(st.sampled_from([(8,), (8, 16), (16, 8, 32), (4, 8)]))
    unit = max(lengths) * draw(st.integers(1, 2))
    units = draw(st.integers(1, 9))
    tokens_per_step = max(lengths) * draw(st.integers(1, 6))
    block = unit * units
    align = lcm(block, tokens_per_step) // tokens_per_step
    total = draw(st.integers(max(min_steps, align + 1), max(min_steps, align + 1) + 120))
    starts = draw(st.sets(st.integers(1, max(1, (total - 1) // align)), max_size=3))
    mixture_starts = [0, *sorted(s * align for s in starts if s * align < total)]
    context_starts = sorted(
        draw(
            st.sets(st.integers(1, total - 1), min_size=len(lengths) - 1, max_size=len(lengths) - 1)
        )
    )
    warmup = draw(st.integers(1, min(30, total - 2)))
    return a_plan(
        seed=draw(st.integers(0, 2**40)),
        tokens_per_step=tokens_per_step,
        total_steps=total,
        anneals={
            "learning_rate": write(warm_up_and_decay(warmup, total, FINAL)),
            "weight_decay": [(0, "1/1"), (total - 1, "1/3")],
        },
        mixture=Mixture(
            block_tokens=block,
            unit_tokens=unit,
            stages=[
                MixtureStage(start=start, from_percent=0, parts=draw(parts_of(units)))
                for start in mixture_starts
            ],
        ),
        context=[
            ContextStage(start=start, from_percent=0, length=length, flops_per_token=length)
            for start, length in zip([0, *context_starts], lengths, strict=True)
        ],
    )


@st.composite
def revisions(draw: st.DrawFn) -> tuple[Plan, Plan]:
    """Draw a plan and a horizon revision of it, with new stages after the fork."""
    parent = draw(plans(min_steps=16))
    warm_up_end = parent.anneals["learning_rate"][-2][0]
    effective = draw(st.integers(warm_up_end, parent.total_steps - 2))
    total = draw(st.integers(effective + 2, parent.total_steps + 40))
    revision = a_horizon(parent, effective, total)
    aligned = -(-effective // parent.align_steps) * parent.align_steps
    if aligned < total and draw(st.booleans()):
        kept = [stage for stage in revision.mixture.stages if stage.start < aligned]
        units = parent.mixture.block_tokens // parent.mixture.unit_tokens
        stage = MixtureStage(start=aligned, from_percent=0, parts=draw(parts_of(units)))
        mixture = revision.mixture.model_copy(update={"stages": [*kept, stage]})
        revision = change(revision, mixture=mixture)
    return parent, revision
