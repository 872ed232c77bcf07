"""Proposals, what-ifs and differences of plans in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from controller.cli.output import align
from controller.cli.wording import (
    MISSING,
    PENDING,
    chance_of,
    describe_change,
    describe_consent,
    describe_forecast,
    describe_lag,
    describe_miss,
    describe_revision,
    describe_wait,
    list_of,
    members_of,
    show_count,
    show_instant,
    show_span,
)
from controller.core.chance import count_of

Members = Mapping[str, object]
MICRO = 1_000_000
CONTROLLER = "controller"
"""Of core.proposal: who makes proposals by itself."""


def describe_report(report: Members) -> str:
    """Return everything that `ctl replan` has to show."""
    rows = [(label, text) for label, text in _rows(report) if text]
    parts = ["\n".join(align(rows))]
    if report.get("proposal"):
        parts.append(_describe_proofs(members_of(report, "proposal")))
        parts.append(describe_differences(list_of(report, "differences")))
    elif report.get("what_ifs"):
        parts.append(_describe_what_ifs(list_of(report, "what_ifs")))
    parts += map(str, cast("Sequence[str]", report.get("next") or ()))
    return "\n\n".join(part for part in parts if part)


def _rows(report: Members) -> Iterator[tuple[str, str]]:
    plan, forecast = members_of(report, "plan"), members_of(report, "forecast")
    is_finished = report["state"] == "completed"
    yield str(report["run"]), f"{report['state']}, {_describe_plan(plan)}"
    yield "finish", str(report.get("finish") or "")
    if forecast:
        yield "forecast", describe_forecast(forecast)
        yield "lag", describe_lag(members_of(forecast, "lag"))
    elif report.get("forecast_unknown") and not is_finished:
        yield "forecast", f"none: {report['forecast_unknown']}"
    if not is_finished:
        yield "evaluation", _describe_evaluation(members_of(report, "evaluation"))
    yield from _describe_way_out(report)
    yield "revision", _describe_revision(members_of(report, "revision"))
    for revision in list_of(report, "revisions"):
        yield "adopted", describe_revision(revision)
    for closed in list_of(report, "closed"):
        yield "closed", _describe_closed(closed)


def _describe_way_out(report: Members) -> Iterator[tuple[str, str]]:
    """Yield the open proposal, or what would help and why nothing is proposed."""
    proposal = members_of(report, "proposal")
    if proposal:
        yield from _describe_proposal(report, proposal)
    else:
        yield "pace", describe_change(members_of(report, "pace_change"))
        yield "horizon", str(report.get("advice") or "")
        yield "proposal", f"none: {report['silence']}" if report.get("silence") else ""


def _describe_plan(plan: Members) -> str:
    step, total = show_count(plan.get("step")), show_count(plan.get("total_steps"))
    text = f"step {step} of {total}"
    if plan.get("total_steps") != plan.get("original_steps"):
        text += f" (originally {show_count(plan.get('original_steps'))})"
    return text


def _describe_evaluation(evaluation: Members) -> str:
    if not evaluation:
        return ""
    kind = "counts" if evaluation.get("counts") else "does not count yet: the run settles"
    late = f"late ones in a row: {evaluation['late']}, {evaluation['evaluations']} call for action"
    call = "; last call" if evaluation.get("is_last_call") else ""
    chance = chance_of(evaluation)
    at = f"{show_instant(evaluation.get('at'))} at step {show_count(evaluation.get('step'))}"
    return f"{at}: P(on time) {chance}, {kind}; {late}{call}"


def _describe_revision(revision: Members) -> str:
    if not revision:
        return ""
    fork, sha = show_count(revision.get("fork_step")), str(revision["sha"])[:12]
    wait = describe_wait(revision)
    when = (
        f"from step {fork}: {wait}" if wait == PENDING else f"takes effect at step {fork}: {wait}"
    )
    return f"{sha} ({revision['kind']}) {when}{describe_consent(revision)}"


def _describe_closed(closed: Members) -> str:
    by = f" by {closed['by']}" if closed.get("by") else ""
    return f"{closed['id']} is {closed['outcome']}{by}: {closed['reason']}"


# --- a proposal ---


def _describe_proposal(report: Members, proposal: Members) -> Iterator[tuple[str, str]]:
    facts, approval = members_of(proposal, "facts"), members_of(report, "approval")
    before, after = (members_of(facts, side) for side in ("before", "after"))
    deadline = {"deadline": proposal.get("deadline")}
    yield "proposal", f"{proposal['id']} ({proposal['kind']}): {proposal['summary']}"
    yield "made", f"{show_instant(proposal.get('at'))} by {proposal['author']}"
    yield "because", str(proposal["reason"])
    yield "pace", describe_change(members_of(report, "pace_change"))
    yield "takes effect", _describe_fork(proposal)
    if before:
        yield "finish before", describe_forecast({**before, **deadline})
    if after:
        yield "finish after", describe_forecast({**after, **deadline})
    if newest := members_of(proposal, "newest"):
        yield "newest", _describe_newest({**newest, **deadline})
    yield "lag then", describe_lag(members_of(facts, "lag"))
    yield from _describe_price(proposal, facts)
    if approval:
        yield "approved", f"{show_instant(approval.get('at'))} by {approval['by']}"
    else:
        yield "answer by", _describe_patience(report, proposal)
        yield "if not", _describe_default(report, proposal)


def _describe_newest(newest: Members) -> str:
    """Return what the newest evaluation says of the proposal: a fault may have aged it."""
    text = f"{describe_forecast(newest)}; as of {show_instant(newest.get('at'))}"
    if shortfall_ms := newest.get("shortfall_ms"):
        text += f"; the median misses due by {show_span(cast('int', shortfall_ms))}"
    return f"{text}{describe_miss(newest)}"


def _describe_fork(proposal: Members) -> str:
    if proposal["kind"] == "execution":
        return "at a restart"
    first, last = (show_count(proposal.get(name)) for name in ("fork_first", "fork_last"))
    now = proposal.get("fork_now")
    if now is None or now == proposal.get("fork_first"):
        return f"earliest now: step {first}, at the latest step {last}"
    made = f"proofs below were made for step {first} and are run again at the real one"
    return f"earliest now: step {show_count(now)} ({made}), at the latest step {last}"


def _describe_patience(report: Members, proposal: Members) -> str:
    """Return until when the owner can answer: what comes first, and what comes then."""
    expires, closes, at = proposal.get("expires"), proposal.get("window_closes"), report.get("at")
    last = show_count(proposal.get("fork_last"))
    ends = [
        (expires, "it expires"),
        (closes, f"step {last}, its last, is out of reach at the present pace"),
    ]
    known = sorted((when, why) for when, why in ends if isinstance(when, int))
    if not known:
        return MISSING
    left = f" (in {show_span(max(0, known[0][0] - at))})" if isinstance(at, int) else ""
    (first, why), *later = known
    told = [f"{show_instant(first)}{left}: {why}"]
    told += [f"{show_instant(when)}: {then}" for when, then in later]
    return "; ".join(told)


def _describe_default(report: Members, proposal: Members) -> str:
    """Return what comes of no answer, and of a refusal."""
    text = "unanswered it expires, rejected it is closed: the plan in force goes on"
    if proposal["author"] != CONTROLLER:
        return text
    count = members_of(report, "evaluation").get("evaluations")
    row = "a new row of late evaluations" if count is None else count_late(count)
    return f"{text}; {row}, or the last call, proposes anew while the window is open"


def count_late(count: object) -> str:
    """Return `3 late evaluations in a row`."""
    return f"{count_of(count, 'late evaluation')} in a row" if isinstance(count, int) else MISSING


def _describe_price(proposal: Members, facts: Members) -> Iterator[tuple[str, str]]:
    before, after = (members_of(facts, side) for side in ("before", "after"))
    if facts.get("tokens_given_up"):
        share = show_share(before.get("total_steps"), after.get("total_steps"))
        yield "gives up", f"{show_count(facts['tokens_given_up'])} tokens{share}"
    cost = members_of(facts, "loss_cost")
    if cost:
        low, high = (
            cast("int", cost[name]) / MICRO for name in ("low_micronats", "high_micronats")
        )
        yield "loss cost", f"{low:.4f} to {high:.4f} nats, if {cost['assumption']}"
    if facts.get("shortfall_ms"):
        yield "shortfall", _describe_shortfall(after.get("p50"), facts, proposal)
    if proposal.get("is_floor"):
        yield "floor", "the target cannot be met by any horizon allowed; this is the shortest one"


def show_share(before: object, after: object) -> str:
    """Return which part of the horizon is given up: `, 12.5% of the horizon`."""
    if not isinstance(before, int) or not isinstance(after, int):
        return ""
    return f", {100 * (before - after) / before:.1f}% of the horizon"


def _describe_shortfall(p50: object, facts: Members, proposal: Members) -> str:
    """Return how far the median finish is from the due instant, and from the deadline."""
    span, deadline = show_span(cast("int", facts["shortfall_ms"])), proposal.get("deadline")
    late = f"the median finish still misses due by {span}"
    if not isinstance(p50, int) or not isinstance(deadline, int):
        return late
    if p50 <= deadline:
        return f"{late}; it is {show_span(deadline - p50)} before the deadline"
    return f"{late}, the deadline by {show_span(p50 - deadline)}"


def _describe_proofs(proposal: Members) -> str:
    rows = [
        (
            str(proof["name"]),
            "holds" if proof["holds"] else "FAILS",
            str(proof["value"]),
            str(proof["bound"]),
        )
        for proof in list_of(proposal, "proofs")
    ]
    return "\n".join(align([("PROOF", "", "VALUE", "BOUND"), *rows]))


# --- what-ifs ---


def _describe_what_ifs(found: Sequence[Members]) -> str:
    rows = [
        (
            f"{it['percent']}%",
            show_count(it.get("total_steps")),
            show_instant(it.get("p50")),
            chance_of(it),
            show_count(it.get("tokens_given_up")),
        )
        for it in found
    ]
    head = ("HORIZON", "STEPS", "FINISH (P50)", "P(ON TIME)", "TOKENS GIVEN UP")
    return "\n".join(align([head, *rows]))


# --- differences ---


def describe_differences(found: Sequence[Members]) -> str:
    """Return what two plans differ in, and what around it they have in common."""
    rows = [
        (
            "*" if it["before"] != it["after"] else " ",
            str(it["what"]),
            _show(it["before"]),
            _show(it["after"]),
        )
        for it in found
    ]
    return "\n".join(align([(" ", "PLAN", "BEFORE", "AFTER"), *rows])) if rows else ""


def _show(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        members = cast("dict[str, float]", value)
        return ", ".join(f"{name} {rate:.7g}" for name, rate in members.items())
    if isinstance(value, list):
        return "; ".join(map(_show_stage, cast("list[dict[str, object]]", value)))
    return str(value)


def _show_stage(stage: dict[str, object]) -> str:
    if "parts" not in stage:
        return f"from {show_count(stage['start'])}: {stage['length']}"
    parts = " ".join(f"{name} {count}" for name, count in members_of(stage, "parts").items())
    return f"from {show_count(stage['start'])}: {parts}"
