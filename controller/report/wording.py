"""Quantities as people read them. Instants are in UTC, so that the page is the same everywhere."""

import re
from datetime import UTC, datetime

NOTHING = "-"
MS_PER_S = 1_000
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
UNITS = ((DAY_S, "d", HOUR_S, "h"), (HOUR_S, "h", MINUTE_S, "min"), (MINUTE_S, "min", 1, "s"))


def show_instant(wall_ms: int | None) -> str:
    """Return `2026-11-29 18:40:31 UTC`."""
    if wall_ms is None:
        return NOTHING
    return datetime.fromtimestamp(wall_ms / MS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def show_iso(text: object) -> str:
    """Return an instant of summary.json as the page writes instants."""
    if not isinstance(text, str):
        return NOTHING
    return show_instant(round(datetime.fromisoformat(text).timestamp() * MS_PER_S))


def show_duration(seconds: object) -> str:
    """Return a duration by its two largest units: `3 d 4 h`, `10 min 12 s`, `4.2 s`."""
    if not isinstance(seconds, int | float):
        return NOTHING
    sign, size = ("-" if seconds < 0 else ""), abs(seconds)
    for unit_s, name, part_s, part_name in UNITS:
        # What would round up to the next unit is written in it.
        if size >= unit_s - part_s / 2:
            parts = round(size / part_s)
            whole, rest = divmod(parts, unit_s // part_s)
            return f"{sign}{whole} {name}" + (f" {rest} {part_name}" if rest else "")
    return f"{sign}{size:.1f} s"


def show_number(value: object, digits: int = 0) -> str:
    """Return a number with separators; what is not known as a dash."""
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else NOTHING


def show_percent(value: object, digits: int = 1) -> str:
    """Return `91.2%` for 91.2."""
    return f"{value:,.{digits}f}%" if isinstance(value, int | float) else NOTHING


def show_chance(permille: int | None) -> str:
    """Return a probability in whole permille as percent."""
    if permille is None:
        return NOTHING
    # What rounds to an end of the scale is rarely there.
    ends = {0: "<0.1%", 1_000: ">99.9%"}
    return ends.get(permille, f"{permille / 10:.1f}%")


def show_share(value: object) -> str:
    """Return `91.2%` for a probability of 0.912."""
    return show_chance(round(1_000 * value)) if isinstance(value, int | float) else NOTHING


CONTROLS = dict.fromkeys(
    code
    for first, last in (
        (0x00, 0x08),
        (0x0B, 0x1F),
        (0x7F, 0x9F),
        (0x202A, 0x202E),
        (0x2066, 0x2069),
    )
    for code in range(first, last + 1)
)
"""Signs that steer terminals or turn the direction of a text; tabs and new lines stay."""
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)?")
"""What a terminal takes for orders: colours, moves, titles."""


def plain(text: str) -> str:
    """Return text as it would be read aloud: nothing that steers what shows it."""
    return ESCAPES.sub("", text).translate(CONTROLS).encode(errors="replace").decode()


def count_of(count: int, noun: str) -> str:
    """Return `1 step`, `2 steps`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
