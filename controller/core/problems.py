"""What is wrong with a file that a person wrote, said so that it can be put right."""

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
        """Return the message as people see it."""
        subject = f"{self.field}: " if self.value is None else f"{self.field} is {self.value}; "
        stop = "" if self.bound.endswith("?") else "."
        return f"{subject}{self.bound}{stop} {self.next}"


class SpecError(ValueError):
    """A run file, or another file of the owner's, that cannot be used."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def show_value(value: object) -> str:
    """Return `value` as it would stand in JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


MAX_SHOWN = 60


def suggest_name(wrong: str, known: Sequence[str]) -> str:
    """Return a sentence about the nearest known name, or the list of all of them."""
    near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.6)
    if near:
        return f'Did you mean "{near[0]}"?'
    return f"Known: {', '.join(sorted(known))}"
