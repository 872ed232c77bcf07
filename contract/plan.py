"""The plan: what a run computes, step by step, and the revisions that may replace it.

A plan is immutable; its identity is the sha256 of its canonical JSON. A revision contains its
whole past: running it from any step at or before its effective step equals running its parent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from contract.canonical import encode_canonical, hash_bytes, hash_canonical
from contract.model import Execution
from contract.schedule import (
    Knots,
    last_rise,
    parse_fraction,
    round_binary32,
    shares_past,
    value_at,
)

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$")]
Sha = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
FractionText = Annotated[str, StringConstraints(pattern=r"^[0-9]+/[1-9][0-9]*$")]
StagePercent = Annotated[int, Field(ge=0, le=99)]
DecimalText = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?$", max_length=60)]

ROOT_LINE = "main"


class PlanError(ValueError):
    """A plan that may not be run; `problems` says why, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


class Frozen(BaseModel):
    """A value on the wire: immutable, exact types, no unknown members."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Line(Frozen):
    """One trajectory: where it left its parent and how many data blocks it skipped there."""

    name: Name
    fork_step: Count
    offset_blocks: Count


class MixtureStage(Frozen):
    """From `start` on, a block holds `parts` units of each source."""

    start: Count
    from_percent: StagePercent
    """Declared start in percent of the horizon: where a revision of the horizon moves it to."""
    parts: dict[Name, Count]


class Mixture(Frozen):
    """How the tokens of a block are shared among sources, stage by stage."""

    block_tokens: Positive
    unit_tokens: Positive
    """The longest declared context: the grain of the data order."""
    stages: Annotated[list[MixtureStage], Field(min_length=1)]


class ContextStage(Frozen):
    """From `start` on, sequences have `length` tokens, each costing `flops_per_token`."""

    start: Count
    from_percent: StagePercent
    """Declared start in percent of the horizon, kept when the horizon moves."""
    length: Positive
    flops_per_token: Positive


class Plan(Frozen):
    """Everything a trainer needs to know about the steps 0 to `total_steps` - 1."""

    format: Literal[1]
    run_uid: str
    kind: Literal["genesis", "horizon", "mixture", "execution", "line"]
    parent: Sha | None
    effective: Count
    """The revision governs the steps from here on; 0 for the genesis plan."""
    supersedes: Sha | None
    author: str
    reason: str
    config_sha: Sha
    data_digest: Sha
    seed: Count
    tokens_per_step: Positive
    total_steps: Positive
    peaks: dict[str, dict[str, DecimalText]]
    """anneal name -> parameter group -> peak."""
    anneals: dict[str, list[tuple[Count, FractionText]]]
    """anneal name -> knots (step, fraction of the peak)."""
    mixture: Mixture
    context: Annotated[list[ContextStage], Field(min_length=1)]
    execution: Execution
    lineage: Annotated[list[Line], Field(min_length=1)]
    """The current line last, its ancestors before it."""

    @property
    def line(self) -> Line:
        """The line this plan runs on."""
        return self.lineage[-1]

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source that some stage uses, sorted."""
        return tuple(sorted({name for stage in self.mixture.stages for name in stage.parts}))

    @property
    def align_steps(self) -> int:
        """The smallest number of steps that is a whole number of blocks."""
        return lcm(self.mixture.block_tokens, self.tokens_per_step) // self.tokens_per_step

    def encode(self) -> bytes:
        """Return the canonical JSON: exactly the bytes of the plan file."""
        return encode_canonical(self.model_dump(mode="json"))

    @property
    def sha(self) -> str:
        """The identity of the plan, and the name of its file."""
        return hash_bytes(self.encode())

    @property
    def execution_sha(self) -> str:
        """The identity of how steps are executed; replays compare only where it is equal."""
        return hash_canonical(self.execution.model_dump(mode="json"))

    def require_step(self, step: int) -> None:
        """Raise ValueError unless `step` is one of the plan's steps."""
        if not 0 <= step < self.total_steps:
            raise ValueError(f"step {step} is outside the plan (0 to {self.total_steps - 1})")

    def first_block(self, start: int) -> int:
        """Return the block that begins at the aligned step `start`."""
        return start * self.tokens_per_step // self.mixture.block_tokens

    def mixture_index_at(self, step: int) -> int:
        """Return the index of the mixture stage that governs `step`."""
        return _last_started([stage.start for stage in self.mixture.stages], step)

    def context_at(self, step: int) -> ContextStage:
        """Return the context stage that governs `step`."""
        return self.context[_last_started([stage.start for stage in self.context], step)]

    def knots_of(self, anneal: str) -> list[tuple[int, Fraction]]:
        """Return the knots of `anneal` as exact rationals."""
        return [(step, parse_fraction(text)) for step, text in self.anneals[anneal]]

    def fraction_at(self, anneal: str, step: int) -> Fraction:
        """Return the exact fraction of the peak of `anneal` at `step`."""
        return value_at(self.knots_of(anneal), step)

    def values_at(self, step: int) -> dict[str, dict[str, float]]:
        """Return anneal -> group -> the binary32 value that the step receives."""
        self.require_step(step)
        values: dict[str, dict[str, float]] = {}
        for anneal, groups in self.peaks.items():
            fraction = self.fraction_at(anneal, step)
            values[anneal] = {
                group: round_binary32(Fraction(peak) * fraction) for group, peak in groups.items()
            }
        return values


