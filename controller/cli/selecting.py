"""Which records of a ledger somebody wants to see: by kind, rule, verb, and time or number."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast, get_args

from pydantic_core import PydanticCustomError

from controller.cli.orders import LogOrder
from controller.core.actions import Action
from controller.core.decide import BOTH, GANG, NOTES, PLAN
from controller.core.declared.fields import parse_duration
from controller.core.declared.problems import Problem, SpecError, show_value, suggest_name
from controller.ports import LedgerRecord

KINDS = ("run", "policy", "epoch", "decision", "outcome")
RULES = (*(rule.name for rule in (*GANG, *PLAN)), NOTES)
VERBS = tuple(str(it.model_fields["verb"].default) for it in get_args(get_args(Action)[0]))
MS_PER_S = 1_000
WHEN = (
    'it must be an instant with an offset such as "2027-01-31T18:00:00+01:00", a duration ago such'
    ' as "2h", or the number of a record such as "#17"'
)
MOST_LAST = 1_000_000
MOST_DIGITS = 12
NOT_BEFORE, NOT_AFTER = "--since", "--until"

Refuse = Callable[[str, object, str], None]


@dataclass(frozen=True)
class Bound:
    """An end of a span of records: an instant or a number, both included."""

    wall_ms: int | None = None
    seq: int | None = None

    def is_after(self, record: LedgerRecord) -> bool:
        """Return whether the record came before this."""
        if self.seq is not None:
            return record.seq < self.seq
        return self.wall_ms is not None and record.at.wall_ms < self.wall_ms

    def is_before(self, record: LedgerRecord) -> bool:
        """Return whether the record came after this."""
        if self.seq is not None:
            return record.seq > self.seq
        return self.wall_ms is not None and record.at.wall_ms > self.wall_ms


@dataclass(frozen=True)
class Selection:
    """What is asked for; None: whatever."""

    kinds: frozenset[str] | None = None
    rule: str | None = None
    verb: str | None = None
    since: Bound = Bound()
    until: Bound = Bound()

    def takes(self, record: LedgerRecord) -> bool:
        """Return whether the record is asked for."""
        return self.spans(record) and self._is_of_kind(record)

    def spans(self, record: LedgerRecord) -> bool:
        """Return whether the record lies between the two bounds."""
        return not (self.since.is_after(record) or self.until.is_before(record))

    def _is_of_kind(self, record: LedgerRecord) -> bool:
        if self.kinds is not None and record.kind not in self.kinds:
            return False
        if self.rule is not None and self.rule not in _rules_of(record):
            return False
        return self.verb is None or self.verb in _verbs_of(record)


def _rules_of(record: LedgerRecord) -> Sequence[str]:
    return str(record.body["rule"]).split(BOTH) if record.kind == "decision" else ()


def _verbs_of(record: LedgerRecord) -> Sequence[str]:
    if record.kind == "decision":
        actions = cast("list[Mapping[str, object]]", record.body["actions"])
        return [str(action["verb"]) for action in actions]
    return str(record.body["key"]).split("/")[2:3] if record.kind == "outcome" else ()


def read_selection(order: LogOrder) -> Selection:
    """Return what the options ask for.

    Raises:
        SpecError: one of them cannot be meant; says all that are wrong.
    """
    problems = list[Problem]()

    def refuse(field: str, value: object, bound: str) -> None:
        again = f"Next: ctl log {order.name} --last 20"
        problems.append(Problem("log.option", field, show_value(value), bound, again))

    kinds = order.kind.split(",") if order.kind is not None else []
    for kind in kinds:
        _check_name("--kind", kind, KINDS, refuse)
    if order.rule is not None:
        _check_name("--rule", order.rule, RULES, refuse)
    if order.verb is not None:
        _check_name("--verb", order.verb, VERBS, refuse)
    if order.last is not None and not 1 <= order.last <= MOST_LAST:
        refuse("--last", order.last, f"it must be 1 to {MOST_LAST}")
    since, until = (_read_when(*it, refuse) for it in _list_bounds(order))
    if problems:
        raise SpecError(problems)
    return Selection(frozenset(kinds) or None, order.rule, order.verb, since, until)


def _list_bounds(order: LogOrder) -> Sequence[tuple[str, str | None]]:
    return (NOT_BEFORE, order.since), (NOT_AFTER, order.until)


def _check_name(field: str, name: str, known: Sequence[str], refuse: Refuse) -> None:
    if name not in known:
        refuse(field, name, f"it is not known. {suggest_name(name, known)}")


def read_number(text: str) -> int | None:
    """Return the number of a record, `17` or `#17`; None where it is something else."""
    digits = text.removeprefix("#")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS
    return int(digits) if is_number else None


def _read_when(field: str, text: str | None, refuse: Refuse) -> Bound:
    if text is None:
        return Bound()
    if (seq := read_number(text)) is not None:
        return Bound(seq=seq)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        if moment.tzinfo is not None:
            return Bound(wall_ms=round(moment.timestamp() * MS_PER_S))
    try:
        return Bound(wall_ms=round(time.time() * MS_PER_S) - parse_duration(text))
    except PydanticCustomError:
        refuse(field, text, WHEN)
        return Bound()
