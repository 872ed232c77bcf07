"""Draws what `ctl simulate` found: when the runs finish, where their time went, how they got there.

python -m controller.report.rehearsals OUT.svg|OUT.html < the JSON of `ctl simulate -o json`
The same rehearsals give the same bytes; colours follow the reader's light or dark screen.
"""

# pyright: reportUnknownMemberType=false
# Above: matplotlib's stubs leave its keyword arguments without types.

import io
import re
import sys
from collections.abc import Iterator, Sequence
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
WIDTH_IN, LEFT_IN, RIGHT_IN = 7.4, 1.1, 0.2
TOP_IN, PANEL_IN, BAR_IN, GAP_IN = 0.3, 2.1, 0.28, 0.4
AXIS_IN, LEGEND_ROW_IN, LEGEND_COLUMNS = 0.5, 0.17, 4
"""Height of an axis with its words; the legend stands below it, where it hides nothing."""
MAX_NAME = 18
"""Letters that fit beside a bar."""
COLOURS = ("line", "revision", "good", "bad", "muted", "ink")
"""Of the files, in turn."""
DASHES: tuple[tuple[int, tuple[int, ...]], ...] = ((0, ()), (0, (5, 2)), (0, (1, 1.5)))  # pyright: ignore[reportAssignmentType]  # halves of a point

LOSSES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("steps again", "revision", ("replay",)),
    ("restarts", "line", ("schedule", "start", "rendezvous", "restore", "compile", "first_step")),
    ("stalls", "bad", ("stall",)),
    ("waiting for trays", "ink", ("waiting", "queued")),
    ("saves, evaluations", "muted", ("save_block", "eval", "drain")),
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


class Incident(BaseModel):
    """A failure."""

    at_wall_ms: int


class Run(BaseModel):
    """One rehearsal."""

    launched_wall_ms: int
    finished_wall_ms: int | None
    deadline_wall_ms: int | None
    incidents: list[Incident]
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

    @property
    def label(self) -> str:
        """Name of the file, shortened in its middle."""
        name = Path(self.file).name
        return name if len(name) <= MAX_NAME else f"{name[:8]}..{name[-8:]}"

    @property
    def productive_percent(self) -> float:
        """Share of the wall time."""
        return self.account_permille.get("productive", 0) / 10


class Found(BaseModel):
    """All files."""

    files: list[Told]


# --- the figure ---


def draw(found: Found) -> str:
    """Return the figure as SVG in stand-in colours."""
    heights = (PANEL_IN, BAR_IN * len(found.files) + 0.1, PANEL_IN)
    below = [_below_in(count) for count in (len(found.files) + 1, len(LOSSES), len(found.files))]
    with mpl.rc_context(STYLE):
        figure = Figure()
        FigureCanvasSVG(figure)
        whole_in = TOP_IN + sum(heights) + sum(below)
        figure.set_size_inches(WIDTH_IN, whole_in)
        axes: list[Axes] = []
        top_in = whole_in - TOP_IN
        for index, (height_in, below_in) in enumerate(zip(heights, below, strict=True)):
            place = (
                LEFT_IN / WIDTH_IN,
                (top_in - height_in) / whole_in,
                1 - (LEFT_IN + RIGHT_IN) / WIDTH_IN,
                height_in / whole_in,
            )
            axes.append(figure.add_axes(place, label=str(index)))
            top_in -= height_in + below_in
        _draw_finish(axes[0], found.files)
        _draw_losses(axes[1], found.files)
        _draw_progress(axes[2], found.files)
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=nothing)
    return file.getvalue()


def _draw_finish(axis: Axes, files: Sequence[Told]) -> None:
    axis.set_title("How many of the runs are finished by then", loc="left")
    for index, told in enumerate(files):
        days = sorted(_days_of(run) for run in told.rehearsals if run.finished_wall_ms is not None)
        count = len(told.rehearsals)
        xs = [day for day in days for _ in range(2)]
        ys = [100 * (number + after) / count for number in range(len(days)) for after in (0, 1)]
        if xs:
            xs, ys = [*xs, 1.02 * xs[-1]], [*ys, ys[-1]]
        axis.plot(xs, ys, color=_colour(index), linestyle=_dash(index), label=told.label)
    asked = {_day(it.rehearsals[0], given.wall_ms) for it in files for given in it.by_deadline}
    for day in sorted(asked):
        axis.axvline(day, color=stand_in("muted"), linewidth=0.9, linestyle=(0, (1, 1.5)))
    for index, day in enumerate(sorted(set(_deadlines(files)))):
        label = "deadline" if index == 0 else None
        axis.axvline(day, color=stand_in("bad"), linewidth=1.1, linestyle=(0, (4, 2)), label=label)
    axis.set_ylim(0, 104)
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:.0f}%"))
    axis.xaxis.set_major_locator(MaxNLocator(9))
    axis.set_xlabel("days since the launch")
    _explain(axis, PANEL_IN)


