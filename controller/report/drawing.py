"""Scenes as SVG, drawn by matplotlib in the stand-in colours of `style`.

The same scene gives the same bytes: no date, no random identifiers, no font of the machine, and
every axis in its place by arithmetic (the solver of constrained layouts differs in last digits).
"""

# pyright: reportUnknownMemberType=false
# Above: matplotlib's stubs leave its keyword arguments without types.

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from controller.report.scene import Curve, Guess, Mark, RateScene, Term, TimeScene
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
NAME_ROW_IN = 0.13
LETTER_IN = 0.062
"""Width of a letter of a mark's name, generously."""
MAX_LABELS = 6
"""More incidents than this are marked without words."""
NEAR = 1.35
"""The axis of time reaches the deadline if that is at most so far beyond what is known."""

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


def draw_times(scene: TimeScene, form: Form = DESK) -> str:
    """Return finish forecasts, progress, pace and attempts over time, one above the other."""
    panels: list[tuple[float, Callable[[Axes, TimeScene, Unit], None]]] = [
        (2.2, _draw_progress),
        (1.2, _draw_pace),
        (0.35, _draw_attempts),
    ]
    if scene.guesses:
        panels.insert(0, (2.4, _draw_finish))
    unit = _unit_of(max(scene.end_s, scene.deadline_s or 0.0))
    names = _place_names(scene, form)

    def draw(axes: Sequence[Axes]) -> None:
        for axis, (_, draw_panel) in zip(axes, panels, strict=True):
            draw_panel(axis, scene, unit)
            _mark(axis, scene.marks, unit)
        _write_names(axes[0], names, unit)
        axes[-1].set_xlabel(f"{unit.name} since launch")
        axes[-1].set_xlim(0, _last_s(scene) / unit.seconds or 1)

    top_in = 0.1 + NAME_ROW_IN * (1 + max((it.row for it in names), default=0))
    return _render(draw, [height for height, _ in panels], top_in, form, f"times-{form.name}")


def draw_rates(scene: RateScene, form: Form = DESK) -> str:
    """Return the learning rate over steps: as launched, as planned now, as received."""

    def draw(axes: Sequence[Axes]) -> None:
        [axis] = axes
        if scene.is_revised:
            label = "plan of the launch"
            _line(axis, scene.genesis, "ghost", label, linestyle=(0, (4, 2)), linewidth=1.2)
        _line(axis, scene.planned, "line", "plan in force", linewidth=0.8, linestyle=(0, (1, 1)))
        _line(axis, scene.executed, "line", "received by the steps", linewidth=1.8)
        for index, fork in enumerate(scene.forks):
            label = "fork of a revision" if index == 0 else None
            axis.axvline(fork, color=stand_in("revision"), linewidth=1, label=label)
            axis.annotate(
                f"step {fork:,}",
                (fork, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(4, 0),
                textcoords="offset points",
                va="top",
                color=stand_in("revision"),
            )
        axis.set_xlabel("step")
        axis.set_ylabel("% of the peak")
        axis.set_ylim(bottom=0)
        axis.set_xlim(left=0)
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))

    return _render(draw, [2.4], 0.1, form, f"rates-{form.name}")


# --- panels ---


def _draw_finish(axis: Axes, scene: TimeScene, unit: Unit) -> None:
    """Draw each recorded P10-P50-P90 over the moment it was made, and what came."""
    for index, (_, guesses) in enumerate(groupby(scene.guesses, lambda it: it.total_steps)):
        # Forecasts of two plans are no one series.
        _draw_cone(axis, list(guesses), unit, CONE if index == 0 else None)
    _draw_terms(axis, scene, unit)
    _level(axis, scene.counterfactual_s, unit, ("ghost", "without the revision", "--"))
    for at_s, label, style, marker in (
        (scene.last_step_s, "end of the last step", "-", "D"),
        (scene.finish_s, "finish", (0, (4, 2, 1, 2)), "s"),
    ):
        if at_s is not None:
            _level(axis, at_s, unit, ("good", label, style))
            at = at_s / unit.seconds
            look: Look = {"marker": marker, "markersize": 5, "zorder": 5, "clip_on": False}
            _line(axis, Curve([at], [at]), "good", None, **look)
    axis.set_ylabel(f"finish, {unit.name} since launch")
    _bound_finish(axis, scene, unit)


