"""Renders what a ledger holds: its records, the verbs of its decisions, the rules that decide."""

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

from controller.core.actions import DESTRUCTIVE, Action
from controller.core.decide import EFFECTS, GANG, PLAN
from controller.core.rules import Rule
from controller.ports import LedgerRecord
from tools.docstrings import find_class, first_sentence, read_docstrings, render_table

ROOT = Path(__file__).parent.parent
COMMON = frozenset({"reason", "nonce", "verb"})
"""Members of every action."""

RECORD_KINDS = {
    "run": "The first record: `policy` of the run file and the genesis `plan`.",
    "policy": "The run file changed in what may change: the `policy` from now on, and `by` whom.",
    "epoch": "A controller took over.",
    "decision": "`rule`, `reason`, `actions`, `wake_in_ms` and the `snapshot` it rests on; written "
    "before anything is done. Whole for a reader after `controller.core.recording` unpacked it.",
    "outcome": "How one act went: its `key`, whether it was done, and the words of what was not.",
}
"""Kind -> what its body says. The test compares the kinds with those that the fold knows."""

RECORD_MEMBERS = {
    "v": "Version of this form.",
    "seq": "Number, from 1, without a gap.",
    "epoch": "The controller that wrote it; each has a file of its own.",
    "at": "Instant: wall clock, monotonic clock, boot.",
    "core_version": "Identity of the deciding core's sources.",
    "spec_sha": "Of the accepted run file.",
    "kind": "One of those below.",
    "body": "By kind, below.",
    "prev": "`hash` of the record before; 64 zeros before the first.",
    "hash": "sha256 of `prev` and all other members as canonical JSON.",
}


def render_ledger() -> str:
    """Return the page of records, verbs and rules."""
    return (
        "# The ledger\n\nOne record a line, canonical JSON. `ctl log NAME` shows them, `--verify`"
        " checks chain and anchors.\n\n"
        + render_table(("Member", "Meaning"), _list_members())
        + "\n## Kinds of records\n\n"
        + render_table(("Kind", "Body"), ((f"`{k}`", text) for k, text in RECORD_KINDS.items()))
        + "\n## Verbs\n\nActs of a decision. Each has a `reason` in words and a `nonce`; its key is"
        " (run uid, attempt, verb, subject, nonce).\n\n"
        + render_table(("Verb", "Members", "Effect", "Meaning"), map(_describe_verb, list_verbs()))
        + "\n## Rules of the gang\n\nIn order; the first that has something to say wins.\n\n"
        + _render_rules(GANG)
        + "\n## Rules of the plan\n\nAsked in the same pass, whatever the gang's rules say.\n\n"
        + _render_rules(PLAN)
    )


def list_verbs() -> tuple[type, ...]:
    """Return the classes of all acts, in the order they are declared."""
    return get_args(get_args(Action)[0])


def _list_members() -> Iterator[tuple[str, str]]:
    said = read_docstrings(find_class(LedgerRecord).body)
    for name in LedgerRecord.model_fields:
        yield f"`{name}`", RECORD_MEMBERS.get(name) or said[name]


def _describe_verb(action: type) -> tuple[str, str, str, str]:
    fields: dict[str, object] = action.model_fields  # pyright: ignore[reportAttributeAccessIssue]  all are models
    verb = fields["verb"].default  # pyright: ignore[reportAttributeAccessIssue]  a literal's
    members = ", ".join(f"`{name}`" for name in fields if name not in COMMON)
    return f"`{verb}`", members, _effect(action), first_sentence(action.__doc__)


def _effect(action: type) -> str:
    if action in DESTRUCTIVE:
        return "the world, after a fresh look"
    return "the world" if action in EFFECTS else "memory"


def _render_rules(rules: Iterable[Rule]) -> str:
    rows = (
        (
            f"`{rule.name}`",
            first_sentence(rule.ask.__doc__),
            ", ".join(f"`{name}`" for name in rule.needs) or "nothing",
            str(Path(inspect.getfile(rule.ask)).relative_to(ROOT)),
        )
        for rule in rules
    )
    return render_table(("Rule", "Meaning", "Silent without", "File"), rows)
