"""What people are told about the plan: on time or not, what is proposed, what was published.

Part of the status (see status.py); keys are documented in docs/cli.md.
"""

from controller.core.chance import PERMILLE
from controller.core.forecast import Forecast, Lag
from controller.core.memory import Memory
from controller.core.outlook import look_ahead, measure_lag
from controller.core.pace import PaceView
from controller.core.proposal import EXPIRY_EVALUATIONS, Closed, Proposal, Revision
from controller.core.readings import Instant, Unknown
from controller.core.replan import explain_silence
from controller.core.snapshot import ProgressView, Snapshot
from controller.core.telling.prospect import find_fork
from controller.core.terms import Terms

Status = dict[str, object]

US_PER_MS = 1_000
RECENT_CLOSED = 5
RECENT_ANSWERS = 8


def describe_plan_track(memory: Memory, snapshot: Snapshot) -> Status:
    """Return the keys about forecast, proposal and revisions as JSON-able values."""
    pace = find_pace(memory, snapshot)
    forecast, unknown = _describe_forecast(memory, snapshot, pace)
    revision = memory.revision
    return {
        "forecast": forecast,
        "forecast_unknown": unknown,
        "pace": pace.model_dump(mode="json") if pace is not None else None,
        "pace_change": describe_change(memory, pace),
        "evaluation": _describe_evaluation(memory),
        "proposal": describe_open(memory, pace, snapshot.now),
        "approval": _describe_approval(memory),
        "revision": _describe_published(revision, pace) if revision is not None else None,
        "revisions": [describe_revision(it) for it in memory.adopted],
        "closed": [_describe_closed(it) for it in memory.closed[-RECENT_CLOSED:]],
        "silence": None if memory.rest == "completed" else explain_silence(snapshot, memory),
        "answers": [it.model_dump(mode="json") for it in memory.answers[-RECENT_ANSWERS:]],
    }


def find_pace(memory: Memory, snapshot: Snapshot) -> PaceView | None:
    """Return the newest pace of a run that goes on, None where none is known.

    Until an evaluation's successor has clean steps enough of its own, its speed stands.
    """
    progress, evaluation = snapshot.progress, memory.evaluation
    if memory.rest is not None or memory.halted is not None:
        return None
    pace = progress.pace if isinstance(progress, ProgressView) else None
    if pace is None or evaluation is None:
        return pace
    last = evaluation.pace
    if pace.clean_steps >= memory.policy.terms.min_clean_steps or _differ(pace, last):
        return pace
    return pace.model_copy(update={"step_us": last.step_us, "error_us": last.error_us})


def _differ(pace: PaceView, last: PaceView) -> bool:
    """Return whether something changed that the pace depends on."""
    names = ("execution_sha", "context_length", "changed_step")
    return any(getattr(pace, name) != getattr(last, name) for name in names)


def describe_change(memory: Memory, pace: PaceView | None) -> Status | None:
    """Return what the newest change of pace was, None where there was none or nothing is known.

    What a step took before it is what the newest evaluation of before found, else the first one.
    """
    if pace is None or pace.changed_step is None:
        return None
    known = (memory.evaluation, memory.first_evaluation)
    paces = [it.pace for it in known if it is not None]
    before = next((it for it in paces if it.until_step <= pace.changed_step), None)
    return {
        "step": pace.changed_step,
        "step_us": pace.step_us,
        "before_step": before.until_step if before is not None else None,
        "before_us": before.step_us if before is not None else None,
    }


