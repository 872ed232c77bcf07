"""Where the run stands, in one sentence: on time or not, by how much, and what comes next."""

from controller.core.chance import PERMILLE
from controller.core.forecast import Forecast
from controller.core.memory import Memory
from controller.core.replan import tell_chance
from controller.core.telling.outcome import find_last_step_ms
from controller.core.telling.status_plan import find_newest
from controller.report.dossier import Dossier
from controller.report.scene import known_until_s
from controller.report.wording import (
    MS_PER_S,
    show_duration,
    show_instant,
)


def tell_standing(dossier: Dossier) -> str:
    """Return the sentence."""
    memory = dossier.evidence.memory
    return f"{_tell_state(dossier)}; {_tell_next(memory)}."


def _tell_state(dossier: Dossier) -> str:
    evidence = dossier.evidence
    memory, name = evidence.memory, evidence.memory.policy.run_name
    total, done = memory.held_plan.total_steps, len(evidence.course.surviving)
    steps = f"{done:,} of {total:,} steps"
    completed = evidence.chronicle.completed_at
    if memory.rest == "completed" and completed is not None:
        at = show_instant(completed.wall_ms)
        return f"{name} finished its {total:,} steps on {at}{_tell_verdict(dossier)}"
    if memory.halted is not None:
        return f"{name} halted after {steps}: {memory.halted}"
    if memory.rest is not None:
        return f"{name} is {memory.rest} after {steps}"
    if memory.attempt is None and not evidence.histories:
        return f"{name} has not started yet: none of its {total:,} steps is trained"
    at = show_instant(round(known_until_s(evidence) * MS_PER_S))
    return f"{name} had trained {steps} by {at}{_tell_outlook(dossier)}"


def _tell_verdict(dossier: Dossier) -> str:
    evidence = dossier.evidence
    deadline_ms = evidence.memory.policy.terms.deadline_wall_ms
    completed = evidence.chronicle.completed_at
    if deadline_ms is None or completed is None:
        return ", without a deadline"
    spare_s = (deadline_ms - completed.wall_ms) / MS_PER_S
    side = "before" if spare_s >= 0 else "AFTER"
    return f", {show_duration(abs(spare_s))} {side} its deadline"


def _tell_outlook(dossier: Dossier) -> str:
    evaluations = dossier.evidence.chronicle.evaluations
    if not evaluations:
        return " and has no forecast yet"
    found = evaluations[-1].facts.forecast
    return (
        f" and was last forecast to finish on {show_instant(found.p50_wall_ms)}{_tell_lag(found)}"
    )


def _tell_lag(found: Forecast) -> str:
    """Return by how much the median misses the due instant of the time, and the chance."""
    if found.due_wall_ms is None:
        return ", without a deadline"
    spare_s = (found.due_wall_ms - found.p50_wall_ms) / MS_PER_S
    side = "before it is due" if spare_s >= 0 else "LATE"
    chance = tell_chance(found)
    return f", {show_duration(abs(spare_s))} {side} with P(on time) {chance}"


# --- what comes next ---


def _tell_next(memory: Memory) -> str:
    name = memory.policy.run_name
    if memory.rest == "completed":
        return "nothing is left to do"
    if memory.halted is not None or memory.rest is not None:
        return f"it waits for its owner (ctl resume {name})"
    for tell in (_tell_proposal, _tell_revision, _tell_gang, _tell_evaluation):
        if (told := tell(memory)) is not None:
            return told
    return "it goes on as planned"


def _tell_proposal(memory: Memory) -> str | None:
    if memory.proposal is None:
        return None
    asked = f"proposal {memory.proposal.id} to {memory.proposal.change.describe()}"
    if memory.approval is not None:
        return f"{asked} is approved by {memory.approval.by} and will be published"
    name, doubt = memory.policy.run_name, _tell_doubt(memory)
    answer = f"ctl replan {name} --approve {memory.proposal.id}"
    return f"{asked} waits for an answer ({answer}){doubt}"


def _tell_doubt(memory: Memory) -> str:
    """Return that the open proposal misses its target by now; empty where it meets it."""
    found, target = find_newest(memory), memory.policy.terms.target_percent
    if found is None or (found.on_time_permille or 0) >= target * PERMILLE:
        return ""
    chance = tell_chance(found)
    return f", though it does NOT meet the target of {target}% now: P(on time) {chance}"


def _tell_revision(memory: Memory) -> str | None:
    revision = memory.revision
    if revision is None:
        return None
    return f"revision {revision.plan_sha[:12]} is to be adopted at step {revision.fork_step:,}"


def _tell_gang(memory: Memory) -> str | None:
    if not memory.is_between_attempts:
        return None
    number = memory.attempt.number + 1 if memory.attempt else 1
    when = "" if memory.not_before is None else f" after {show_instant(memory.not_before.wall_ms)}"
    return f"attempt {number} is to be started{when}"


def _tell_evaluation(memory: Memory) -> str | None:
    terms = memory.policy.terms
    if terms.deadline_wall_ms is None:
        return None
    if memory.evaluated_at is None:
        return "the first forecast is made when enough clean steps are known"
    at_ms = memory.evaluated_at.wall_ms + terms.evaluate_every_ms
    return f"the next forecast is due about {show_instant(at_ms)}"


def is_finished(dossier: Dossier) -> bool:
    """Return whether the last step of the horizon is done."""
    return find_last_step_ms(dossier.evidence.course) is not None
