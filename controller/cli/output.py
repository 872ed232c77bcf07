"""The only printer: data to stdout, talk to stderr."""

import contextlib
import errno
import itertools
import json
import os
import select
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TextIO

CLEAR = "\x1b[H\x1b[J"
LAYOUT = "\t\n"
DIRECTIONS = (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Marks that let a terminal show letters in another order than they stand."""
UNSHOWN = (*range(32), *range(127, 160), *DIRECTIONS)
CONTROLS = dict.fromkeys(code for code in UNSHOWN if chr(code) not in LAYOUT)


class Unwritable(Exception):
    """The data could not be printed: the command failed, whatever it found."""


def clean(text: str) -> str:
    """Return the text without control characters: what comes from files must not steer a terminal.

    New lines and tabs stay.
    """
    return text.translate(CONTROLS)


def emit(text: str) -> None:
    """Print data."""
    _print(f"{clean(text)}\n")


def tell(text: str) -> None:
    """Say something to the person at the terminal; where none listens, what is done goes on."""
    try:
        _write(sys.stderr, f"{clean(text)}\n")
    except OSError:
        _give_up(sys.stderr)


def _print(text: str) -> None:
    """Write data; raises Unwritable, or a broken pipe's own error, which ends `ctl` quietly."""
    try:
        _write(sys.stdout, text)
    except OSError as error:
        _give_up(sys.stdout)
        if error.errno == errno.EPIPE:
            raise
        raise Unwritable(f"cannot write the output: {error.strerror}") from error


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _give_up(stream: TextIO) -> None:
    """Let what waits in the stream's buffer go nowhere: Python writes it once more when it ends."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def emit_json(value: object) -> None:
    """Print a value as JSON for people and programs."""
    emit(json.dumps(value, indent=2, ensure_ascii=False))


def emit_table(rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows in aligned columns."""
    emit("\n".join(align(list(rows))))


def align(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the rows with every column but the last padded to its widest cell.

    On a terminal, what does not fit its width goes on in the last column, or, where that is
    narrow, under the first; words are never broken, so that what is copied is whole. In a file or
    a pipe a row is a line.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    columns = measure_width()
    if columns is None:
        return aligned
    indent = sum(widths[:-1]) + len("  ") * (len(widths) - 1)
    wrap = _wrap_under if indent > columns // 2 else _wrap_last
    return [part for line in aligned for part in wrap(line, columns, indent)]


HANG = "    "
"""What a row that goes on under its first word begins with."""


def _wrap_last(line: str, columns: int, indent: int) -> list[str]:
    """Return the row with its last column, `indent` columns in, as a block."""
    return _wrap(line[indent:], columns, line[:indent], " " * indent)


def _wrap_under(line: str, columns: int, indent: int) -> list[str]:
    """Return the row as a paragraph: its columns leave no room for a block."""
    del indent
    if len(line) <= columns:
        return [line]
    lead = line[: len(line) - len(line.lstrip())]
    return _wrap(" ".join(line.split()), columns, lead, lead + HANG)


def _wrap(text: str, columns: int, lead: str, hang: str) -> list[str]:
    # A word longer than a line is left to the terminal, which cuts nothing away.
    return textwrap.wrap(
        text, columns, initial_indent=lead, subsequent_indent=hang,
        break_long_words=False, break_on_hyphens=False,
    ) or [lead]  # fmt: skip


def measure_width() -> int | None:
    """Return the columns of the terminal that stdout is, None where it is none."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def fit(text: str, more: str) -> str:
    """Return the first lines of `text` that the terminal has room for; `more` shows the rest."""
    size, lines = shutil.get_terminal_size(), text.splitlines()
    heights = [max(1, -(-len(line) // size.columns)) for line in lines]
    room = size.lines - KEPT_LINES
    if sum(heights) <= room:
        return text
    room -= -(-len(more) // size.columns)
    count = sum(1 for total in itertools.accumulate(heights) if total <= room)
    return "\n".join([*lines[: max(1, count)], more])


KEPT_LINES = 3
"""For a bar above, and the cursor below."""


def redraw(text: str) -> None:
    """Replace what stands on the terminal."""
    _print(f"{CLEAR}{clean(text)}\n")


def is_unread() -> bool:
    """Return whether whoever read stdout is gone, so that nothing need be waited for."""
    poll = select.poll()
    try:
        poll.register(sys.stdout, 0)
    except (OSError, ValueError):
        return False  # No file at all.
    return any(event & select.POLLERR for _, event in poll.poll(0))


def is_terminal() -> bool:
    """Return whether a person looks at stdout."""
    return sys.stdout.isatty()


def can_redraw() -> bool:
    """Return whether stdout is a terminal that can be drawn on, and has room for it."""
    size = shutil.get_terminal_size()
    is_large = size.columns >= MIN_COLUMNS and size.lines >= MIN_LINES
    return is_terminal() and is_large and os.environ.get("TERM", "dumb") not in ("dumb", "")


MIN_COLUMNS = 30
MIN_LINES = 10
