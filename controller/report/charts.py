"""What is not over forecasts: rates and mixture, series over tokens, and what took the time."""

# pyright: reportUnknownMemberType=false
# Above: matplotlib's stubs leave its keyword arguments without types.

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, StrMethodFormatter

from controller.report.canvas import (
    DESK,
    FONT_POINTS,
    POINTS_PER_IN,
    Form,
    Panel,
    Unit,
    draw_ticks,
    join,
    line,
    render,
    unit_of,
)
from controller.report.scene import Curve, RateScene, Schedule
from controller.report.series import Bucket, SeriesScene
from controller.report.style import HUES, stand_in
from controller.report.timeline import Outage, Timeline

MAX_STRIPS = 6
"""Mixtures drawn: the launch's and the newest; the tables hold them all."""
MAX_SOURCES = len(HUES)
MAX_MARKED = 24
"""More attempts than this are ticks at the foot of the panel."""
MAX_NUMBERED = 12
OTHERS = "others"
LANE_IN = 0.26


# --- rates and mixture ---


def draw_rates(scene: RateScene, form: Form = DESK) -> str:
    """Return the schedule before and after each revision, and what the steps received."""
    strips = _choose(scene.schedules)
    named = [*scene.sources[:MAX_SOURCES]]
    if len(scene.sources) > MAX_SOURCES:
        named[-1] = OTHERS
    panels = [Panel(2.3, lambda axis: _draw_rates(axis, scene))]
    panels += [
        Panel(0.34, _strip(scene, schedule, named, is_first=schedule is strips[0]))
        for schedule in strips
    ]
    return render(panels, 0.1, form, f"rates-{form.name}")


def _choose(schedules: Sequence[Schedule]) -> Sequence[Schedule]:
    if len(schedules) <= MAX_STRIPS:
        return schedules
    return [schedules[0], *schedules[1 - MAX_STRIPS :]]


def _draw_rates(axis: Axes, scene: RateScene) -> None:
    *olds, held = scene.schedules
    for index, old in enumerate(olds):
        label = "plan of the launch" if index == 0 else None
        label = "replaced revision" if index == 1 else label
        style: tuple[int, tuple[int, int]] = (0, (4, 2)) if index == 0 else (0, (1, 2))
        width = 1.2 if index == 0 or len(olds) < MAX_STRIPS else 0.6
        line(axis, old.rates, "ghost", label, linestyle=style, linewidth=width)
    line(axis, held.rates, "line", "plan in force", linewidth=0.9, linestyle=(0, (1, 1)))
    line(axis, scene.executed, "line", "received by the steps", linewidth=1.9)
    _draw_forks(axis, scene)
    axis.set_xlabel("step")
    axis.set_ylabel("rate, % of peak")
    axis.set_ylim(0, 108)
    axis.set_xlim(0, max(it.rates.xs[-1] for it in scene.schedules) + 1)
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _draw_forks(axis: Axes, scene: RateScene) -> None:
    for index, fork in enumerate(scene.forks):
        label = "fork of a revision" if index == 0 else None
        axis.axvline(fork, color=stand_in("revision"), linewidth=1, label=label)
    # Words at the first and the newest: between those they would cover each other.
    told = dict.fromkeys([*scene.forks[:1], *scene.forks[-1:]])
    for row, fork in enumerate(told):
        axis.annotate(
            f"step {fork:,}", (fork, 1.0), xycoords=("data", "axes fraction"),
            xytext=(4, -(FONT_POINTS + 2) * row), textcoords="offset points", va="top",
            color=stand_in("revision"),
        )  # fmt: skip


def _strip(
    scene: RateScene, schedule: Schedule, named: Sequence[str], *, is_first: bool
) -> Callable[[Axes], None]:
    def draw(axis: Axes) -> None:
        for stage in schedule.stages:
            bottom = 0.0
            for name, share in _group(stage.shares, named):
                axis.broken_barh(
                    [(stage.start, stage.end - stage.start)], (bottom, share), linewidth=0,
                    facecolor=stand_in(HUES[named.index(name)]), alpha=0.85,
                    label=name if is_first and stage is schedule.stages[0] else None,
                )  # fmt: skip
                bottom += share
            if stage.start:
                axis.axvline(stage.start, color=stand_in("surface"), linewidth=1)
        for fork in scene.forks:
            axis.axvline(fork, color=stand_in("revision"), linewidth=1)
        axis.set_ylim(0, 1)
        axis.set_yticks([])
        axis.grid(visible=False)
        axis.set_xlabel("step")
        label = schedule.name.replace(", ", ",\n")
        axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=FONT_POINTS - 2)

    return draw


def _group(shares: Mapping[str, float], named: Sequence[str]) -> Iterator[tuple[str, float]]:
    found = dict(shares)
    for name in named:
        if name != OTHERS:
            yield name, found.pop(name, 0.0)
    if OTHERS in named:
        yield OTHERS, sum(found.values())


