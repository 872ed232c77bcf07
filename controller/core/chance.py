"""A probability and a number of things in words, wherever they are said."""

PERMILLE = 10
"""Permille in a percent: probabilities are recorded in whole permille."""
CERTAIN = 1_000


def show_chance(permille: int, *, is_certain: bool = False) -> str:
    """Return a probability in percent; what was rounded to 0 or 1 is not called certain."""
    if not is_certain and permille <= 0:
        return "<0.1%"
    if not is_certain and permille >= CERTAIN:
        return ">99.9%"
    return f"{permille / PERMILLE:g}%"


def count_of(number: int, noun: str) -> str:
    """Return `1 stage`, `2 stages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