def _last_started(starts: Sequence[int], step: int) -> int:
    return max(index for index, start in enumerate(starts) if start <= step)


def read_plan(data: bytes, *, sha: str | None = None) -> Plan:
    """Return the plan in `data`, checked in itself.

    Raises:
        PlanError: not a plan, not canonical, not the plan `sha`, or inconsistent in itself.
    """
    if sha is not None and hash_bytes(data) != sha:
        raise PlanError([f"the bytes hash to {hash_bytes(data)[:12]}, not to {sha[:12]}"])
    try:
        plan = Plan.model_validate_json(data)
    except ValidationError as error:
        raise PlanError([_first_problem(error)]) from error
    if plan.encode() != data:
        raise PlanError(["the bytes are not the canonical JSON of the plan"])
    problems = check_plan(plan)
    if problems:
        raise PlanError(problems)
    return plan


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "plan"
    return f"{where}: {first['msg']}"


def check_plan(plan: Plan) -> list[str]:
    """Return what is inconsistent in `plan` itself, in words; empty when it can be run."""
    checks = (_check_origin, _check_anneals, _check_mixture, _check_context, _check_lineage)
    return [problem for check in checks for problem in check(plan)]


def _check_origin(plan: Plan) -> Iterable[str]:
    is_genesis = plan.kind == "genesis"
    if is_genesis != (plan.parent is None):
        yield f"kind {plan.kind} with parent {plan.parent}"
    if is_genesis and plan.effective != 0:
        yield f"a genesis plan is effective at 0, not {plan.effective}"
    if not is_genesis and not 0 <= plan.effective < plan.total_steps:
        yield f"effective step {plan.effective} is outside 0 to {plan.total_steps - 1}"


def _check_anneals(plan: Plan) -> Iterable[str]:
    if set(plan.anneals) != set(plan.peaks) or "learning_rate" not in plan.anneals:
        yield "peaks and anneals must name the same anneals, learning_rate among them"
    for name, written in plan.anneals.items():
        steps = [step for step, _ in written]
        if len(steps) < 1 or steps != sorted(set(steps)):
            yield f"anneals.{name}: knot steps must increase"
        elif steps[0] != 0 or steps[-1] != plan.total_steps - 1:
            yield f"anneals.{name}: knots must span steps 0 to {plan.total_steps - 1}"
        for _, text in written:
            yield from _check_fraction(name, text)


