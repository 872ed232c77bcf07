"""How figures are drawn: their forms, their style, panels one above the other, SVG for a page.

The same scene gives the same bytes: no date, no random identifiers, no font of the machine, and
every axis in its place by arithmetic (the solver of constrained layouts differs in last digits).
"""

# pyright: reportUnknownMemberType=false
# Above: matplotlib's stubs leave its keyword arguments without types.

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from controller.report.scene import Curve
from controller.report.style import ROLES, stand_in
from controller.report.wording import DAY_S, HOUR_S, MINUTE_S


@dataclass(frozen=True)
class Form:
    """How wide a figure is drawn; the page shows the one that fits its reader's screen."""

    name: str
    width_in: float
    left_in: float
    columns: int
    """Of a legend."""
    ticks: int
    """Of the horizontal axis, at most."""


DESK = Form("desk", 6.2, 0.78, 4, 7)
PHONE = Form("phone", 3.3, 0.62, 2, 4)
"""8 points are 14 pixels on a desk and 12 on a phone."""
FORMS = (DESK, PHONE)

FONT_POINTS = 8
POINTS_PER_IN = 72
RIGHT_IN, BOTTOM_IN = 0.14, 0.42
LEGEND_ROW_IN = 0.17
GAP_IN = 0.08
"""Between a panel and its legend, and below that."""

Look = dict[str, Any]
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "steersman",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": FONT_POINTS,
    "axes.edgecolor": stand_in("muted"),
    "axes.labelcolor": stand_in("muted"),
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": FONT_POINTS,
    "figure.dpi": POINTS_PER_IN,
    "figure.facecolor": "none",
    "grid.color": stand_in("grid"),
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": FONT_POINTS - 1,
    "lines.linewidth": 1.4,
    "text.color": stand_in("ink"),
    "xtick.color": stand_in("muted"),
    "ytick.color": stand_in("muted"),
}


@dataclass(frozen=True)
class Unit:
    """What instants since launch are drawn in."""

    seconds: float
    name: str


UNITS = ((4 * DAY_S, DAY_S, "days"), (3 * HOUR_S, HOUR_S, "hours"), (180, MINUTE_S, "minutes"))


@dataclass(frozen=True)
class Panel:
    """One pair of axes: how high, and what draws on it."""

    height_in: float
    draw: Callable[[Axes], None]


def unit_of(span_s: float) -> Unit:
    """Return the unit that a span of time is drawn in."""
    for least_s, unit_s, name in UNITS:
        if span_s >= least_s:
            return Unit(float(unit_s), name)
    return Unit(1.0, "seconds")


def line(  # the last: what matplotlib's plot takes
    axis: Axes,
    curve: Curve,
    role: str,
    label: str | None,
    **look: Any,  # noqa: ANN401  # as there
) -> None:
    """Draw a curve in a role's colour."""
    axis.plot(curve.xs, curve.ys, color=stand_in(role), label=label, **look)


def scale(curve: Curve, unit: Unit) -> Curve:
    """Return the curve over another unit of time."""
    return Curve([x / unit.seconds for x in curve.xs], curve.ys)


def join(curves: Iterable[Curve]) -> Curve:
    """Return the curves as one with gaps: a single path, however many they are."""
    xs, ys = list[float](), list[float]()
    for curve in curves:
        xs += [*curve.xs, nan]
        ys += [*curve.ys, nan]
    return Curve(xs, ys)


def draw_ticks(axis: Axes, xs: Sequence[float], span: tuple[float, float], role: str) -> None:
    """Draw a short line at each x, between two shares of the panel's height."""
    ticks = join(Curve([x, x], span) for x in xs)
    across = axis.get_xaxis_transform()
    line(axis, ticks, role, None, linewidth=0.8, transform=across)


def render(panels: Sequence[Panel], top_in: float, form: Form, prefix: str) -> str:
    """Return the panels, one above the other on one horizontal axis, as an element of a page."""
    with mpl.rc_context(STYLE):
        figure = Figure()
        FigureCanvasSVG(figure)
        axes: list[Axes] = []
        for _ in panels:
            axes.append(figure.add_subplot(label=str(len(axes)), sharex=axes[0] if axes else None))
            axes[-1].xaxis.set_major_locator(MaxNLocator(form.ticks))
            axes[-1].yaxis.set_major_locator(MaxNLocator(5))
        for panel, axis in zip(panels, axes, strict=True):
            panel.draw(axis)
        heights_in = [panel.height_in for panel in panels]
        figure.set_size_inches(form.width_in, top_in + _tall_in(axes, heights_in, form))
        _stack(figure, axes, heights_in, form)
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=nothing)
    return _embed(file.getvalue(), prefix)


def _explain(axis: Axes, form: Form, below_in: float) -> None:
    """Put the legend below the panel, where it covers nothing."""
    if not axis.get_legend_handles_labels()[1]:
        return
    height_in, width_in = (size / POINTS_PER_IN for size in (axis.bbox.height, axis.bbox.width))
    # On a phone it begins at the edge of the figure: there is no room to give away.
    left_in = 0.0 if form is DESK else form.left_in - 0.05
    axis.legend(
        loc="upper left", bbox_to_anchor=(-left_in / width_in, -below_in / height_in),
        ncols=form.columns, handlelength=1.8, columnspacing=1.2, borderaxespad=0, borderpad=0.2,
    )  # fmt: skip


def _legend_in(axis: Axes, form: Form) -> float:
    """Return the height of the panel's legend."""
    return LEGEND_ROW_IN * -(-len(axis.get_legend_handles_labels()[1]) // form.columns)


def _stack(figure: Figure, axes: Sequence[Axes], heights_in: Sequence[float], form: Form) -> None:
    """Put the panels one above the other, each with its legend below it."""
    width_in, whole_in = figure.get_size_inches()
    top_in = _tall_in(axes, heights_in, form)
    for axis, height_in in zip(axes, heights_in, strict=True):
        place = (
            form.left_in / width_in,
            (top_in - height_in) / whole_in,
            1 - (form.left_in + RIGHT_IN) / width_in,
            height_in / whole_in,
        )
        axis.set_position(place)
        is_lowest = axis is axes[-1]
        axis.tick_params(labelbottom=is_lowest)
        if not is_lowest:
            axis.set_xlabel("")
        _explain(axis, form, BOTTOM_IN if is_lowest else GAP_IN / 2)
        top_in -= height_in + _below_in(axis, form, is_lowest=is_lowest)


def _below_in(axis: Axes, form: Form, *, is_lowest: bool) -> float:
    return _legend_in(axis, form) + (BOTTOM_IN if is_lowest else 2 * GAP_IN)


def _tall_in(axes: Sequence[Axes], heights_in: Sequence[float], form: Form) -> float:
    below_in = (_below_in(axis, form, is_lowest=axis is axes[-1]) for axis in axes)
    return sum(heights_in) + sum(below_in)


COORDINATE = re.compile(r"(?<=[ \"(])-?\d+\.\d{3,}(?=[ \")])")
"""Of a point, to more digits than anybody sees; words of people stand between other signs."""


def _embed(text: str, prefix: str) -> str:
    """Return the drawing as an element of a page: sized by it, in its colours, names of its own."""
    text = text[text.index("<svg") :]
    head, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None, head
    text = f'<svg {box[0]} role="img">{rest}'
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = text.replace("xlink:href", "href")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", text)
    text = COORDINATE.sub(lambda it: f"{float(it[0]):.2f}".rstrip("0").rstrip("."), text)
    for role, (colour, _, _) in ROLES.items():
        text = text.replace(colour, f"var(--{role})")
    return text.rstrip()
