"""Proposals, what-ifs and differences of plans in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from controller.cli.output import align
from controller.cli.wording import (
    describe_forecast,
    describe_lag,
    describe_wait,
    list_of,
    members_of,
    show_chance,
    show_count,
    show_instant,
    show_span,
)

Members = Mapping[str, object]
MICRO = 1_000_000


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
    yield str(report["run"]), f"{report['state']}, {_describe_plan(plan)}"
    if forecast:
        yield "forecast", describe_forecast(forecast)
        yield "lag", describe_lag(members_of(forecast, "lag"))
    elif report.get("forecast_unknown"):
        yield "forecast", f"none: {report['forecast_unknown']}"
    yield "evaluation", _describe_evaluation(members_of(report, "evaluation"))
    proposal = members_of(report, "proposal")
    if proposal:
        yield from _describe_proposal(proposal, members_of(report, "approval"))
    else:
        yield "horizon", str(report.get("advice") or "")
        yield "proposal", f"none: {report['silence']}" if report.get("silence") else ""
    yield "revision", _describe_revision(members_of(report, "revision"))
    for closed in list_of(report, "closed"):
        yield "closed", f"{closed['id']} is {closed['outcome']}: {closed['reason']}"


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
    chance = show_chance(evaluation.get("on_time_permille"))
    at = f"{show_instant(evaluation.get('at'))} at step {show_count(evaluation.get('step'))}"
    return f"{at}: P(on time) {chance}, {kind}; {late}{call}"


def _describe_revision(revision: Members) -> str:
    if not revision:
        return ""
    fork, sha = show_count(revision.get("fork_step")), str(revision["sha"])[:12]
    return f"{sha} ({revision['kind']}) takes effect at step {fork}: {describe_wait(revision)}"


# --- a proposal ---


def _describe_proposal(proposal: Members, approval: Members) -> Iterator[tuple[str, str]]:
    facts = members_of(proposal, "facts")
    before, after = (members_of(facts, side) for side in ("before", "after"))
    yield "proposal", f"{proposal['id']} ({proposal['kind']}): {proposal['summary']}"
    yield "made", f"{show_instant(proposal.get('at'))} by {proposal['author']}"
    yield "because", str(proposal["reason"])
    first, last = (show_count(proposal.get(name)) for name in ("fork_first", "fork_last"))
    when = f"as soon as it can, from step {first} to {last}"
    yield "takes effect", "at a restart" if proposal["kind"] == "execution" else when
    if before:
        yield "finish before", describe_forecast(before)
    if after:
        yield "finish after", describe_forecast(after)
    yield "lag then", describe_lag(members_of(facts, "lag"))
    yield from _describe_price(proposal, facts)
    if approval:
        yield "approved", f"{show_instant(approval.get('at'))} by {approval['by']}"
    else:
        yield "expires", show_instant(proposal.get("expires"))


def _describe_price(proposal: Members, facts: Members) -> Iterator[tuple[str, str]]:
    if facts.get("tokens_given_up"):
        yield "gives up", f"{show_count(facts['tokens_given_up'])} tokens"
    cost = members_of(facts, "loss_cost")
    if cost:
        low, high = (
            cast("int", cost[name]) / MICRO for name in ("low_micronats", "high_micronats")
        )
        yield "loss cost", f"{low:.4f} to {high:.4f} nats, if {cost['assumption']}"
    shortfall = facts.get("shortfall_ms")
    if isinstance(shortfall, int) and shortfall:
        yield (
            "shortfall",
            f"the median finish still misses the due instant by {show_span(shortfall)}",
        )
    if proposal.get("is_floor"):
        yield "floor", "the target cannot be met by any horizon allowed; this is the shortest one"


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
            show_chance(it.get("on_time_permille")),
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