def _check_fraction(name: str, text: str) -> Iterable[str]:
    try:
        value = parse_fraction(text)
    except ValueError as error:
        yield f"anneals.{name}: {error}"
        return
    if not 0 <= value <= 1:
        yield f"anneals.{name}: {text} is not between 0 and 1"


def _check_starts(what: str, starts: Sequence[int], total_steps: int) -> Iterable[str]:
    if starts[0] != 0 or list(starts) != sorted(set(starts)):
        yield f"{what} stages must start at 0 and increase, not {list(starts)}"
    if starts[-1] >= total_steps:
        yield f"{what} stage at step {starts[-1]} starts after the last step {total_steps - 1}"


def _check_mixture(plan: Plan) -> Iterable[str]:
    mixture = plan.mixture
    yield from _check_starts("mixture", [s.start for s in mixture.stages], plan.total_steps)
    units, rest = divmod(mixture.block_tokens, mixture.unit_tokens)
    if rest:
        yield f"block of {mixture.block_tokens} tokens is not whole units of {mixture.unit_tokens}"
    for stage in mixture.stages:
        if sum(stage.parts.values()) != units:
            yield f"parts at step {stage.start} sum to {sum(stage.parts.values())}, not {units}"
        if stage.start % plan.align_steps:
            yield f"mixture stage at step {stage.start} is not aligned to {plan.align_steps} steps"


def _check_context(plan: Plan) -> Iterable[str]:
    yield from _check_starts("context", [s.start for s in plan.context], plan.total_steps)
    longest = max(stage.length for stage in plan.context)
    if longest > plan.mixture.unit_tokens:
        yield f"context of {longest} is longer than the unit of {plan.mixture.unit_tokens} tokens"
    for stage in plan.context:
        if plan.tokens_per_step % stage.length:
            yield f"{plan.tokens_per_step} tokens a step are not whole sequences of {stage.length}"
        if plan.mixture.unit_tokens % stage.length:
            yield f"a unit of {plan.mixture.unit_tokens} is not whole sequences of {stage.length}"


def _check_lineage(plan: Plan) -> Iterable[str]:
    names = [line.name for line in plan.lineage]
    if names[0] != ROOT_LINE or len(set(names)) != len(names):
        yield f"lines must be distinct and begin with {ROOT_LINE}, not {names}"
    root = plan.lineage[0]
    if root.fork_step or root.offset_blocks:
        yield f"line {ROOT_LINE} has no fork and no offset"


Check = Callable[[Plan, Plan], Iterable[str]]


def check_child(parent: Plan, child: Plan) -> list[str]:
    """Return why `child` may not follow `parent`, in words; empty when it may.

    What both trainer and controller refuse: a broken chain, a changed past, a changed end value,
    and of a new horizon a schedule that jumps at the fork, rises after it or cuts the warm-up.
    """
    checks: tuple[Check, ...] = (
        _check_chain,
        _check_pinned,
        _check_past,
        _check_future,
        _check_schedule,
        _check_lines,
    )
    return [problem for check in checks for problem in check(parent, child)]


def _check_chain(parent: Plan, child: Plan) -> Iterable[str]:
    if child.parent != parent.sha:
        yield f"parent is {str(child.parent)[:12]}, not {parent.sha[:12]}"
    # A new line may leave before the last revision; any other revision follows its parent.
    if child.kind != "line" and child.effective < parent.effective:
        yield f"effective step {child.effective} is before the parent's {parent.effective}"


PINNED = (
    "run_uid", "config_sha", "data_digest", "seed", "tokens_per_step", "peaks",
)  # fmt: skip
"""Members that no revision changes."""


def _check_pinned(parent: Plan, child: Plan) -> Iterable[str]:
    for member in PINNED:
        if getattr(parent, member) != getattr(child, member):
            yield f"{member} changed"
    for member in ("block_tokens", "unit_tokens"):
        if getattr(parent.mixture, member) != getattr(child.mixture, member):
            yield f"mixture.{member} changed"
    if child.kind != "execution" and parent.execution != child.execution:
        yield f"execution changed in a revision of kind {child.kind}"
    if child.kind not in ("horizon", "line") and parent.total_steps != child.total_steps:
        yield f"total_steps changed in a revision of kind {child.kind}"


