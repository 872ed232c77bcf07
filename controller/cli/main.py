"""`ctl`: the verbs. Each parses its arguments and calls one procedure.

Simple verbs must start at once, so nothing here imports a model (see verbs.py).
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from controller.cli import looking, output, verbs
from controller.cli.codes import Code
from controller.cli.failures import explain_failure
from controller.cli.orders import (
    DrillOrder,
    GateOrder,
    LaunchOrder,
    LogOrder,
    ReplanOrder,
    ReportOrder,
    SimulateOrder,
    Wish,
)
from controller.cli.surroundings import find_stranger, open_streams

app = typer.Typer(
    name="ctl",
    help="Launch, watch and steer training runs. Data goes to stdout, talk to stderr.\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad input, 3 differs, too slow or behind plan, "
    "4 waits for approval, 5 blind, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

RunsDir = Annotated[
    Path,
    typer.Option("--runs-dir", envvar="CTL_RUNS_DIR", help="Where the runs' directories lie."),
]
Name = Annotated[str, typer.Argument(help="The run's name.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return once the wish is left.")]
RUNS = Path("runs")


def show_version(wanted: bool) -> None:  # noqa: FBT001  as typer calls it
    """Print the version and leave."""
    if wanted:
        output.emit(f"steersman {verbs.read_version()}")
        raise typer.Exit


@app.callback()
def begin(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True),
    ] = False,
) -> None:
    """Take the options that belong to no command."""


@app.command()
def launch(  # a command's options
    file: Annotated[Path, typer.Argument(help="The run file.")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, write and start nothing.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return once it is steered.")] = False,
    drill: Annotated[
        Path | None, typer.Option("--drill", help="Faults to be done on the way (docs/cli.md).")
    ] = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Launch the run that FILE declares, or go on with it where it is; never start it over."""
    order = LaunchOrder(file, runs_dir, dry_run, detach, drill)
    leave(lambda: verbs.launch(order), f"the run of {file} is not touched")


@app.command()
def gate(
    file: Annotated[Path, typer.Argument(help="The run file.")],
    *,
    steps: Annotated[int, typer.Option("--steps", help="How many steps to run.")] = 20,
    form: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
    runs_dir: RunsDir = RUNS,
) -> None:
    """Run the first steps of FILE in a throw-away run: speed, memory, drops, and a verdict.

    Exit codes: 0 passed, or no minimum is declared; 1 the gang did not get there; 2 bad input;
    3 slower than the run file demands.
    """
    order = GateOrder(file, runs_dir, steps, form)
    leave(lambda: verbs.gate(order), "the admission test is ended, nothing of it is left")


@app.command()
def simulate(
    files: Annotated[list[Path], typer.Argument(help="Run files, compared on the same seeds.")],
    *,
    runs: Annotated[int, typer.Option("--runs", help="How many runs of each.")] = 5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the first; the next adds 1.")] = 0,
    deadline: Annotated[
        list[str] | None,
        typer.Option("--deadline", help='Count who is done by it: an instant, or "90d".'),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw into this .svg or .html file.")
    ] = None,
    form: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
) -> None:
    """Rehearse the run that each FILE declares: whole, in virtual time, under the real rules.

    Exit codes: 0 rehearsed; 2 bad input; 3 half of some file's runs miss its deadline.
    """
    order = SimulateOrder(tuple(files), runs, seed, tuple(deadline or ()), picture, form)
    leave(lambda: verbs.simulate(order), "the rehearsal is ended, nothing of it is left")