CONE = "forecast, P10 to P90"


def _draw_cone(axis: Axes, guesses: Sequence[Guess], unit: Unit, label: str | None) -> None:
    xs, lows, middles, highs = (
        [getattr(guess, name) / unit.seconds for guess in guesses]
        for name in ("at_s", "low_s", "middle_s", "high_s")
    )
    axis.fill_between(xs, lows, highs, color=stand_in("line"), alpha=0.18, linewidth=0)
    axis.vlines(xs, lows, highs, color=stand_in("line"), linewidth=1.2, alpha=0.7)
    _line(axis, Curve(xs, middles), "line", label, marker="o", markersize=3)


def _draw_terms(axis: Axes, scene: TimeScene, unit: Unit) -> None:
    """Draw deadline and due instant as steps over time: each as long as it held."""
    last = _last_s(scene) / unit.seconds
    for name, style in (("deadline", "-"), ("due", ":")):
        for index, curve in enumerate(_list_stairs(scene.terms, f"{name}_s", unit, last)):
            look: Look = {"linewidth": 1.2, "linestyle": style}
            _line(axis, curve, "bad", name if index == 0 else None, **look)


def _list_stairs(terms: Sequence[Term], name: str, unit: Unit, last: float) -> Iterator[Curve]:
    """Yield the stairs of an instant, one for each time in which there was one."""
    for is_set, group in groupby(terms, lambda it: getattr(it, name) is not None):
        if is_set:
            held = list(group)
            xs = [x / unit.seconds for it in held for x in (it.from_s, it.to_s)]
            if held[-1] is terms[-1]:
                xs[-1] = last
            yield Curve(xs, [getattr(it, name) / unit.seconds for it in held for _ in range(2)])


def _bound_finish(axis: Axes, scene: TimeScene, unit: Unit) -> None:
    """Show every band whole, unless one is so wide that it would press all the others flat."""
    firm = [scene.last_step_s, scene.finish_s, scene.counterfactual_s]
    firm += [at_s for it in scene.terms for at_s in (it.deadline_s, it.due_s)]
    told = [it for it in firm if it is not None] + [it.middle_s for it in scene.guesses]
    low, high = min(told), max(told)
    room = MOST_ROOM * (high - low) or 0.1 * high or 1.0
    bottom = max(low - room, min([low, *(it.low_s for it in scene.guesses)]))
    top = min(high + room, max([high, *(it.high_s for it in scene.guesses)]))
    margin = 0.06 * (top - bottom) or room
    bottom, top = max(0.0, bottom - margin), top + margin
    axis.set_ylim(bottom / unit.seconds, top / unit.seconds)
    cut = [
        *((it.at_s, top, "^") for it in scene.guesses if it.high_s > top),
        *((it.at_s, bottom, "v") for it in scene.guesses if it.low_s < bottom),
    ]
    for index, (at_s, edge_s, marker) in enumerate(cut):
        point = Curve([at_s / unit.seconds], [edge_s / unit.seconds])
        label = "goes on beyond" if index == 0 else None
        look: Look = {"marker": marker, "markersize": 4, "linestyle": "", "clip_on": False}
        _line(axis, point, "line", label, **look)


MOST_ROOM = 1.5
"""Beyond all medians and dates, as a multiple of what lies between them."""


def _level(axis: Axes, at_s: float | None, unit: Unit, look: tuple[str, str, Any]) -> None:
    role, label, linestyle = look
    if at_s is not None:
        axis.axhline(
            at_s / unit.seconds, color=stand_in(role), linewidth=1.2, linestyle=linestyle,
            label=label,
        )  # fmt: skip


