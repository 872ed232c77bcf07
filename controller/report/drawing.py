"""What happened over time: forecasts as they were made, and progress towards the deadline."""

# pyright: reportUnknownMemberType=false
# Above: matplotlib's stubs leave its keyword arguments without types.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from controller.report.canvas import (
    DESK,
    FONT_POINTS,
    POINTS_PER_IN,
    RIGHT_IN,
    Form,
    Look,
    Panel,
    Unit,
    draw_ticks,
    join,
    line,
    render,
    scale,
    unit_of,
)
from controller.report.scene import Curve, Guess, Mark, Term, TimeScene
from controller.report.style import stand_in

NAME_ROW_IN = 0.13
LETTER_IN = 0.062
"""Width of a letter of a mark's name, generously."""
MAX_LABELS = 6
"""More incidents than this are marked without words."""
MAX_LINES = 24
"""More incidents than this are ticks."""
MAX_ROWS = 3
"""Of names: those that find no place are left out."""
MAX_ERRORS = 150
"""More forecasts than this are drawn as a band alone."""
NEAR = 1.35
"""The axis of time reaches the deadline if that is at most so far beyond what is known."""


def draw_forecasts(scene: TimeScene, form: Form = DESK) -> str:
    """Return when the run was to finish, over the moment in which that was forecast."""
    unit = unit_of(max(scene.end_s, scene.deadline_s or 0.0))
    last = _last_s(scene)
    names = _place_names(scene, form, last)

    def draw(axis: Axes) -> None:
        _draw_finish(axis, scene, unit)
        _mark(axis, scene.marks, unit)
        _write_names(axis, names, unit)
        axis.set_xlabel(f"forecast made, {unit.name} since launch")
        axis.set_xlim(0, last / unit.seconds or 1)

    return render([Panel(2.6, draw)], _top_in(names), form, f"forecasts-{form.name}")


def draw_progress(scene: TimeScene, form: Form = DESK) -> str:
    """Return completed steps over time, where they are forecast to go, and the deadline."""
    last = _far_s(scene)
    unit = unit_of(last)
    names = _place_names(scene, form, last)

    def draw(axis: Axes) -> None:
        _draw_progress(axis, scene, unit, last)
        _mark(axis, scene.marks, unit)
        _write_names(axis, names, unit)
        axis.set_xlabel(f"{unit.name} since launch")
        axis.set_xlim(0, last / unit.seconds or 1)

    return render([Panel(2.4, draw)], _top_in(names), form, f"progress-{form.name}")


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
            line(axis, Curve([at], [at]), "good", None, **look)
    axis.set_ylabel(f"finish, {unit.name} since launch")
    _bound_finish(axis, scene, unit)


CONE = "forecast, P10 to P90"


def _draw_cone(axis: Axes, guesses: Sequence[Guess], unit: Unit, label: str | None) -> None:
    xs, lows, middles, highs = (
        [getattr(guess, name) / unit.seconds for guess in guesses]
        for name in ("at_s", "low_s", "middle_s", "high_s")
    )
    axis.fill_between(xs, lows, highs, color=stand_in("line"), alpha=0.18, linewidth=0)
    if len(guesses) <= MAX_ERRORS:
        axis.vlines(xs, lows, highs, color=stand_in("line"), linewidth=1.2, alpha=0.6)
    marks: Look = {"marker": "o", "markersize": 3} if len(guesses) <= MAX_ERRORS else {}
    line(axis, Curve(xs, middles), "line", label, **marks)


def _draw_terms(axis: Axes, scene: TimeScene, unit: Unit) -> None:
    """Draw deadline and due instant over time, each as long as it held, the reserve between."""
    last = _last_s(scene) / unit.seconds
    deadlines = list(_list_stairs(scene.terms, "deadline_s", unit, last))
    dues = list(_list_stairs(scene.terms, "due_s", unit, last))
    for index, (deadline, due) in enumerate(zip(deadlines, dues, strict=True)):
        axis.fill_between(
            deadline.xs, due.ys, deadline.ys, color=stand_in("bad"), alpha=0.14, linewidth=0,
            label="reserve" if index == 0 else None,
        )  # fmt: skip
    for name, curves, style in (("deadline", deadlines, "-"), ("due", dues, ":")):
        for index, curve in enumerate(curves):
            look: Look = {"linewidth": 1.2, "linestyle": style}
            line(axis, curve, "bad", name if index == 0 else None, **look)


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
        line(axis, point, "line", label, **look)


MOST_ROOM = 1.5
"""Beyond all medians and dates, as a multiple of what lies between them."""


def _level(axis: Axes, at_s: float | None, unit: Unit, look: tuple[str, str, Any]) -> None:
    role, label, linestyle = look
    if at_s is not None:
        axis.axhline(
            at_s / unit.seconds, color=stand_in(role), linewidth=1.2, linestyle=linestyle,
            label=label,
        )  # fmt: skip


