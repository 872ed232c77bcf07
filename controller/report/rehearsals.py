"""Draws what `ctl simulate` found: when the runs finish, where their time went, how they got there.

python -m controller.report.rehearsals OUT.svg|OUT.html < the JSON of `ctl simulate -o json`
The same rehearsals give the same bytes; colours follow the reader's light or dark screen.
"""

# pyright: reportUnknownMemberType=false
# Above: matplotlib's stubs leave its keyword arguments without types.

import io
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from pydantic import BaseModel

from controller.report.canvas import STYLE
from controller.report.style import CSS, ROLES, stand_in

DAY_MS = 86_400_000
RIGHT_IN, TOP_IN, PANEL_IN, BAR_IN, GAP_IN = 0.2, 0.4, 2.1, 0.28, 0.45
AXIS_IN, LEGEND_ROW_IN = 0.5, 0.17
"""Height of an axis with its words; the legend stands below it, where it hides nothing."""
COLOURS = ("line", "good", "ink", "revision")
"""Of the files, in turn: none is that of a phase, nor of a deadline."""
DASHES: tuple[tuple[int, tuple[int, ...]], ...] = ((0, ()), (0, (5, 2)), (0, (1, 1.5)))  # pyright: ignore[reportAssignmentType]  # halves of a point
WIDTHS = (2.8, 1.7, 1.3)
"""In points, by dash: of files that go the same way, the later one lies open upon the earlier."""


@dataclass(frozen=True)
class Size:
    """How wide the figure is drawn; the page shows the one that fits its reader's screen."""

    name: str
    width_in: float
    left_in: float
    columns: int
    """Of a legend."""
    ticks: int
    title_letters: int
    """In a line of a title."""
    name_letters: int
    """Of a file, beside a bar and in a legend."""


DESK = Size("desk", 7.4, 1.1, 4, 9, 90, 18)
PHONE = Size("phone", 3.3, 0.95, 2, 4, 38, 14)
SIZES = (DESK, PHONE)

LOSSES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("steps again", "s2", ("replay",)),
    ("restarts", "s3", ("schedule", "start", "rendezvous", "restore", "compile", "first_step")),
    ("stalls", "s5", ("stall",)),
    ("waiting for trays", "muted", ("waiting", "queued")),
    ("saves, evaluations", "s6", ("save_block", "eval", "drain")),
    ("halted", "ghost", ("halted",)),
    ("other", "grid", ()),
)
"""What is lost, its colour, and the phases of the account that are counted to it."""


# --- what is read: the members of the JSON that are drawn ---


class Proposal(BaseModel):
    """A proposal."""

    proposed_wall_ms: int
    adopted_wall_ms: int | None
    outcome: str


class Run(BaseModel):
    """One rehearsal."""

    launched_wall_ms: int
    finished_wall_ms: int | None
    deadline_wall_ms: int | None
    on_time: bool | None
    proposals: list[Proposal]
    progress: list[tuple[int, int]]


class Given(BaseModel):
    """A deadline asked about."""

    wall_ms: int


class Told(BaseModel):
    """The rehearsals of one file."""

    file: str
    finish_ms: dict[str, int | None]
    on_time_permille: int | None
    by_deadline: list[Given]
    horizon_percent: dict[str, int]
    account_permille: dict[str, int]
    rehearsals: list[Run]

    def label_for(self, size: Size) -> str:
        """Name of the file, shortened in its middle."""
        name, half = Path(self.file).name, size.name_letters // 2 - 1
        return name if len(name) <= size.name_letters else f"{name[:half]}..{name[-half:]}"

    @property
    def productive_percent(self) -> float:
        """Share of the wall time."""
        return self.account_permille.get("productive", 0) / 10


class Found(BaseModel):
    """All files."""

    files: list[Told]


# --- the figure ---


def draw(found: Found, size: Size = DESK) -> str:
    """Return the figure as SVG in stand-in colours."""
    files, shown = found.files, _find_losses(found.files)
    bars_in = BAR_IN * len(files) + 0.1
    panels = (
        (PANEL_IN, AXIS_IN, len(files) + 2, _draw_finish),
        (bars_in, 0.6 * AXIS_IN, len(shown), _draw_losses),
        (PANEL_IN, AXIS_IN, len(files), _draw_progress),
    )
    below = [
        axis_in + LEGEND_ROW_IN * -(-entries // size.columns) + GAP_IN
        for _, axis_in, entries, _ in panels
    ]
    with mpl.rc_context(STYLE):
        figure = Figure()
        FigureCanvasSVG(figure)
        whole_in = TOP_IN + sum(it[0] for it in panels) + sum(below) - GAP_IN / 2
        figure.set_size_inches(size.width_in, whole_in)
        top_in = whole_in - TOP_IN
        for index, (height_in, axis_in, _, draw_on) in enumerate(panels):
            place = (
                size.left_in / size.width_in,
                (top_in - height_in) / whole_in,
                1 - (size.left_in + RIGHT_IN) / size.width_in,
                height_in / whole_in,
            )
            axis = figure.add_axes(place, label=str(index))
            draw_on(axis, files, size)
            _explain(axis, height_in, axis_in, size)
            top_in -= height_in + below[index]
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=nothing)
    return file.getvalue()


