"""The only printer: data to stdout, talk to stderr."""

import json
import sys
from collections.abc import Iterable

CLEAR = "\x1b[H\x1b[J"
LAYOUT = "\t\n"
CONTROLS = dict.fromkeys(code for code in (*range(32), *range(127, 160)) if chr(code) not in LAYOUT)


def clean(text: str) -> str:
    """Return the text without control characters: what comes from files must not steer a terminal.

    New lines and tabs stay.
    """
    return text.translate(CONTROLS)


def emit(text: str) -> None:
    """Print data."""
    sys.stdout.write(f"{clean(text)}\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Say something to the person at the terminal."""
    sys.stderr.write(f"{clean(text)}\n")
    sys.stderr.flush()


def emit_json(value: object) -> None:
    """Print a value as JSON for people and programs."""
    emit(json.dumps(value, indent=2, ensure_ascii=False))


def emit_table(rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows in aligned columns."""
    emit("\n".join(align(list(rows))))


def align(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the rows with every column but the last padded to its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def redraw(text: str) -> None:
    """Replace what stands on the terminal."""
    sys.stdout.write(f"{CLEAR}{clean(text)}\n")
    sys.stdout.flush()


def is_terminal() -> bool:
    """Return whether a person looks at stdout."""
    return sys.stdout.isatty()