@app.command()
def status(
    name: Annotated[
        str | None, typer.Argument(help="The run's name; without it, all runs.")
    ] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Until the run rests.")] = False,
    form: Annotated[str, typer.Option("--output", "-o", help="table, json or yaml.")] = "table",
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show where a run stands, what happened last and why."""
    touched = "no run is touched" if name is None else f"the run {name} is not touched"
    leave(lambda: looking.show_status(runs_dir, name, watch=watch, form=form), touched)


@app.command()
def suspend(name: Name, *, no_wait: NoWait = False, runs_dir: RunsDir = RUNS) -> None:
    """Checkpoint the run and free its processes; `ctl resume` goes on."""
    leave(lambda: verbs.ask(runs_dir, name, Wish("suspend", wait=not no_wait)), asked_of(name))


@app.command()
def resume(
    name: Name,
    *,
    from_step: Annotated[
        int | None,
        typer.Option("--from", min=0, help="Open a new line at the checkpoint of this step."),
    ] = None,
    adopt_copy: Annotated[
        bool,
        typer.Option("--adopt-copy", help="This copied directory is the run from now on."),
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", "--detach", help="Return once it is steered.")
    ] = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Go on with a run that is suspended, stopped, halted or unsteered."""
    wish = Wish("resume", from_step, not no_wait, adopt_copy)
    leave(lambda: verbs.ask(runs_dir, name, wish), asked_of(name))


@app.command()
def stop(name: Name, *, no_wait: NoWait = False, runs_dir: RunsDir = RUNS) -> None:
    """Checkpoint the run and end it; works without telemetry, too."""
    leave(lambda: verbs.ask(runs_dir, name, Wish("stop", wait=not no_wait)), asked_of(name))


@app.command()
def replan(  # noqa: PLR0913  a command's options
    name: Name,
    *,
    horizon: Annotated[
        int | None,
        typer.Option("--horizon", help="Propose to end at this percent of the original horizon."),
    ] = None,
    mixture: Annotated[
        str | None,
        typer.Option("--mixture", help="Propose the mixture in this file, or @NAME as declared."),
    ] = None,
    execution: Annotated[
        Path | None,
        typer.Option("--execution", help="Propose the execution in this file, for a restart."),
    ] = None,
    approve: Annotated[
        str | None, typer.Option("--approve", help="Consent to the proposal with this id.")
    ] = None,
    reject: Annotated[
        str | None, typer.Option("--reject", help="Turn the proposal with this id down.")
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Compare the plan with the proposed one; 3: they differ.")
    ] = False,
    no_wait: NoWait = False,
    form: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show whether the run is on time and what is proposed; propose, approve or reject.

    Exit codes: 0 on time, or done as asked; 1 refused, or the run halted; 2 bad input; 3 behind
    plan, finished too late, or (--diff) the plans differ; 4 a proposal waits; 5 blind.
    """
    order = ReplanOrder(
        runs_dir, name, horizon, mixture, execution, approve, reject, diff, not no_wait, form
    )
    touched = asked_of(name) if order.wishes and not diff else f"the run {name} is not touched"
    leave(lambda: verbs.replan(order), touched)


@app.command()
def log(  # noqa: PLR0913  a command's options
    name: Name,
    *,
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="Only these: run, policy, epoch, decision, outcome."),
    ] = None,
    rule: Annotated[str | None, typer.Option("--rule", help="Only decisions of this rule.")] = None,
    verb: Annotated[
        str | None, typer.Option("--verb", help="Only decisions with this act, and its outcomes.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help='An instant with offset, "2h" (ago) or "#17" (a record).'),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="As --since.")] = None,
    last: Annotated[int | None, typer.Option("--last", help="Only the newest so many.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as records come, until the run rests.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option("--explain", help='Why record SEQ, or the "last" decision, was decided.'),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Make every decision again and show what differs.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the chain and its anchors instead.")
    ] = False,
    form: Annotated[str, typer.Option("--output", "-o", help="text, json or jsonl.")] = "text",
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show what was decided and done, oldest first; explain a decision, or make all of them again.

    Exit codes: 0 done, whole, or nothing differs; 1 damage, or --replay: decisions of this very
    core differ; 2 bad input; 3 --replay: decisions of another core would differ now.
    """
    order = LogOrder(
        runs_dir, name, verify, explain, replay, follow, kind, rule, verb, since, until, last, form
    )
    leave(lambda: verbs.show_log(order), f"the run {name} is not touched")


@app.command()
def report(
    name: Name,
    *,
    form: Annotated[str, typer.Option("--output", "-o", help="html, md or json.")] = "html",
    since: Annotated[
        int | None,
        typer.Option("--since", min=0, help="Of md and json: only what later entries tell."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="A path, or - for stdout, which md and json go to anyway."),
    ] = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Write the run's page anew, runs/NAME/report.html, and print its path; or tell its facts."""
    order = ReportOrder(runs_dir, name, form, since, to)
    leave(lambda: verbs.report(order), f"the run {name} is not touched")


@app.command()
def drill(  # noqa: PLR0913  a command's options
    name: Name,
    kind: Annotated[str | None, typer.Argument(help="kill, freeze, corrupt or pace.")] = None,
    rank: Annotated[str | None, typer.Argument(help='A rank, or "all".')] = None,
    *,
    at_step: Annotated[int, typer.Option("--at-step", min=0, help="Wait for this step.")] = 0,
    file: Annotated[
        Path | None, typer.Option("--file", help="A list of {atStep, kind, rank or stepS}.")
    ] = None,
    step_s: Annotated[
        str | None,
        typer.Option("--step-s", help="Of pace: seconds a step, until Ctrl-C or the run's end."),
    ] = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Do to a run what a bad day does; its controller is not told."""
    order = DrillOrder(runs_dir, name, kind, rank, at_step, file, step_s)
    leave(
        lambda: verbs.run_drills(order),
        f"drills not done yet are left out. Next: ctl status {name}",
    )


@app.command()
def doctor(*, runs_dir: RunsDir = RUNS) -> None:
    """Say what this machine lacks."""
    leave(lambda: verbs.examine(runs_dir), "no run is touched")


def asked_of(name: str) -> str:
    """Return what holds when somebody leaves before the wish is met."""
    return f"what was asked of the run {name} stays asked. Next: ctl status {name}"


def leave(procedure: Callable[[], int], if_interrupted: str) -> None:
    """End the command with the procedure's exit code; a Ctrl-C is told, not traced."""
    try:
        code = procedure()
    except KeyboardInterrupt:
        output.tell(f"interrupted; {if_interrupted}")
        code = Code.INTERRUPTED
    raise typer.Exit(int(code))


def main() -> None:
    """Run `ctl`; errors meant for people become words and an exit code."""
    open_streams()
    if (stranger := find_stranger()) is not None:
        output.tell(stranger)
        sys.exit(Code.FAILED)
    try:
        app()
    except KeyboardInterrupt:
        output.tell("interrupted; the run, if one goes on, is not touched")
        sys.exit(Code.INTERRUPTED)
    except Exception as error:
        failure = explain_failure(error)
        if failure is None:
            raise
        output.tell(failure.text)
        sys.exit(failure.code)


if __name__ == "__main__":
    main()
