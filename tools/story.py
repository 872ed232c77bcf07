"""The demo's story in numbers: derived from the machine's own step time, and judged by its end.

A run is paced, loses a rank early, is slowed down for good, and would miss its deadline if the
controller did not shorten it within the first quarter of its tokens. Pure arithmetic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

Members = Mapping[str, object]

MAX_STEPS, MIN_STEPS = 800, 560
"""Fewer than 560 leave no room for crash, slow-down and evaluations within a quarter of them."""
STEPS_S = 300.0
"""Of stepping at most, where fewer steps can see to it."""

LEAST_PACE_S = 0.26
"""Some 240 s of steps; a fast machine is held to it, so that its moods do not matter."""
ROOM = 1.3
"""The first pace over the machine's own step: what other load may take."""
SLOW_DOWN = 1.5
MARGIN = 0.18
"""The deadline over what the first pace needs after the slow-down: between nothing and half.

The forecast's own spread is some 9% of what is ahead: at the first pace the run is two of those
early, at the second one two late.
"""
SETTLED_STEPS = 30
"""Between settling and the slow-down: too few for a row of late evaluations before it."""
TARGET_PERCENT = 90
"""Above the default, as the machine's other load is no part of the forecast's spread."""
CUT = 0.74
"""What is left of the steps after the revision, about."""

NOTICE_STEPS = 31
"""A change of pace shows in two means of ten; the one that it falls into may not tell."""
NEWS_STEPS, LEAD_S = 6, 2.0
"""From a revision's publication to its effective step, beside the alignment."""
ALIGN_STEPS = 2

START_STEPS = 60.0
"""A warm start costs about as much time as so many steps: imports, rendezvous, loading programs."""
DETECT_S = 3.0
"""From a rank's death to the next launch, the delay of the budget included."""
EVAL_STEPS = 50.0
"""What one evaluation on the way costs, its compilation included, in steps."""
END_STEPS, END_S = 120.0, 3.0
"""Final evaluation, in steps, and save."""

STORY_HELD, FAILED, RUINED = 0, 1, 6
MIN_MISS = 0.05
LATE_PERCENT, SLACK = 25.0, 1.05
"""A set-point is held when fewer steps are late by themselves and the median is within 5%."""
OUTAGE_SHARE = 0.1
"""Of all stepping: a restart that takes so much longer than expected moves the whole story."""


@dataclass(frozen=True)
class Story:
    """Everything that run file and drill need."""

    steps: int
    first_pace_s: float
    second_pace_s: float
    crash_step: int
    slow_step: int
    save_every: int
    spacing_steps: int
    """Slow steps between two evaluations of the forecast."""
    settle_s: float
    reserve_s: float
    due_s: float
    """From the launch to the instant by which the forecast must have the run done."""
    outage_s: float
    """What the crash costs, about."""

    @property
    def deadline_s(self) -> float:
        """From the launch to the deadline."""
        return self.due_s + self.reserve_s

    @property
    def last_fork_step(self) -> int:
        """Where the revision forks at the latest, if all goes well."""
        lead = NEWS_STEPS + LEAD_S / self.second_pace_s + ALIGN_STEPS + 1
        return self.slow_step + NOTICE_STEPS + 3 * self.spacing_steps + round(lead)

    @property
    def stepping_s(self) -> float:
        """Of stepping in all, with the revision."""
        slow = CUT * self.steps - self.slow_step
        return self.slow_step * self.first_pace_s + slow * self.second_pace_s

    @property
    def total_s(self) -> float:
        """From the launch to the end, about."""
        return self.due_s + self.reserve_s - 0.05 * self.stepping_s


def plan_story(step_s: float, start_s: float) -> Story:
    """Return the story for a machine whose own step takes `step_s`.

    `start_s`: the longest that a start takes, as the admission test measured it (cold).
    """
    pace_s = max(LEAST_PACE_S, ROOM * step_s)
    steps = MAX_STEPS
    while steps > MIN_STEPS and _draw(steps, pace_s, step_s, start_s).stepping_s > STEPS_S:
        steps -= 8
    return _draw(steps, pace_s, step_s, start_s)


def _draw(steps: int, pace_s: float, step_s: float, start_s: float) -> Story:
    save_every = round(30 * steps / MAX_STEPS)
    crash = save_every * 3 // 2
    slow = crash + 5 + save_every * 2 // 3
    warm_s = min(start_s, START_STEPS * step_s)
    outage_s = warm_s + DETECT_S + (crash - save_every) * pace_s
    outside_s = warm_s + outage_s + EVAL_STEPS * step_s
    ahead_s = (steps - slow) * pace_s
    return Story(
        steps=steps,
        first_pace_s=pace_s,
        second_pace_s=SLOW_DOWN * pace_s,
        crash_step=crash,
        slow_step=slow,
        save_every=save_every,
        spacing_steps=round(15 * steps / MAX_STEPS),
        settle_s=(slow - SETTLED_STEPS) * pace_s,
        reserve_s=1.2 * (END_STEPS * step_s + END_S),
        due_s=outside_s + slow * pace_s + (1 + MARGIN) * ahead_s,
        outage_s=outage_s,
    )


