"""`ctl drill`: faults on order, now or at a step, one or a file of them."""

import time
from collections.abc import Callable
from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.orders import DrillOrder
from controller.cli.peek import list_live_ranks, look
from controller.core.declared.drills import KINDS, Drill, check_drill, parse_drills
from controller.core.declared.fields import DECIMAL
from controller.core.declared.launched import LaunchedRun
from controller.core.declared.problems import Problem, SpecError
from controller.ports import Refused

POLL_S = 0.2


def run_drills(order: DrillOrder) -> int:
    """Carry out the drills in order of their steps; return the exit code.

    One that paces goes on beside the later ones, to the end of the run or of this command.

    Raises:
        SpecError: the drill makes no sense; nothing was done.
        PortError: no such run, or nothing to hit.
    """
    drills = _read_drills(order)
    run = deps.find_run(order.runs_dir, order.name)
    with deps.open_pacer(run.directory) as pacer:
        for drill in drills:
            _await_step(run, drill)
            output.tell(_carry_out(run, drill, pacer.pace))
        while pacer.is_pacing and not _is_over(run.directory):
            time.sleep(POLL_S)
    return Code.DONE


def _await_step(run: LaunchedRun, drill: Drill) -> None:
    if drill.at_step and not deps.wait_for_step(
        run.directory, drill.at_step, lambda: _is_over(run.directory)
    ):
        raise Refused(
            f"run {run.name} was over before step {drill.at_step}. Next: ctl status {run.name}"
        )


def _carry_out(run: LaunchedRun, drill: Drill, pace: Callable[[float], str]) -> str:
    """Do one drill and return what was done; raises PortError."""
    if drill.step_s is not None:
        if _is_over(run.directory):
            raise Refused(_describe_rest(run.directory))
        return pace(float(drill.step_s))
    _require_target(run.directory, drill)
    try:
        return deps.drill(run.directory, drill)
    except Refused as error:
        raise Refused(f"{error}. Next: ctl status {run.name}") from error


def _require_target(directory: Path, drill: Drill) -> None:
    """Raise Refused when no rank lives that the drill could hit; `corrupt` hits files."""
    if drill.kind == "corrupt":
        return
    name, live = directory.name, list_live_ranks(directory)
    if not live:
        if look(directory).is_at_rest:
            raise Refused(_describe_rest(directory))
        raise Refused(f"no rank of run {name} lives now. Next: ctl status {name}")
    if drill.rank not in ("all", *live):
        ranks = ", ".join(map(str, live))
        raise Refused(
            f"RANK is {drill.rank}; ranks that live: {ranks}."
            f" Next: ctl drill {name} {drill.kind} {live[0]}"
        )


def _describe_rest(directory: Path) -> str:
    name, state = directory.name, look(directory).state
    verb = "log" if state == "completed" else "resume"
    return f"run {name} is {state}: no rank lives. Next: ctl {verb} {name}"


def _is_over(directory: Path) -> bool:
    view = look(directory)
    # A controller that just began has not replaced the status of its predecessor yet.
    return view.is_at_rest and not view.controller.is_alive


def _read_drills(order: DrillOrder) -> list[Drill]:
    if order.file is not None:
        return _read_file(order, order.file)
    if order.kind is None:
        bound = f"it must be given: one of {', '.join(KINDS)}, or --file FILE"
        raise SpecError([Problem("drill.kind", "KIND", None, bound, _advice(order))])
    if order.kind not in KINDS:
        bound = f"it must be one of {', '.join(KINDS)}, or --file FILE"
        raise _wrong("drill.kind", "KIND", order.kind, bound, order)
    rank: object = order.rank
    if order.rank is not None and order.rank.isdigit():
        rank = int(order.rank)
    elif order.rank not in (None, "all"):
        raise _wrong("drill.rank", "RANK", order.rank, 'it must be a rank, or "all"', order)
    if order.step_s is not None and not DECIMAL.fullmatch(order.step_s):
        bound = 'it must be seconds as a decimal number, such as "0.25"'
        raise _wrong("drill.pace", "--step-s", order.step_s, bound, order)
    asked = {"atStep": order.at_step, "kind": order.kind, "rank": rank, "stepS": order.step_s}
    drill = Drill.model_validate(asked)
    if problems := check_drill(drill, _advice(order)):
        raise SpecError(problems)
    return [drill]


def _read_file(order: DrillOrder, path: Path) -> list[Drill]:
    beside = (order.kind, order.at_step and f"--at-step {order.at_step}", order.step_s)
    if given := next(filter(None, beside), None):
        bound = f"the file says kinds, ranks and steps; leave out {given}, or --file"
        raise _wrong("drill.both", "--file", str(path), bound, order)
    return parse_drills(deps.read_given_text(path, "--file", _advice(order)), str(path))


def _wrong(rule: str, field: str, value: str, bound: str, order: DrillOrder) -> SpecError:
    return SpecError([Problem(rule, field, f'"{value}"', bound, _advice(order))])


def _advice(order: DrillOrder) -> str:
    if order.kind == "pace":
        return f"For instance: ctl drill {order.name} pace --step-s 0.25"
    return f"For instance: ctl drill {order.name} kill 0"