# --- series over tokens ---


def draw_series(scene: SeriesScene, form: Form = DESK) -> str:
    """Return throughput, MFU, loss and drops over tokens."""
    panels = [Panel(1.15, lambda axis: _draw_rate(axis, scene))]
    if scene.has_peak and _has(scene, lambda it: it.mfu_percent):
        panels.append(Panel(0.95, lambda axis: _draw_mfu(axis, scene)))
    panels.append(Panel(1.5, lambda axis: _draw_loss(axis, scene)))
    if _has(scene, lambda it: it.sender_percent):
        panels.append(Panel(0.95, lambda axis: _draw_drops(axis, scene)))
    return render(panels, 0.1, form, f"series-{form.name}")


Read = Callable[[Bucket], float | None]


def _has(scene: SeriesScene, read: Read) -> bool:
    return any(it is not None and read(it) is not None for it in scene.buckets)


def _split(scene: SeriesScene, read: Read) -> Iterator[Curve]:
    """Yield the runs of neighbours that are known: a gap is a gap."""
    points: list[tuple[float, float]] = []
    for bucket in (*scene.buckets, None):
        value = None if bucket is None else read(bucket)
        if bucket is not None and value is not None:
            points.append((float(bucket.tokens), value))
        elif points:
            yield Curve([x for x, _ in points], [y for _, y in points])
            points = []


def _draw_curve(axis: Axes, scene: SeriesScene, read: Read, role: str, label: str | None) -> None:
    for index, curve in enumerate(_split(scene, read)):
        is_lone = len(curve.xs) == 1
        marker = {"marker": "o", "markersize": 2} if is_lone else {}
        line(axis, curve, role, label if index == 0 else None, linewidth=1.2, **marker)


def _draw_rate(axis: Axes, scene: SeriesScene) -> None:
    _draw_curve(axis, scene, lambda it: it.tokens_per_second, "line", None)
    axis.set_ylabel("tokens / s")
    axis.yaxis.set_major_formatter(EngFormatter(sep=""))
    _begin_at_zero(axis)
    _share_axis(axis, scene)


def _draw_mfu(axis: Axes, scene: SeriesScene) -> None:
    _draw_curve(axis, scene, lambda it: it.mfu_percent, "line", None)
    axis.set_ylabel("MFU, %")
    _begin_at_zero(axis)
    _share_axis(axis, scene)


def _draw_loss(axis: Axes, scene: SeriesScene) -> None:
    _draw_curve(axis, scene, lambda it: it.loss, "line", None)
    axis.set_ylabel("loss, nats")
    _share_axis(axis, scene)


def _draw_drops(axis: Axes, scene: SeriesScene) -> None:
    _draw_curve(axis, scene, lambda it: it.sender_percent, HUES[1], "dropped by senders")
    _draw_curve(axis, scene, lambda it: it.receiver_percent, HUES[2], "dropped by receivers")
    axis.set_ylabel("drops, %")
    _begin_at_zero(axis)
    _share_axis(axis, scene)


def _begin_at_zero(axis: Axes) -> None:
    """Show the scale from zero, with room above the highest value."""
    axis.set_ylim(0, 1.04 * axis.get_ylim()[1] or 1)


def _share_axis(axis: Axes, scene: SeriesScene) -> None:
    """Mark attempts and revisions, and give the axis of tokens its range."""
    if len(scene.starts) > MAX_MARKED:
        draw_ticks(axis, scene.starts, (0, 0.05), "muted")
    else:
        for at in scene.starts:
            style = (0, (1, 1.5))
            axis.axvline(at, color=stand_in("muted"), linewidth=0.8, linestyle=style)
    for at in scene.forks:
        axis.axvline(at, color=stand_in("revision"), linewidth=1)
    known = [it.tokens for it in scene.buckets if it is not None]
    axis.set_xlim(0, 1.02 * max(known, default=1))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.set_xlabel("tokens on the surviving line")


# --- time ---


GROUP_ROLES = {
    "training": "line",
    "saving, evaluating": "s3",
    "starting": "s6",
    "replaying": "s2",
    "stalled": "bad",
    "no gang": "ghost",
    "at rest": "grid",
    "unknown": "muted",
}


def draw_timeline(scene: Timeline, form: Form = DESK) -> str:
    """Return phases, attempts, incidents and what those cost, on one axis of time."""
    unit = unit_of(scene.end_s)
    panels = [
        Panel(1.2, lambda axis: _draw_phases(axis, scene, unit)),
        Panel(LANE_IN, lambda axis: _draw_attempts(axis, scene, unit)),
    ]
    if scene.outages:
        panels += [
            Panel(LANE_IN, lambda axis: _draw_outages(axis, scene, unit)),
            Panel(0.85, lambda axis: _draw_lost(axis, scene, unit)),
        ]
    return render(panels, 0.1, form, f"timeline-{form.name}")


