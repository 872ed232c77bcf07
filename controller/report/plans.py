"""The chain of plans, and exactly what each revision did to rates and mixture."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from contract.plan import Plan
from contract.schedule import format_fraction
from controller.report.blocks import Block, Cell, Fold, Heading, Paragraph, Table, code, entry
from controller.report.dossier import Dossier
from controller.report.wording import count_of, show_number, show_percent

MAX_OPEN_PLANS = 4
PERCENT = 100


def list_plans(dossier: Dossier) -> Iterator[Block]:
    """Yield every plan of the chain with its identity, horizon and mixture."""
    chain = dossier.evidence.memory.chain
    rows = [_show_plan(dossier, plan) for plan in chain]
    anchors = [f"plan-{plan.sha[:12]}" for plan in chain]
    heads = ("plan", "kind", "from step", "horizon", "last rate", "author and reason", "sha256",
             "ledger")  # fmt: skip
    yield Table(heads, rows, numbers=(2, 3, 4), kinds={5: "w"}, anchors=anchors)


def _show_plan(dossier: Dossier, plan: Plan) -> Sequence[Cell]:
    return (
        code(plan.sha[:12]),
        plan.kind,
        show_number(plan.effective),
        show_number(plan.total_steps),
        show_percent(PERCENT * float(plan.knots_of("learning_rate")[-1][1])),
        f"{plan.author}: {plan.reason}" if plan.reason else plan.author,
        code(plan.sha),
        entry(dossier.trail.plans.get(plan.sha)),
    )


def list_revisions(dossier: Dossier) -> Iterator[Block]:
    """Yield what each revision changed, before and after, in exact values."""
    chain = dossier.evidence.memory.chain
    pairs = [
        (parent, child)
        for parent, child in pairwise(chain)
        if dossier.is_new(dossier.trail.plans.get(child.sha))
    ]
    told = [block for parent, child in pairs for block in _list_revision(parent, child)]
    if not pairs and not dossier.is_part:
        yield Paragraph("The plan of the launch was never revised.")
    elif len(pairs) > MAX_OPEN_PLANS:
        yield Fold(f"exact values of all {count_of(len(pairs), 'revision')}", told)
    else:
        yield from told


def _list_revision(parent: Plan, child: Plan) -> Iterator[Block]:
    what = f" {child.kind}, effective from step {child.effective:,}"
    yield Heading([code(child.sha[:12]), what])
    heads = ("at", "before", "after", "received")
    yield Table(heads, list(_list_rates(parent, child)), kinds={3: "w"})
    if parent.mixture != child.mixture:
        yield Table(
            ("mixture", "stages"),
            [("before", _tell_mixture(parent)), ("after", _tell_mixture(child))],
            kinds={1: "w"},
        )


def _list_rates(parent: Plan, child: Plan) -> Iterator[Sequence[Cell]]:
    """Yield the learning rate around the fork and at both ends: exact, and as binary32."""
    fork, last = child.effective, child.total_steps - 1
    steps = [fork - 1, fork, last, parent.total_steps - 1]
    for step in sorted({it for it in steps if it >= 0}):
        name = f"step {step:,}" + (", the fork" if step == fork else "")
        name += ", the last" if step == last else ""
        yield name, _rate(parent, step), _rate(child, step), _received(child, step)


def _rate(plan: Plan, step: int) -> str:
    if step >= plan.total_steps:
        return "no such step"
    fraction = plan.fraction_at("learning_rate", step)
    return f"{format_fraction(fraction)} of the peak"


def _received(plan: Plan, step: int) -> str:
    if step >= plan.total_steps:
        return "-"
    groups = plan.values_at(step)["learning_rate"]
    if len(set(groups.values())) == 1:
        return f"{next(iter(groups.values())):.9g}"
    return ", ".join(f"{name} {value:.9g}" for name, value in sorted(groups.items()))


def _tell_mixture(plan: Plan) -> str:
    return "; ".join(tell_stages(plan))


def tell_stages(plan: Plan) -> Iterator[str]:
    """Yield each stage of a plan's mixture in words."""
    for stage in plan.mixture.stages:
        parts = ", ".join(f"{name} {share}" for name, share in sorted(stage.parts.items()))
        yield f"from step {stage.start:,}: {parts}"
