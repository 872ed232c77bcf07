"""Draws docs/pictures/: what docs/concepts.md speaks of, on one run of the demo.

Schedules come from the contract's own arithmetic; instants and steps are those of that run.
"""

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from contract.schedule import Knots, retime, value_at, warm_up_and_decay
from tools.svg import Drawing

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"

STEPS, SHORTER, FORK, WINDOW = 800, 613, 128, 200
MIDTRAIN, MIDTRAIN_SHORTER = 640, 490
KNOTS = warm_up_and_decay(24, STEPS, Fraction(1, 20))
SHORTER_KNOTS = retime(KNOTS, FORK, SHORTER)

LAUNCHED_S = 778.4
"""Of that run, in seconds of the clock; all below likewise."""
ENDED_S, RECORDED_S, AGAIN_S, BEYOND_S = 793.7, 793.9, 799.1, 802.6
PHASES = (
    # (attempt, phase, from, to, colour)
    (1, "start", 779.0, 780.1, "e"),
    (1, "compile", 780.1, 782.4, "b"),
    (1, "steps 0 to 44", 782.4, 793.7, "a"),
    (2, "start", 795.0, 796.8, "e"),
    (2, "compile", 796.8, 798.9, "b"),
    (2, "steps from 30 on", 798.9, 806.0, "a"),
)
SAVED_S = 789.8


def draw_plan() -> Drawing:
    """The schedule of one plan: learning rate, mixture, and the last step."""
    drawing = Drawing("A plan: learning rate and mixture by step", 232)
    _draw_axes(drawing)
    _draw_rate(drawing, KNOTS, "la")
    for step, value in KNOTS:
        drawing.dot(_step_x(step), _rate_y(value), "a")
    drawing.text(_step_x(40), 24, "warm-up ends at the peak", "small")
    drawing.text(_step_x(STEPS), 84, "last step: exactly 5%", "small", "end")
    drawing.text(_step_x(380), 60, "linear, by exact fractions", "small soft")
    _draw_mixture(drawing, 150, MIDTRAIN, STEPS)
    drawing.text(
        60, 218, "one sha256 over all of it; the same step gets the same bits whenever it runs"
    )
    return drawing


def draw_line() -> Drawing:
    """Two lines of training, and what may be restored on the second."""
    drawing = Drawing("Lines: one trajectory each, forked at a checkpoint", 190)
    fork, end = _step_x(300), _step_x(400)
    drawing.text(60, 30, "main", "strong")
    drawing.line([(60, 60), (fork, 60)], "la")
    drawing.line([(fork, 60), (_step_x(560), 60)], "le")
    drawing.text(_step_x(570), 64, "abandoned, kept", "soft small")
    drawing.line([(fork, 60), (fork + 30, 120), (_step_x(620), 120)], "lc")
    drawing.text(fork + 40, 142, "main-2", "strong")
    drawing.text(_step_x(630), 124, "goes on", "soft small")
    for step, kind in ((100, "a"), (200, "a"), (300, "a"), (420, "e"), (520, "e")):
        drawing.dot(_step_x(step), 60, kind, 6)
    for step in (400, 500, 600):
        drawing.dot(_step_x(step), 120, "c", 6)
    drawing.text(fork, 40, "ctl resume NAME --from 300", "small", "middle")
    drawing.text(
        60, 178, "coloured checkpoints may be restored on main-2; those behind the fork may not"
    )
    assert end > fork
    return drawing


def draw_attempt() -> Drawing:
    """Two attempts of a gang of two ranks by time, under controllers that come and go."""
    drawing = Drawing("Attempts: a gang lives and dies together", 218)
    drawing.text(60, 36, "controller", "strong")
    drawing.line([(_time_x(LAUNCHED_S), 32), (_time_x(806), 32)], "lc")
    for rank, y in enumerate((70, 110)):
        drawing.text(60, y + 14, f"rank {rank}", "strong")
        for _, _, start, end, colour in PHASES:
            left = _time_x(start)
            drawing.rect(left, y, (_time_x(end) - left - 1, 20), colour)
    drawing.line([(_time_x(SAVED_S), 60), (_time_x(SAVED_S), 138)], "axis dash")
    drawing.text(_time_x(SAVED_S), 54, "checkpoint 30", "small", "middle")
    drawing.dot(_time_x(ENDED_S), 120, "d", 7)
    drawing.text(_time_x(ENDED_S), 152, "rank 1 is killed: rank 0 leaves, too", "small", "middle")
    drawing.text(_time_x(781), 172, "attempt 1", "strong")
    drawing.text(_time_x(796), 172, "attempt 2", "strong")
    for x, words, colour in ((60, "start, rendezvous, restore", "e"), (260, "compile", "b"),
                             (350, "train", "a")):  # fmt: skip
        drawing.rect(x, 194, (12, 12), colour)
        drawing.text(x + 18, 205, words, "small")
    return drawing


