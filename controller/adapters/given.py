"""Reads a file that the owner names: a run file, drills, a mixture, an execution.

Whatever the path leads to, nothing waits and nothing grows: a pipe that nobody writes to, a device
without an end or a file of gigabytes is refused before a byte of it is read.
"""

import errno
import os
import stat
from pathlib import Path

from controller.core.declared.problems import Problem, SpecError

MAX_BYTES = 1 << 20
"""Four for each character that the reader of YAML takes."""
KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""How a file in UTF-16 begins; UTF-32 begins with one of them, or with zeros."""
FOUR_ZEROS = b"\0\0\xfe\xff"


def read_given_text(path: Path, field: str, advice: str) -> str:
    """Return the text of the file at `path`; `field` and `advice` are for messages.

    Raises:
        SpecError: it is missing, unreadable, no regular file, too large or no UTF-8, or its
            path is none.
    """
    shown = f'"{path}"'
    if not _is_utf8(path):
        bound = "its whole path must be UTF-8 text: it is recorded with the run"
        raise SpecError([Problem("file.name", field, shown, bound, advice)])
    try:
        data = _read_bounded(path)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise SpecError([_explain(error, field, shown, advice)]) from error
    if isinstance(data, str):
        bound = f"it must be a regular file; this is {data}"
        raise SpecError([Problem("file.kind", field, shown, bound, advice)])
    if len(data) > MAX_BYTES:
        bound = f"it must have at most {MAX_BYTES:,} bytes"
        raise SpecError([Problem("file.size", field, shown, bound, advice)])
    if data.startswith((*WIDE_MARKS, FOUR_ZEROS)):
        bound = "it must be UTF-8 text; this is UTF-16 or UTF-32"
        raise SpecError([Problem("file.encoding", field, shown, bound, advice)])
    try:
        return data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        bound = f"it must be UTF-8 text; byte 0x{data[error.start]:02x} in line {line} is not"
        raise SpecError([Problem("file.encoding", field, shown, bound, advice)]) from error


def _is_utf8(path: Path) -> bool:
    """Return whether the whole path is text: Python reads other bytes as surrogates."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_bounded(path: Path) -> bytes | str:
    """Return at most one byte more than is allowed, or what the path leads to instead."""
    # Without O_NONBLOCK, opening a pipe waits for somebody who writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            return next((words for is_kind, words in KINDS if is_kind(mode)), "something else")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def _explain(error: OSError | ValueError, field: str, shown: str, advice: str) -> Problem:
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOENT, errno.ENOTDIR):
        bound = "it must be readable; there is no such file"
        return Problem("file.missing", field, shown, bound, advice)
    if number == errno.ELOOP:
        bound = "it must be a file; these symbolic links lead to each other"
        return Problem("file.loop", field, shown, bound, advice)
    if number == errno.ENXIO:
        bound = "it must be a regular file; this is a socket or a device without its driver"
        return Problem("file.kind", field, shown, bound, advice)
    why = error.strerror if isinstance(error, OSError) else "it is no path"
    return Problem("file.unreadable", field, shown, f"it must be readable ({why})", advice)
