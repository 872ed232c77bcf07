"""What became of plan and deadline: revisions, proposals, rates received, and what might have been.

Part of summary.json. What does not apply is None, never zero.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction

from contract.plan import Plan
from contract.schedule import round_binary32
from contract.wire import StepRecord
from controller.core.memory import Memory
from controller.core.proposal import Revision
from controller.core.telling.chronicle import Chronicle, Deadline, Story
from controller.core.telling.continuity import find_passage
from controller.core.telling.history import AttemptHistory
from controller.core.telling.rates import find_mismatches

MS_PER_S = 1_000
PERMILLE = 1_000
PERCENT = 100

Members = dict[str, object]
Surviving = Mapping[int, StepRecord]
"""Step -> its newest record on the line, in step order."""


@dataclass(frozen=True)
class Course:
    """A run as its outcome is judged from."""

    memory: Memory
    chronicle: Chronicle
    surviving: Surviving
    wall_s: float
    """From launch to the newest record."""
    histories: Sequence[AttemptHistory] = field(default_factory=list[AttemptHistory])
    """Every attempt, oldest first."""

    @property
    def horizon(self) -> Revision | None:
        """The newest revision of the horizon that governs, be it by the line it was left with."""
        found = [it for it in self.memory.adopted if it.kind == "horizon"]
        return found[-1] if found else None


def show_instant(wall_ms: int | None) -> str | None:
    """Return an instant in ISO form with offset, in UTC; None for None."""
    if wall_ms is None:
        return None
    return datetime.fromtimestamp(wall_ms / MS_PER_S, UTC).isoformat(timespec="milliseconds")


def describe_outcome(course: Course) -> Members:
    """Return what summary.json says about plan and deadline."""
    plan = course.memory.held_plan
    return {
        **_describe_revisions(course),
        **_describe_deadline(course),
        **_describe_counterfactual(course),
        **_describe_rates(course),
        "final_lr_fraction": final_lr_fraction(course.surviving, plan),
        "final_lr_exact": _is_exact(course.surviving, plan),
        "lr_matches_plan": compare_rates(course.surviving, plan),
        "proposals": [_describe_story(it) for it in course.chronicle.stories],
        "evaluations": len(course.chronicle.evaluations),
        "late_evaluations": sum(
            it.facts.counts and it.facts.is_late for it in course.chronicle.evaluations
        ),
    }


# --- revisions and proposals ---


def _describe_revisions(course: Course) -> Members:
    memory, horizon = course.memory, course.horizon
    pending = [memory.revision] if memory.revision else []
    attempts = {it.plan_sha: it.attempts for it in course.chronicle.adoptions}
    return {
        "original_steps": memory.genesis.total_steps,
        "final_steps": memory.held_plan.total_steps,
        "fork_step": horizon.fork_step if horizon else None,
        "attempts_at_adoption": attempts.get(horizon.plan_sha) if horizon else None,
        "revisions": [
            _describe_revision(it, course.histories) for it in [*memory.adopted, *pending]
        ],
    }


def _describe_revision(revision: Revision, histories: Sequence[AttemptHistory]) -> Members:
    passage = find_passage(histories, revision.plan_sha, revision.fork_step)
    return {
        **revision.tell(),
        "published_at": show_instant(revision.published_at.wall_ms),
        "adopted_at_step": revision.adopted_step,
        "adopted_without_restart": passage.without_restart,
        "attempt_before_fork": passage.attempt_before,
        "attempt_after_fork": passage.attempt_after,
        "pids": [pid for _, pid in sorted(passage.pids.items())] or None,
        "compilations_after_fork": passage.compilations,
    }


def _describe_story(story: Story) -> Members:
    return {
        "id": story.proposal.id,
        "kind": story.proposal.change.kind,
        "outcome": story.outcome,
        "by": story.by,
        "reason": story.reason,
        "is_floor": story.proposal.is_floor,
    }


# --- the deadline ---


def _describe_deadline(course: Course) -> Members:
    terms, horizon = course.memory.policy.terms, course.horizon
    finished_ms, deadline_ms = _finished_ms(course), terms.deadline_wall_ms
    facts = horizon.proposal.facts if horizon else None
    before = facts.before.on_time_permille if facts and facts.before else None
    after = facts.after.on_time_permille if facts and facts.after else None
    return {
        "deadline": show_instant(deadline_ms),
        "due": show_instant(terms.due_wall_ms),
        "deadline_moves": [_describe_move(it) for it in course.chronicle.deadlines[1:]],
        "last_step_ended_at": show_instant(find_last_step_ms(course)),
        "finished_at": show_instant(finished_ms),
        "on_time": _is_on_time(finished_ms, deadline_ms),
        "p_on_time_before": None if before is None else before / PERMILLE,
        "p_on_time_after": None if after is None else after / PERMILLE,
    }


def _describe_move(deadline: Deadline) -> Members:
    return {
        "at": show_instant(deadline.at.wall_ms),
        "by": deadline.by,
        "deadline": show_instant(deadline.deadline_wall_ms),
        "due": show_instant(deadline.due_wall_ms),
    }


def find_last_step_ms(course: Course) -> int | None:
    """Return when the last step of the horizon ended: what forecasts are of; None before that."""
    record = course.surviving.get(course.memory.held_plan.total_steps - 1)
    return None if record is None else round(record.wall_s * MS_PER_S)


def _is_on_time(finished_ms: int | None, deadline_ms: int | None) -> bool | None:
    return None if finished_ms is None or deadline_ms is None else finished_ms <= deadline_ms


def _finished_ms(course: Course) -> int | None:
    at = course.chronicle.completed_at
    return None if at is None or course.memory.rest != "completed" else at.wall_ms


def _describe_counterfactual(course: Course) -> Members:
    finish_ms = find_counterfactual_ms(course)
    deadline_ms = course.memory.policy.terms.deadline_wall_ms
    miss_s = None
    if finish_ms is not None and deadline_ms is not None:
        miss_s = (finish_ms - deadline_ms) / MS_PER_S
    percent = None if miss_s is None or not course.wall_s else PERCENT * miss_s / course.wall_s
    return {
        "counterfactual_finish": show_instant(finish_ms),
        "counterfactual_miss_seconds": miss_s,
        "counterfactual_miss_percent": None if percent is None else round(percent, 3),
    }


def find_counterfactual_ms(course: Course) -> int | None:
    """Return when the run would have finished at its original horizon; None unless it finished.

    The steps after the fork, at the mean wall time that those after the fork really took: saves,
    evaluations and outages included. What befell the run once stays as it was: the owner's pauses
    after the fork, and what followed the last step.
    """
    horizon, finished_ms = course.horizon, _finished_ms(course)
    if horizon is None or finished_ms is None:
        return None
    fork, final = horizon.fork_step, course.memory.held_plan.total_steps
    before, last = course.surviving.get(fork - 1), course.surviving.get(final - 1)
    if before is None or last is None or final <= fork:
        return None
    fork_ms, last_ms = before.wall_s * MS_PER_S, last.wall_s * MS_PER_S
    paused_ms = _measure_pauses(course, fork, final)
    step_ms = (last_ms - fork_ms - paused_ms) / (final - fork)
    left = course.memory.genesis.total_steps - fork
    return round(fork_ms + paused_ms + left * step_ms + (finished_ms - last_ms))


def _measure_pauses(course: Course, fork: int, final: int) -> float:
    """Return the milliseconds between steps from `fork - 1` to `final - 1` in which a rest began.

    From the step before it to the beginning of the one after it: leaving, waiting and starting.
    """
    rests = [it.wall_ms for it in course.chronicle.rests]
    if not rests:
        return 0.0
    records = [it for step, it in course.surviving.items() if fork - 1 <= step < final]
    ends = [it.wall_s * MS_PER_S for it in records]
    # Of two rests between the same steps the time counts once.
    places = {bisect_right(ends, at) for at in rests}
    return sum(
        max(0.0, ends[at] - records[at].step_s * MS_PER_S - ends[at - 1])
        for at in places
        if 0 < at < len(ends)
    )


# --- the learning rate as received ---


def _describe_rates(course: Course) -> Members:
    horizon = course.horizon
    fork = horizon.fork_step if horizon else None
    return {
        "lr_at_fork_before": None if fork is None else _rate(course.surviving.get(fork - 1)),
        "lr_at_fork_before_step": None if fork is None else fork - 1,
        "lr_at_fork_after": None if fork is None else _rate(course.surviving.get(fork)),
        "lr_at_fork_after_step": fork,
        "lr_at_fork_parent": None if horizon is None else _rate_of_parent(course.memory, horizon),
    }


def _rate_of_parent(memory: Memory, horizon: Revision) -> str | None:
    """Return what the plan before the revision would have given the fork step.

    None where that plan is not of the chain, or has no such step.
    """
    plans = {plan.sha: plan for plan in memory.chain}
    child = plans.get(horizon.plan_sha)
    parent = plans.get(child.parent or "") if child else None
    if parent is None or horizon.fork_step >= parent.total_steps:
        return None
    rates = parent.values_at(horizon.fork_step)["learning_rate"]
    return rates[min(rates)].hex()


def _rate(record: StepRecord | None) -> str | None:
    """Return the rate of the first group by name, as the step logged it."""
    return record.lr[min(record.lr)] if record and record.lr else None


def final_lr_fraction(surviving: Surviving, plan: Plan) -> float | None:
    """Return the last step's learning rate, as the step logged it, over the declared peak.

    The declared fraction itself where every group received exactly its binary32 value; else the
    quotient as recorded. None where the last step left no record.
    """
    record = surviving.get(plan.total_steps - 1)
    if record is None:
        return None
    if _is_exact(surviving, plan):
        return float(_declared(plan))
    fractions = [
        float.fromhex(value) / float(plan.peaks["learning_rate"][group])
        for group, value in sorted(record.lr.items())
        if group in plan.peaks["learning_rate"]
    ]
    # All groups follow one curve; the one furthest from the others would be the error to see.
    return max(fractions, default=None)


def _declared(plan: Plan) -> Fraction:
    return plan.knots_of("learning_rate")[-1][1]


def _is_exact(surviving: Surviving, plan: Plan) -> bool | None:
    record = surviving.get(plan.total_steps - 1)
    return None if record is None else record.lr == _expect(plan, _declared(plan))


def compare_rates(surviving: Surviving, plan: Plan) -> Members:
    """Return how many steps' logged rates were compared with the plan's, and how many differ."""
    wrong = find_mismatches(surviving.values(), plan)
    return {"steps_checked": len(surviving), "mismatches": len(wrong), **_first(wrong)}


def _first(wrong: Sequence[int]) -> Members:
    return {"first_mismatch": wrong[0] if wrong else None}


def _expect(plan: Plan, fraction: Fraction) -> dict[str, str]:
    return {
        group: round_binary32(Fraction(peak) * fraction).hex()
        for group, peak in plan.peaks["learning_rate"].items()
    }
