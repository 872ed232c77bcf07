"""A status in words: lines for `ctl status`, one line for a log, rows for several runs."""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import cast

from controller.cli.output import align
from controller.cli.peek import View, find_last_words, read_summary
from controller.core import chance

Members = Mapping[str, object]
MISSING = "?"


def describe(view: View) -> str:
    """Return everything about one run, a few lines."""
    rows = [(label, text) for label, text in _rows(view) if text]
    return "\n".join(align([(view.name, _headline(view)), *rows]))


def _headline(view: View) -> str:
    status = view.status
    if status is None:
        return "no status yet"
    headline = f"{view.state}: {status['reason']}"
    if view.is_blind:
        who = "nobody steers it" if view.controller.silent_s is None else "its controller is silent"
        return f"{who}; before that, {headline}"
    if view.state == "stopped" and "ctl resume" not in headline:
        return f"{headline}; ctl resume goes on"
    return headline


def _rows(view: View) -> Iterator[tuple[str, str]]:
    status = view.status
    if status is not None:
        figures = members_of(status, "figures")
        yield "step", describe_progress(status)
        yield "line", _describe_line_of(members_of(status, "plan"))
        yield "speed", _describe_speed(figures)
        yield "loss", _describe_loss(figures)
        yield "attempt", _describe_attempt(status, is_blind=view.is_blind)
        yield "saved", _describe_store(members_of(status, "checkpoints"))
        for text in _describe_quarantined(members_of(status, "checkpoints")):
            yield "damaged", text
        yield "incidents", _describe_incidents(members_of(status, "incidents"))
        yield "words", describe_last_words(view)
        yield "finish", describe_finish(read_summary(view.directory)) if is_finished(view) else ""
        is_moving = view.controller.is_alive and not view.is_at_rest
        yield from describe_plan_track(view.name, status, is_moving=is_moving)
        yield "decision", describe_decision(status)
        yield "storage", str(members_of(status, "storage").get("problem") or "")
        for note in list_of(status, "notes"):
            yield "note", f"{clock(note.get('at'))} {note['subject']}: {note['text']}"
        for field, why in members_of(status, "unknown").items():
            yield "unknown", f"{field}: {why}"
    yield "controller", _describe_controller(view)


def _describe_line_of(plan: Members) -> str:
    """Return the line that the run is on; empty on the first one."""
    line = plan.get("line")
    return "" if line in (None, FIRST_LINE) else f"{line}, opened by ctl resume --from"


FIRST_LINE = "main"
"""ROOT_LINE of contract.plan, which would load the models; a test compares."""


def describe_progress(status: Members) -> str:
    """Return `step 312 of 750 (41.6%), 319,488 tokens`."""
    step, total = status.get("step"), status.get("total_steps")
    if not isinstance(step, int) or not isinstance(total, int):
        return f"{MISSING} of {show_count(total)}"
    tokens = show_count(status.get("tokens"))
    return f"{step:,} of {total:,} ({100 * step / total:.1f}%), {tokens} tokens"


def _describe_speed(figures: Members) -> str:
    rate = figures.get("tokens_per_second")
    if not isinstance(rate, float):
        return ""
    pace = f"{_milli(figures.get('step_s'))} ms a step"
    return f"{rate:,.0f} tokens/s, {pace}, MFU {_percent(figures, 'mfu_percent')}"


def _describe_loss(figures: Members) -> str:
    if not figures:
        return ""
    drops = _percent(figures, "drops_percent")
    return f"{_real(figures, 'loss')} nats, gradient {_real(figures, 'grad_norm')}, drops {drops}"


def _describe_attempt(status: Members, *, is_blind: bool) -> str:
    ranks = list_of(status, "ranks")
    alive = sum(rank.get("alive") is True for rank in ranks)
    stopped = [str(rank["rank"]) for rank in ranks if rank.get("stopped")]
    text = show_count(status.get("attempt"))
    text += f", phase {status['phase']}" if status.get("phase") else ""
    if ranks:
        seen = " when last seen" if is_blind else ""
        text += f", {alive} of {len(ranks)} ranks alive{seen}"
    return text + (f", stopped: rank {', '.join(stopped)}" if stopped else "")


def _describe_store(store: Members) -> str:
    newest = store.get("newest")
    if newest is None:
        return "no checkpoint yet"
    verified = store.get("newest_verified")
    return f"checkpoint {newest}, verified {MISSING if verified is None else verified}"