def _entitle(axis: Axes, title: str, size: Size) -> None:
    lines = textwrap.fill(title, size.title_letters)
    axis.set_title(lines, loc="left", x=-(size.left_in - 0.1) / _axis_in(size))


def _axis_in(size: Size) -> float:
    return size.width_in - size.left_in - RIGHT_IN


def _explain(axis: Axes, height_in: float, axis_in: float, size: Size) -> None:
    place = (-(size.left_in - 0.1) / _axis_in(size), -axis_in / height_in)
    axis.legend(
        loc="upper left", bbox_to_anchor=place, ncols=size.columns, borderaxespad=0,
        borderpad=0, columnspacing=1.2, handlelength=2.4,
    )  # fmt: skip


def _draw_finish(axis: Axes, files: Sequence[Told], size: Size) -> None:
    _entitle(axis, "Share of the runs finished by then", size)
    for index, told in enumerate(files):
        days = sorted(_days_of(run) for run in told.rehearsals if run.finished_wall_ms is not None)
        count = len(told.rehearsals)
        xs = [day for day in days for _ in range(2)]
        ys = [100 * (number + after) / count for number in range(len(days)) for after in (0, 1)]
        if xs:
            xs, ys = [*xs, 1.02 * xs[-1]], [*ys, ys[-1]]
        axis.plot(
            xs, ys, color=_colour(index), linestyle=_dash(index), linewidth=_width(index),
            label=told.label_for(size),
        )  # fmt: skip
    _draw_deadlines(axis, files)
    axis.set_ylim(0, 104)
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:.0f}%"))
    axis.xaxis.set_major_locator(MaxNLocator(size.ticks))
    axis.set_xlabel("days since the launch")


def _draw_deadlines(axis: Axes, files: Sequence[Told]) -> None:
    asked = {_day(it.rehearsals[0], given.wall_ms) for it in files for given in it.by_deadline}
    of_files = set(_deadlines(files))
    rows = (
        (sorted(asked), "asked about", "muted", (1, 1.5)),
        (sorted(of_files), "deadline", "bad", (4, 2)),
    )
    for days, name, role, dash in rows:
        # As many as fit; three files with deadlines of their own are seen to differ.
        told = ", ".join(f"{day:.3g}" for day in days[:3])
        label: str | None = f"{name}: day {told}{', ..' if len(days) > len(told.split()) else ''}"
        for day in days:
            axis.axvline(day, color=stand_in(role), linewidth=1.1, linestyle=(0, dash), label=label)
            label = None


def _days_of(run: Run) -> float:
    return _day(run, run.finished_wall_ms or run.launched_wall_ms)


def _day(run: Run, wall_ms: int) -> float:
    return (wall_ms - run.launched_wall_ms) / DAY_MS


def _deadlines(files: Sequence[Told]) -> Iterator[float]:
    for told in files:
        run = told.rehearsals[0]
        if run.deadline_wall_ms is not None:
            yield _day(run, run.deadline_wall_ms)


def _find_losses(files: Sequence[Told]) -> list[tuple[str, str, list[float]]]:
    """Return what was lost as (label, colour, percent of all time of each file)."""
    known = {phase for _, _, phases in LOSSES for phase in phases} | {"productive"}
    rows = [
        (label, role, [_lost_percent(told, phases, known) for told in files])
        for label, role, phases in LOSSES
    ]
    return [row for row in rows if any(row[2])]


def _lost_percent(told: Told, phases: tuple[str, ...], known: set[str]) -> float:
    return (
        sum(
            permille
            for phase, permille in told.account_permille.items()
            if phase in phases or (not phases and phase not in known)
        )
        / 10
    )


def _draw_losses(axis: Axes, files: Sequence[Told], size: Size) -> None:
    _entitle(axis, "Time that was not new steps, in percent of all time", size)
    before = [0.0] * len(files)
    for label, role, widths in _find_losses(files):
        rows = list(range(len(files)))
        axis.barh(rows, widths, 0.6, left=before, color=stand_in(role), label=label, linewidth=0)
        before = [left + width for left, width in zip(before, widths, strict=True)]
    names = [f"{told.label_for(size)}\n{told.productive_percent:.1f}% new" for told in files]
    axis.set_yticks(range(len(files)), names)
    axis.set_ylim(len(files) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set_axisbelow(True)
    axis.xaxis.set_major_locator(MaxNLocator(size.ticks))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}%"))


