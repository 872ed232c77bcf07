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
MACHINE = frozenset({"Unavailable", "Damaged", "PortError"})
"""Failures that the machine or the run's files are to blame for."""


def explain_failure(error: BaseException) -> Failure | None:
    """Return what people are told; None for a broken assumption of ours, which needs a trace."""
    for kind in type(error).__mro__:
        if kind.__name__ in CODES and kind.__module__.startswith("controller."):
            return Failure(_advise(str(error), kind.__name__), CODES[kind.__name__])
    if isinstance(error, OSError):
        return Failure(_describe(error), Code.FAILED)
    return None


def _advise(text: str, kind: str) -> str:
    """Return the text with a next command: `doctor` looks at the disk and at every run."""
    has_advice = "Next:" in text or kind not in MACHINE
    return text if has_advice else f"{text}. Next: ctl doctor"


def _describe(error: OSError) -> str:
    """Return what could not be done: whatever the machine refuses is no mistake of ours."""
    verb = "cannot write" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "cannot use"
    why = error.strerror or str(error)
    if not error.filename:  # stdout has none
        return f"{verb}: {why}"
    return f"{verb} {error.filename}: {why}. Next: ctl doctor"
