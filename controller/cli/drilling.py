"""`ctl drill`: faults on order, now or at a step, one or a file of them."""

from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.orders import DrillOrder
from controller.cli.peek import list_live_ranks, look
from controller.core.drills import KINDS, Drill, check_drill, parse_drills
from controller.core.problems import Problem, SpecError
from controller.ports import Refused


def run_drills(order: DrillOrder) -> int:
    """Carry out the drills in order of their steps; return the exit code.

    Raises:
        SpecError: the drill makes no sense; nothing was done.
        PortError: no such run, or nothing to hit.
    """
    drills = _read_drills(order)
    run = deps.find_run(order.runs_dir, order.name)
    for drill in drills:
        if drill.at_step and not deps.wait_for_step(
            run.directory, drill.at_step, lambda: _is_over(run.directory)
        ):
            raise Refused(
                f"run {run.name} was over before step {drill.at_step}. Next: ctl status {run.name}"
            )
        _require_target(run.directory, drill)
        try:
            output.tell(deps.drill(run.directory, drill))
        except Refused as error:
            raise Refused(f"{error}. Next: ctl status {run.name}") from error
    return Code.DONE


def _require_target(directory: Path, drill: Drill) -> None:
    """Raise Refused when no rank lives that the drill could hit; `corrupt` hits files."""
    if drill.kind == "corrupt":
        return
    name, live = directory.name, list_live_ranks(directory)
    if not live:
        view = look(directory)
        if view.is_at_rest:
            verb = "log" if view.state == "completed" else "resume"
            raise Refused(f"run {name} is {view.state}: no rank lives. Next: ctl {verb} {name}")
        raise Refused(f"no rank of run {name} lives now. Next: ctl status {name}")
    if drill.rank not in ("all", *live):
        ranks = ", ".join(map(str, live))
        raise Refused(
            f"RANK is {drill.rank}; ranks that live: {ranks}."
            f" Next: ctl drill {name} {drill.kind} {live[0]}"
        )


def _is_over(directory: Path) -> bool:
    return look(directory).is_at_rest


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
    drill = Drill.model_validate({"atStep": order.at_step, "kind": order.kind, "rank": rank})
    if problems := check_drill(drill, _advice(order)):
        raise SpecError(problems)
    return [drill]


def _read_file(order: DrillOrder, path: Path) -> list[Drill]:
    if order.kind is not None or order.at_step:
        given = order.kind if order.kind is not None else f"--at-step {order.at_step}"
        bound = f"the file says kinds, ranks and steps; leave out {given}, or --file"
        raise _wrong("drill.both", "--file", str(path), bound, order)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(
            "drill.unreadable", "--file", str(path), "it must be readable", order
        ) from error
    return parse_drills(text, str(path))


def _wrong(rule: str, field: str, value: str, bound: str, order: DrillOrder) -> SpecError:
    return SpecError([Problem(rule, field, f'"{value}"', bound, _advice(order))])


def _advice(order: DrillOrder) -> str:
    return f"For instance: ctl drill {order.name} kill 0"
