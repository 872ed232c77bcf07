"""`ctl log`: every decision of a run in words, and whether the record is whole."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from controller.cli import deps, explaining, following, output, replaying
from controller.cli.codes import Code
from controller.cli.entries import describe_damage, show_record
from controller.cli.orders import LogOrder
from controller.cli.peek import look
from controller.cli.selecting import read_selection
from controller.core.chance import count_of
from controller.core.declared.problems import Problem, SpecError
from controller.ports import LedgerRecord


class FindingLike(Protocol):
    """One thing that verifying found."""

    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def is_damage(self) -> bool: ...


class Judged(Protocol):
    """What verifying a ledger returns."""

    @property
    def num_records(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def findings(self) -> Sequence[FindingLike]: ...


FORMS: Mapping[str, tuple[str, ...]] = {
    "--verify": ("text",),
    "--explain": ("text", "json"),
    "--replay": ("text", "json"),
    "--follow": ("text", "jsonl"),
}
"""What each way of asking can be answered in."""
LIST_FORMS = ("text", "json", "jsonl")


def show_log(order: LogOrder) -> int:
    """Print what is asked about the ledger; return the exit code.

    Raises:
        SpecError: the options cannot be meant, or do not go together.
        PortError: no such run, or its ledger is missing.
    """
    _check_order(order)
    selection = read_selection(order)
    run = deps.read_run(order.runs_dir, order.name)
    directory = run.directory
    if (origin := look(directory).copy_of) is not None:
        output.tell(f"{directory} is a copy of the run launched in {origin}")
    if order.verify:
        return _verify(order.name, deps.verify_ledger(run))
    if order.explain is not None:
        return explaining.explain_decision(directory, order.explain, form=order.form)
    if order.replay:
        return replaying.replay_ledger(directory, selection, form=order.form)
    if order.follow:
        return following.follow_ledger(directory, selection, last=order.last, form=order.form)
    scan = deps.scan_ledger(directory)
    records = filter(selection.takes, scan.records())
    _list(records if order.last is None else deque(records, order.last), order.form)
    if scan.damage is None:
        return Code.DONE
    output.tell(describe_damage(order.name, len(scan.hashes), scan.damage))
    return Code.FAILED


def _check_order(order: LogOrder) -> None:
    """Raise SpecError unless the options go together."""
    problems = list[Problem]()
    again = f"Next: ctl log {order.name}"
    if len(order.modes) > 1:
        bound = f"it does not go with {', '.join(order.modes[1:])}"
        problems.append(Problem("log.option", order.modes[0], None, bound, again))
    if order.filters and order.modes[:1] in (["--verify"], ["--explain"]):
        bound = f"it does not go with {order.modes[0]}"
        problems.append(Problem("log.option", order.filters[0], None, bound, again))
    forms = FORMS[order.modes[0]] if order.modes else LIST_FORMS
    if order.form not in forms:
        bound = f"it must be {' or '.join(forms)}"
        if order.modes:
            bound += f" with {order.modes[0]}"
        problems.append(Problem("log.option", "--output", f'"{order.form}"', bound, again))
    if problems:
        raise SpecError(problems)


def _list(records: Iterable[LedgerRecord], form: str) -> None:
    if form == "json":
        output.emit_json([record.model_dump(mode="json") for record in records])
        return
    for record in records:
        output.emit(show_record(record, form))


def _verify(name: str, found: Judged) -> int:
    for finding in found.findings:
        label = "DAMAGE" if finding.is_damage else "note"
        output.emit(f"{label}  {finding.kind}: {finding.text}")
    if any(finding.is_damage for finding in found.findings):
        return Code.FAILED
    missing = sum(finding.kind == "unanchored" for finding in found.findings)
    anchors = f"; {missing} checkpoints hold no anchor" if missing else ""
    size = f"{count_of(found.num_records, 'record')} ({show_bytes(found.num_bytes)})"
    output.emit(f"{name}: {size}; chain and anchors in checkpoints hold{anchors}")
    return Code.DONE


def show_bytes(number: int) -> str:
    """Return a size as `12 kB` or `1.73 MB`."""
    return f"{number / MB:.2f} MB" if number >= MB else f"{-(-number // KB)} kB"


KB, MB = 1_000, 1_000_000
