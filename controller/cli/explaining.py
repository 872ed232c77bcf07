"""`ctl log --explain`: one decision with all that it rested on, rule by rule."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.entries import describe_damage, describe_unreadable
from controller.cli.output import align
from controller.cli.selecting import read_number
from controller.cli.wording import show_instant
from controller.core.declared.problems import Problem, SpecError, show_value
from controller.core.recording import FOREIGN
from controller.core.telling.differences import compare_decisions
from controller.core.telling.explain import Act, Explanation, Pointer, RuleTurn, explain
from controller.core.telling.inputs import Input
from controller.ports import Damaged

LAST = "last"
MS_PER_S = 1_000
INDENT = "  "
LABELS = {
    "acted": "ACTED",
    "held": "HELD on purpose",
    "waits": "WAITS",
    "silent": "nothing to say",
    "blind": "NOT ASKED",
    "after": "not asked any more",
}
KINDS = {
    "run": "the run as it was launched: its policy and its first plan",
    "policy": "a change of the run file that its owner made while no controller ran",
    "epoch": "the begin of a controller",
    "outcome": "how an act went",
}


def explain_decision(directory: Path, which: str, *, form: str) -> int:
    """Print why record `which`, a number or `last`, was decided; return the exit code.

    Raises:
        SpecError: there is no such record.
        Damaged: the ledger is false before it, or a record has a form that this core cannot read.
    """
    name, seq = directory.name, _find_record(directory, which)
    scan = deps.scan_ledger(directory)
    show = show_instant if form == "text" else show_utc
    try:
        found = explain(scan.records(), seq, deps.core_version(), show)
    except FOREIGN as error:
        raise Damaged(describe_unreadable(f"a record up to {seq}", error)) from error
    if found is None and scan.damage is not None:
        raise Damaged(describe_damage(name, len(scan.hashes), scan.damage))
    if found is None:
        _refuse(name, which, f"it must be 1 to {len(scan.hashes)}")
    if isinstance(found, Pointer):
        output.tell(_describe_pointer(found))
        return _explain_other(directory, found, form)
    if form == "json":
        output.emit_json(_dump(found))
    else:
        output.emit("\n".join(_describe(name, found)))
    return Code.DONE


def _find_record(directory: Path, which: str) -> int:
    if (number := read_number(which)) is not None:
        return number
    if which != LAST:
        _refuse(directory.name, which, f'it must be the number of a record, or "{LAST}"')
    newest = 0
    for record in deps.scan_ledger(directory).records():
        newest = record.seq if record.kind == "decision" else newest
    if not newest:
        _refuse(directory.name, which, "no decision is recorded yet")
    return newest


def _refuse(name: str, which: str, bound: str) -> NoReturn:
    again = f"Next: ctl log {name} --kind decision"
    raise SpecError([Problem("log.option", "--explain", show_value(which), bound, again)])


def _describe_pointer(found: Pointer) -> str:
    words = f"record {found.seq} is no decision: {KINDS.get(found.kind, found.kind)}"
    if found.decision is None:
        return words
    return f"{words}. It belongs to decision {found.decision}:"


def _explain_other(directory: Path, found: Pointer, form: str) -> int:
    if found.decision is None:
        return Code.DONE
    return explain_decision(directory, str(found.decision), form=form)


# --- in words ---


def _describe(name: str, found: Explanation) -> Iterator[str]:
    yield f"decision {found.seq} of {name}: {found.rule}: {found.reason}"
    at = show_instant(found.at.wall_ms)
    yield f"{INDENT}{at}, by the controller of epoch {found.epoch}, core {found.core_version}"
    yield f"{INDENT}{_describe_repetition(found)}"
    yield from (f"{INDENT * 2}{line}" for line in compare_decisions(found.replayed))
    yield from _list_inputs("what was seen", found.seen)
    yield from _list_inputs("what was remembered", found.remembered)
    yield from _list_rules("the gang's rules, first to last", found.gang)
    yield from _list_rules("the plan's rules, first to last", found.plan)
    yield "what was decided"
    for act in found.acts:
        yield f"{INDENT}{act.verb}: {act.reason}"
        yield f"{INDENT * 2}key {act.key}"
        yield from (f"{INDENT * 2}{line}" for line in _describe_outcomes(act))
    yield from (f"{INDENT}note: {note}" for note in found.notes)
    if found.refused:
        yield "what was not done instead, and why"
        rows = [(INDENT + it.what, it.why) for it in found.refused]
        yield from align(rows)


def _describe_repetition(found: Explanation) -> str:
    if found.replayed.is_equal:
        return "this core decides the same of the same inputs, bit for bit"
    if not compare_decisions(found.replayed):
        return "this core decides the same of the same inputs, written in another form"
    return "this core decides otherwise of the same inputs; the rules below are this core's:"


def _list_inputs(title: str, inputs: Sequence[Input]) -> Iterator[str]:
    yield title
    yield from align([(INDENT + it.name, it.words) for it in inputs])


def _list_rules(title: str, turns: Sequence[RuleTurn]) -> Iterator[str]:
    yield title
    yield from align([_describe_turn(it) for it in turns])


def _describe_turn(turn: RuleTurn) -> tuple[str, str, str]:
    mark = "> " if turn.verdict in ("acted", "held") else INDENT
    needs = f" [needs {', '.join(turn.needs)}]" if turn.needs else ""
    said = f"{turn.words} -- " if turn.words else ""
    return f"{mark}{turn.rule}", LABELS[turn.verdict], f"{said}{turn.meaning}{needs}"


def _describe_outcomes(act: Act) -> Iterator[str]:
    if not act.has_effect:
        yield "done by being recorded"
    elif not act.outcomes:
        yield "no outcome is recorded: an act before it failed, or the controller ended"
    for outcome in act.outcomes:
        yield f"{'done' if outcome.ok else outcome.error} (record {outcome.seq})"


# --- for programs ---


def show_utc(wall_ms: int) -> str:
    """Return an instant as it stands in data."""
    moment = datetime.fromtimestamp(wall_ms / MS_PER_S, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _dump(found: Explanation) -> dict[str, object]:
    return {
        "seq": found.seq,
        "epoch": found.epoch,
        "at": found.at.wall_ms,
        "core_version": found.core_version,
        "rule": found.rule,
        "reason": found.reason,
        "repeated": {
            "by": deps.core_version(),
            "is_equal": found.replayed.is_equal,
            "differences": compare_decisions(found.replayed),
        },
        "seen": [it._asdict() for it in found.seen],
        "remembered": [it._asdict() for it in found.remembered],
        "gang_rules": [asdict(it) for it in found.gang],
        "plan_rules": [asdict(it) for it in found.plan],
        "acts": [asdict(it) for it in found.acts],
        "notes": found.notes,
        "refused": [it._asdict() for it in found.refused],
    }
