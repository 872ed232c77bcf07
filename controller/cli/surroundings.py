"""What a command finds itself in: closed streams, and other packages of our names.

Loads no model: asked before every command.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import TextIO

import controller

STREAMS = ("stdin", "stdout", "stderr")


def open_streams() -> None:
    """Give a command that was started with closed streams ones that lead nowhere.

    Else the next file that is opened, a lock, is what a child takes for its stdout.
    """
    for number, name in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, _open_nowhere(number))


def _open_nowhere(number: int) -> TextIO:
    return os.fdopen(number, "r" if number == 0 else "w", closefd=False)


def find_stranger() -> str | None:
    """Return what is wrong with the packages beside this one, None where all is well.

    A `contract` of somebody else's, in the folder where the command was typed or on PYTHONPATH,
    would be loaded in the place of ours.
    """
    home = Path(controller.__file__).parent.parent
    spec = importlib.util.find_spec("contract")
    found = None if spec is None or spec.origin is None else Path(spec.origin).parent
    if found == home / "contract":
        return None
    if found is None:
        return f"{home / 'contract'} is missing. Next: install steersman anew"
    return (
        f"the package contract is found in {found}, not beside {home / 'controller'}: the folder"
        f" you are in, or PYTHONPATH, holds another one. Next: leave it, or unset PYTHONPATH"
    )