def _draw_progress(axis: Axes, scene: TimeScene, unit: Unit) -> None:
    """Draw completed steps, and the horizon that they were to reach."""
    last = _last_s(scene) / unit.seconds
    for index, horizon in enumerate(scene.horizons):
        is_over = scene.end_s > 0 and index == len(scene.horizons) - 1
        to = last if is_over else horizon.to_s / unit.seconds
        levels = Curve([horizon.from_s / unit.seconds, to], [horizon.total_steps] * 2)
        _line(axis, levels, "revision", "horizon" if index == 0 else None, linewidth=1.1)
        axis.annotate(
            f"{horizon.total_steps:,}", (levels.xs[0], horizon.total_steps), xytext=(3, -2),
            textcoords="offset points", va="top", color=stand_in("revision"),
        )  # fmt: skip
    for index, curve in enumerate(scene.progress):
        scaled = Curve([x / unit.seconds for x in curve.xs], curve.ys)
        _line(axis, scaled, "line", "completed steps" if index == 0 else None)
    for term in scene.terms:
        # A deadline that was moved stays in sight, paler.
        is_last = term is scene.terms[-1]
        for at_s, label, style in ((term.deadline_s, "deadline", "-"), (term.due_s, "due", ":")):
            if at_s is not None and at_s <= _last_s(scene):
                axis.axvline(
                    at_s / unit.seconds, color=stand_in("bad"), linewidth=1.2, linestyle=style,
                    label=label if is_last else None, alpha=1 if is_last else 0.35,
                )  # fmt: skip
    axis.set_ylabel("steps")
    axis.set_ylim(0, 1.06 * max(it.total_steps for it in scene.horizons))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _draw_pace(axis: Axes, scene: TimeScene, unit: Unit) -> None:
    """Draw what a step took."""
    for curve in scene.pace:
        scaled = Curve([x / unit.seconds for x in curve.xs], curve.ys)
        _line(axis, scaled, "line", None, linewidth=1.1)
    highest = max((y for curve in scene.pace for y in curve.ys), default=1.0)
    axis.set_ylim(0, 1.15 * highest or 1)
    axis.set_ylabel("s a step")


def _draw_attempts(axis: Axes, scene: TimeScene, unit: Unit) -> None:
    """Draw when gangs lived."""
    for number, begun, ended in scene.attempts:
        axis.broken_barh(
            [(begun / unit.seconds, max(0.0, ended - begun) / unit.seconds)], (0, 1),
            facecolor=stand_in("line"), alpha=0.35, linewidth=0,
        )  # fmt: skip
        if len(scene.attempts) <= MAX_LABELS:
            axis.annotate(
                f"{number}", (begun / unit.seconds, 0.5), xytext=(3, 0), textcoords="offset points",
                va="center",
            )  # fmt: skip
    axis.set_ylim(0, 1)
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.set_ylabel("gangs", rotation=0, ha="right", va="center")


# --- marks, axes, figures ---


LOOKS: dict[str, tuple[str, Any]] = {
    "incident": ("bad", (0, (3, 2))),
    "revision": ("revision", "-"),
    "deadline": ("muted", (0, (1, 1))),
}
"""Kind of a mark -> (role, line style)."""


def _mark(axis: Axes, marks: Sequence[Mark], unit: Unit) -> None:
    for mark in marks:
        role, style = LOOKS[mark.kind]
        axis.axvline(mark.at_s / unit.seconds, color=stand_in(role), linewidth=0.9, linestyle=style)


@dataclass(frozen=True)
class Name:
    """A mark's name with its place above the first panel."""

    mark: Mark
    row: int
    shift_in: float
    """From the mark's line to the middle of the name, so that it stays inside the figure."""


