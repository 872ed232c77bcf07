"""`ctl simulate`: rehearse the runs that run files declare, and say what comes of them."""

import json
import math
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pydantic_core import PydanticCustomError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.orders import SimulateOrder
from controller.cli.rehearsing import Job, OnDay, rehearse_all
from controller.cli.tallying import (
    QUANTILES,
    Given,
    Kind,
    Tally,
    count_done_by,
    describe_json,
    sum_spares,
    tally,
)
from controller.cli.wording import show_instant, show_span
from controller.core.chance import count_of
from controller.core.declared.fields import parse_duration
from controller.core.declared.planning import wall_ms_of
from controller.core.declared.problems import Problem, SpecError
from controller.core.declared.simulation import DAY_MS
from controller.core.declared.spec import RunFile
from controller.core.declared.supposition import plan_ms
from controller.core.forecast import PERMILLE
from controller.simulate.rehearsal.tale import Rehearsal

FORMS = ("table", "json")
PICTURES = (".svg", ".html")
MOST_RUNS = 10_000
NEVER = "not at all"


def simulate(order: SimulateOrder) -> int:
    """Rehearse every file under the same seeds and print what comes of it; return the exit code.

    Raises:
        SpecError: a file or an option is wrong; nothing was rehearsed.
        Unavailable: a rehearsal broke off, or the picture could not be written.
    """
    _check_order(order)
    run_files = [deps.suppose_run(deps.read_given(file)) for file in order.files]
    deadlines = [_read_deadlines(order, it) for it in run_files]
    begun_s = time.monotonic()
    rehearsals = _rehearse(order, run_files)
    tallies = [
        _tally(str(file), run_file, runs, given)
        for file, run_file, runs, given in zip(
            order.files, run_files, rehearsals, deadlines, strict=True
        )
    ]
    _show(order, tallies, time.monotonic() - begun_s)
    if order.picture is not None:
        deps.draw_rehearsals(json.dumps(describe_json(tallies)), order.picture)
        output.tell(f"drawn: {order.picture}")
    return Code.DIFFERS if any(map(is_behind, tallies)) else Code.DONE


def is_behind(told: Tally) -> bool:
    """Return whether half of the runs miss the deadline of their file."""
    return told.on_time_permille is not None and told.on_time_permille < PERMILLE // 2


# --- what was asked for ---


def _check_order(order: SimulateOrder) -> None:
    advice = f"For instance: ctl simulate {order.files[0]} --runs 5"
    if order.form not in FORMS:
        bound = f"it must be one of {', '.join(FORMS)}"
        raise SpecError([Problem("simulate.output", "--output", f'"{order.form}"', bound, advice)])
    if not 1 <= order.runs <= MOST_RUNS:
        bound = f"it must be 1 to {MOST_RUNS}"
        raise SpecError([Problem("simulate.runs", "--runs", str(order.runs), bound, advice)])
    if order.picture is not None and (bound := _find_flaw(order.picture)):
        shown = f'"{order.picture}"'
        raise SpecError([Problem("simulate.picture", "--picture", shown, bound, advice)])


def _find_flaw(picture: Path) -> str:
    """Return why the picture could not be written: it is asked before minutes are spent."""
    if picture.suffix not in PICTURES:
        return f"it must end with {' or '.join(PICTURES)}"
    return "" if picture.parent.is_dir() else "its folder must exist"


def _read_deadlines(order: SimulateOrder, run_file: RunFile) -> list[tuple[str, int]]:
    """Return each deadline asked about as (text, instant)."""
    launch_at = run_file.spec.simulation.launch_at
    assert launch_at is not None
    launched_ms = wall_ms_of(launch_at)
    return [(text, _read_deadline(order, text, launched_ms)) for text in order.deadlines]


def _read_deadline(order: SimulateOrder, text: str, launched_ms: int) -> int:
    try:
        return launched_ms + parse_duration(text)
    except PydanticCustomError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        bound = 'it must be a time since the launch, such as "90d", or an instant with offset'
        advice = f"For instance: ctl simulate {order.files[0]} --deadline 90d"
        problem = Problem("simulate.deadline", "--deadline", f'"{text}"', bound, advice)
        raise SpecError([problem])
    return wall_ms_of(text)


# --- rehearsing ---


