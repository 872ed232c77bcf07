"""A probability and a number of things in words, wherever they are said."""

PERMILLE = 10
"""Permille in a percent: probabilities are recorded in whole permille. Here, because words about a
status must load no model."""
CERTAIN = 1_000


def show_chance(permille: int, *, is_certain: bool = False) -> str:
    """Return a probability in percent; what was rounded to 0 or 1 is not called certain."""
    if not is_certain and permille <= 0:
        return "<0.1%"
    if not is_certain and permille >= CERTAIN:
        return ">99.9%"
    return f"{permille / PERMILLE:g}%"


def is_settled(at: object, due: object, step: object, total_steps: object) -> bool:
    """Return whether a forecast made at `at` is certain: all is done, or the due instant passed.

    Takes what a record or status.json holds; what is no number settles nothing.
    """
    is_past = isinstance(at, int) and isinstance(due, int) and due <= at
    return is_past or (isinstance(step, int) and step == total_steps)


def count_of(number: int, noun: str) -> str:
    """Return `1 stage`, `2 stages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
