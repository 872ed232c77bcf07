"""`ctl status`: one run or all of them, once or until it rests."""

import json
import time
from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.peek import View, list_names, look
from controller.cli.watching import conclude, is_over, watch_lines
from controller.cli.wording import describe, summarize

REFRESH_S = 1.0
FORMS = ("table", "json", "yaml")


def show_status(runs_dir: Path, name: str | None, *, watch: bool, form: str) -> int:
    """Print the status and return the exit code: 1 halted, 2 no such run, 5 nobody steers it."""
    if form not in FORMS:
        output.tell(
            f"--output is {form}; it must be one of {', '.join(FORMS)}. Next: ctl status -o json"
        )
        return Code.BAD_INPUT
    names = list_names(runs_dir)
    if name is None and watch:
        output.tell(f"--watch needs the name of a run; {_list_there(names)}. {_advise(names)}")
        return Code.BAD_INPUT
    if name is None:
        return _show_all(runs_dir, names, form)
    if name not in names:
        advice = "ctl status" if names else "ctl launch FILE, or --runs-dir, where the runs lie"
        output.tell(f'{runs_dir} holds no run "{name}"; {_list_there(names)}. Next: {advice}')
        return Code.BAD_INPUT
    view = look(runs_dir / name)
    if view.copy_of is not None:
        output.tell(f"{view.directory} is a copy of the run launched in {view.copy_of}")
    return _watch(runs_dir / name, form) if watch else _show(view, form)


def _list_there(names: list[str]) -> str:
    return f"runs there: {', '.join(names)}" if names else "no run was launched there yet"


def _advise(names: list[str]) -> str:
    return f"Next: ctl status {names[0]} --watch" if names else "Next: ctl launch FILE"


def _show_all(runs_dir: Path, names: list[str], form: str) -> int:
    views = [look(runs_dir / name) for name in names]
    if form != "table":
        _emit([to_data(view) for view in views], form)
    elif views:
        output.emit_table([("NAME", "STATE", "PROGRESS", "ATTEMPT"), *map(summarize, views)])
    else:
        output.tell(f"no run in {runs_dir}. Next: ctl launch FILE")
    return Code.BLIND if any(view.is_blind for view in views) else Code.DONE


def _show(view: View, form: str) -> int:
    if form == "table":
        output.emit(describe(view))
    else:
        _emit(to_data(view), form)
    return code_of(view)


def _emit(value: object, form: str) -> None:
    if form == "json":
        output.emit_json(value)
    else:
        output.emit(deps.render_yaml(value).rstrip())


def to_data(view: View) -> dict[str, object]:
    """Return status.json and what only a look from outside can tell."""
    controller = view.controller
    return {
        **(view.status or {"run": {"name": view.name}, "state": "unknown"}),
        "controller": {
            "alive": controller.is_alive,
            "pid": controller.pid,
            "epoch": controller.epoch,
            "silent_s": controller.silent_s,
        },
        "age_s": view.age_s,
    }


def code_of(view: View) -> Code:
    """Return the exit code that a view stands for."""
    if view.is_blind:
        return Code.BLIND
    return Code.FAILED if view.state == "halted" else Code.DONE


def _watch(directory: Path, form: str) -> int:
    """Show the run until it rests: as `ctl launch` does, or one JSON object a second."""
    if form == "table":
        if output.can_redraw():
            _redraw(directory)
        else:
            watch_lines(directory)
        return conclude(directory)
    while True:
        view = look(directory)
        output.emit(json.dumps(to_data(view), ensure_ascii=False))
        if is_over(view):
            return code_of(view)
        time.sleep(REFRESH_S)


def _redraw(directory: Path) -> None:
    while True:
        view = look(directory)
        output.redraw(output.fit(describe(view), f"more: ctl status {view.name}"))
        if is_over(view):
            return
        time.sleep(REFRESH_S)