def _place_names(scene: TimeScene, form: Form) -> list[Name]:
    """Return names in rows, none over another; incidents have none where they are many."""
    is_crowded = sum(mark.kind == "incident" for mark in scene.marks) > MAX_LABELS
    shown = [it for it in scene.marks if it.kind != "incident" or not is_crowded]
    width_in = form.width_in - form.left_in - RIGHT_IN
    names: list[Name] = []
    ends_in: list[float] = []
    for mark in sorted(shown, key=lambda it: it.at_s):
        at_in = width_in * mark.at_s / (_last_s(scene) or 1.0)
        half_in = LETTER_IN * len(mark.label) / 2
        middle_in = max(min(at_in, width_in + RIGHT_IN - half_in), half_in - form.left_in)
        row = next((i for i, end in enumerate(ends_in) if end <= middle_in - half_in), len(ends_in))
        ends_in[row : row + 1] = [middle_in + half_in + LETTER_IN]
        names.append(Name(mark, row, middle_in - at_in))
    return names


def _write_names(axis: Axes, names: Sequence[Name], unit: Unit) -> None:
    for name in names:
        axis.annotate(
            name.mark.label, (name.mark.at_s / unit.seconds, 1.0),
            xycoords=("data", "axes fraction"), textcoords="offset points",
            xytext=(name.shift_in * POINTS_PER_IN, 2 + NAME_ROW_IN * POINTS_PER_IN * name.row),
            ha="center", va="bottom", color=stand_in(LOOKS[name.mark.kind][0]),
            fontsize=FONT_POINTS - 1,
        )  # fmt: skip


def _line(  # the last: what matplotlib's plot takes
    axis: Axes,
    curve: Curve,
    role: str,
    label: str | None,
    **look: Any,  # noqa: ANN401  # as there
) -> None:
    axis.plot(curve.xs, curve.ys, color=stand_in(role), label=label, **look)


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
        _explain(axis, form, BOTTOM_IN if is_lowest else GAP_IN / 2)
        top_in -= height_in + _below_in(axis, form, is_lowest=is_lowest)


def _below_in(axis: Axes, form: Form, *, is_lowest: bool) -> float:
    return _legend_in(axis, form) + (BOTTOM_IN if is_lowest else 2 * GAP_IN)


def _tall_in(axes: Sequence[Axes], heights_in: Sequence[float], form: Form) -> float:
    below_in = (_below_in(axis, form, is_lowest=axis is axes[-1]) for axis in axes)
    return sum(heights_in) + sum(below_in)


def _last_s(scene: TimeScene) -> float:
    """Return where the axis of time ends: with what is known, or at a deadline that is near."""
    ends = [scene.end_s, *([scene.finish_s] if scene.finish_s else [])]
    if scene.deadline_s is not None and scene.deadline_s <= NEAR * scene.end_s:
        ends.append(scene.deadline_s)
    return 1.02 * max(ends)


def _unit_of(span_s: float) -> Unit:
    for least_s, unit_s, name in UNITS:
        if span_s >= least_s:
            return Unit(float(unit_s), name)
    return Unit(1.0, "seconds")


def _render(
    draw: Callable[[Sequence[Axes]], None],
    heights_in: Sequence[float],
    top_in: float,
    form: Form,
    prefix: str,
) -> str:
    with mpl.rc_context(STYLE):
        figure = Figure()
        FigureCanvasSVG(figure)
        axes: list[Axes] = []
        for _ in heights_in:
            axes.append(figure.add_subplot(label=str(len(axes)), sharex=axes[0] if axes else None))
            axes[-1].xaxis.set_major_locator(MaxNLocator(form.ticks))
            axes[-1].yaxis.set_major_locator(MaxNLocator(5))
        draw(axes)
        figure.set_size_inches(form.width_in, top_in + _tall_in(axes, heights_in, form))
        _stack(figure, axes, heights_in, form)
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=nothing)
    return _embed(file.getvalue(), prefix)


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
    for role, (colour, _, _) in ROLES.items():
        text = text.replace(colour, f"var(--{role})")
    return text.rstrip()
