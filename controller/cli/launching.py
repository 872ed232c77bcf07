"""`ctl launch`: check everything, then make the run's directory, then start its controller."""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from contract.model import parameters
from contract.plan import Plan
from controller.cli import deps, output
from controller.cli.attaching import attach
from controller.cli.codes import Code
from controller.cli.orders import LaunchOrder
from controller.cli.peek import View, look
from controller.cli.people import name_user
from controller.cli.wording import list_of, show_instant, show_span
from controller.core.chance import count_of
from controller.core.declared.changes import Change, compare_run_files
from controller.core.declared.drills import parse_drills
from controller.core.declared.launched import GivenFile, LaunchedRun
from controller.core.declared.planning import make_terms
from controller.core.declared.problems import Problem, SpecError
from controller.core.declared.spec_rules import warmup_steps
from controller.core.snapshot import OwnerIntent
from controller.core.terms import Terms
from controller.ports import Unavailable


def launch(order: LaunchOrder) -> int:
    """Launch, attach to, or refuse to touch the run that the file names.

    Raises:
        SpecError: a file is wrong; nothing was started or written.
        PortError: the run directory is a copy, or damaged, or cannot be written.
    """
    given = deps.read_given(order.file)
    if order.drill is not None:
        advice = "List the samples: ls samples/*.yaml"
        parse_drills(deps.read_given_text(order.drill, "--drill", advice), str(order.drill))
    directory = order.runs_dir / given.run_file.metadata.name
    if directory.exists():
        return _launch_again(order, given, directory)
    if order.dry_run and given.run_file.spec.fleet.kind != "local":
        return _tell_not_built(given)
    deps.check_given(given, measure=order.dry_run, is_launch=True)
    if order.dry_run:
        output.emit(describe_plan(given, deps.preview_plan(given)))
        return Code.DONE
    output.tell(f"preparing {directory}: text, plan, ledger")
    try:
        deps.create_run(given, order.runs_dir)
        return _start(order, directory)
    except KeyboardInterrupt:
        # The view has a Ctrl-C of its own; this one came before it.
        _tell_interrupted(directory)
        return Code.INTERRUPTED


def _tell_not_built(given: GivenFile) -> int:
    """Show the plan of a run that can be rehearsed and not launched."""
    output.emit(describe_plan(given, deps.preview_plan(given)))
    output.tell(f"the file is right; a fleet of racks cannot be launched yet, only rehearsed."
                f" Next: ctl simulate {given.path}")  # fmt: skip
    return Code.BAD_INPUT


def _tell_interrupted(directory: Path) -> None:
    if directory.exists():
        output.tell(
            f"interrupted; the run {directory.name} is there. Next: ctl status {directory.name}"
        )
    else:
        output.tell(f"interrupted; the run {directory.name} was not launched, nothing is left")


def _start(order: LaunchOrder, directory: Path) -> int:
    if withheld := deps.list_withheld():
        output.tell(f"not for the ranks: {', '.join(withheld)}; {SAY_WHY}")
    pid = deps.start_controller(directory)
    output.tell(f"controller {pid} steers {directory}; it goes on without this terminal")
    if order.drill is not None:
        deps.start_drills(order.runs_dir, directory.name, order.drill)
        output.tell(f"drills of {order.drill} are armed")
    if order.detach:
        output.tell(f"Next: ctl status {directory.name} --watch")
        return Code.DONE
    return attach(directory)


SAY_WHY = (
    "what changes a run stands in its file, as spec.trainer.command: [env, NAME=VALUE, python, ...]"
)


# --- a run of that name is there already ---