def change_run_file(declared: Members, story: Story, deadline_at: str) -> dict[str, object]:
    """Return the run file `declared` with the story's numbers."""
    spec = dict(cast("Members", declared["spec"]))
    tokens = cast("Mapping[str, int]", spec["batch"])["tokensPerStep"]
    evaluation = {**cast("Members", spec["evaluation"]), "everySteps": story.steps // 2}
    return {
        **declared,
        "spec": {
            **spec,
            "budget": {"horizonTokens": story.steps * tokens},
            "evaluation": evaluation,
            "checkpoints": {**cast("Members", spec["checkpoints"]), "everySteps": story.save_every},
            "deadline": {"at": deadline_at, "reserve": _show_ms(story.reserve_s)},
            "contingency": {
                "mode": "auto",
                "windowPercent": 25,
                "floorPercent": 60,
                "targetPercent": TARGET_PERCENT,
                "evaluateEvery": _show_ms(story.spacing_steps * story.second_pace_s),
                "evaluations": 3,
                "settle": _show_ms(story.settle_s),
                "minCleanSteps": min(12, story.spacing_steps),
                "maxRevisions": 1,
                "coolDown": "1h",
            },
        },
    }


def _show_ms(seconds: float) -> str:
    return f"{round(1000 * seconds)}ms"


def list_drills(story: Story) -> list[dict[str, object]]:
    """Return the drill file."""
    first, second = f"{story.first_pace_s:.3f}", f"{story.second_pace_s:.3f}"
    return [
        {"atStep": 0, "kind": "pace", "stepS": first},
        {"atStep": story.crash_step, "kind": "kill", "rank": 1},
        {"atStep": story.slow_step, "kind": "pace", "stepS": second},
    ]


# --- the end of the story ---


@dataclass(frozen=True)
class Judgement:
    """How the demo leaves, and why in sentences."""

    code: int
    sentences: Sequence[str]


def judge(summary: Members | None, paces: Sequence[Members], story: Story) -> Judgement:
    """Return whether the story held; `paces` are the pacer's own records of its set-points."""
    if summary is None:
        return Judgement(FAILED, ["the run left no summary"])
    failures = list(_find_failures(summary))
    if not failures:
        return Judgement(STORY_HELD, _tell_facts(summary))
    unheld = [*_find_unheld(paces), *_find_slow_restart(summary, story)]
    if summary.get("outcome") == "completed" and unheld:
        text = "other load on this machine ruined the story; nothing is wrong with the run"
        return Judgement(RUINED, [text, *unheld, *failures])
    return Judgement(FAILED, failures)


def _find_failures(summary: Members) -> Sequence[str]:
    found: list[str] = []
    outcome = summary.get("outcome")
    if outcome != "completed":
        found.append(f"the run is {outcome}: {summary.get('reason')}")
    if summary.get("on_time") is not True:
        found.append(f"finished at {summary.get('finished_at')}, due {summary.get('deadline')}")
    found += _check_revisions(summary)
    miss_s, run_s = summary.get("counterfactual_miss_seconds"), summary.get("wall_seconds")
    if not isinstance(miss_s, int | float) or not isinstance(run_s, int | float):
        found.append("what would have been without the revision is not known")
    elif miss_s < MIN_MISS * run_s:
        found.append(f"unchanged it would have missed the deadline by {miss_s:.0f} s only")
    if summary.get("final_lr_exact") is not True:
        found.append("the last step's learning rate is not exactly 5% of its peak")
    return found


def _check_revisions(summary: Members) -> Sequence[str]:
    revisions = [
        it
        for it in cast("Sequence[Members]", summary.get("revisions") or ())
        if it.get("adopted_at_step") is not None and it.get("kind") == "horizon"
    ]
    if len(revisions) != 1:
        return [f"{len(revisions)} revisions of the horizon were adopted, not one"]
    fork, original = revisions[0].get("fork_step"), summary.get("original_steps")
    if not isinstance(fork, int) or not isinstance(original, int) or 4 * fork > original:
        return [f"the revision forked at step {fork}, after the first quarter of {original}"]
    return []


def _find_unheld(paces: Sequence[Members]) -> list[str]:
    """Return a sentence for each set-point that the machine could not hold."""
    found: list[str] = []
    for pace in paces:
        steps, late = pace.get("pacedSteps"), pace.get("lateSteps")
        if not isinstance(steps, int) or not isinstance(late, int) or not steps:
            continue
        set_point_s, median_s = float(str(pace["stepS"])), float(str(pace["medianStepS"]))
        percent = 100 * late / steps
        if percent > LATE_PERCENT or median_s > SLACK * set_point_s:
            found.append(
                f"the set-point of {set_point_s:g} s a step could not be held: median"
                f" {median_s:.3f} s, {percent:.0f}% of {steps} steps were slower by themselves"
            )
    return found


def _find_slow_restart(summary: Members, story: Story) -> list[str]:
    incidents = cast("Sequence[Members]", summary.get("incidents") or ())
    cost_s = sum(float(cast("float", it.get("cost_seconds") or 0)) for it in incidents)
    if cost_s <= story.outage_s + OUTAGE_SHARE * story.stepping_s:
        return []
    return [f"the restart took {cost_s:.0f} s where {story.outage_s:.0f} s were expected"]


def _tell_facts(summary: Members) -> list[str]:
    (revision,) = cast("Sequence[Members]", summary["revisions"])
    before, after = (
        100 * cast("float", summary[name]) for name in ("p_on_time_before", "p_on_time_after")
    )
    return [
        f"horizon {summary['original_steps']} steps, shortened to {summary['final_steps']} from"
        f" step {revision['fork_step']} on (approved by {revision.get('approved_by')})",
        f"P(on time) {before:.0f}% before, {after:.0f}% after",
        f"finished at {summary['finished_at']}, in time for {summary['deadline']}",
        f"unchanged it would have finished at {summary['counterfactual_finish']},"
        f" {summary['counterfactual_miss_seconds']:.0f} s too late",
        "the last step's learning rate is exactly 5% of its peak",
    ]
