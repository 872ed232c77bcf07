"""Errors that are meant for people, as words and an exit code.

Told apart by name: importing their classes would load models before anything went wrong.
"""

import errno
from dataclasses import dataclass

from controller.cli.codes import Code


@dataclass(frozen=True)
class Failure:
    """What to say, and how to leave."""

    text: str
    code: Code


CODES = {
    "SpecError": Code.BAD_INPUT,
    "Refused": Code.BAD_INPUT,
    "Unavailable": Code.FAILED,
    "Damaged": Code.FAILED,
    "PortError": Code.FAILED,
    "Unwritable": Code.FAILED,
}


def explain_failure(error: BaseException) -> Failure | None:
    """Return what people are told; None for a broken assumption of ours, which needs a trace."""
    for kind in type(error).__mro__:
        if kind.__name__ in CODES and kind.__module__.startswith("controller."):
            return Failure(str(error), CODES[kind.__name__])
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        where = f" {error.filename}" if error.filename else ""  # stdout has none
        return Failure(f"cannot write{where}: {error.strerror}", Code.FAILED)
    return None
