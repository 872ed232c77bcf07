"""The only printer: data to stdout, talk to stderr."""

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterable
from typing import TextIO

CLEAR = "\x1b[H\x1b[J"
LAYOUT = "\t\n"
CONTROLS = dict.fromkeys(code for code in (*range(32), *range(127, 160)) if chr(code) not in LAYOUT)


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
    """Return the rows with every column but the last padded to its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def redraw(text: str) -> None:
    """Replace what stands on the terminal."""
    _print(f"{CLEAR}{clean(text)}\n")


def is_terminal() -> bool:
    """Return whether a person looks at stdout."""
    return sys.stdout.isatty()
