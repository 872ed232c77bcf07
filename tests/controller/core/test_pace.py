"""The pace: what counts as clean, where a window begins, and what an outage costs."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.pace import (
    BLOCK_STEPS,
    KEPT_CLEAN_STEPS,
    KEPT_OUTAGES,
    SETTLING_STEPS,
    ChangeWatch,
    LoggedStep,
    PaceBook,
    estimate_pace,
)
from tests.histories import step_record

STEP_S = 0.2


class Run:
    """Writes step records as a trainer would, and folds them."""

    def __init__(self):
        self.book = PaceBook()
        self.attempt, self.step, self.line, self.wall_s = 1, 0, "main", 1_000.0
        self.code, self.execution, self.length = "1", "e" * 64, 4_096

    def steps(self, count, step_s=STEP_S, tags=()):
        for _ in range(count):
            self.wall_s += step_s
            record = LoggedStep(
                self.line, self.step, self.execution, self.code, step_s, self.wall_s, tags
            )
            self.book.take(record, attempt=self.attempt, length=self.length)
            self.step += 1
        return self

    def restart(self, step, pause_s=10.0, line="main"):
        self.attempt += 1
        self.book.launch(self.attempt, round(self.wall_s * 1_000))
        self.step, self.line = step, line
        self.wall_s += pause_s
        return self

    def view(self, since_step=0):
        return self.book.view(since_step)


def test_no_step_ever_has_no_pace():
    assert PaceBook().view() is None


def test_records_of_the_contract_are_taken_as_they_are():
    book = PaceBook()
    for step in range(10):
        book.take(step_record(step, 100 + step), attempt=1)
    assert (book.view().clean_steps, book.view().step_us) == (5, 1_000_000)


def test_first_step_of_all_is_a_pace_without_clean_steps():
    view = Run().steps(1, 9.0, ["first", "compile"]).view()
    assert (view.clean_steps, view.until_step) == (0, 1)
    assert view.step_us == view.error_us == 9_000_000
    assert view.first_wall_ms == 1_009_000


def test_clean_steps_leave_out_first_five_tagged_and_replayed():
    run = Run().steps(SETTLING_STEPS).steps(20).steps(1, 3.0, ["save"]).steps(4)
    assert run.view().clean_steps == 24
    run.restart(20).steps(15)
    assert run.view().until_step == 35
    assert run.view().clean_steps == 29


def test_pace_is_the_median_and_its_error_shrinks_with_steps():
    random_ = random.Random(3)
    run = Run().steps(SETTLING_STEPS)
    for _ in range(400):
        run.steps(1, random_.gauss(STEP_S, 0.02))
    few = run.view()
    for _ in range(1_600):
        run.steps(1, random_.gauss(STEP_S, 0.02))
    many = run.view()
    assert few.step_us == pytest.approx(200_000, abs=4 * few.error_us)
    assert many.step_us == pytest.approx(200_000, abs=4 * many.error_us)
    assert 0 < many.error_us < few.error_us < 4_000


def test_pauses_every_few_steps_count_as_pace():
    # What a machine stopped and continued in turn does: the plain median would not see it.
    run = Run().steps(SETTLING_STEPS)
    for _ in range(60):
        run.steps(4, 0.1).steps(1, 0.6)
    assert run.view().step_us == 200_000


def test_one_stalled_step_changes_neither_pace_nor_window():
    run = Run().steps(SETTLING_STEPS + 200).steps(1, 900.0).steps(199)
    assert run.view().step_us == 200_000
    assert run.view().changed_step is None


def test_since_step_narrows_the_window_and_a_small_one_keeps_the_pace():
    run = Run().steps(SETTLING_STEPS + 100)
    assert run.view(55).clean_steps == 50
    few = run.view(104)
    assert (few.clean_steps, few.step_us, few.error_us) == (1, 200_000, 0)
    empty = run.view(105)
    assert (empty.clean_steps, empty.since_step, empty.step_us) == (0, 105, 200_000)


def test_few_steps_after_a_change_count_alone():
    run = Run().steps(105)
    run.code = "2"
    run.steps(3, 0.1)
    assert (run.view().clean_steps, run.view().step_us) == (3, 100_000)


def test_slower_for_good_is_a_change_point_within_twenty_steps():
    run = Run().steps(105).steps(20, 0.3)
    view = run.view()
    assert (view.changed_step, view.since_step, view.step_us) == (105, 105, 300_000)
    assert view.clean_steps == 20


def test_faster_for_good_is_a_change_point_too():
    view = Run().steps(105).steps(20, 0.1).view()
    assert (view.changed_step, view.step_us) == (105, 100_000)


@pytest.mark.parametrize("change", [1.03, 0.97])
def test_small_lasting_change_is_found_where_it_began(change):
    random_ = random.Random(5)
    run = Run()
    for scale in (1.0, change):
        for _ in range(600):
            run.steps(1, scale * random_.gauss(STEP_S, 0.01))
    changed = run.view().changed_step
    assert 570 <= changed <= 640
    assert run.view().step_us == pytest.approx(200_000 * change, abs=1_500)


def test_steady_noise_seldom_looks_like_a_change():
    alarms = 0
    for seed in range(20):
        random_, watch = random.Random(seed), ChangeWatch()
        for step in range(4_000):
            watch.take(step, round(random_.gauss(200_000, 10_000)))
        alarms += watch.changed_step is not None
    assert alarms <= 4


@pytest.mark.parametrize(
    ("name", "value"), [("code", "2"), ("execution", "f" * 64), ("length", 8_192)]
)
def test_change_of_configuration_begins_a_window(name, value):
    run = Run().steps(105)
    setattr(run, name, value)
    run.steps(30, 0.21)
    view = run.view()
    assert (view.since_step, view.clean_steps) == (105, 30)
    assert (view.execution_sha, view.context_length) == (run.execution, run.length)


def test_change_of_configuration_in_a_replay_begins_the_window_at_the_first_new_step():
    run = Run().steps(105)
    run.code = "2"
    run.restart(100).steps(30)
    assert (run.view().since_step, run.view().clean_steps) == (105, 25)


def test_saves_and_evaluations_are_extra_time_and_a_single_compilation_is_not():
    run = Run().steps(SETTLING_STEPS + 20)
    for extra_s in (30.0, 1.0, 1.0, 1.0):
        run.steps(24).steps(1, STEP_S + extra_s, ["eval"])
    run.steps(1, 60.0, ["compile"])
    # Four evaluations at a median of 1 s over 126 steps.
    assert run.view().extra_us == round(4 * 1_000_000 / 126)


def test_outage_spans_end_start_and_replay():
    run = Run().steps(100).restart(90, pause_s=30.0).steps(1, 12.0, ["first"]).steps(20)
    (outage,) = run.view().outages
    # 30 s away, 12 s the first step, nine more replayed ones.
    assert (outage.attempt, outage.lost_ms) == (1, 30_000 + 12_000 + 1_800)
    # Steps 0 to 89 once, step 90 again with its 12 s, 91 to 99 again.
    assert outage.trained_ms == 99 * 200 + 12_000
    assert run.view().start_ms == 42_000


def test_attempts_that_never_got_further_are_part_of_one_outage():
    run = Run().steps(100).restart(90).steps(3).restart(90).restart(90).steps(12)
    (outage,) = run.view().outages
    assert (outage.attempt, outage.lost_ms) == (1, 30_000 + 600 + 2_000)


def test_outages_are_bounded_and_the_newest_stay():
    run = Run().steps(2)
    for _ in range(KEPT_OUTAGES + 3):
        run.restart(run.step).steps(1)
    assert [o.attempt for o in run.view().outages] == list(range(4, KEPT_OUTAGES + 4))


def test_trained_time_counts_each_step_once_by_its_newest_record():
    run = Run().steps(100)
    assert run.view().trained_ms == 20_000
    run.restart(90).steps(10, 0.3)
    assert run.view().trained_ms == 90 * 200 + 10 * 300


def test_new_line_drops_what_it_abandons():
    run = Run().steps(100).restart(40, line="main-2").steps(10)
    view = run.view()
    assert (view.until_step, view.trained_ms) == (50, 10_000)
    assert (view.since_step, view.clean_steps) == (40, 5)
    # The line's own steps are new, not replayed; back on it, a restart replays.
    run.restart(45, line="main-2").steps(10)
    assert run.view().until_step == 55


def test_view_is_cached_until_a_step_comes():
    run = Run().steps(50)
    assert run.view() is run.view()
    before = run.view()
    assert run.steps(1).view() is not before


def test_memory_of_clean_steps_is_bounded():
    run = Run().steps(KEPT_CLEAN_STEPS + SETTLING_STEPS + 10)
    assert KEPT_CLEAN_STEPS // 2 <= run.view().clean_steps <= KEPT_CLEAN_STEPS
    assert run.view(run.step - 100).clean_steps == 100


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=80))
def test_estimate_stays_within_the_steps(times_us):
    pace = estimate_pace(times_us)
    assert min(times_us) - 1 <= pace.step_us <= max(times_us) + 1
    assert pace.error_us >= 0


@settings(deadline=None)
@given(st.integers(1, 10**8), st.integers(2 * BLOCK_STEPS, 60))
def test_estimate_of_equal_steps_is_exact(step_us, count):
    assert estimate_pace([step_us] * count) == (step_us, 0)


def test_window_of_ten_clean_steps_speaks_for_itself_before_any_change_is_found():
    run = Run().steps(SETTLING_STEPS)
    for step in range(60):  # too uneven for a change point to be found soon
        run.steps(1, STEP_S * (1.6 if step % 7 == 0 else 1))
    begin = run.step
    run.steps(BLOCK_STEPS, 1.3 * STEP_S)
    assert run.view(begin).step_us == round(1.3 * STEP_S * 1e6)
    assert run.view(begin + 1).step_us < 1.3 * STEP_S * 1e6


def test_few_steps_of_two_kinds_are_their_mean_and_a_single_stall_hardly_counts():
    # A machine that is held to 0.39 s a step by pauses: its single steps are never 0.39 s.
    run = Run().steps(SETTLING_STEPS)
    begin = run.step
    for step in range(15):
        run.steps(1, 0.345 if step % 3 else 0.48)
    assert run.view(begin).step_us == pytest.approx(390_000, rel=0.001)
    stalled = Run().steps(SETTLING_STEPS + 14).steps(1, 60.0)
    assert stalled.view().step_us < 1.05 * STEP_S * 1e6
