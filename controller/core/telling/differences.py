"""How two decisions on the same inputs differ, in lines that people read.

`+ kill_ranks attempt 2, ranks 3` is an act that was not decided then, `- ...` one that would not be
decided now, and `propose: proposal.fork_first: 144 -> 152` a member that has another value.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from controller.core.actions import Action
from controller.core.recording import read_actions
from controller.core.telling.replay import Replayed

Members = Mapping[str, object]

MAX_LINES = 20
"""Of one decision; the rest is counted."""
MAX_CHARS = 160
"""Of one value."""
HIDDEN = frozenset({"verb", "nonce", "reason"})
"""Members that say little about an act that has no counterpart."""
TELLING = ("id", "kind", "verb", "user", "mode", "total_steps", "effective")
"""Members of what such an act carries that say what it is."""
SHA = re.compile(r"[0-9a-f]{64}")
SHA_CHARS = 12


def compare_decisions(replayed: Replayed) -> list[str]:
    """Return how the repeated decision differs from the recorded one, most telling first.

    Empty where both decide the same, be it written in another form.
    """
    before, after = (_read(data) for data in (replayed.recorded, replayed.repeated))
    lines = [
        *_compare_member("rule", before, after),
        *_compare_member("reason", before, after),
        *_compare_actions(*(_read_acts(it) for it in (before, after))),
        *_compare_member("wake_in_ms", before, after),
    ]
    more = len(lines) - MAX_LINES
    return lines if more <= 0 else [*lines[:MAX_LINES], f"and {more} lines more"]


def _read(data: bytes) -> Members:
    return cast("Members", json.loads(data))


def _read_acts(body: Members) -> list[Action]:
    """Return the acts, without the words that they share with the decision."""
    actions = read_actions(body)
    return [
        it.model_copy(update={"reason": ""}) if it.reason == body["reason"] else it
        for it in actions
    ]


def _compare_member(name: str, before: Members, after: Members) -> Iterator[str]:
    if before[name] != after[name]:
        # Where no rule has anything to say, none is named.
        left, right = (_show(it[name]) or "none" for it in (before, after))
        yield f"{name}: {left} -> {right}"


def _compare_actions(before: Sequence[Action], after: Sequence[Action]) -> Iterator[str]:
    """Pair the acts by verb and subject, else by verb, in order; tell those left and changed."""
    rest = list(after)
    for action in before:
        match = _find_match(action, rest)
        if match is None:
            yield f"- {describe_act(action)}"
            continue
        rest.remove(match)
        yield from _compare_values(action.verb, _dump(action), _dump(match))
    yield from (f"+ {describe_act(action)}" for action in rest)


def _find_match(action: Action, others: Sequence[Action]) -> Action | None:
    same = [it for it in others if it.verb == action.verb]
    closest = [it for it in same if it.subject_of == action.subject_of]
    return next(iter([*closest, *same]), None)


def _dump(action: Action) -> Members:
    return action.model_dump(mode="json")


def _compare_values(path: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        left, right = cast("Members", before), cast("Members", after)
        for name in [*left, *(it for it in right if it not in left)]:
            dots = "." if "." in path or ": " in path else ": "
            yield from _compare_values(f"{path}{dots}{name}", left.get(name), right.get(name))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _compare_lists(path, cast("list[object]", before), cast("list[object]", after))
    else:
        yield from _compare_plain(path, cast("object", before), after)


def _compare_plain(path: str, before: object, after: object) -> Iterator[str]:
    if before != after or type(before) is not type(after):
        yield f"{path}: {_show(before)} -> {_show(after)}"


def _compare_lists(path: str, before: list[object], after: list[object]) -> Iterator[str]:
    if len(before) != len(after) or not any(isinstance(it, dict) for it in before):
        yield from _compare_plain(path, before, after)
        return
    for index, (left, right) in enumerate(zip(before, after, strict=True)):
        yield from _compare_values(f"{path}[{_name_of(left, index)}]", left, right)


def _name_of(value: object, index: int) -> object:
    """Return what a list's element is called where it has a name: a proof, a rank."""
    if isinstance(value, dict):
        members = cast("Members", value)
        return members.get("name", members.get("rank", index))
    return index


def describe_act(action: Action) -> str:
    """Return an act in short: its verb, and what is said of whom."""
    told = [
        f"{name} {_show_short(value)}"
        for name, value in _dump(action).items()
        if name not in HIDDEN and value is not None and value != []
    ]
    return f"{action.verb} {', '.join(told)}".rstrip()


def _show_short(value: object) -> str:
    if isinstance(value, list):
        items = cast("list[object]", value)
        is_plain = all(isinstance(it, int | str) for it in items)
        return " ".join(map(str, items)) if is_plain else f"({len(items)})"
    if isinstance(value, dict):
        members = cast("Members", value)
        kept = [f"{name} {members[name]}" for name in TELLING if members.get(name) is not None]
        return f"({', '.join(kept)})"
    return _show(value)


def _show(value: object) -> str:
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    if SHA.fullmatch(text):
        return text[:SHA_CHARS]
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."
