"""Why one decision was made: what it rested on, every rule's turn, what it did and refused.

The rules are walked by the code that decides (decide.py), over the recorded inputs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import getdoc
from itertools import takewhile
from typing import Literal

from controller.core.actions import Action, Note, key_of
from controller.core.decide import EFFECTS, GANG, PLAN, Turn, walk
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.core.readings import Instant, Unknown, show_seconds
from controller.core.recording import read_actions
from controller.core.rules import Rule, unknown_fields
from controller.core.snapshot import Snapshot
from controller.core.telling.alternatives import Alternative, list_alternatives
from controller.core.telling.inputs import Input, Show, describe_memory, describe_snapshot
from controller.core.telling.replay import Replayed, VersionedRecord, replay_one

Verdict = Literal["acted", "held", "waits", "silent", "blind", "after"]
"""How a rule's turn went; `after`: an earlier one had its say, so this one was not asked."""

MAX_OUTCOMES = 5
"""Of one act, which is asked for again until it is done."""


@dataclass(frozen=True)
class RuleTurn:
    """One rule of a track, and what became of it."""

    rule: str
    meaning: str
    """In the rule's own words."""
    needs: tuple[str, ...]
    verdict: Verdict
    words: str
    """What it said, or why it was not asked; empty where it had nothing to say."""


@dataclass(frozen=True)
class Outcome:
    """What a later record says about an act."""

    seq: int
    ok: bool
    error: str


@dataclass(frozen=True)
class Act:
    """One action of the decision."""

    verb: str
    reason: str
    key: str
    has_effect: bool
    """It reaches the world; the others are done by being recorded."""
    outcomes: list[Outcome]


@dataclass(frozen=True)
class Explanation:
    """One decision, explained; `replayed` is what this core decides of the same inputs."""

    seq: int
    epoch: int
    at: Instant
    core_version: str
    replayed: Replayed
    rule: str
    reason: str
    acts: list[Act]
    notes: list[str]
    seen: list[Input]
    remembered: list[Input]
    gang: list[RuleTurn]
    plan: list[RuleTurn]
    refused: list[Alternative]


@dataclass(frozen=True)
class Pointer:
    """What a record is that is no decision, and the decision that it belongs to."""

    seq: int
    kind: str
    decision: int | None


def explain(
    records: Iterable[VersionedRecord], seq: int, core_version: str, show: Show
) -> Explanation | Pointer | None:
    """Return why record `seq` was decided, what it is instead, or None where there is none."""
    stream = iter(records)
    memory: Memory | None = None
    decision: VersionedRecord | None = None
    for record in stream:
        if record.kind == "decision":
            decision = record
        if record.seq == seq:
            break
        memory = fold(memory, record)
    else:
        return None
    if record.kind != "decision" or memory is None:
        is_part = record.kind == "outcome" and decision is not None
        return Pointer(seq, record.kind, decision.seq if is_part and decision else None)
    return _explain_decision(record, memory, list(_list_outcomes(stream)), core_version, show)


def _list_outcomes(records: Iterator[VersionedRecord]) -> Iterator[tuple[str, Outcome]]:
    for record in records:
        if record.kind == "outcome":
            ok, error = bool(record.body["ok"]), str(record.body["error"])
            yield str(record.body["key"]), Outcome(record.seq, ok, error)


def _explain_decision(
    record: VersionedRecord,
    memory: Memory,
    outcomes: Sequence[tuple[str, Outcome]],
    core_version: str,
    show: Show,
) -> Explanation:
    replayed = replay_one(record, memory, core_version)
    snapshot, actions = replayed.snapshot, read_actions(record.body)
    after = fold(memory, record)
    uid = memory.policy.run_uid
    return Explanation(
        seq=record.seq,
        epoch=record.epoch,
        at=record.at,
        core_version=record.core_version,
        replayed=replayed,
        rule=str(record.body["rule"]),
        reason=str(record.body["reason"]),
        acts=[_describe_act(it, uid, outcomes) for it in actions if not isinstance(it, Note)],
        notes=[f"{it.subject}: {it.reason or 'is over'}" for it in actions if isinstance(it, Note)],
        seen=describe_snapshot(snapshot, memory, show),
        remembered=describe_memory(memory, show),
        gang=hear(GANG, snapshot, memory),
        plan=hear(PLAN, snapshot, memory),
        refused=[it for act in actions for it in list_alternatives(snapshot, memory, after, act)],
    )


def _describe_act(action: Action, uid: str, outcomes: Sequence[tuple[str, Outcome]]) -> Act:
    key = key_of(uid, action)
    own = [outcome for of, outcome in outcomes if of == key]
    failed = list(takewhile(lambda it: not it.ok, own))
    told = own[: len(failed) + 1]  # What comes after the first success is a repetition.
    return Act(
        verb=action.verb,
        reason=action.reason,
        key=key,
        has_effect=isinstance(action, EFFECTS),
        outcomes=told[-MAX_OUTCOMES:],
    )


def hear(rules: Sequence[Rule], snapshot: Snapshot, memory: Memory) -> list[RuleTurn]:
    """Return what became of every rule of one track, in order."""
    turns = {turn.rule.name: turn for turn in walk(rules, snapshot, memory)}
    unknown = unknown_fields(snapshot)
    winner = next((name for name, turn in turns.items() if not turn.wait_ms), None)
    found: list[RuleTurn] = []
    is_over = False
    for rule in rules:
        blind = [name for name in rule.needs if name in unknown]
        verdict, words = _judge(turns.get(rule.name), snapshot, blind)
        if is_over:
            verdict, words = "after", ""
        meaning = (getdoc(rule.ask) or "").partition("\n")[0]
        found.append(RuleTurn(rule.name, meaning, rule.needs, verdict, words))
        is_over = is_over or rule.name == winner
    return found


def _judge(turn: Turn | None, snapshot: Snapshot, blind: Sequence[str]) -> tuple[Verdict, str]:
    if blind:
        return "blind", "; ".join(f"{name} is unknown: {_why(snapshot, name)}" for name in blind)
    if turn is None:
        return "silent", ""
    if turn.wait_ms:
        wait = show_seconds(turn.wait_ms)
        return "waits", f"intended a moment ago, waits {wait}: {turn.answer.reason}"
    return ("acted" if turn.answer.actions else "held"), turn.answer.reason


def _why(snapshot: Snapshot, field: str) -> str:
    value: object = getattr(snapshot, field)
    assert isinstance(value, Unknown)
    return value.unknown
