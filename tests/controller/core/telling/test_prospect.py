"""What-ifs and differences: what people compare before they decide."""

from fractions import Fraction

import pytest

from contract.schedule import round_binary32
from controller.core.proposal import Change, WantedStage
from controller.core.telling.prospect import compare_plans, find_pair, is_behind, look_around
from tests.plan_runs import SLOW_STEP_S, STEPS, a_dated_run, a_late_run


def pace_of(run):
    return run.seen["progress"].pace


def look(run):
    return look_around(run.memory, pace_of(run), run.now)


def test_what_ifs_go_down_to_the_floor_and_get_better_on_the_way():
    run = a_dated_run(floor_percent=78)
    run.training(100, step_s=SLOW_STEP_S)
    found = look(run)
    assert [it.percent for it in found.what_ifs] == [95, 90, 85, 80, 78]
    chances = [it.forecast.on_time_permille for it in found.what_ifs]
    assert chances == sorted(chances)
    assert [it.tokens_given_up for it in found.what_ifs][:2] == [
        percent * STEPS // 100 * run.plan.tokens_per_step for percent in (5, 10)
    ]


def test_target_is_the_longest_horizon_that_meets_it():
    run = a_dated_run().training(100, step_s=SLOW_STEP_S)
    found = look(run)
    assert found.meets_target
    assert found.target.forecast.on_time_permille >= 800
    total = found.target.forecast.total_steps
    assert 750 < total < STEPS
    assert found.is_window_open
    on_pace = look(a_dated_run().training(100))
    assert (on_pace.target.tokens_given_up, on_pace.meets_target) == (0, True)
    hopeless = look(a_dated_run().training(100, step_s=40))
    assert not hopeless.meets_target
    assert hopeless.target.forecast.total_steps == 750


def test_horizons_that_lie_behind_are_no_what_ifs():
    run = a_dated_run().training(860)
    found = look(run)
    assert [it.percent for it in found.what_ifs] == [95, 90]
    assert not found.is_window_open
    assert look(a_dated_run().training(STEPS)).target is None


def test_without_a_deadline_only_dates_are_compared():
    found = look(a_dated_run(deadline_wall_ms=None, mode="off").training(100))
    assert found.target is None
    assert {it.forecast.on_time_permille for it in found.what_ifs} == {None}


@pytest.mark.parametrize(
    ("permille", "is_open", "expected"),
    [(99, True, True), (100, True, False), (799, False, True), (800, False, False),
     (None, True, False), (None, False, False)],
)  # fmt: skip
def test_behind_is_late_in_the_window_and_under_the_target_after_it(permille, is_open, expected):
    run = a_dated_run()
    assert is_behind(run.memory, permille, is_window_open=is_open) is expected


def test_pair_is_the_proposed_plan_else_the_newest_revision_else_nothing():
    assert find_pair(a_dated_run().memory) is None
    run = a_late_run()
    parent, child = find_pair(run.memory)
    assert parent == run.memory.plan
    assert (child.parent, child.effective) == (parent.sha, run.memory.proposal.fork_first)
    run.training(40)
    _, later = find_pair(run.memory, pace_of(run))
    assert run.step < later.effective
    run.training(120)  # past the last possible fork
    assert find_pair(run.memory, pace_of(run))[1].effective == run.memory.proposal.fork_first

    other = a_late_run(mode="auto")
    assert other.memory.revision is not None
    assert find_pair(other.memory) == (other.memory.genesis, other.memory.plan)


def test_differences_show_what_steps_receive():
    run = a_late_run(mode="auto")
    before, after = find_pair(run.memory)
    rows = {row.what: row for row in compare_plans(before, after)}
    fork = after.effective
    assert (rows["total_steps"].before, rows["total_steps"].after) == (STEPS, after.total_steps)
    assert not rows[f"learning_rate at {fork - 1} (before the fork)"].is_change
    assert not rows[f"learning_rate at {fork} (fork)"].is_change
    half = after.total_steps // 2
    row = rows[f"learning_rate at {half}"]
    assert row.is_change
    assert row.after == after.values_at(half)["learning_rate"]
    last = rows["learning_rate of the last step"]
    assert last.before == last.after
    assert all(round_binary32(value) == value for value in map(Fraction, last.after.values()))
    assert not rows["execution.waves"].is_change


def test_mixture_proposed_by_the_owner_differs_in_nothing_else():
    run = a_dated_run()
    run.train_and_pass(60)
    units = run.plan.mixture.block_tokens // run.plan.mixture.unit_tokens
    (source,) = run.plan.sources
    stages = [WantedStage(from_percent=percent, parts={source: units}) for percent in (0, 90)]
    run.asked("propose", change=Change(kind="mixture", stages=stages))
    run.settle()
    changed = [it.what for it in compare_plans(*find_pair(run.memory)) if it.is_change]
    assert changed == ["mixture"]