def _launch_again(order: LaunchOrder, given: GivenFile, directory: Path) -> int:
    run = _load_same(given, directory)
    changes = compare_run_files(run.run_file, given.run_file)
    if changes:
        _show_changes(run, changes)
    if any(not change.is_allowed for change in changes):
        output.tell(
            f"{directory} goes on as accepted; nothing was changed. Next: put the fields back,"
            f" or launch under another metadata.name"
        )
        return Code.DIFFERS
    view = look(directory)
    is_live = all(is_taken_live(change) for change in changes)
    if changes and view.controller.is_alive and not is_live:
        output.tell(f"a controller steers it now. Next: ctl suspend {run.name}, then launch again")
        return Code.DIFFERS
    if order.dry_run:
        output.tell(f"{directory} exists: {view.state}. Nothing was done")
        return Code.DONE
    if changes:
        deps.check_given(given)
        run = deps.accept_run_file(run, given)
        if is_live and view.controller.is_alive:
            _take_up(run, changes)
        else:
            output.tell(f"accepted: {count_of(len(changes), 'change')} for the next controller")
    elif view.controller.is_alive and is_clock_unsure(view):
        _amend(run)  # The same deadline again: its owner confirms the clock.
    return _go_on(order, run)


def is_clock_unsure(view: View) -> bool:
    """Return whether the run's deadline waits for its owner, because the wall clock jumped."""
    return any(note["subject"] == "clock" for note in list_of(view.status or {}, "notes"))


AMENDED = ("spec.deadline", "spec.contingency")
"""What a controller takes up without being replaced."""
UNREAD = ("spec.simulation",)
"""What no controller reads."""


def is_taken_live(change: Change) -> bool:
    """Return whether the change may be made while a controller steers the run."""
    return is_under(change, (*AMENDED, *UNREAD))


def is_under(change: Change, sections: Sequence[str]) -> bool:
    """Return whether the change lies in one of the sections."""
    return any(change.path == name or change.path.startswith(f"{name}.") for name in sections)


def _take_up(run: LaunchedRun, changes: list[Change]) -> None:
    """Let the controller hear of what it reads."""
    if any(is_under(change, AMENDED) for change in changes):
        _amend(run)
    else:
        output.tell(f"accepted: {count_of(len(changes), 'change')} that no controller reads")


def _amend(run: LaunchedRun) -> None:
    """Leave the new deadline and contingency for the controller, and see to it that it hears."""
    intent = OwnerIntent(
        nonce=secrets.token_hex(8),
        verb="amend",
        terms=deps.policy_of(run).terms,
        user=name_user(),
        wall_ms=time.time_ns() // 1_000_000,
    )
    deps.drop_intent(run.directory, intent)
    if not look(run.directory).controller.is_alive:
        deps.start_controller(run.directory)  # it ended meanwhile
    end = time.monotonic() + HEARD_WITHIN_S
    while time.monotonic() < end:
        memory = deps.read_memory(run)
        if memory is not None and intent.nonce in memory.known_nonces:
            output.tell(f"amended: {describe_terms(memory.policy.terms)}")
            return
        time.sleep(POLL_S)
    output.tell(f"accepted; the controller did not say yet that it heard. Next: ctl log {run.name}")


HEARD_WITHIN_S = 20.0
POLL_S = 0.1


def describe_terms(terms: Terms) -> str:
    """Return until when the run must be done, and what is done if that is out of reach."""
    if terms.due_wall_ms is None:
        return "no deadline"
    reserve = f", {show_span(terms.reserve_ms)} before the deadline" if terms.reserve_ms else ""
    due = f"due {show_instant(terms.due_wall_ms)}{reserve}"
    return f"{due}; contingency {terms.mode}, evaluated every {show_span(terms.evaluate_every_ms)}"


