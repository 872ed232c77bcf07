"""The demo's arithmetic: on any machine the story can happen, and only a story that did is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.declared.drills import DRILLS, check_drill
from controller.core.declared.run_file import parse_run_file
from controller.core.forecast import Work, forecast, make_hazard
from controller.core.pace import PaceView
from tools import story as tale
from tools.demo import SAMPLE, write_files
from tools.story import FAILED, RUINED, STORY_HELD, judge, list_drills, plan_story

STEP_S = st.floats(0.02, 1.0)
START_PER_STEP = st.floats(20.0, 250.0)


def chance(story, step, step_s, *, spent_s, total):
    """Return P(on time), 0 to 1, of the real forecast at `step`, `spent_s` after the launch."""
    pace = PaceView(
        since_step=0, until_step=step, clean_steps=20, step_us=round(1e6 * step_s),
        error_us=round(2e4 * step_s), extra_us=0, trained_ms=1, first_wall_ms=0, start_ms=10_000,
        changed_step=None, context_length=64, execution_sha="e", outages=[],
    )  # fmt: skip
    hazard = make_hazard([], 1, 60_000, devices=4, save_interval_ms=10_000, start_ms=10_000)
    work = [Work(total - step)]
    found = forecast(
        round(1000 * spent_s), work, pace, hazard, round(1000 * story.due_s),
        step=step, total_steps=total,
    )  # fmt: skip
    return found.on_time_permille / 1000


def spent_before(story, step, step_s, start_s, error):
    """Return the seconds from the launch to `step`, in the first pace and then the second."""
    outside_s = story.due_s - story.slow_step * story.first_pace_s
    outside_s -= (1 + tale.MARGIN) * (story.steps - story.slow_step) * story.first_pace_s
    slow = max(0, step - story.slow_step)
    paced_s = (step - slow) * story.first_pace_s + slow * story.second_pace_s
    return outside_s + error * story.stepping_s + paced_s


@given(STEP_S, START_PER_STEP, st.floats(-0.05, 0.05))
def test_on_any_machine_the_slow_down_turns_a_run_on_time_into_a_late_one(step_s, starts, error):
    """Although start and restart take up to 5% of all stepping longer or shorter than planned."""
    story = plan_story(step_s, starts * step_s)
    spent = spent_before(story, story.slow_step, story.first_pace_s, starts * step_s, error)
    at, total = story.slow_step, story.steps
    assert chance(story, at, story.first_pace_s, spent_s=spent, total=total) > 0.7
    noticed = story.slow_step + tale.NOTICE_STEPS
    spent = spent_before(story, noticed, story.first_pace_s, starts * step_s, error)
    assert chance(story, noticed, story.second_pace_s, spent_s=spent, total=total) < 0.1


@given(STEP_S, START_PER_STEP, st.floats(-0.05, 0.05))
def test_a_cut_above_the_floor_saves_the_run_and_without_it_the_deadline_is_missed(
    step_s, starts, error
):
    story = plan_story(step_s, starts * step_s)
    fork = story.last_fork_step
    spent = spent_before(story, fork, story.first_pace_s, starts * step_s, error)
    low = 0.62 * story.steps
    assert chance(story, fork, story.second_pace_s, spent_s=spent, total=round(low)) > 0.9
    finish_s = spent + (story.steps - fork) * story.second_pace_s
    assert finish_s - story.due_s > 0.08 * story.stepping_s
    # The deadline is held against the run's end; the last evaluation may be faster than planned.
    end_s = 0.7 * (tale.END_STEPS * step_s + tale.END_S)
    assert finish_s + end_s - story.deadline_s > tale.MIN_MISS * story.deadline_s


@given(STEP_S, START_PER_STEP)
def test_everything_happens_in_its_order_within_the_first_quarter(step_s, starts):
    story = plan_story(step_s, starts * step_s)
    assert tale.MIN_STEPS <= story.steps <= tale.MAX_STEPS
    assert story.first_pace_s >= tale.ROOM * step_s
    assert story.save_every + 5 <= story.crash_step < story.slow_step - 10
    # Three means of ten before the slow-down, less the first steps of two attempts and a save.
    assert story.slow_step - 12 >= 30
    assert story.last_fork_step <= story.steps // 4
    settled = story.settle_s / story.first_pace_s
    assert 10 < settled < story.slow_step
    # Three late evaluations after settling cannot come before the slow-down.
    assert settled + 3 * tale.SLOW_DOWN * story.spacing_steps > story.slow_step
    assert story.reserve_s > tale.END_STEPS * step_s


@given(STEP_S, START_PER_STEP)
def test_a_slower_machine_never_gets_a_faster_or_longer_story(step_s, starts):
    here, slower = (plan_story(it, starts * it) for it in (step_s, 1.2 * step_s))
    assert slower.first_pace_s >= here.first_pace_s
    assert slower.steps <= here.steps


def test_the_story_takes_ten_minutes_at_most_on_a_machine_three_times_slower():
    here, slow = plan_story(0.13, 25.0), plan_story(0.39, 75.0)
    assert here.total_s < 5 * 60
    assert slow.total_s + 75 < 10 * 60


@pytest.mark.parametrize("step_s", [0.05, 0.13, 0.4])
def test_written_files_are_right(tmp_path, step_s):
    story = plan_story(step_s, 60 * step_s)
    file, drill = write_files(story, tmp_path / "story")
    spec = parse_run_file(file.read_text()).spec
    assert spec.total_steps == story.steps
    assert (spec.contingency.mode, spec.contingency.floor_percent) == ("auto", 60)
    assert abs(spec.contingency.evaluate_every - 1000 * 15 * story.second_pace_s) < 4000
    assert spec.deadline.reserve == round(1000 * story.reserve_s)
    drills = DRILLS.validate_python(list_drills(story))
    assert [it.kind for it in drills] == ["pace", "kill", "pace"]
    assert not [it for found in drills for it in check_drill(found, "")]
    assert drill.exists()


def test_the_sample_by_itself_has_no_deadline():
    assert parse_run_file(SAMPLE.read_text()).spec.deadline is None


# --- the judgement ---

REVISION = {
    "sha": "a", "kind": "horizon", "fork_step": 156, "total_steps": 600, "proposal": "p",
    "approved_by": "controller (mode auto)", "adopted_at_step": 157,
}  # fmt: skip
SUMMARY = {
    "outcome": "completed", "reason": "", "on_time": True, "original_steps": 800,
    "final_steps": 600, "revisions": [REVISION], "wall_seconds": 300.0, "final_lr_exact": True,
    "counterfactual_miss_seconds": 30.0, "counterfactual_finish": "later", "deadline": "then",
    "finished_at": "before", "p_on_time_before": 0.01, "p_on_time_after": 0.81,
    "incidents": [{"cost_seconds": 12.0}],
}  # fmt: skip
HELD = {"stepS": "0.39", "pacedSteps": 500, "lateSteps": 5, "medianStepS": "0.391"}
LATE = {"stepS": "0.39", "pacedSteps": 500, "lateSteps": 200, "medianStepS": "0.385"}
SLOW = {"stepS": "0.39", "pacedSteps": 500, "lateSteps": 0, "medianStepS": "0.45"}
STORY = plan_story(0.13, 8.0)


def verdict(changes, paces=(HELD,)):
    return judge(SUMMARY | changes, paces, STORY)


def test_story_that_held_tells_its_facts():
    found = verdict({}, [LATE])
    assert found.code == STORY_HELD
    assert "shortened to 600 from step 156 on" in found.sentences[0]
    assert "P(on time) 1% before, 81% after" in found.sentences


BROKEN = [
    ({"outcome": "halted", "reason": "why"}, "the run is halted: why"),
    ({"on_time": False}, "finished at before, due then"),
    ({"on_time": None}, "finished at before, due then"),
    ({"revisions": []}, "0 revisions"),
    ({"revisions": None}, "0 revisions"),
    ({"revisions": [REVISION, REVISION]}, "2 revisions"),
    ({"revisions": [REVISION | {"adopted_at_step": None}]}, "0 revisions"),
    ({"revisions": [REVISION | {"fork_step": 201}]}, "forked at step 201"),
    ({"revisions": [REVISION | {"kind": "mixture"}]}, "0 revisions"),
    ({"counterfactual_miss_seconds": 14.0}, "by 14 s only"),
    ({"counterfactual_miss_seconds": None}, "not known"),
    ({"final_lr_exact": False}, "not exactly 5%"),
    ({"final_lr_exact": None}, "not exactly 5%"),
]


@pytest.mark.parametrize(("changes", "sentence"), BROKEN)
def test_story_that_did_not_happen_is_no_success(changes, sentence):
    found = verdict(changes)
    assert found.code == FAILED
    assert sentence in " ".join(found.sentences)


def test_failure_beside_other_load_is_told_apart_with_its_numbers():
    found = verdict({"on_time": False}, [HELD, LATE])
    assert found.code == RUINED
    said = " ".join(found.sentences)
    assert "0.39 s a step could not be held: median 0.385 s, 40% of 500" in said
    assert "finished at before, due then" in said
    assert verdict({"on_time": False}, [SLOW]).code == RUINED


def test_slow_restart_counts_as_other_load():
    found = verdict({"on_time": False, "incidents": [{"cost_seconds": 90.0}]})
    assert found.code == RUINED
    assert "the restart took 90 s where" in " ".join(found.sentences)


def test_halted_run_is_a_failure_whatever_the_load():
    assert verdict({"outcome": "halted"}, [LATE]).code == FAILED


def test_run_without_summary_is_a_failure():
    assert judge(None, [], STORY).code == FAILED