def _describe_quarantined(store: Members) -> Iterator[str]:
    for found in list_of(store, "quarantined"):
        yield f"checkpoint {found['line']}/{found['step']} is quarantined: {found['reason']}"


def _describe_incidents(incidents: Members) -> str:
    recent = list_of(incidents, "recent")
    if not recent:
        return ""
    return f"{incidents['count']}, the last: {describe_incident(recent[-1])}"


def describe_incident(incident: Members) -> str:
    """Return cause, rank and step in words."""
    rank, step = incident.get("root_rank"), incident.get("step")
    who = "the gang" if rank is None else f"rank {rank}"
    where = "" if step is None else f", step {step}"
    return f"attempt {incident['attempt']}: {incident['cause']} ({who}{where})"


def describe_last_words(view: View) -> str:
    """Return `FILE: LINE` of the rank that ended a halted run; empty where nothing was said."""
    found = find_last_words(view)
    return "" if found is None else f"{found[0]}: {found[1]}"


def describe_decision(status: Members) -> str:
    """Return the newest decision in words, with its time."""
    decision = members_of(status, "last_decision")
    if not decision:
        return ""
    # A note that is taken back has no words but its subject.
    verb = "noted: " if decision.get("rule") == "notes" else ""
    return f"{clock(decision.get('at'))} {verb}{decision['reason']}"


# --- the plan: forecast, proposal, revision ---


def describe_plan_track(
    name: str, status: Members, *, is_moving: bool
) -> Iterator[tuple[str, str]]:
    """Yield one row for each thing that the plan track has to say.

    How far a revision is from being adopted is only said of a run that moves towards it.
    """
    forecast = members_of(status, "forecast")
    if forecast:
        yield "forecast", describe_forecast(forecast)
        yield "lag", describe_lag(members_of(forecast, "lag"))
        yield "pace", describe_change(members_of(status, "pace_change"))
    proposal = members_of(status, "proposal")
    if proposal:
        yield "proposal", describe_open(name, proposal, members_of(status, "approval"))
    revision = members_of(status, "revision")
    if revision:
        to_go = revision.get("steps_to_go") if is_moving else None
        yield "revision", describe_revision({**revision, "steps_to_go": to_go})
    adopted = list_of(status, "revisions")
    if adopted and not revision:
        yield "revision", f"{len(adopted)} adopted, the last: {describe_revision(adopted[-1])}"


def describe_forecast(forecast: Members) -> str:
    """Return the finish as a distribution, and how likely it is in time."""
    p10, p50, p90 = (show_instant(forecast.get(name)) for name in ("p10", "p50", "p90"))
    text = f"P50 {p50} (P10 {p10}, P90 {p90})"
    if forecast.get("on_time_permille") is not None:
        text += f"; P(on time) {chance_of(forecast)} against due {show_due(forecast)}"
    if forecast.get("source") == "evaluation":
        text += f"; as of {show_instant(forecast.get('at'))}"
    return text


def show_due(forecast: Members) -> str:
    """Return when the run is due, and the deadline beside it where that is another instant."""
    due, deadline = forecast.get("due"), forecast.get("deadline")
    if deadline is None or deadline == due:
        return show_instant(due)
    return f"{show_instant(due)}, deadline {show_instant(deadline)}"


def describe_lag(lag: Members) -> str:
    """Return the lag and its two causes; empty where there is no deadline to lag behind."""
    total, lost, slow = (lag.get(name) for name in ("total_ms", "lost_ms", "slow_ms"))
    if not isinstance(total, int) or not isinstance(lost, int) or not isinstance(slow, int):
        return ""
    side = "behind" if total >= 0 else "ahead of"
    verb, kind = ("lost", "slower") if slow >= 0 else ("won", "faster")
    steps = f"{show_span(abs(slow))} {verb} by steps {kind} than the even pace"
    even, mean = lag.get("even_us"), lag.get("mean_us")
    if even is not None and mean is not None:
        steps += f" ({show_step(even)} a step needed, {show_step(mean)} measured)"
    return f"{show_span(abs(total))} {side} the even pace: {show_span(lost)} lost time, {steps}"


