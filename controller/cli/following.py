"""`ctl log --follow`: each record as it is written, until the run rests or somebody leaves."""

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.entries import describe_damage, show_record
from controller.cli.peek import View, look
from controller.cli.selecting import Selection
from controller.core.chance import count_of
from controller.ports import LedgerRecord

POLL_S = 0.25


def follow_ledger(directory: Path, selection: Selection, *, last: int | None, form: str) -> int:
    """Print what is there and what comes; return the exit code. A Ctrl-C is a good end."""
    try:
        return _follow(directory, selection, last=last, form=form)
    except KeyboardInterrupt:
        return Code.DONE


def _follow(directory: Path, selection: Selection, *, last: int | None, form: str) -> int:
    tail = deps.follow_ledger(directory)
    withdrawn, is_steered = 0, True
    while True:
        # Before the records are read: what is written last is told, too.
        view = look(directory)
        _emit(filter(selection.takes, tail.read()), last, form)
        last = None
        if tail.withdrawn > withdrawn:
            withdrawn = tail.withdrawn
            late = count_of(withdrawn, "record")
            output.tell(f"{late} told above came from a former controller, and do not count")
        if tail.damage is not None:
            output.tell(describe_damage(directory.name, tail.num_records, tail.damage))
            return Code.FAILED
        if (end := _find_end(view)) is not None:
            output.tell(end)
            return Code.DONE
        if output.is_unread():
            return Code.DONE  # `ctl log NAME -f | head`: its reader has enough.
        is_steered = _tell_blindness(view, was_steered=is_steered)
        time.sleep(POLL_S)


def _emit(records: Iterable[LedgerRecord], last: int | None, form: str) -> None:
    for record in records if last is None else deque(records, last):
        output.emit(show_record(record, form))


def _find_end(view: View) -> str | None:
    """Return why no more records come, None while some may."""
    if view.controller.is_alive or not view.is_at_rest:
        return None
    return f"{view.name} is {view.state} and nobody steers it: no more records come"


def _tell_blindness(view: View, *, was_steered: bool) -> bool:
    """Say once that nobody writes records now; return whether somebody does."""
    is_steered = view.controller.is_alive
    if was_steered and not is_steered:
        again = f"Next: ctl resume {view.name}"
        output.tell(f"nobody steers {view.name} now; its next controller writes on. {again}")
    return is_steered