def draw_incident() -> Drawing:
    """Completed steps by time around one incident, with what it cost."""
    drawing = Drawing("An incident: what ended, when it was noticed, what it cost", 236)
    points = [(785.0, 11.0), (ENDED_S, 45.0)]
    drawing.line([(60, 190), (700, 190)])
    drawing.text(60, 26, "completed steps", "small soft")
    drawing.line([(_near_x(t), _count_y(n)) for t, n in points], "la")
    drawing.line([(_near_x(AGAIN_S), _count_y(30)), (_near_x(BEYOND_S), _count_y(45))], "lb")
    drawing.line([(_near_x(BEYOND_S), _count_y(45)), (_near_x(806), _count_y(58))], "la")
    drawing.line([(_near_x(785), _count_y(45)), (_near_x(806), _count_y(45))], "axis dash")
    drawing.dot(_near_x(ENDED_S), _count_y(45), "d", 6)
    drawing.text(
        _near_x(ENDED_S) - 10, _count_y(45) - 10, "step 45: rank 1 is killed", "small", "end"
    )
    drawing.text(_near_x(AGAIN_S), _count_y(30) + 20, "checkpoint 30", "small", "middle")
    drawing.text(_near_x(801.4), _count_y(36) + 4, "15 steps again, same bits", "small")
    _draw_span(drawing, 206, ENDED_S, BEYOND_S, "cost: 8.9 s and 30,720 tokens")
    drawing.line([(_near_x(RECORDED_S), 190), (_near_x(RECORDED_S), 160)], "ld")
    drawing.text(_near_x(RECORDED_S) + 6, 172, "recorded 0.2 s later", "small")
    return drawing


def draw_proposal() -> Drawing:
    """The plan before and after, and the ways a proposal can go."""
    drawing = Drawing("A proposal: a shorter horizon, before anyone agreed", 300)
    _draw_axes(drawing)
    _draw_rate(drawing, KNOTS, "le dash")
    _draw_rate(drawing, SHORTER_KNOTS, "lb")
    _draw_rate(drawing, tuple((s, v) for s, v in SHORTER_KNOTS if s <= FORK), "la")
    drawing.line([(_step_x(FORK), 16), (_step_x(FORK), 134)], "axis dash")
    drawing.text(_step_x(FORK) + 4, 130, "fork 128", "small")
    drawing.line([(_step_x(WINDOW), 16), (_step_x(WINDOW), 134)], "axis dash")
    drawing.text(_step_x(WINDOW) + 4, 24, "last possible: 200", "small soft")
    drawing.text(_step_x(530), 128, "P(on time) 90.1%", "small strong", "end")
    drawing.text(_step_x(STEPS), 84, "P(on time) 2.1%", "small soft", "end")
    _draw_ways(drawing)
    return drawing


def _draw_ways(drawing: Drawing) -> None:
    names = ("3 late evaluations", "proposal", "approved", "revision", "adopted")
    for index, name in enumerate(names):
        x = 20 + index * 140
        drawing.rect(x, 176, (118, 30), "box")
        drawing.text(x + 59, 196, name, "small strong", "middle")
        if index:
            drawing.arrow((x - 22, 191), (x - 2, 191))
    drawing.arrow((219, 206), (219, 238))
    drawing.text(219, 254, "rejected, expired, void", "small", "middle")
    drawing.text(359, 224, "by its owner, or the", "small soft", "middle")
    drawing.text(359, 238, "mode declared before", "small soft", "middle")
    drawing.arrow((499, 206), (499, 238))
    drawing.text(499, 254, "missed: a sibling", "small", "middle")
    drawing.text(499, 268, "forks later", "small", "middle")
    drawing.text(639, 224, "by all ranks, between", "small soft", "middle")
    drawing.text(639, 238, "two steps", "small soft", "middle")


def _draw_axes(drawing: Drawing) -> None:
    drawing.line([(60, 16), (60, 134), (700, 134)])
    drawing.text(52, 26, "peak", "small soft", "end")
    drawing.text(52, 134, "0", "small soft", "end")
    drawing.text(700, 148, "steps", "small soft", "end")


def _draw_rate(drawing: Drawing, knots: Knots, kind: str) -> None:
    drawing.line([(_step_x(step), _rate_y(value_at(knots, step))) for step, _ in knots], kind)


def _draw_mixture(drawing: Drawing, y: float, change: int, steps: int) -> None:
    first = (0, change, Fraction(1, 2), "code : docs = 32 : 32")
    edges = (first, (change, steps, Fraction(3, 8), "24 : 40"))
    for start, end, share, words in edges:
        left, width, height = _step_x(start), _step_x(end) - _step_x(start) - 1, 40
        top = float(share) * height
        drawing.rect(left, y, (width, top), "a")
        drawing.rect(left, y + top, (width, height - top), "e")
        drawing.text(left + width / 2, y + 35, words, "small strong", "middle")


def _draw_span(drawing: Drawing, y: float, start: float, end: float, words: str) -> None:
    left, right = _near_x(start), _near_x(end)
    drawing.line([(left, y - 6), (left, y), (right, y), (right, y - 6)], "ld")
    drawing.text((left + right) / 2, y + 18, words, "small strong", "middle")


def _step_x(step: float) -> float:
    return 60 + step * 640 / STEPS


def _rate_y(value: Fraction) -> float:
    return 134 - 112 * float(value)


def _time_x(clock_s: float) -> float:
    return 140 + (clock_s - LAUNCHED_S) * 560 / (806.0 - LAUNCHED_S)


def _near_x(clock_s: float) -> float:
    return 60 + (clock_s - 785.0) * 640 / 21.0


def _count_y(steps: float) -> float:
    return 190 - (steps - 5) * 3


DRAWERS: dict[str, Callable[[], Drawing]] = {
    "plan.svg": draw_plan,
    "line.svg": draw_line,
    "attempt.svg": draw_attempt,
    "incident.svg": draw_incident,
    "proposal.svg": draw_proposal,
}


def main() -> int:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWERS.items():
        (PICTURES / name).write_text(draw().render())
    sys.stderr.write(f"wrote {len(DRAWERS)} pictures under {PICTURES.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
