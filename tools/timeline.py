"""Replays the public timeline of the model case day by day, and writes docs/forecast.md's tables.

python -m tools.timeline
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

from contract.model import flops_per_token, shape_of
from controller.core.forecast import Hazard, Work, find_chance, forecast, learn_hazard
from controller.core.pace import KEPT_OUTAGES, Outage, PaceView
from controller.core.proposal import Proposal
from tools.steering import DAY_MS, DEVICES, STAGES, STEPS, steer

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "forecast.md"
BEGIN, END = "<!-- timeline: begin, written by tools.timeline -->", "<!-- timeline: end -->"

HOUR_MS = 3_600_000
DAY_H = 24
LAUNCH = date(2026, 8, 20)
DEADLINES_D = (90, 95, 100)

PACES_S = ((0, 18.5), (81_716, 16.8), (146_139, 14.67))
"""First step and seconds of a clean step, as published (marin#8435)."""
SAVE_INTERVAL_MS = HOUR_MS
OUTAGE_H = 1.75
"""Mean cost of an interruption; the record gives the time lost, this makes a number of it."""
ERROR_PPM = 3_000

# Hours since the launch day began, and completed steps. The record dates the steps (marin#8506);
# the hours are chosen so that its steps a day between them come out too.
RECORD = (
    (0, 0),
    (2, 164),
    (27, 2_359),
    (96, 11_252),
    (335, 54_000),
    (372, 58_014),
    (510, 81_716),
    (609, 100_000),
    (647, 108_000),
    (678, 114_000),
    (719, 121_638),
    (839, 146_139),
    (1_007, 184_731),
    (1_065, 198_000),
)

SETTLE_MS = 4 * DAY_MS
WINDOW_PERCENT = 25
SLOWER = 1 / 0.75
SLOWER_DAYS = (*range(1, 11), 15, 20, 25, 30, 32, 33)
"""Days shown of the slower variant: until its trigger, then some."""


@dataclass
class Replay:
    """A run up to some hour."""

    slowness: float = 1.0
    """Factor on the pace of the first stretch; other than 1, the pace never improves."""
    step: float = 0.0
    hour: int = 0
    trained_h: float = 0.0
    lost_h: float = 0.0
    outages: list[Outage] = field(default_factory=list[Outage])
    settle_ms: int = SETTLE_MS
    yesterday: int = 0

    @property
    def pace_s(self) -> float:
        if self.slowness != 1.0:
            return PACES_S[0][1] * self.slowness
        return pace_at(self.step)

    def live_an_hour(self) -> None:
        """Train for as long as the record did in this hour, at this run's pace."""
        done = record_at(self.hour + 1) - record_at(self.hour)
        hours = min(1.0, done * pace_at(record_at(self.hour)) / 3_600)
        self.step += hours * 3_600 / self.pace_s
        self.hour += 1
        self.trained_h += hours
        self.lost_h += 1 - hours
        while self.lost_h > OUTAGE_H * (len(self.outages) + 1):
            self.outages.append(
                Outage(
                    attempt=len(self.outages) + 1,
                    lost_ms=round(OUTAGE_H * HOUR_MS),
                    trained_ms=round(self.trained_h * HOUR_MS),
                )
            )

    def look(self) -> PaceView:
        """Return what the step logs would tell."""
        step_us = round(self.pace_s * 1_000_000)
        return PaceView(
            since_step=self.yesterday,
            until_step=int(self.step),
            clean_steps=int(self.step) - self.yesterday,
            step_us=step_us,
            error_us=step_us * ERROR_PPM // 1_000_000,
            extra_us=0,
            trained_ms=round(self.trained_h * HOUR_MS),
            first_wall_ms=0,
            start_ms=0,
            changed_step=None,
            context_length=STAGES[0][1],
            execution_sha="",
            outages=self.outages[-KEPT_OUTAGES:],
        )


@dataclass(frozen=True)
class Evaluation:
    """One day's forecasts."""

    day: int
    pace: PaceView
    hazard: Hazard
    in_steps_percent: int
    """Share of the day that was spent in steps."""
    permille: dict[int, int]
    """Deadline in days -> P(on time)."""
    p50_day: float


def record_at(hour: int) -> float:
    """Return the record's completed steps, linear between what is dated."""
    for (begin, low), (end, high) in pairwise(RECORD):
        if hour <= end:
            return low + (high - low) * (hour - begin) / (end - begin)
    return float(RECORD[-1][1])


def pace_at(step: float) -> float:
    """Return the published seconds of a clean step."""
    return next(pace_s for first, pace_s in reversed(PACES_S) if step >= first)


def list_work(step: int, total_steps: int) -> list[Work]:
    """Return the steps left by context stage; each stage keeps its percent of the horizon."""
    shape = shape_of("hero")
    here = flops_per_token(shape, STAGES[0][1])
    ends = [percent * total_steps // 100 for percent, _ in STAGES[1:]] + [total_steps]
    found: list[Work] = []
    for (percent, length), end in zip(STAGES, ends, strict=True):
        left = end - max(step, percent * total_steps // 100)
        cost = flops_per_token(shape, length) * 1_000_000 // here
        found.append(Work(steps=max(0, left), cost_ppm=cost))
    return found


def replay(slowness: float = 1.0, settle_ms: int = SETTLE_MS) -> Iterator[Evaluation]:
    """Yield one evaluation a day, from the first to the last that the record covers."""
    run = Replay(slowness=slowness, settle_ms=settle_ms)
    for day in range(1, RECORD[-1][0] // DAY_H + 1):
        before_h = run.trained_h
        for _ in range(DAY_H):
            run.live_an_hour()
        yield _evaluate(run, day, round(100 * (run.trained_h - before_h) / DAY_H))
        run.yesterday = int(run.step)


def _evaluate(run: Replay, day: int, in_steps_percent: int) -> Evaluation:
    pace = run.look()
    hazard = learn_hazard(
        pace,
        range(len(run.outages) + 1),
        settle_ms=run.settle_ms,
        devices=DEVICES,
        save_interval_ms=SAVE_INTERVAL_MS,
    )
    work = list_work(pace.until_step, STEPS)
    made = forecast(day * DAY_MS, work, pace, hazard, None, step=pace.until_step, total_steps=STEPS)
    return Evaluation(
        day=day,
        pace=pace,
        hazard=hazard,
        in_steps_percent=in_steps_percent,
        permille={due_day: _chance(day, pace, hazard, due_day, STEPS) for due_day in DEADLINES_D},
        p50_day=made.p50_wall_ms / DAY_MS,
    )


def _chance(day: int, pace: PaceView, hazard: Hazard, due_day: int, total_steps: int) -> int:
    work = list_work(pace.until_step, total_steps)
    return find_chance(day * DAY_MS, work, pace, hazard, due_day * DAY_MS, total_steps=total_steps)


def is_counted(evaluation: Evaluation, settle_ms: int = SETTLE_MS) -> bool:
    """Return whether an evaluation may be one of those that trigger: settled, window open."""
    pace = evaluation.pace
    is_inside = 100 * pace.until_step <= WINDOW_PERCENT * STEPS
    return pace.trained_ms >= settle_ms and is_inside


@dataclass(frozen=True)
class Outcome:
    """What the controller's rules proposed at one deadline, and the lowest P that counted."""

    proposals: list[tuple[int, Proposal]]
    lowest_permille: int


def find_outcome(
    evaluations: Sequence[Evaluation], due_day: int, settle_ms: int = SETTLE_MS
) -> Outcome:
    """Return what the rules make of the replay."""
    steered = steer([(it.day, it.pace) for it in evaluations], due_day, settle_ms)
    counted = [it.permille[due_day] for it in evaluations if is_counted(it, settle_ms)]
    return Outcome(steered.proposals, min(counted))


def render() -> str:
    """Return three replays of the public timeline and what each would have proposed."""
    record, naive = list(replay()), list(replay(settle_ms=0))
    slower = list(replay(SLOWER))
    return "\n".join(
        [
            "### As it was\n",
            _table(record, naive),
            *(_tell_outcome(record, due_day) for due_day in DEADLINES_D),
            "\n### The same, had the first days' interruptions counted\n",
            *(_tell_outcome(naive, due_day, 0) for due_day in DEADLINES_D),
            "\n### A third slower, and never improving\n",
            _table([it for it in slower if it.day in SLOWER_DAYS]),
            *(_tell_outcome(slower, due_day) for due_day in DEADLINES_D),
            "",
        ]
    )


def _table(evaluations: Sequence[Evaluation], naive: Sequence[Evaluation] = ()) -> str:
    head = ["Day", "Date", "Step", "s/step", "In steps", "By mean pace so far"]
    head += [f"P({due_day} d)" for due_day in DEADLINES_D] + ["P50", "Counts"]
    head += ["P(90 d), first days counted"] if naive else []
    rows = [head, ["---"] * len(head)]
    for number, it in enumerate(evaluations):
        when = LAUNCH + timedelta(days=it.day)
        done = it.pace.until_step
        row = [str(it.day), f"{when:%m-%d}", f"{done:,}", f"{it.pace.step_us / 1e6:.1f}"]
        row += [f"{it.in_steps_percent}%", f"day {it.day * STEPS / done:.0f}"]
        row += [_percent(it.permille[due_day]) for due_day in DEADLINES_D]
        row += [f"day {it.p50_day:.1f}", "yes" if is_counted(it) else "no"]
        row += [_percent(naive[number].permille[DEADLINES_D[0]])] if naive else []
        rows.append(row)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _percent(permille: int) -> str:
    return f"{permille / 10:.1f}%"


def _tell_outcome(
    evaluations: Sequence[Evaluation], due_day: int, settle_ms: int = SETTLE_MS
) -> str:
    """Return in a line what the rules proposed while nobody answered."""
    outcome = find_outcome(evaluations, due_day, settle_ms)
    text = f"- {due_day} days (lowest P that counts {_percent(outcome.lowest_permille)}): "
    told = [_tell_proposal(day, proposal) for day, proposal in outcome.proposals]
    return f"{text}{'; '.join(told) or 'nothing is proposed'}."


def _tell_proposal(day: int, proposal: Proposal) -> str:
    before, after = proposal.facts.before, proposal.facts.after
    total = proposal.change.total_steps
    assert before is not None
    assert after is not None
    assert total is not None
    kind = "last call, " if proposal.is_last_call else ""
    floor = ", the floor" if proposal.is_floor else ""
    return (
        f"day {day}: {kind}at P {_percent(before.on_time_permille or 0)} a horizon of"
        f" {100 * total / STEPS:.1f}%{floor} (then P {_percent(after.on_time_permille or 0)})"
    )


def replace_between(text: str, begin: str, end: str, body: str) -> str:
    """Return `text` with what stands between two markers replaced."""
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    assert found, f"{begin} ... {end} is not on the page"
    return f"{before}{begin}\n{body}{end}{after}"


def main() -> int:
    """Write the tables anew."""
    PAGE.write_text(replace_between(PAGE.read_text(), BEGIN, END, render()))
    sys.stderr.write(f"wrote {PAGE.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