def describe_contingency(terms: Terms, total_steps: int) -> str:
    """Return what may be given up until when, and what calls for it."""
    if terms.mode == "off":
        return "off: the forecast is only reported"
    floor = -(-terms.floor_percent * total_steps // PERCENT)
    late = f"P(on time) below {terms.on_time_percent}%"
    return (
        f"proposed at {late} at {count_of(terms.evaluations, 'evaluation')} in a row; the largest"
        f" horizon with {terms.target_percent}%, no fewer than {floor:,} steps (floor"
        f" {terms.floor_percent}%), forked within the first {terms.window_percent}% (window)"
    )


PERCENT = 100


def _load_same(given: GivenFile, directory: Path) -> LaunchedRun:
    """Return the run in `directory` if it is the one that the file means.

    Raises:
        SpecError: no run, or a run of another name, lives there.
        Refused: the directory is a copy.
    """
    try:
        run = deps.load_run(directory)
    except Unavailable as error:
        bound = f"{directory} exists and holds no run; choose another name or --runs-dir"
        name = f'"{given.run_file.metadata.name}"'
        problem = Problem("run.foreign", "metadata.name", name, bound, given.advice)
        raise SpecError([problem]) from error
    if run.name != directory.name:
        bound = f"{directory} is the directory of run {run.name}, renamed; choose another name"
        name = f'"{given.run_file.metadata.name}"'
        raise SpecError([Problem("run.other", "metadata.name", name, bound, given.advice)])
    return run


def _show_changes(run: LaunchedRun, changes: list[Change]) -> None:
    output.tell(f"the file differs from what run {run.name} was launched with:")
    for change in changes:
        output.tell(f"  {change}")


def _go_on(order: LaunchOrder, run: LaunchedRun) -> int:
    """Attach, start a controller that adopts, or say why neither; never begin anew."""
    directory, view = run.directory, look(run.directory)
    if view.controller.is_alive:
        output.tell(f"controller {view.controller.pid} steers it already")
        _tell_unarmed(order, run)
        return Code.DONE if order.detach else attach(directory)
    memory = deps.read_memory(run)
    if memory is not None and (memory.halted is not None or memory.rest is not None):
        _tell_unarmed(order, run)
        deps.settle(run, memory)
    if memory is not None and memory.halted is not None:
        output.tell(f"{run.name} halted: {memory.halted}. Next: ctl resume {run.name}")
        return Code.FAILED
    if memory is not None and memory.rest == "completed":
        output.tell(f"{run.name} is finished: {directory / 'summary.json'}")
        return Code.DONE
    if memory is not None and memory.rest is not None:
        output.tell(f"{run.name} is {memory.rest}. Next: ctl resume {run.name}")
        return Code.DONE
    output.tell("nobody steers it: a new controller takes it over where it is")
    return _start(order, directory)


def _tell_unarmed(order: LaunchOrder, run: LaunchedRun) -> None:
    if order.drill is not None:
        output.tell(
            f"the drills of {order.drill} are not armed: this launch started nothing."
            f" Next, while it trains: ctl drill {run.name} --file {order.drill}"
        )


# --- a dry run ---


def describe_plan(given: GivenFile, plan: Plan) -> str:
    """Return what a launch would do, in words."""
    spec = given.run_file.spec
    total, active = parameters(spec.model.shape)
    fleet = spec.fleet
    stages = "; ".join(
        f"from step {stage.start:,}: {', '.join(f'{n} {p}' for n, p in stage.parts.items())}"
        for stage in plan.mixture.stages
    )
    context = "; ".join(f"from step {stage.start:,}: {stage.length}" for stage in plan.context)
    saves = spec.checkpoints
    gang = f"{fleet.ranks} processes x {fleet.devices_per_process} devices"
    units = plan.mixture.block_tokens // plan.mixture.unit_tokens
    final = f"{spec.schedule.final_percent}% of the peak at step {plan.total_steps - 1:,}"
    terms = make_terms(spec, {}, 0)
    size = f"{plan.total_steps:,} of {plan.tokens_per_step:,} tokens"
    rows: list[tuple[str, ...]] = [
        ("run", given.run_file.metadata.name),
        ("model", f"{spec.model.preset}, {total:,} parameters, {active:,} active"),
        ("gang", f"{gang}, expert axis {fleet.axis}, {fleet.devices // fleet.axis} replica(s)"),
        ("steps", f"{size}, {plan.total_steps * plan.tokens_per_step:,} in all"),
        ("schedule", f"warm-up {warmup_steps(spec):,} steps, then linear to {final}"),
        ("mixture", f"parts of {units} a block, {stages}"),
        ("context", context),
        ("checkpoints", f"every {saves.every_steps} steps, keep {saves.keep}"),
        ("deadline", describe_terms(terms)),
    ]
    if terms.due_wall_ms is not None:
        rows.append(("contingency", describe_contingency(terms, plan.total_steps)))
    return "\n".join([*output.align(rows), "nothing was written or started"])
