"""The live view: shows a run until it rests; the run does not know that it is watched."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from controller.cli import output
from controller.cli.asking import ask
from controller.cli.codes import Code
from controller.cli.orders import Wish
from controller.cli.peek import look
from controller.cli.watching import REFRESH_S, conclude, is_over, watch_lines
from controller.cli.wording import describe

SECOND_INTERRUPT_S = 2.0


def attach(directory: Path) -> int:
    """Show the run until it rests or the person leaves; return the exit code."""
    while True:
        try:
            watch = _watch_terminal if output.can_redraw() else watch_lines
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
            shown = output.fit(output.clean(describe(view)), f"more: ctl status {view.name}")
            live.update(Group(bar, Text(shown)))
            if is_over(view):
                return
            time.sleep(REFRESH_S)