def describe_change(change: Members) -> str:
    """Return since when steps take how long, and how long before; empty without a change."""
    if not change:
        return ""
    text = f"since step {show_count(change.get('step'))} steps take {show_step(change['step_us'])}"
    if change.get("before_us") is None:
        return text
    before = f"before {show_step(change['before_us'])}"
    return f"{text}, {before} (as of step {show_count(change.get('before_step'))})"


def show_step(step_us: object) -> str:
    """Return what a step takes: `0.39 s`, `12.3 ms`."""
    if not isinstance(step_us, int):
        return MISSING
    seconds = step_us / US_PER_S
    return f"{seconds:.2f} s" if seconds >= SHORT_STEP_S else f"{MS_PER_S * seconds:.1f} ms"


US_PER_S = 1_000_000
SHORT_STEP_S = 0.1


def describe_open(name: str, proposal: Members, approval: Members) -> str:
    """Return the open proposal in a line, with what its owner may type."""
    facts = members_of(proposal, "facts")
    before, after = (members_of(facts, side) for side in ("before", "after"))
    text = f"{proposal['id']} by {proposal['author']}: {proposal['summary']}"
    if after.get("on_time_permille") is not None:
        text += f", P(on time) {chance_of(before)} -> {chance_of(after)} as made"
    if newest := members_of(proposal, "newest"):
        text += f", {chance_of(newest)} by the newest evaluation{describe_miss(newest)}"
    if approval:
        return f"{text}; approved by {approval['by']}"
    return f"{text}. Next: ctl replan {name} --approve {proposal['id']}"


def describe_miss(newest: Members) -> str:
    """Return that an open proposal misses its target by now; empty where it meets it."""
    if newest.get("meets_target"):
        return ""
    return f": it does NOT meet the target of {newest.get('target_percent')}% now"


def describe_evaluation(evaluation: Members) -> str:
    """Return the newest evaluation in a line; empty without one."""
    if not evaluation:
        return ""
    kind = "" if evaluation.get("counts") else ", does not count yet: the run settles"
    call = ", last call" if evaluation.get("is_last_call") else ""
    p = chance_of(evaluation)
    late = f"late {evaluation['late']} in a row ({evaluation['evaluations']} call for action)"
    step = show_count(evaluation.get("step"))
    return f"evaluated at step {step}: P(on time) {p}, {late}{kind}{call}"


def describe_revision(revision: Members) -> str:
    """Return one published revision: what, from where, by whose word, and how far that is."""
    text = (
        f"{str(revision['sha'])[:12]} ({revision['kind']}) from step"
        f" {show_count(revision.get('fork_step'))}, {show_count(revision.get('total_steps'))} steps"
    )
    if "steps_to_go" in revision:
        text += f"; {describe_wait(revision)}"
    return f"{text}{describe_consent(revision)}"


def describe_consent(revision: Members) -> str:
    """Return who proposed and who approved a revision; empty where it is not said."""
    if not revision.get("author") or not revision.get("approved_by"):
        return ""
    return f"; proposed by {revision['author']}, approved by {revision['approved_by']}"


def describe_wait(revision: Members) -> str:
    """Return how far a published revision is from being adopted."""
    to_go = revision.get("steps_to_go")
    return f"in {chance.count_of(to_go, 'step')}" if isinstance(to_go, int) and to_go else PENDING


PENDING = "not adopted yet"


def chance_of(forecast: Members) -> str:
    """Return P(on time) of a forecast; it is certain once all is done or the due instant passed."""
    at, due, step, total = (forecast.get(it) for it in ("at", "due", "step", "total_steps"))
    is_certain = chance.is_settled(at, due, step, total)
    return show_chance(forecast.get("on_time_permille"), is_certain=is_certain)


def show_chance(permille: object, *, is_certain: bool = False) -> str:
    """Return a probability in percent."""
    if not isinstance(permille, int):
        return MISSING
    return chance.show_chance(permille, is_certain=is_certain)


# --- the end ---


def is_finished(view: View) -> bool:
    """Return whether the run reached its horizon."""
    return view.state == "completed"


def describe_finish(summary: Members | None) -> str:
    """Return whether a finished run was on time; empty without summary or deadline."""
    deadline, finished = ((summary or {}).get(name) for name in ("deadline", "finished_at"))
    if not isinstance(deadline, str) or not isinstance(finished, str):
        return ""
    end, limit = (datetime.fromisoformat(it).timestamp() for it in (finished, deadline))
    span = show_span(abs(round(MS_PER_S * (limit - end))))
    at = f"finished {show_instant(round(MS_PER_S * end))}"
    until = f"the deadline {show_instant(round(MS_PER_S * limit))}"
    if is_late(summary):
        return f"TOO LATE: {at}, {span} after {until}"
    return f"on time: {at}, {span} before {until}"