def _axis_of_time(axis: Axes, scene: Timeline, unit: Unit) -> None:
    axis.set_xlim(0, scene.end_s / unit.seconds or 1)
    axis.set_xlabel(f"{unit.name} since launch")


def _draw_phases(axis: Axes, scene: Timeline, unit: Unit) -> None:
    num = max((len(it) for it in scene.bins.values()), default=0)
    edges = [scene.end_s / unit.seconds * index / num for index in range(num + 1)] if num else []
    floor = [0.0] * num
    for name, shares in scene.bins.items():
        top = [min(1.0, low + share) for low, share in zip(floor, shares, strict=True)]
        _fill_steps(axis, edges, floor, top, name)
        floor = top
    axis.set_ylim(0, 1)
    axis.set_yticks([0, 0.5, 1], ["0", "50", "100"])
    axis.set_ylabel("% of time")
    axis.grid(visible=False)
    _axis_of_time(axis, scene, unit)


def _fill_steps(
    axis: Axes, edges: Sequence[float], floor: Sequence[float], top: Sequence[float], name: str
) -> None:
    xs, lows, highs = list[float](), list[float](), list[float]()
    for (start, end), low, high in zip(pairwise(edges), floor, top, strict=True):
        if xs and (lows[-1], highs[-1]) == (low, high):
            xs[-1] = end  # as before: the step goes on
            continue
        xs += [start, end]
        lows += [low, low]
        highs += [high, high]
    axis.fill_between(
        xs, lows, highs, color=stand_in(GROUP_ROLES[name]), linewidth=0, label=name, alpha=0.9
    )  # fmt: skip


def _draw_attempts(axis: Axes, scene: Timeline, unit: Unit) -> None:
    # Two shades in turn, each drawn at once.
    for shade, alpha in enumerate((0.3, 0.5)):
        spans = [(begun, ended - begun) for _, begun, ended in scene.attempts[shade::2]]
        _draw_spans(axis, spans, unit, ("line", alpha))
    is_wide = len(scene.attempts) <= MAX_NUMBERED
    _number(axis, [(number, at) for number, at, _ in scene.attempts] if is_wide else [], unit)
    _lane(axis, "attempts")
    _axis_of_time(axis, scene, unit)


def _draw_outages(axis: Axes, scene: Timeline, unit: Unit) -> None:
    # One of minutes in a run of months is seen still.
    least_s = scene.end_s / 400
    spans = [
        (it.at_s, max(least_s, scene.end_s - it.at_s if it.cost_s is None else it.cost_s))
        for it in scene.outages
    ]
    _draw_spans(axis, spans, unit, ("bad", 0.75))
    is_wide = len(scene.outages) <= MAX_NUMBERED
    _number(axis, [(it.number, _end_of(it)) for it in scene.outages] if is_wide else [], unit)
    _lane(axis, "incidents")
    _axis_of_time(axis, scene, unit)


def _draw_spans(
    axis: Axes, spans: Sequence[tuple[float, float]], unit: Unit, look: tuple[str, float]
) -> None:
    """Draw (from, length) in seconds over the whole lane: one path, however many they are."""
    role, alpha = look
    bars = join(
        Curve([at / unit.seconds, (at + max(0.0, long)) / unit.seconds], [0.5, 0.5])
        for at, long in spans
    )
    width = LANE_IN * POINTS_PER_IN
    line(axis, bars, role, None, alpha=alpha, linewidth=width, solid_capstyle="butt")


def _end_of(outage: Outage) -> float:
    return outage.at_s + (outage.cost_s or 0.0)


def _number(axis: Axes, numbers: Sequence[tuple[int, float]], unit: Unit) -> None:
    for number, at_s in numbers:
        axis.annotate(
            f"{number}", (at_s / unit.seconds, 0.5), xytext=(3, 0), textcoords="offset points",
            va="center", fontsize=FONT_POINTS - 1, annotation_clip=True,
        )  # fmt: skip


def _lane(axis: Axes, name: str) -> None:
    axis.set_ylim(0, 1)
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=FONT_POINTS - 1)


def _draw_lost(axis: Axes, scene: Timeline, unit: Unit) -> None:
    """Draw what the incidents cost so far, as stairs."""
    of_cost = unit_of(scene.lost[-1][1])
    xs, ys, before = [0.0], [0.0], 0.0
    for at_s, lost_s in scene.lost:
        xs += [at_s / unit.seconds] * 2
        ys += [before, lost_s / of_cost.seconds]
        before = ys[-1]
    line(axis, Curve([*xs, scene.end_s / unit.seconds], [*ys, before]), "bad", None, linewidth=1.2)
    axis.set_ylim(0, 1.15 * before or 1)
    axis.set_ylabel(f"lost, {of_cost.name}")
    _axis_of_time(axis, scene, unit)
