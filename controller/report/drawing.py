"""Scenes as SVG, drawn by matplotlib in the stand-in colours of `style`.

The same scene gives the same bytes: no date, no random identifiers, no font of the machine, and
every axis in its place by arithmetic (the solver of constrained layouts differs in last digits).
"""

# pyright: reportUnknownMemberType=false
# Above: matplotlib's stubs leave its keyword arguments without types.

import io
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from controller.report.scene import Curve, Guess, Mark, RateScene, TimeScene
from controller.report.style import ROLES, stand_in
from controller.report.wording import DAY_S, HOUR_S, MINUTE_S

WIDTH_IN = 6.2
"""At this width 8 points are 14 pixels on a desk and 9 on a phone."""
FONT_POINTS = 8
POINTS_PER_IN = 72
LEFT_IN, RIGHT_IN, BOTTOM_IN = 0.78, 0.1, 0.42
GAP_IN = 0.42
"""Between panels: room for the upper one's legend."""
NAMES_IN = 0.4
"""Above the first panel of time: two rows of names."""
LEGEND_IN = 0.4
"""Below the last panel, where it has one."""
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

UNITS = ((4 * DAY_S, DAY_S, "days"), (3 * HOUR_S, HOUR_S, "hours"), (180, MINUTE_S, "minutes"))


def draw_times(scene: TimeScene) -> str:
    """Return finish forecasts, progress, pace and attempts over time, one above the other."""
    panels: list[tuple[float, Callable[[Axes, TimeScene, float], None]]] = [
        (2.2, _draw_progress),
        (1.2, _draw_pace),
        (0.35, _draw_attempts),
    ]
    if scene.guesses:
        panels.insert(0, (2.4, _draw_finish))
    per_unit, name = _unit_of(max(scene.end_s, scene.deadline_s or 0.0))

    def draw(axes: Sequence[Axes]) -> None:
        for axis, (_, draw_panel) in zip(axes, panels, strict=True):
            draw_panel(axis, scene, per_unit)
            _mark(axis, scene.marks, per_unit)
        _name_marks(axes[0], scene.marks, per_unit)
        axes[-1].set_xlabel(f"{name} since launch")
        axes[-1].set_xlim(0, _last_s(scene) / per_unit or 1)

    return _render(draw, [height for height, _ in panels], "times", (NAMES_IN, BOTTOM_IN))


def draw_rates(scene: RateScene) -> str:
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
        _explain(axis, 2, below_in=BOTTOM_IN)

    return _render(draw, [2.4], "rates", (0.1, BOTTOM_IN + LEGEND_IN))


# --- panels ---


def _draw_finish(axis: Axes, scene: TimeScene, unit: float) -> None:
    """Draw each recorded P10-P50-P90 over the moment it was made, and what came."""
    for index, (_, guesses) in enumerate(groupby(scene.guesses, lambda it: it.total_steps)):
        # Forecasts of two plans are no one series.
        _draw_cone(axis, list(guesses), unit, CONE if index == 0 else None)
    _level(axis, scene.deadline_s, unit, ("bad", "deadline", "-"))
    _level(axis, scene.due_s, unit, ("bad", "due", ":"))
    _level(axis, scene.counterfactual_s, unit, ("ghost", "without the revision", "--"))
    if scene.finish_s is not None:
        _level(axis, scene.finish_s, unit, ("good", "what came", "-"))
        at = scene.finish_s / unit
        look: Look = {"marker": "D", "markersize": 6, "zorder": 5, "clip_on": False}
        _line(axis, Curve([at], [at]), "good", None, **look)
    axis.set_ylabel("finish")
    _bound_finish(axis, scene, unit)
    _explain(axis, 3)


CONE = "forecast, P10 to P90 around P50"