def is_late(summary: Members | None) -> bool:
    """Return whether a finished run missed its deadline."""
    return summary is not None and summary.get("on_time") is False


def show_instant(wall_ms: object) -> str:
    """Return date and time of day in the user's zone, which is named."""
    if not isinstance(wall_ms, int):
        return MISSING
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(wall_ms / MS_PER_S))


def show_span(duration_ms: int) -> str:
    """Return a duration by its two largest units: `3 d 4 h`, `12.3 s`."""
    seconds = duration_ms / MS_PER_S
    if abs(seconds) < SECONDS["min"]:
        return f"{seconds:.1f} s"
    rest, parts = int(abs(seconds)), list[str]()
    for unit, size_s in SECONDS.items():
        count, rest = divmod(rest, size_s)
        if parts or count:
            parts.append(f"{count} {unit}")
    return f"{'-' if seconds < 0 else ''}{' '.join(parts[:2])}"


MS_PER_S = 1_000
SECONDS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


def _describe_controller(view: View) -> str:
    controller = view.controller
    age = f", status {view.age_s:.0f} s old" if view.age_s is not None else ""
    if controller.is_alive:
        pid, epoch = (MISSING if it is None else it for it in (controller.pid, controller.epoch))
        return f"pid {pid}, epoch {epoch}{age}"
    if controller.silent_s is not None:
        text = f"pid {controller.pid}, silent for {controller.silent_s:.0f} s{age}"
        return f"{text}: the next one ends it. Next: ctl resume {view.name}"
    if view.is_blind:
        return f"none{age}: the ranks may live. Next: ctl resume {view.name}"
    return "none: the run is at rest"


def describe_line(view: View) -> str:
    """Return one line about a run under way, for logs."""
    status = view.status or {}
    figures = members_of(status, "figures")
    forecast = members_of(status, "forecast")
    parts = [
        f"{view.state:<10}",
        f"step {describe_progress(status)}" if status else "no status yet",
        f"{figures['tokens_per_second']:,.0f} tokens/s" if figures.get("tokens_per_second") else "",
        f"MFU {_percent(figures, 'mfu_percent')}" if figures.get("mfu_percent") else "",
        f"loss {_real(figures, 'loss')}" if figures else "",
        f"drops {_percent(figures, 'drops_percent')}" if figures else "",
        f"attempt {show_count(status.get('attempt'))}",
        f"P(on time) {chance_of(forecast)}" if forecast.get("on_time_permille") is not None else "",
    ]
    return "  ".join(part for part in parts if part)


def summarize(view: View) -> tuple[str, ...]:
    """Return one row of the list of runs: name, state, progress, attempt, controller."""
    status = view.status or {}
    state = f"{view.state} (unsteered)" if view.is_blind else view.state
    progress = describe_progress(status) if status else MISSING
    return (view.name, state, progress, show_count(status.get("attempt")))


def clock(wall_ms: object) -> str:
    """Return the time of day in the user's zone."""
    if not isinstance(wall_ms, int):
        return MISSING
    return time.strftime("%H:%M:%S %Z", time.localtime(wall_ms / 1000))


def members_of(value: Members, name: str) -> Members:
    found = value.get(name)
    return cast("Members", found) if isinstance(found, dict) else {}


def list_of(value: Members, name: str) -> list[Members]:
    found = value.get(name)
    return cast("list[Members]", found) if isinstance(found, list) else []


def show_count(value: object) -> str:
    """Return a whole number, or what stands for one that is not there."""
    return f"{value:,}" if isinstance(value, int) else MISSING


def _real(figures: Members, name: str) -> str:
    value = figures.get(name)
    return f"{value:.4f}" if isinstance(value, float) else MISSING


def _percent(figures: Members, name: str) -> str:
    value = figures.get(name)
    return f"{value:.1f}%" if isinstance(value, int | float) else MISSING


def _milli(value: object) -> str:
    return f"{1000 * value:.0f}" if isinstance(value, float) else MISSING