def _describe_forecast(
    memory: Memory, snapshot: Snapshot, pace: PaceView | None
) -> tuple[Status | None, str | None]:
    """Return the forecast as of now, else that of the newest evaluation, else why there is none."""
    now, evaluation = snapshot.now, memory.evaluation
    if pace is not None:
        forecast = look_ahead(memory, pace, now, memory.plan)
        return _show_forecast(memory, forecast, measure_lag(memory, pace, now), "now"), None
    why = _explain_no_pace(memory, snapshot)
    is_over = memory.rest is not None or memory.halted is not None
    if is_over or evaluation is None or evaluation.forecast.total_steps != memory.plan.total_steps:
        return None, why
    at = Instant(wall_ms=evaluation.forecast.at_wall_ms, mono_ms=0, boot_id="")
    lag = measure_lag(memory, evaluation.pace, at)
    return _show_forecast(memory, evaluation.forecast, lag, "evaluation"), why


def _explain_no_pace(memory: Memory, snapshot: Snapshot) -> str:
    if memory.halted is not None:
        return "the run is halted"
    if memory.rest is not None:
        return f"the run is {memory.rest}"
    if isinstance(snapshot.progress, Unknown):
        return snapshot.progress.unknown
    return "no step was completed yet"


def _show_forecast(memory: Memory, forecast: Forecast, lag: Lag | None, source: str) -> Status:
    return {
        **describe_forecast(forecast),
        "deadline": memory.policy.terms.deadline_wall_ms,
        "lag": describe_lag(lag, memory.policy.terms, forecast),
        "source": source,
    }


def describe_forecast(forecast: Forecast) -> Status:
    """Return a forecast; instants in milliseconds since 1970."""
    return {
        "at": forecast.at_wall_ms,
        "step": forecast.step,
        "total_steps": forecast.total_steps,
        "p10": forecast.p10_wall_ms,
        "p50": forecast.p50_wall_ms,
        "p90": forecast.p90_wall_ms,
        "due": forecast.due_wall_ms,
        "on_time_permille": forecast.on_time_permille,
        "lost_ms_mean": forecast.lost_ms_mean,
        "step_us": forecast.step_us,
    }


def describe_lag(lag: Lag | None, terms: Terms, forecast: Forecast | None) -> Status | None:
    """Return the lag behind the even pace and its two causes; negative: ahead.

    Where `forecast` says how many steps of how many were done by then, also what a step of the
    even pace takes and what the steps took on average, in microseconds.
    """
    if lag is None:
        return None
    found: Status = {**lag.model_dump(mode="json"), "total_ms": lag.lost_ms + lag.slow_ms}
    if forecast is None or forecast.due_wall_ms is None or not forecast.step:
        return {**found, "even_us": None, "mean_us": None}
    span_ms = forecast.due_wall_ms - terms.launched_wall_ms
    even_us = US_PER_MS * span_ms // forecast.total_steps
    return {
        **found,
        "even_us": even_us,
        "mean_us": even_us + US_PER_MS * lag.slow_ms // forecast.step,
    }


def _describe_evaluation(memory: Memory) -> Status | None:
    evaluation = memory.evaluation
    if evaluation is None:
        return None
    return {
        "at": evaluation.forecast.at_wall_ms,
        "step": evaluation.forecast.step,
        "total_steps": evaluation.forecast.total_steps,
        "due": evaluation.forecast.due_wall_ms,
        "on_time_permille": evaluation.forecast.on_time_permille,
        "counts": evaluation.counts,
        "is_late": evaluation.is_late,
        "is_last_call": evaluation.is_last_call,
        "late": memory.late,
        "evaluations": memory.policy.terms.evaluations,
    }


def find_newest(memory: Memory) -> Forecast | None:
    """Return the newest evaluation's forecast at the open proposal's horizon.

    None without an open proposal of a horizon, and until an evaluation was made since it is open.
    """
    evaluation, proposal = memory.evaluation, memory.proposal
    proposed = evaluation.proposed if evaluation is not None else None
    if proposed is None or proposal is None:
        return None
    # What an evaluation said of an earlier proposal's horizon does not speak of this one.
    is_of_it = proposed.total_steps == proposal.change.total_steps
    return proposed if is_of_it and proposed.at_wall_ms >= proposal.at.wall_ms else None


