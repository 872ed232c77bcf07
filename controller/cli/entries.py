"""A record of the ledger in words: one line, and what a decision about the plan says beside it."""

import json
from collections.abc import Callable, Mapping
from typing import cast

from pydantic import ValidationError

from controller.cli.wording import (
    chance_of,
    describe_forecast,
    list_of,
    members_of,
    show_count,
    show_instant,
)
from controller.core.declared.problems import shorten
from controller.core.recording import FOREIGN
from controller.ports import Damaged, LedgerRecord


def show_record(record: LedgerRecord, form: str) -> str:
    """Return the record in words, or as one line of JSON."""
    if form == "text":
        try:
            return describe_record(record)
        except FOREIGN as error:
            raise Damaged(describe_unreadable(f"record {record.seq}", error)) from error
    return json.dumps(record.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))


def describe_damage(name: str, num_records: int, damage: str) -> str:
    """Return what a reader of a damaged ledger is told."""
    return (
        f"the ledger is damaged; what follows these {num_records} records cannot be trusted:"
        f" {damage}. Next: ctl log {name} --verify"
    )


def describe_unreadable(where: str, error: Exception) -> str:
    """Return what a reader is told of a record whose form this core does not know."""
    if isinstance(error, ValidationError):
        words = str(error.errors()[0]["msg"])
    else:
        words = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return f"{where}: this core cannot read it: {words}. Next: use the release that wrote it"


def describe_record(record: LedgerRecord) -> str:
    """Return one record in a line."""
    when = show_instant(record.at.wall_ms)
    # Words of ranks and people are quoted in it: none of them may begin a line of its own.
    first, *details = (shorten(text, len(text)) for text in _describe_body(record))
    return f"\n{INDENT}".join([f"{record.seq:>5}  {when}  {record.kind:<8}  {first}", *details])


def _describe_body(record: LedgerRecord) -> list[str]:
    """Return what the record says, and what is to be said beside it."""
    if record.kind != "decision":
        return [_describe_other(record)]
    actions = cast("list[dict[str, object]]", record.body["actions"])
    verbs = ", ".join(str(action["verb"]) for action in actions)
    details = [text for action in actions if (text := describe_action(action))]
    return [f"{record.body['rule']}: {record.body['reason']} [{verbs}]", *details]


def _describe_other(record: LedgerRecord) -> str:
    body = record.body
    match record.kind:
        case "run":
            plan = cast("dict[str, object]", body["plan"])
            return f"launched: {plan['total_steps']} steps of {plan['tokens_per_step']} tokens"
        case "policy":
            changed = cast("list[str]", body["changed"])
            return f"changed by the run file: {', '.join(changed)}"
        case "epoch":
            how = "took over as" if body["takeover"] else "is"
            return f"controller {body['pid']} on {body['host']} {how} epoch {record.epoch}"
        case "outcome":
            verb = str(body["key"]).split("/")[2]
            return f"{verb}: {'done' if body['ok'] else body['error']}"
        case kind:
            return kind


INDENT = " " * 12
Members = Mapping[str, object]


def describe_action(action: Members) -> str:
    """Return what an action of the plan track says beside its reason; empty for any other."""
    describe = DETAILS.get(str(action["verb"]))
    return describe(action) if describe is not None else ""


def _describe_intent(action: Members) -> str:
    intent = members_of(action, "intent")
    change, terms = members_of(intent, "change"), members_of(intent, "terms")
    who = f"wish {intent['nonce']} of {intent['user']}: {intent['verb']}"
    match intent["verb"]:
        case "approve" | "reject":
            return f"{who} proposal {intent['proposal']}"
        case "propose":
            wanted = {name: value for name, value in change.items() if value is not None}
            return f"{who} {json.dumps(wanted, ensure_ascii=False)}"
        case "amend":
            deadline = show_instant(terms.get("deadline_wall_ms"))
            return f"{who} deadline {deadline}, contingency {terms.get('mode')}"
        case _:
            return ""


def _describe_evaluation(action: Members) -> str:
    forecast, proposed = (members_of(action, name) for name in ("forecast", "proposed"))
    marks = [
        "counts" if action["counts"] else "does not count",
        "late" if action["is_late"] else "not late",
        *(["last call"] if action["is_last_call"] else []),
    ]
    text = f"{describe_forecast(_shorten(forecast))}; {', '.join(marks)}"
    if not proposed:
        return text
    chance = chance_of(_shorten(proposed))
    return f"{text}; at the proposed horizon P(on time) {chance}"


def _shorten(forecast: Members) -> Members:
    """Return a recorded forecast under the names that status.json gives them."""
    return {name.removesuffix("_wall_ms"): value for name, value in forecast.items()}


def _describe_proposal(action: Members) -> str:
    proposal = members_of(action, "proposal")
    facts = members_of(proposal, "facts")
    before, after = (members_of(facts, side) for side in ("before", "after"))
    chances = (chance_of(_shorten(it)) for it in (before, after))
    num_proofs = len(list_of(facts, "proofs"))
    return (
        f"proposal {proposal['id']} by {proposal['author']}: fork from step"
        f" {proposal['fork_first']} to {proposal['fork_last']}, P(on time) {' -> '.join(chances)},"
        f" {show_count(facts.get('tokens_given_up'))} tokens given up, {num_proofs} proofs hold"
    )


def _describe_plan(action: Members) -> str:
    plan = members_of(action, "plan")
    if not action.get("proposal"):
        return ""
    over = f", superseding {str(plan['supersedes'])[:12]}" if plan.get("supersedes") else ""
    return (
        f"revision of kind {plan['kind']} for proposal {action['proposal']}: from step"
        f" {plan['effective']}, {plan['total_steps']} steps{over}"
    )


DETAILS: Mapping[str, Callable[[Members], str]] = {
    "record_intent": _describe_intent,
    "evaluate": _describe_evaluation,
    "propose": _describe_proposal,
    "approve": lambda it: f"proposal {it['proposal']} approved by {it['by']}",
    "close_proposal": lambda it: f"proposal {it['proposal']} {it['outcome']}, by {it['by']}",
    "publish_plan": _describe_plan,
    "record_adoption": lambda it: f"plan {str(it['plan_sha'])[:12]}, seen at step {it['step']}",
}
"""Verb -> what to say beside the decision's reason."""