def _draw_cone(axis: Axes, guesses: Sequence[Guess], unit: float, label: str | None) -> None:
    xs, lows, middles, highs = (
        [getattr(guess, name) / unit for guess in guesses]
        for name in ("at_s", "low_s", "middle_s", "high_s")
    )
    axis.fill_between(xs, lows, highs, color=stand_in("line"), alpha=0.18, linewidth=0)
    axis.vlines(xs, lows, highs, color=stand_in("line"), linewidth=1.2, alpha=0.7)
    _line(axis, Curve(xs, middles), "line", label, marker="o", markersize=3)


def _bound_finish(axis: Axes, scene: TimeScene, unit: float) -> None:
    """Let a wide first forecast not press all the others flat."""
    firm = [scene.deadline_s, scene.due_s, scene.finish_s, scene.counterfactual_s]
    told = [it for it in firm if it is not None] + [it.middle_s for it in scene.guesses]
    low, high = min(told), max(told)
    room = 0.35 * (high - low) or 0.1 * high or 1.0
    lows, highs = [it.low_s for it in scene.guesses], [it.high_s for it in scene.guesses]
    bottom, top = max(low - room, min([low, *lows])), min(high + room, max([high, *highs]))
    margin = 0.06 * (top - bottom) or room
    axis.set_ylim(max(0.0, bottom - margin) / unit, (top + margin) / unit)


def _level(axis: Axes, at_s: float | None, unit: float, look: tuple[str, str, str]) -> None:
    role, label, linestyle = look
    if at_s is not None:
        axis.axhline(
            at_s / unit, color=stand_in(role), linewidth=1.2, linestyle=linestyle, label=label
        )


def _draw_progress(axis: Axes, scene: TimeScene, unit: float) -> None:
    """Draw completed steps, and the horizon that they were to reach."""
    for index, horizon in enumerate(scene.horizons):
        xs = [horizon.from_s / unit, horizon.to_s / unit]
        is_last = index == len(scene.horizons) - 1
        is_over = scene.end_s > 0 and is_last
        if is_over:
            xs[1] = _last_s(scene) / unit
        levels = Curve(xs, [horizon.total_steps] * 2)
        _line(axis, levels, "revision", "horizon" if index == 0 else None, linewidth=1.1)
        axis.annotate(
            f"{horizon.total_steps:,}", (xs[0], horizon.total_steps), xytext=(3, -2),
            textcoords="offset points", va="top", color=stand_in("revision"),
        )  # fmt: skip
    for index, curve in enumerate(scene.progress):
        scaled = Curve([x / unit for x in curve.xs], curve.ys)
        _line(axis, scaled, "line", "completed steps" if index == 0 else None)
    for at_s, label, style in ((scene.deadline_s, "deadline", "-"), (scene.due_s, "due", ":")):
        if at_s is not None and at_s <= _last_s(scene):
            axis.axvline(
                at_s / unit, color=stand_in("bad"), linewidth=1.2, linestyle=style, label=label
            )
    axis.set_ylabel("steps")
    axis.set_ylim(0, 1.06 * max(it.total_steps for it in scene.horizons))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _explain(axis, 4)


def _draw_pace(axis: Axes, scene: TimeScene, unit: float) -> None:
    """Draw what a step took."""
    for curve in scene.pace:
        _line(axis, Curve([x / unit for x in curve.xs], curve.ys), "line", None, linewidth=1.1)
    highest = max((y for curve in scene.pace for y in curve.ys), default=1.0)
    axis.set_ylim(0, 1.15 * highest or 1)
    axis.set_ylabel("s a step")


def _draw_attempts(axis: Axes, scene: TimeScene, unit: float) -> None:
    """Draw when gangs lived."""
    for number, begun, ended in scene.attempts:
        axis.broken_barh(
            [(begun / unit, max(0.0, ended - begun) / unit)], (0, 1), facecolor=stand_in("line"),
            alpha=0.35, linewidth=0,
        )  # fmt: skip
        if len(scene.attempts) <= MAX_LABELS:
            axis.annotate(
                f"{number}", (begun / unit, 0.5), xytext=(3, 0), textcoords="offset points",
                va="center",
            )  # fmt: skip
    axis.set_ylim(0, 1)
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.set_ylabel("gangs", rotation=0, ha="right", va="center")