def describe_newest(memory: Memory) -> Status | None:
    """Return how the open proposal stands by the newest evaluation; None where none speaks of it.

    `shortfall_ms`: by how much the median finish misses the due instant, 0 where it does not.
    """
    found, target = find_newest(memory), memory.policy.terms.target_percent
    if found is None:
        return None
    due = found.due_wall_ms
    return {
        **describe_forecast(found),
        "shortfall_ms": 0 if due is None else max(0, found.p50_wall_ms - due),
        "target_percent": target,
        "meets_target": (found.on_time_permille or 0) >= target * PERMILLE,
    }


def describe_open(memory: Memory, pace: PaceView | None, now: Instant) -> Status | None:
    """Return the open proposal and how long its owner has; None without one.

    Where it could take effect if it were approved now, and when its last step gets out of reach,
    at the present `pace`.
    """
    proposal = memory.proposal
    if proposal is None:
        return None
    terms = memory.policy.terms
    found = {
        **describe_proposal(proposal, terms),
        "deadline": terms.deadline_wall_ms,
        "newest": describe_newest(memory),
    }
    is_dated = proposal.change.kind != "execution" and pace is not None
    fork = find_fork(memory, proposal, pace) if is_dated else None
    if memory.approval is not None:
        return {**found, "expires": None, "fork_now": fork, "window_closes": None}
    patience_ms = EXPIRY_EVALUATIONS * terms.evaluate_every_ms
    closes = None
    if fork is not None and pace is not None:
        left_us = (proposal.fork_last - fork) * (pace.step_us + pace.extra_us)
        closes = now.wall_ms + left_us // US_PER_MS
    expires = proposal.at.wall_ms + patience_ms
    return {**found, "expires": expires, "fork_now": fork, "window_closes": closes}


def describe_proposal(proposal: Proposal, terms: Terms) -> Status:
    """Return a proposal with its facts and proofs."""
    facts = proposal.facts
    return {
        "id": proposal.id,
        "kind": proposal.change.kind,
        "author": proposal.author,
        "reason": proposal.reason,
        "change": proposal.change.model_dump(mode="json", exclude_none=True),
        "summary": proposal.change.describe(),
        "parent": proposal.parent,
        "fork_first": proposal.fork_first,
        "fork_last": proposal.fork_last,
        "is_floor": proposal.is_floor,
        "is_last_call": proposal.is_last_call,
        "at": proposal.at.wall_ms,
        "facts": {
            "before": describe_forecast(facts.before) if facts.before else None,
            "after": describe_forecast(facts.after) if facts.after else None,
            "lag": describe_lag(facts.lag, terms, facts.before),
            "due": facts.due_wall_ms,
            "tokens_given_up": facts.tokens_given_up,
            "loss_cost": facts.loss_cost.model_dump(mode="json") if facts.loss_cost else None,
            "shortfall_ms": facts.shortfall_ms,
            "rank_bytes": facts.rank_bytes,
        },
        "proofs": [it.model_dump(mode="json") for it in facts.proofs],
    }


def _describe_approval(memory: Memory) -> Status | None:
    approval = memory.approval
    return None if approval is None else {"by": approval.by, "at": approval.at.wall_ms}


def describe_revision(revision: Revision) -> Status:
    """Return a published revision and how it came about."""
    return {
        **revision.tell(),
        "published_at": revision.published_at.wall_ms,
        "adopted_at": revision.adopted_at.wall_ms if revision.adopted_at else None,
        "adopted_step": revision.adopted_step,
    }


def _describe_published(revision: Revision, pace: PaceView | None) -> Status:
    to_go = None if pace is None else max(0, revision.fork_step - pace.until_step)
    return {**describe_revision(revision), "steps_to_go": to_go}


def _describe_closed(closed: Closed) -> Status:
    return {
        "id": closed.id,
        "kind": closed.kind,
        "outcome": closed.outcome,
        "by": closed.by,
        "reason": closed.reason,
        "at": closed.at.wall_ms,
    }