def _draw_progress(axis: Axes, scene: TimeScene, unit: Unit, last_s: float) -> None:
    """Draw completed steps, the horizon that they were to reach, and the newest forecast's cone."""
    last = last_s / unit.seconds
    for index, horizon in enumerate(scene.horizons):
        is_over = scene.end_s > 0 and index == len(scene.horizons) - 1
        to = last if is_over else horizon.to_s / unit.seconds
        levels = Curve([horizon.from_s / unit.seconds, to], [horizon.total_steps] * 2)
        line(axis, levels, "revision", "horizon" if index == 0 else None, linewidth=1.1)
        if len(scene.horizons) <= MAX_LABELS or is_over or index == 0:
            axis.annotate(
                f"{horizon.total_steps:,}", (levels.xs[0], horizon.total_steps), xytext=(3, -2),
                textcoords="offset points", va="top", color=stand_in("revision"),
            )  # fmt: skip
    _draw_cone_ahead(axis, scene, unit)
    if scene.progress:
        steps = join(scale(it, unit) for it in scene.progress)
        line(axis, steps, "line", "completed steps", linewidth=1.8)
    _draw_dates(axis, scene, unit, last_s)
    axis.set_ylabel("steps")
    axis.set_ylim(0, 1.06 * max(it.total_steps for it in scene.horizons))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _draw_cone_ahead(axis: Axes, scene: TimeScene, unit: Unit) -> None:
    """Draw from where the newest forecast was made to where it ends: P10, P50 and P90."""
    guess = scene.cone
    if guess is None:
        return
    start = guess.at_s / unit.seconds
    low, middle, high = (
        it / unit.seconds for it in (guess.low_s, guess.middle_s, guess.high_s)
    )  # fmt: skip
    axis.fill(
        [start, low, high], [guess.step, guess.total_steps, guess.total_steps],
        color=stand_in("line"), alpha=0.18, linewidth=0, label="newest forecast, P10 to P90",
    )  # fmt: skip
    ahead = Curve([start, middle], [guess.step, guess.total_steps])
    line(axis, ahead, "line", None, linewidth=1, linestyle=(0, (3, 2)))


def _draw_dates(axis: Axes, scene: TimeScene, unit: Unit, last_s: float) -> None:
    """Draw deadlines with the reserve before them; one that was moved stays in sight, paler."""
    for term in scene.terms:
        alpha = 1.0 if term is scene.terms[-1] else 0.35
        if term.deadline_s is None or term.deadline_s > last_s:
            continue
        deadline = term.deadline_s / unit.seconds
        due = deadline if term.due_s is None else term.due_s / unit.seconds
        is_last = term is scene.terms[-1]
        axis.axvspan(
            due, deadline, color=stand_in("bad"), alpha=0.14 * alpha, linewidth=0,
            label="reserve" if is_last else None,
        )  # fmt: skip
        axis.axvline(
            deadline, color=stand_in("bad"), linewidth=1.3, alpha=alpha,
            label="deadline" if is_last else None,
        )  # fmt: skip


# --- marks and the axis of time ---


LOOKS: dict[str, tuple[str, Any]] = {
    "incident": ("bad", (0, (3, 2))),
    "revision": ("revision", "-"),
    "deadline": ("muted", (0, (1, 1))),
}
"""Kind of a mark -> (role, line style)."""


def _mark(axis: Axes, marks: Sequence[Mark], unit: Unit) -> None:
    incidents = [it.at_s / unit.seconds for it in marks if it.kind == "incident"]
    is_crowded = len(incidents) > MAX_LINES
    if is_crowded:
        # Where there are hundreds, ticks at the top leave the curves in sight.
        draw_ticks(axis, incidents, (0.95, 1.0), LOOKS["incident"][0])
    for mark in marks:
        role, style = LOOKS[mark.kind]
        if mark.kind != "incident" or not is_crowded:
            axis.axvline(
                mark.at_s / unit.seconds, color=stand_in(role), linewidth=0.9, linestyle=style
            )


@dataclass(frozen=True)
class Name:
    """A mark's name with its place above the first panel."""

    mark: Mark
    row: int
    shift_in: float
    """From the mark's line to the middle of the name, so that it stays inside the figure."""


def _place_names(scene: TimeScene, form: Form, last_s: float) -> list[Name]:
    """Return names in rows, none over another; incidents have none where they are many."""
    is_crowded = sum(mark.kind == "incident" for mark in scene.marks) > MAX_LABELS
    shown = [it for it in scene.marks if it.kind != "incident" or not is_crowded]
    width_in = form.width_in - form.left_in - RIGHT_IN
    names: list[Name] = []
    ends_in: list[float] = []
    for mark in sorted(shown, key=lambda it: it.at_s):
        at_in = width_in * mark.at_s / (last_s or 1.0)
        half_in = LETTER_IN * len(mark.label) / 2
        middle_in = max(min(at_in, width_in + RIGHT_IN - half_in), half_in - form.left_in)
        row = next((i for i, end in enumerate(ends_in) if end <= middle_in - half_in), len(ends_in))
        if row == MAX_ROWS:
            continue
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


def _top_in(names: Sequence[Name]) -> float:
    return 0.1 + NAME_ROW_IN * (1 + max((it.row for it in names), default=0))


def _last_s(scene: TimeScene) -> float:
    """Return where the axis of time ends: with what is known, or at a deadline that is near."""
    ends = [scene.end_s, *([scene.finish_s] if scene.finish_s else [])]
    if scene.deadline_s is not None and scene.deadline_s <= NEAR * scene.end_s:
        ends.append(scene.deadline_s)
    return 1.02 * max(ends)


def _far_s(scene: TimeScene) -> float:
    """Return where the axis of progress ends: beyond what is known, with deadline and forecast."""
    ends = [scene.end_s, scene.deadline_s or 0.0, scene.finish_s or 0.0]
    if scene.cone is not None:
        # One that goes far beyond everything would press it flat.
        ends.append(min(scene.cone.high_s, FAR * max(ends)))
    return 1.02 * max(ends)


FAR = 1.6
