"""What the pictures of time and plans show: seconds since launch, steps, shares of the peak."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

from contract.plan import Plan
from contract.wire import StepRecord
from controller.core.memory import Memory
from controller.core.proposal import Revision
from controller.core.telling.chronicle import Deadline, Evaluation
from controller.core.telling.outcome import find_counterfactual_ms, find_last_step_ms
from controller.core.telling.summary import Evidence

MAX_POINTS = 400
"""Of one curve: more than a screen has, few enough that the page stays small."""
MAX_NAMED = 4
"""More revisions than this are numbered: r1, r2, ..."""
MS_PER_S = 1_000

Item = TypeVar("Item")


@dataclass(frozen=True)
class Curve:
    """Points of one line."""

    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Mark:
    """Something that happened at one moment, drawn into every panel of time."""

    kind: Literal["incident", "revision", "deadline"]
    at_s: float
    label: str


@dataclass(frozen=True)
class Guess:
    """When the run was forecast to finish, as recorded; seconds since launch."""

    at_s: float
    low_s: float
    middle_s: float
    high_s: float
    step: int
    """Completed at that moment."""
    total_steps: int
    """Of the plan that it was made for."""


@dataclass(frozen=True)
class Horizon:
    """How many steps the run was to take, and when that held."""

    from_s: float
    to_s: float
    total_steps: int


@dataclass(frozen=True)
class Term:
    """A deadline and its due instant, and from when to when they held."""

    from_s: float
    to_s: float
    deadline_s: float | None
    due_s: float | None


@dataclass(frozen=True)
class TimeScene:
    """Everything on the axis of time; None: there is none."""

    end_s: float
    """Of what is known."""
    deadline_s: float | None
    due_s: float | None
    terms: Sequence[Term]
    """Deadlines as they were moved, oldest first; the last one holds."""
    last_step_s: float | None
    """End of the last step, which is what was forecast; None before that."""
    finish_s: float | None
    """When the last checkpoint was verified, after the final evaluation and save."""
    counterfactual_s: float | None
    guesses: Sequence[Guess]
    cone: Guess | None
    """The newest of them while the last step is ahead."""
    progress: Sequence[Curve]
    """Completed steps, one curve for each attempt."""
    horizons: Sequence[Horizon]
    marks: Sequence[Mark]


@dataclass(frozen=True)
class Stage:
    """A stage of a plan's mixture: shares of the sources between two steps, which sum to 1."""

    start: int
    end: int
    shares: Mapping[str, float]


@dataclass(frozen=True)
class Schedule:
    """One plan: its rate over the whole run, and its mixture."""

    name: str
    is_held: bool
    rates: Curve
    """The corners; linear between them."""
    stages: Sequence[Stage]


@dataclass(frozen=True)
class RateScene:
    """Learning rate over steps, in percent of the peak, and what a block is made of."""

    schedules: Sequence[Schedule]
    """Of every plan that differs in rate or mixture from the one before it; oldest first."""
    executed: Curve
    """As logged, on the surviving line."""
    forks: Sequence[int]
    sources: Sequence[str]
    """Largest share first."""


# --- time ---