def _below_in(entries: int) -> float:
    """Return the height of what stands below a panel: axis, legend, and the gap to the next."""
    return AXIS_IN + LEGEND_ROW_IN * -(-entries // LEGEND_COLUMNS) + GAP_IN


def _explain(axis: Axes, height_in: float, axis_in: float = AXIS_IN) -> None:
    place = (0, -axis_in / height_in)
    axis.legend(loc="upper left", bbox_to_anchor=place, ncols=LEGEND_COLUMNS, borderaxespad=0)


def _days_of(run: Run) -> float:
    return _day(run, run.finished_wall_ms or run.launched_wall_ms)


def _day(run: Run, wall_ms: int) -> float:
    return (wall_ms - run.launched_wall_ms) / DAY_MS


def _deadlines(files: Sequence[Told]) -> Iterator[float]:
    for told in files:
        run = told.rehearsals[0]
        if run.deadline_wall_ms is not None:
            yield _day(run, run.deadline_wall_ms)


def _draw_losses(axis: Axes, files: Sequence[Told]) -> None:
    axis.set_title("Time that was not new steps, in percent of all time", loc="left")
    known = {phase for _, _, phases in LOSSES for phase in phases} | {"productive"}
    before = [0.0] * len(files)
    for label, role, phases in LOSSES:
        widths = [
            sum(
                permille
                for phase, permille in told.account_permille.items()
                if phase in phases or (not phases and phase not in known)
            )
            / 10
            for told in files
        ]
        if any(widths):
            rows = list(range(len(files)))
            colour = stand_in(role)
            axis.barh(rows, widths, 0.6, left=before, color=colour, label=label, linewidth=0)
            before = [left + width for left, width in zip(before, widths, strict=True)]
    names = [f"{told.label}\n{told.productive_percent:.1f}% new" for told in files]
    axis.set_yticks(range(len(files)), names)
    axis.set_ylim(len(files) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}%"))
    _explain(axis, BAR_IN * len(files) + 0.1, AXIS_IN / 2)


def _draw_progress(axis: Axes, files: Sequence[Told]) -> None:
    axis.set_title("Completed steps; a tick is a failure, a dot a proposal", loc="left")
    for index, told in enumerate(files):
        for number, run in enumerate(told.rehearsals):
            xs = [_day(run, wall_ms) for wall_ms, _ in run.progress]
            ys = [step for _, step in run.progress]
            label = told.label if number == 0 else None
            axis.plot(
                xs, ys, color=_colour(index), linestyle=_dash(index), linewidth=0.9, alpha=0.7,
                label=label,
            )  # fmt: skip
            _mark_run(axis, run, index, number)
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.xaxis.set_major_locator(MaxNLocator(9))
    axis.set_xlabel("days since the launch")
    _explain(axis, PANEL_IN)


def _mark_run(axis: Axes, run: Run, index: int, number: int) -> None:
    """Mark failures below the curves, only of the first run of a file: more would be a carpet."""
    if number == 0:
        days = [_day(run, it.at_wall_ms) for it in run.incidents]
        height = 0.03
        axis.vlines(
            days, 0.005 + height * index, 0.005 + height * (index + 0.8), color=_colour(index),
            linewidth=0.6, transform=axis.get_xaxis_transform(),
        )  # fmt: skip
    for proposal in run.proposals:
        is_adopted = proposal.adopted_wall_ms is not None
        day = _day(run, proposal.proposed_wall_ms)
        face = stand_in("revision") if is_adopted else "none"
        axis.plot(
            day, _step_at(run, proposal.proposed_wall_ms), "o", markersize=4,
            markeredgecolor=stand_in("revision"), markerfacecolor=face,
        )  # fmt: skip


def _step_at(run: Run, wall_ms: int) -> int:
    return max((step for at_ms, step in run.progress if at_ms <= wall_ms), default=0)


def _colour(index: int) -> str:
    return stand_in(COLOURS[index % len(COLOURS)])


def _dash(index: int) -> tuple[int, tuple[int, ...]]:
    return DASHES[index // len(COLOURS) % len(DASHES)]


# --- the files ---


def embed(svg: str) -> str:
    """Return the figure as an element in the reader's colours, sized by what it stands in."""
    svg = svg[svg.index("<svg") :]
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', head)
    assert box is not None, head
    rest = re.sub(r"<metadata>.*?</metadata>\s*", "", rest, flags=re.S).replace(
        "xlink:href", "href"
    )
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
<tr class="heads">{heads}</tr>
{rows}
</table></div>
<div class="figure">{embed(draw(found))}</div>
</body>
</html>
"""


HEADS = ("file", "runs", "P10", "P50", "P90", "on time", "horizon", "new steps")


def _row(told: Told) -> str:
    on_time = "-" if told.on_time_permille is None else f"{told.on_time_permille / 10:.0f}%"
    cells = (
        told.file,
        str(len(told.rehearsals)),
        *(_show_day(told.finish_ms.get(name)) for name in ("p10", "p50", "p90")),
        on_time,
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