def _draw_progress(axis: Axes, files: Sequence[Told], size: Size) -> None:
    is_proposed = any(run.proposals for told in files for run in told.rehearsals)
    dots = "; a dot is a proposal, a full one was adopted" if is_proposed else ""
    _entitle(axis, f"Completed steps of every run{dots}", size)
    for index, told in enumerate(files):
        for number, run in enumerate(told.rehearsals):
            xs = [_day(run, wall_ms) for wall_ms, _ in run.progress]
            ys = [step for _, step in run.progress]
            label = told.label_for(size) if number == 0 else None
            axis.plot(
                xs, ys, color=_colour(index), linestyle=_dash(index),
                linewidth=0.6 * _width(index), alpha=0.85, label=label,
            )  # fmt: skip
            _mark_proposals(axis, run, index)
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.xaxis.set_major_locator(MaxNLocator(size.ticks))
    axis.set_xlabel("days since the launch")


def _mark_proposals(axis: Axes, run: Run, index: int) -> None:
    for proposal in run.proposals:
        is_adopted = proposal.adopted_wall_ms is not None
        axis.plot(
            _day(run, proposal.proposed_wall_ms), _step_at(run, proposal.proposed_wall_ms), "o",
            markersize=4, markeredgecolor=_colour(index),
            markerfacecolor=_colour(index) if is_adopted else "none",
        )  # fmt: skip


def _step_at(run: Run, wall_ms: int) -> int:
    return max((step for at_ms, step in run.progress if at_ms <= wall_ms), default=0)


def _colour(index: int) -> str:
    return stand_in(COLOURS[index % len(COLOURS)])


def _dash(index: int) -> tuple[int, tuple[int, ...]]:
    return DASHES[index % len(DASHES)]


def _width(index: int) -> float:
    return WIDTHS[index % len(WIDTHS)]


# --- the files ---


def embed(svg: str, prefix: str = "") -> str:
    """Return the figure as an element in the reader's colours, sized by what it stands in.

    With a prefix its names are its own among other figures of a page.
    """
    svg = svg[svg.index("<svg") :]
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', head)
    assert box is not None, head
    rest = re.sub(r"<metadata>.*?</metadata>\s*", "", rest, flags=re.S).replace(
        "xlink:href", "href"
    )
    rest = re.sub(r'\bid="', f'id="{prefix}', rest)
    rest = re.sub(r'(url\(|href=")#', rf"\1#{prefix}", rest)
    for role, (colour, _, _) in ROLES.items():
        rest = rest.replace(colour, f"var(--{role})")
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box[1]}" role="img">'
    return f"{opening}{rest}".rstrip()


def write_svg(found: Found) -> str:
    """Return the figure as a file of its own, on the page's ground."""
    colours = [
        " ".join(f"--{role}: {shades[index]};" for role, shades in ROLES.items())
        for index in (1, 2)
    ]
    style = (
        f"<style>:root {{ {colours[0]} }} @media (prefers-color-scheme: dark)"
        f" {{ :root {{ {colours[1]} }} }}</style>"
        '<rect width="100%" height="100%" style="fill: var(--surface)"/>'
    )
    opening, rest = embed(draw(found)).split(">", 1)
    return f"{opening}>{style}{rest}\n"


def write_html(found: Found) -> str:
    """Return a page with the figure and the figures in it."""
    names = ", ".join(escape(told.file) for told in found.files)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    rows = "\n".join(_row(told) for told in found.files)
    figures = "\n".join(
        f'<div class="figure {it.name}">{embed(draw(found, it), f"{it.name}-")}</div>'
        for it in SIZES
    )
    heads = "".join(f"<th>{it}</th>" for it in HEADS)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>Rehearsals of {names}</title>
<style>{CSS}</style>
</head>
<body>
<h1>Rehearsals of {names}</h1>
<div class="wide"><table>
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
{figures}
</body>
</html>
"""


HEADS = ("file", "runs", "P10", "P50", "P90", "on time", "horizon", "new steps")


def _row(told: Told) -> str:
    runs = len(told.rehearsals)
    on_time = f"{sum(bool(run.on_time) for run in told.rehearsals)} of {runs}"
    cells = (
        told.file,
        str(runs),
        *(_show_day(told.finish_ms.get(name)) for name in ("p10", "p50", "p90")),
        "-" if told.on_time_permille is None else on_time,
        f"{told.horizon_percent['median']}%",
        f"{told.productive_percent:.1f}%",
    )
    pairs = zip(HEADS, cells, strict=True)
    inner = "".join(f'<td data-head="{head}">{escape(cell)}</td>' for head, cell in pairs)
    return f"<tr>{inner}</tr>"


def _show_day(span_ms: int | None) -> str:
    return "not at all" if span_ms is None else f"day {span_ms / DAY_MS:.1f}"


def main(arguments: Sequence[str]) -> int:
    """Draw the JSON on stdin into the file named; return the exit code."""
    path = Path(arguments[0])
    try:
        found = Found.model_validate_json(sys.stdin.buffer.read())
        text = write_svg(found) if path.suffix == ".svg" else write_html(found)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"{path}: {error.strerror}\n")
        return 1
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