def _check_past(parent: Plan, child: Plan) -> Iterable[str]:
    fork = child.effective
    for name in parent.anneals:
        if name not in child.anneals:
            yield f"anneal {name} is missing"
        elif not shares_past(parent.knots_of(name), child.knots_of(name), fork):
            yield f"{name} changes before step {fork}"
        elif parent.knots_of(name)[-1][1] != child.knots_of(name)[-1][1]:
            yield f"{name} ends at another fraction of the peak"
    for what, left, right in (
        ("mixture", parent.mixture.stages, child.mixture.stages),
        ("context", parent.context, child.context),
    ):
        if [s for s in left if s.start < fork] != [s for s in right if s.start < fork]:
            yield f"{what} changes before step {fork}"


UNTOUCHED = {"mixture": ("anneals", "context"), "execution": ("anneals", "mixture", "context")}
"""Kind of a revision -> members that it leaves as they are, in the future too."""


def _check_future(parent: Plan, child: Plan) -> Iterable[str]:
    # Another horizon has other anneals; that it changed is said already.
    if parent.total_steps != child.total_steps:
        return
    for member in UNTOUCHED.get(child.kind, ()):
        if getattr(parent, member) != getattr(child, member):
            yield f"{member} changed in a revision of kind {child.kind}"


def _check_schedule(parent: Plan, child: Plan) -> Iterable[str]:
    if child.kind != "horizon":
        return
    fork = child.effective
    if fork >= min(parent.total_steps, child.total_steps):
        yield f"effective step {fork} is past the last step"
        return
    warm_up_end = last_rise(parent.knots_of("learning_rate"))
    if fork < warm_up_end:
        yield f"effective step {fork} is before the end of the warm-up at {warm_up_end}"
    for name in parent.anneals:
        if name in child.anneals:
            yield from _check_anneal(name, parent.knots_of(name), child.knots_of(name), fork)


def _check_anneal(name: str, before: Knots, after: Knots, fork: int) -> Iterable[str]:
    if not all(knots[0][0] <= fork <= knots[-1][0] for knots in (before, after)):
        return  # said of the plan itself
    if value_at(before, fork) != value_at(after, fork):
        yield f"{name} jumps at step {fork}"
    elif last_rise(after) > fork >= last_rise(before):
        yield f"{name} rises after step {fork}"


def _check_lines(parent: Plan, child: Plan) -> Iterable[str]:
    if child.kind != "line":
        if child.lineage != parent.lineage:
            yield f"lineage changed in a revision of kind {child.kind}"
        return
    if child.lineage[:-1] != parent.lineage:
        yield "a new line must list its parent's lineage first"
    if child.line.fork_step != child.effective:
        yield f"line {child.line.name} forks at {child.line.fork_step}, not {child.effective}"


def chain_of(plans: Mapping[str, Plan], sha: str) -> list[Plan]:
    """Return the plans from the genesis plan to `sha`, in order.

    Raises:
        PlanError: a parent is missing from `plans`.
    """
    chain: list[Plan] = []
    wanted: str | None = sha
    while wanted is not None:
        if wanted not in plans:
            raise PlanError([f"plan {wanted[:12]} of the chain is missing"])
        chain.append(plans[wanted])
        wanted = plans[wanted].parent
    return chain[::-1]


def is_admissible(chain: Sequence[Plan], plan_sha: str, step: int) -> bool:
    """Return whether a checkpoint of `plan_sha` at `step` may start the last plan of `chain`.

    STEP counts completed steps, so a checkpoint exactly at an effective step is admissible.
    """
    shas = [plan.sha for plan in chain]
    if plan_sha not in shas:
        return False
    later = chain[shas.index(plan_sha) + 1 :]
    return all(step <= plan.effective for plan in later)
