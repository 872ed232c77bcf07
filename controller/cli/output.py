"""The only printer: data to stdout, talk to stderr."""

import json
import sys
from collections.abc import Iterable

CLEAR = "\x1b[H\x1b[J"


def emit(text: str) -> None:
    """Print data."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Say something to the person at the terminal."""
    sys.stderr.write(f"{text}\n")
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
    sys.stdout.write(f"{CLEAR}{text}\n")
    sys.stdout.flush()


def is_terminal() -> bool:
    """Return whether a person looks at stdout."""
    return sys.stdout.isatty()