def set_time_scene(evidence: Evidence) -> TimeScene:
    """Return what happened over time."""
    memory, chronicle = evidence.memory, evidence.chronicle
    terms, origin = memory.policy.terms, origin_s(evidence)
    end_s = known_until_s(evidence) - origin
    finished = chronicle.completed_at if memory.rest == "completed" else None
    surviving = evidence.course.surviving
    guesses = [_guess(it, origin) for it in chronicle.evaluations]
    last_step_ms = find_last_step_ms(evidence.course)
    most = max(2, MAX_POINTS // max(1, len(evidence.histories)))

    def since(wall_ms: int | None) -> float | None:
        return None if wall_ms is None else wall_ms / MS_PER_S - origin

    return TimeScene(
        end_s=end_s,
        deadline_s=since(terms.deadline_wall_ms),
        due_s=since(terms.due_wall_ms),
        terms=list(_list_terms(chronicle.deadlines, since, end_s)),
        last_step_s=since(last_step_ms),
        finish_s=since(finished.wall_ms if finished else None),
        counterfactual_s=since(find_counterfactual_ms(evidence.course)),
        guesses=guesses,
        cone=guesses[-1] if guesses and last_step_ms is None else None,
        progress=[
            _curve([(it.wall_s - origin, float(it.step + 1)) for it in thin(history.steps, most)])
            for history in evidence.histories
            if history.steps
        ],
        horizons=list(_list_horizons(memory, surviving, origin, end_s)),
        marks=[
            *_list_marks(memory, surviving, origin),
            *(
                Mark("deadline", it.at.wall_ms / MS_PER_S - origin, "deadline moved")
                for it in chronicle.deadlines[1:]
            ),
        ],
    )


def _list_terms(
    deadlines: Sequence[Deadline], since: Callable[[int | None], float | None], end_s: float
) -> Iterator[Term]:
    moved_s = [since(it.at.wall_ms) or 0.0 for it in deadlines[1:]]
    begun_s, ended_s = [0.0, *moved_s], [*moved_s, max([end_s, *moved_s])]
    for deadline, from_s, to_s in zip(deadlines, begun_s, ended_s, strict=False):
        dates = since(deadline.deadline_wall_ms), since(deadline.due_wall_ms)
        yield Term(from_s, to_s, *dates)


def known_until_s(evidence: Evidence) -> float:
    """Return the wall clock of the newest record or step: a living gang's log is ahead."""
    read_at = evidence.chronicle.read_at
    read_s = read_at.wall_ms / MS_PER_S if read_at else origin_s(evidence)
    return max([read_s, *(history.ended_wall_s for history in evidence.histories)])


def origin_s(evidence: Evidence) -> float:
    """Return the wall clock of the launch."""
    launched_ms = evidence.memory.policy.terms.launched_wall_ms
    starts = [history.launched_wall_s for history in evidence.histories[:1]]
    return launched_ms / MS_PER_S if launched_ms else min(starts, default=0.0)


def _guess(evaluation: Evaluation, origin: float) -> Guess:
    found = evaluation.facts.forecast
    low, middle, high = (
        wall_ms / MS_PER_S - origin
        for wall_ms in (found.p10_wall_ms, found.p50_wall_ms, found.p90_wall_ms)
    )
    return Guess(
        at_s=found.at_wall_ms / MS_PER_S - origin,
        low_s=low,
        middle_s=middle,
        high_s=high,
        step=found.step,
        total_steps=found.total_steps,
    )


def _list_horizons(
    memory: Memory, surviving: Mapping[int, StepRecord], origin: float, end_s: float
) -> Iterator[Horizon]:
    total, since = memory.genesis.total_steps, 0.0
    for revision in memory.adopted:
        if revision.kind == "horizon":
            at_s = fork_at_s(revision, surviving) - origin
            yield Horizon(since, at_s, total)
            total, since = revision.total_steps, at_s
    yield Horizon(since, max(since, end_s), total)


def fork_at_s(revision: Revision, surviving: Mapping[int, StepRecord]) -> float:
    """Return the wall clock at which the revision took effect, or when it was published."""
    before = surviving.get(revision.fork_step - 1)
    return before.wall_s if before else revision.published_at.wall_ms / MS_PER_S


def _list_marks(
    memory: Memory, surviving: Mapping[int, StepRecord], origin: float
) -> Iterator[Mark]:
    for number, incident in enumerate(memory.incidents, 1):
        at_ms = incident.ended_wall_ms or incident.at.wall_ms
        yield Mark("incident", at_ms / MS_PER_S - origin, f"{number} {incident.cause}")
    for number, revision in enumerate(memory.adopted, 1):
        name = revision.kind if len(memory.adopted) <= MAX_NAMED else f"r{number}"
        yield Mark("revision", fork_at_s(revision, surviving) - origin, name)


# --- learning rate ---


def set_rate_scene(evidence: Evidence) -> RateScene:
    """Return rate and mixture before and after each revision, and the rate as it was received."""
    memory, surviving = evidence.memory, evidence.course.surviving
    plan = memory.held_plan
    chain = memory.chain[: memory.chain.index(plan) + 1]
    told = [chain[0], *(it for before, it in pairwise(chain) if _differs(before, it))]
    weights: Counter[str] = Counter()
    for stage in plan.mixture.stages:
        weights.update(stage.parts)
    return RateScene(
        schedules=[_set_schedule(it, is_held=it is told[-1]) for it in told],
        executed=_curve(list(_list_rates(thin([*surviving.values()]), plan))),
        forks=[it.fork_step for it in memory.adopted],
        sources=[name for name, _ in sorted(weights.items(), key=lambda it: (-it[1], it[0]))],
    )


def _differs(before: Plan, after: Plan) -> bool:
    return (before.anneals, before.mixture) != (after.anneals, after.mixture)


def _set_schedule(plan: Plan, *, is_held: bool) -> Schedule:
    starts = [it.start for it in plan.mixture.stages]
    ends = [*starts[1:], plan.total_steps]
    return Schedule(
        name="launch" if plan.parent is None else f"{plan.kind}, step {plan.effective:,}",
        is_held=is_held,
        rates=_knots(plan),
        stages=[
            Stage(it.start, end, {name: share / units for name, share in it.parts.items()})
            for it, end in zip(plan.mixture.stages, ends, strict=True)
            if (units := sum(it.parts.values()))
        ],
    )


def _knots(plan: Plan) -> Curve:
    """Return the corners of the schedule: it is linear between them."""
    return _curve([(float(step), 100 * float(it)) for step, it in plan.knots_of("learning_rate")])


def _list_rates(records: Sequence[StepRecord], plan: Plan) -> Iterator[tuple[float, float]]:
    """Yield (step, percent of the peak) of the first group that the plan knows."""
    peaks = plan.peaks["learning_rate"]
    for record in records:
        for group in sorted(set(record.lr) & set(peaks))[:1]:
            rate = float.fromhex(record.lr[group])
            yield float(record.step), 100 * rate / float(peaks[group])


# --- points ---


def _curve(points: Sequence[tuple[float, float]]) -> Curve:
    return Curve([x for x, _ in points], [y for _, y in points])


def thin(items: Sequence[Item], most: int = MAX_POINTS) -> list[Item]:
    """Return at most about `most` items, evenly spread, the last one among them."""
    stride = max(1, -(-len(items) // most))
    kept = list(items[::stride])
    if items and (len(items) - 1) % stride:
        kept.append(items[-1])
    return kept