def _rehearse(order: SimulateOrder, run_files: Sequence[RunFile]) -> list[list[Rehearsal]]:
    seeds = range(order.seed, order.seed + order.runs)
    # Seed by seed over all files: whoever leaves early has lost the least.
    jobs = [Job(run_file, seed) for seed in seeds for run_file in run_files]
    with _show_progress(jobs) as on_day:
        done = rehearse_all(jobs, on_day)
    return [done[index :: len(run_files)] for index in range(len(run_files))]


@contextmanager
def _show_progress(jobs: Sequence[Job]) -> Generator[OnDay]:
    """Show how many of the expected days have passed, to a person."""
    planned = [_planned_days(job.run_file) for job in jobs]
    passed = [0] * len(jobs)
    columns = (
        TextColumn("rehearsing"), BarColumn(bar_width=None), TaskProgressColumn(),
        TextColumn("{task.fields[days]:,} days of {task.fields[runs]}"), TimeRemainingColumn(),
    )  # fmt: skip
    console = Console(file=sys.stderr)
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("", total=sum(planned), days=0, runs=count_of(len(jobs), "run"))

    def on_day(number: int, day: int) -> None:
        passed[number] = max(passed[number], day)
        within = sum(map(min, passed, planned))
        bar.update(task, completed=within, days=sum(passed))

    with bar:
        yield on_day


def _planned_days(run_file: RunFile) -> int:
    planned_ms = plan_ms(run_file.spec, run_file.spec.simulation.throughput)
    return max(1, math.ceil(planned_ms / DAY_MS))


def _tally(
    file: str, run_file: RunFile, runs: Sequence[Rehearsal], deadlines: list[tuple[str, int]]
) -> Tally:
    given = [Given(text, wall_ms, count_done_by(runs, wall_ms)) for text, wall_ms in deadlines]
    return tally(
        file, run_file, runs, plan_ms(run_file.spec, run_file.spec.simulation.throughput), given
    )


# --- saying it ---


def _show(order: SimulateOrder, tallies: Sequence[Tally], took_s: float) -> None:
    all_ms = sum(it.ended_wall_ms - it.launched_wall_ms for one in tallies for it in one.rehearsals)
    took = f"{show_span(all_ms)} of virtual time in {took_s:.1f} s"
    if order.form == "json":
        output.emit_json(describe_json(tallies))
        output.tell(took)
        return
    if len(tallies) == 1:
        output.emit("\n".join(output.align([*_rows(tallies[0]), ("rehearsed", took)])))
        return
    output.emit_table(compare(tallies))
    output.tell(took)


def _rows(told: Tally) -> Iterator[tuple[str, str]]:
    first, last = told.rehearsals[0], told.rehearsals[-1]
    seeds = f"seeds {first.seed} to {last.seed}" if first is not last else f"seed {first.seed}"
    launched = show_instant(first.launched_wall_ms)
    yield told.run, f"{count_of(len(told.rehearsals), 'run')}, {seeds}, launched {launched}"
    yield "plan", f"{show_span(told.plan_ms)} when nothing fails"
    yield "finish", ", ".join(f"{name.upper()} {_day(told.finish_ms[name])}" for name in QUANTILES)
    yield from _deadline_rows(told)
    yield "horizon", _describe_horizon(told)
    yield "time", _describe_time(told)
    yield "failures", _describe_failures(told)
    for name, kind in told.kinds.items():
        yield f"  {name}", _describe_kind(kind, len(told.rehearsals))
    yield "proposals", _describe_proposals(told)
    yield "spares", _describe_spares(told)
    yield from _unfinished_rows(told)


def _describe_failures(told: Tally) -> str:
    runs, kinds = len(told.rehearsals), told.kinds.values()
    failures, incidents = (
        sum(getattr(it, name) for it in kinds) / runs for name in ("failures", "incidents")
    )
    return f"{failures:.1f} a run; {incidents:.1f} of them ended an attempt (incidents)"


def _deadline_rows(told: Tally) -> Iterator[tuple[str, str]]:
    first = told.rehearsals[0]
    if first.deadline_wall_ms is not None and told.on_time_permille is not None:
        day = _day(first.deadline_wall_ms - first.launched_wall_ms)
        until = f"{show_instant(first.deadline_wall_ms)} ({day})"
        yield "on time", f"{show_on_time(told)} runs, by {until}"
    if told.given:
        runs = len(told.rehearsals)
        shares = ", ".join(f"{it.text} {it.done} of {runs}" for it in told.given)
        yield "done by", f"{shares} (plans answer to the file's own deadline)"


