"""What is wrong with a file that a person wrote, said so that it can be put right."""

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast


@dataclass(frozen=True)
class Problem:
    """One violated rule: field, value, bound and the command to type next.

    `value` None: the field itself is the matter, and `bound` is a whole sentence.
    """

    rule: str
    field: str
    value: str | None
    bound: str
    next: str

    def __str__(self) -> str:
        """Return the message as people see it: cut, and without a character that hides or acts."""
        place = show_field(self.field)
        value = None if self.value is None else shorten(self.value, MAX_BOUND)
        subject = f"{place}: " if value is None else f"{place} is {value}; "
        stop = "" if self.bound.endswith("?") else "."
        # The next command is never cut: it is there to be copied.
        advice = shorten(self.next, len(self.next))
        return f"{subject}{shorten(self.bound, MAX_BOUND)}{stop} {advice}"


Finding = tuple[str, str, object, str]
"""Rule id, field, value (None: the sentence stands alone) and bound."""


class SpecError(ValueError):
    """A run file, or another file of the owner's, that cannot be used."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(it) for it in self.problems[:MAX_TOLD]]
        if (rest := len(self.problems) - MAX_TOLD) > 0:
            lines.append(f"... and {rest} more like these.")
        super().__init__("\n".join(lines))


MAX_TOLD = 20
"""Problems that are printed; more are counted."""
MAX_PROBLEMS = 200
"""Problems that are worked out; a file with more of them is no run file."""
MAX_SHOWN = 60
MAX_FIELD = 120
MAX_BOUND = 400
UNSEEN = re.compile(
    r"[^\S ]|[\x00-\x1f\x7f-\x9f]|[\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)
"""Layout, control and direction: shown by their code, so that a message is one honest line."""


def shorten(text: str, length: int = MAX_SHOWN) -> str:
    """Return the text in at most `length` characters, what cannot be seen by its code."""
    cut = text if len(text) <= length else f"{text[: length - 3]}..."
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", cut)


def show_value(value: object) -> str:
    """Return `value` as it would stand in JSON, shortened."""
    # A value may be as large as its file, and a list in it too: no more is written than shown.
    text = json.dumps(_cut(value), ensure_ascii=False, default=str)
    return shorten(text)


def _cut(value: object) -> object:
    """Return the part of a value that can be shown."""
    if isinstance(value, str):
        return value[: MAX_SHOWN + 1]
    if isinstance(value, dict):
        members = cast("dict[object, object]", value).items()
        return {str(name)[:MAX_SHOWN]: _cut(it) for name, it in islice(members, MAX_SHOWN)}
    if isinstance(value, list):
        return [_cut(it) for it in cast("list[object]", value)[:MAX_SHOWN]]
    return value


def show_field(path: str) -> str:
    """Return a dotted path, the end of it where it is too long."""
    parts = [shorten(part) for part in path.split(".")]
    text = ".".join(parts)
    return text if len(text) <= MAX_FIELD else f"...{text[3 - MAX_FIELD :]}"


def suggest_name(wrong: str, known: Sequence[str]) -> str:
    """Return a sentence about the nearest known name, or the list of all of them."""
    if len(wrong) <= MAX_SHOWN:
        near = difflib.get_close_matches(wrong, known[:MAX_PROBLEMS], n=1, cutoff=0.6)
        if near:
            return f'Did you mean "{near[0]}"?'
    return f"Known: {shorten(', '.join(sorted(known)), MAX_BOUND // 2)}"
