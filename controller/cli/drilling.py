"""`ctl drill`: faults on order, now or at a step, one or a file of them."""

from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.orders import DrillOrder
from controller.cli.peek import look
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
            raise Refused(f"run {run.name} was over before step {drill.at_step}")
        output.tell(deps.drill(run.directory, drill))
    return Code.DONE


def _is_over(directory: Path) -> bool:
    return look(directory).is_at_rest


def _read_drills(order: DrillOrder) -> list[Drill]:
    if order.file is not None:
        try:
            text = order.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _wrong(
                "drill.unreadable", "--file", str(order.file), "it must be readable", order
            ) from error
        return parse_drills(text, str(order.file))
    if order.kind not in KINDS:
        bound = f"it must be one of {', '.join(KINDS)}, or --file FILE"
        raise _wrong("drill.kind", "KIND", str(order.kind), bound, order)
    rank: object = order.rank
    if order.rank is not None and order.rank.isdigit():
        rank = int(order.rank)
    elif order.rank not in (None, "all"):
        raise _wrong("drill.rank", "RANK", order.rank, 'it must be a rank, or "all"', order)
    drill = Drill.model_validate({"atStep": order.at_step, "kind": order.kind, "rank": rank})
    if problems := check_drill(drill, _advice(order)):
        raise SpecError(problems)
    return [drill]


def _wrong(rule: str, field: str, value: str, bound: str, order: DrillOrder) -> SpecError:
    return SpecError([Problem(rule, field, f'"{value}"', bound, _advice(order))])


def _advice(order: DrillOrder) -> str:
    return f"For instance: ctl drill {order.name} kill 0"