# --- marks, axes, figures ---


def _mark(axis: Axes, marks: Sequence[Mark], unit: float) -> None:
    for mark in marks:
        role, style = ("bad", (0, (3, 2))) if mark.kind == "incident" else ("revision", "-")
        axis.axvline(mark.at_s / unit, color=stand_in(role), linewidth=0.9, linestyle=style)


def _name_marks(axis: Axes, marks: Sequence[Mark], unit: float) -> None:
    """Write above the first panel what each mark is, while they are few."""
    is_crowded = sum(mark.kind == "incident" for mark in marks) > MAX_LABELS
    for index, mark in enumerate(sorted(marks, key=lambda it: it.at_s)):
        if mark.kind == "incident" and is_crowded:
            continue
        role = "bad" if mark.kind == "incident" else "revision"
        # Two rows, so that neighbours do not cover each other.
        axis.annotate(
            mark.label, (mark.at_s / unit, 1.0), xycoords=("data", "axes fraction"),
            xytext=(0, 2 + 9 * (index % 2)), textcoords="offset points", ha="center", va="bottom",
            color=stand_in(role), fontsize=FONT_POINTS - 1,
        )  # fmt: skip


def _line(  # the last: what matplotlib's plot takes
    axis: Axes,
    curve: Curve,
    role: str,
    label: str | None,
    **look: Any,  # noqa: ANN401  # as there
) -> None:
    axis.plot(curve.xs, curve.ys, color=stand_in(role), label=label, **look)


def _explain(axis: Axes, columns: int, below_in: float = 0.03) -> None:
    """Put the legend below the panel, where it covers nothing."""
    height_in = axis.bbox.height / POINTS_PER_IN
    axis.legend(
        loc="upper left", bbox_to_anchor=(0, -below_in / height_in), ncols=columns,
        handlelength=1.8, columnspacing=1.2, borderaxespad=0,
    )  # fmt: skip


def _stack(figure: Figure, heights_in: Sequence[float], margin_in: float) -> list[Axes]:
    """Return axes one above the other that share the horizontal one."""
    width_in, whole_in = figure.get_size_inches()
    axes: list[Axes] = []
    top_in = whole_in - margin_in
    for height_in in heights_in:
        place = (
            LEFT_IN / width_in,
            (top_in - height_in) / whole_in,
            1 - (LEFT_IN + RIGHT_IN) / width_in,
            height_in / whole_in,
        )
        axes.append(figure.add_axes(place, sharex=axes[0] if axes else None))
        top_in -= height_in + GAP_IN
    for axis in axes:
        axis.xaxis.set_major_locator(MaxNLocator(7))
        axis.yaxis.set_major_locator(MaxNLocator(5))
        axis.tick_params(labelbottom=axis is axes[-1])
    return axes


def _last_s(scene: TimeScene) -> float:
    """Return where the axis of time ends: with what is known, or at a deadline that is near."""
    ends = [scene.end_s, *([scene.finish_s] if scene.finish_s else [])]
    if scene.deadline_s is not None and scene.deadline_s <= NEAR * scene.end_s:
        ends.append(scene.deadline_s)
    return 1.02 * max(ends)


def _unit_of(span_s: float) -> tuple[float, str]:
    for least_s, unit_s, name in UNITS:
        if span_s >= least_s:
            return float(unit_s), name
    return 1.0, "seconds"


def _render(
    draw: Callable[[Sequence[Axes]], None],
    heights_in: Sequence[float],
    prefix: str,
    margins_in: tuple[float, float],
) -> str:
    whole_in = sum(margins_in) + sum(heights_in) + GAP_IN * (len(heights_in) - 1)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, whole_in))
        FigureCanvasSVG(figure)
        draw(_stack(figure, heights_in, margins_in[0]))
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
