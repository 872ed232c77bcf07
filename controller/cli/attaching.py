"""The live view: shows a run until it rests; the run does not know that it is watched."""

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from controller.cli import output
from controller.cli.asking import ask
from controller.cli.codes import Code
from controller.cli.orders import Wish
from controller.cli.peek import View, look, read_summary
from controller.cli.summing import describe_summary
from controller.cli.wording import (
    clock,
    describe,
    describe_decision,
    describe_incident,
    describe_last_words,
    describe_line,
    describe_plan_track,
    list_of,
    members_of,
)

REFRESH_S = 0.5
LINE_EVERY_S = 5.0
SECOND_INTERRUPT_S = 2.0
MAX_TOLD = 50


def attach(directory: Path) -> int:
    """Show the run until it rests or the person leaves; return the exit code."""
    while True:
        try:
            watch = _watch_terminal if sys.stdout.isatty() else _watch_lines
            watch(directory)
            return conclude(directory)
        except KeyboardInterrupt:
            choice = ask_leave()
            if choice == "stop":
                return ask(directory.parent, directory.name, Wish("stop"))
            if choice == "detach":
                output.tell(
                    f"\n{directory.name} goes on. Next: ctl status {directory.name} --watch"
                )
                return Code.DONE


def ask_leave() -> str:
    """Return detach, stop or go; a second Ctrl-C, or no terminal, means detach."""
    if not sys.stdin.isatty():
        return "detach"
    begun = time.monotonic()
    try:
        output.tell("\n[d]etach (default), [s]top at a checkpoint, or [g]o on? ")
        answer = sys.stdin.readline().strip().lower()
    except KeyboardInterrupt:
        is_quick = time.monotonic() - begun < SECOND_INTERRUPT_S
        return "detach" if is_quick else ask_leave()
    return {"s": "stop", "g": "go"}.get(answer[:1], "detach")


def is_over(view: View) -> bool:
    """Return whether nobody steers the run any more."""
    return not view.controller.is_alive


def _watch_lines(directory: Path) -> None:
    """A line every few seconds, one for each incident and decision: for logs and pipes."""
    said, told, shown_at = "", [""], 0.0
    while True:
        view = look(directory)
        for text in _news(view):
            if text not in told:
                output.emit(f"           {text}")
                told = [*told[-MAX_TOLD:], text]
        line = describe_line(view)
        if view.status and line != said and time.monotonic() - shown_at >= LINE_EVERY_S:
            output.emit(line)
            said, shown_at = line, time.monotonic()
        if is_over(view):
            return
        time.sleep(REFRESH_S)


def _news(view: View) -> Iterator[str]:
    """Yield what was decided and what happened, newest last."""
    status = view.status or {}
    for incident in list_of(members_of(status, "incidents"), "recent"):
        yield f"{clock(incident['at'])} {describe_incident(incident)}: {incident['evidence']}"
    for note in list_of(status, "notes"):
        yield f"{clock(note['at'])} {note['subject']}: {note['text']}"
    for label, text in describe_plan_track(view.name, status):
        if label == "proposal":
            yield f"proposal {text}"
    if status and members_of(status, "last_decision").get("rule") != "notes":
        yield describe_decision(status)


def _watch_terminal(directory: Path) -> None:
    bar = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
    )
    task = bar.add_task(directory.name, total=None)
    with Live(console=Console(), refresh_per_second=4) as live:
        while True:
            view = look(directory)
            status: Mapping[str, object] = view.status or {}
            step, total = status.get("step"), status.get("total_steps")
            if isinstance(step, int) and isinstance(total, int):
                bar.update(task, completed=step, total=total)
            live.update(Group(bar, Text(output.clean(describe(view)))))
            if is_over(view):
                return
            time.sleep(REFRESH_S)


def conclude(directory: Path) -> int:
    """Say how the run rests and return the exit code."""
    view = look(directory)
    with contextlib.suppress(KeyError):
        output.tell(f"{view.name} {ENDINGS[view.state].format(name=view.name)}")
    if view.state == "halted" and view.status is not None:
        output.tell(f"  {view.status['reason']}")
        if words := describe_last_words(view):
            output.tell(f"  {words}")
        output.tell(f"Next: ctl log {view.name}; when it is cured: ctl resume {view.name}")
        return Code.FAILED
    if view.is_blind:
        output.tell(f"its controller is gone; the gang may live on. Next: ctl resume {view.name}")
        return Code.BLIND
    summary = read_summary(directory) if view.state == "completed" else None
    if summary is not None:
        output.emit(describe_summary(summary))
        output.tell(f"all of it: {directory / 'summary.json'}")
        if (directory / "report.html").exists():
            output.tell(f"on one page: {directory / 'report.html'}")
    return Code.DONE


ENDINGS = {
    "completed": "is finished",
    "suspended": "is suspended; ctl resume {name} goes on",
    "stopped": "is stopped; ctl resume {name} goes on",
    "halted": "halted",
}