def show_on_time(told: Tally) -> str:
    """Return how many of how many runs finish by the deadline of their file."""
    return f"{sum(bool(it.on_time) for it in told.rehearsals)} of {len(told.rehearsals)}"


def _day(span_ms: int | None) -> str:
    if span_ms is None:
        return NEVER
    return f"day {span_ms / DAY_MS:.1f}" if span_ms >= DAY_MS else show_span(span_ms)


def _percent(permille: int) -> str:
    return f"{100 * permille / PERMILLE:.1f}%"


def _describe_horizon(told: Tally) -> str:
    least, median, most = (told.horizon_percent[name] for name in ("least", "median", "most"))
    whole = f"{told.rehearsals[0].original_steps:,} steps"
    if least == most:
        return f"{least}% of {whole}"
    return f"{least}% to {most}% of {whole}, median {median}%"


def _describe_time(told: Tally) -> str:
    """Return the share of each phase that has one of a permille at least."""
    shown = {name: it for name, it in told.account_permille.items() if it}
    return ", ".join(f"{name} {_percent(it)}" for name, it in shown.items())


def _describe_kind(kind: Kind, runs: int) -> str:
    causes = ", ".join(f"{name} {count}" for name, count in sorted(kind.causes.items()))
    taken = f"; taken for {causes}" if causes else "; ended no attempt"
    replayed = f", {kind.mean_replayed:,} steps again" if kind.mean_replayed else ""
    cost = f"each {show_span(kind.mean_cost_ms)}" if kind.mean_cost_ms else "at no cost"
    return f"{kind.failures / runs:.1f} a run, {cost}{replayed}{taken}"


def _describe_proposals(told: Tally) -> str:
    if not told.proposals:
        return "none"
    outcomes = ", ".join(f"{name} {count}" for name, count in sorted(told.proposals.items()))
    runs = f"in {count_of(len(told.rehearsals), 'run')}"
    given_up = f"; {told.tokens_given_up / 1e12:.2f}T tokens given up on average"
    return f"{sum(told.proposals.values())} {runs}: {outcomes}{given_up}"


def _describe_spares(told: Tally) -> str:
    spares = sum_spares(told.rehearsals)
    waited = f"waits {show_span(spares['mean_waited_ms'])} for repairs"
    if not told.spare_trays:
        return f"none; a run {waited}"
    moves = [count_of(spares[f"mean_{it}_moves"], "time") for it in ("tray", "rack")]
    return (
        f"{told.spare_trays} trays, fewest free {spares['fewest']} in all and"
        f" {spares['fewest_of_a_rack']} in a rack; a run moves {moves[0]} within a rack and"
        f" {moves[1]} to another, has {count_of(spares['mean_bare_days'], 'day')} with a rack"
        f" without spare, and {waited}"
    )


def _unfinished_rows(told: Tally) -> Iterator[tuple[str, str]]:
    for it in told.rehearsals:
        if it.outcome != "completed":
            yield f"seed {it.seed}", f"{it.outcome} at step {it.steps:,}: {it.why}"


HEADS = (
    "file", "P10", "P50", "P90", "on time", "horizon", "productive", "replay", "failures",
    "mean wait", "fewest free", "in a rack",
)  # fmt: skip


def compare(tallies: Sequence[Tally]) -> list[tuple[str, ...]]:
    """Return one row for each file, under the heads."""
    return [HEADS, *map(_compare_one, tallies)]


def _compare_one(told: Tally) -> tuple[str, ...]:
    spares = sum_spares(told.rehearsals)
    failures = sum(kind.failures for kind in told.kinds.values()) / len(told.rehearsals)
    return (
        told.file,
        *(_day(told.finish_ms[name]) for name in QUANTILES),
        "-" if told.on_time_permille is None else show_on_time(told),
        f"{told.horizon_percent['median']}%",
        *(_percent(told.account_permille.get(name, 0)) for name in ("productive", "replay")),
        f"{failures:.1f}",
        show_span(spares["mean_waited_ms"]),
        str(spares["fewest"]),
        str(spares["fewest_of_a_rack"]),
    )
