"""The budget's order: never-retry, window, then what counts since progress."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.exits import NEVER_RETRY
from controller.core.budget import delay_of, is_within
from controller.core.policy import Budget
from tests.builders import a_run, an_instant, verbs_of

KILL = (137, 94, 94, 94)


def ended(run, *codes, step=None, verified=None, detail=""):
    """Launch, and let the attempt end at `step` with `verified` as the newest good checkpoint."""
    run.relaunched() if run.memory.attempt else run.launched()
    run.with_progress(step)
    if verified is not None:
        run.with_checkpoints(verified)
    run.with_ends(*codes)
    run.with_end(0, codes[0], step=step if detail else None, detail=detail)
    run.with_gang(closed=True)
    assert run.pass_once().rule == "record_end"
    return run


def halted(run):
    """Return the reason of the halt that follows, None when the run goes on."""
    if run.decide().rule == "spend_budget":
        run.pass_once()
    return run.memory.halted


@pytest.mark.parametrize("code", sorted(NEVER_RETRY))
def test_code_that_no_restart_cures_halts_at_once(code):
    run = ended(a_run(), code, 94, 94, 94, detail="data/x changed")
    reason = halted(run)
    assert "a restart cannot cure it" in reason
    assert "data/x changed" in reason


def test_killed_rank_is_restarted():
    assert halted(ended(a_run(), *KILL)) is None


def test_progress_between_incidents_keeps_the_run_going_until_the_window_is_full():
    run = a_run()
    for number in range(1, 7):
        ended(run, *KILL, step=number * 10, verified=number * 10)
        assert halted(run) is None, number
    ended(run, *KILL, step=70, verified=70)
    assert "7 incidents within 6 h" in halted(run)


def test_incidents_outside_the_window_are_forgotten():
    run = a_run()
    for number in range(1, 12):
        ended(run, *KILL, step=number * 10 % 97, verified=number * 10)
        assert halted(run) is None
        run.after(run.policy.budget.window_ms)


def test_same_failure_at_the_same_step_gets_one_confirmation():
    run = ended(a_run(), 1, 94, 94, 94, step=33, verified=30, detail="data/x: no such file")
    assert halted(run) is None
    ended(run, 1, 94, 94, 94, step=33, verified=30, detail="data/x: no such file")
    reason = halted(run)
    assert "step 33" in reason
    assert "data/x: no such file" in reason


@pytest.mark.parametrize(("step", "halts"), [(32, True), (34, True), (31, False), (35, False)])
def test_one_step_aside_is_the_same_step(step, halts):
    run = ended(a_run(), 139, 94, 94, 94, step=33, verified=30)
    halted(run)
    ended(run, 139, 94, 94, 94, step=step, verified=30)
    assert bool(halted(run)) == halts


@pytest.mark.parametrize(("code", "halts"), [(137, False), (1, True)])
def test_two_kills_before_any_step_are_nobodys_repetition(code, halts):
    run = ended(a_run(), code, 94, 94, 94)
    assert halted(run) is None
    assert bool(halted(ended(run, code, 94, 94, 94))) == halts


def test_same_failure_before_any_step_is_told_without_a_step():
    run = ended(a_run(), 1, 94, 94, 94)
    halted(run)
    assert "twice before its first step without" in halted(ended(run, 1, 94, 94, 94))


def test_other_words_are_another_failure():
    run = ended(a_run(), 1, 94, 94, 94, step=33, verified=30, detail="one")
    halted(run)
    ended(run, 1, 94, 94, 94, step=33, verified=30, detail="two")
    assert halted(run) is None


def test_second_stall_at_the_same_step_halts_whoever_was_silent():
    run = ended(a_run(), 124, 94, 94, 94, step=12, verified=10, detail="watchdog")
    halted(run)
    ended(run, 124, 124, 94, 94, step=12, verified=10, detail="watchdog")
    assert "step 12" in halted(run)


def test_same_failure_after_a_newer_verified_checkpoint_is_a_first_one():
    run = ended(a_run(), 139, 94, 94, 94, step=33, verified=30)
    halted(run)
    ended(run, 139, 94, 94, 94, step=33, verified=32)
    assert halted(run) is None
    assert len(run.memory.no_progress) == 1


def test_third_incident_without_progress_halts():
    run = a_run()
    for step in (11, 15):
        assert halted(ended(run, *KILL, step=step, verified=10)) is None
    assert "3 incidents without a newer verified" in halted(ended(run, *KILL, step=19, verified=10))


def test_older_verified_checkpoint_than_before_is_no_progress():
    run = a_run()
    for step, verified in ((21, 20), (15, 10)):
        assert halted(ended(run, *KILL, step=step, verified=verified)) is None
    ended(run, *KILL, step=25, verified=20)
    assert "3 incidents" in halted(run)


def test_unverified_checkpoint_is_no_progress():
    run = a_run()
    for step in (11, 15):
        halted(ended(run, *KILL, step=step, verified=10))
    run.relaunched().with_progress(25).with_checkpoints(20, verified=False)
    run.over(*KILL)
    assert "3 incidents" in halted(run)


def test_second_loss_that_is_not_finite_halts():
    run = ended(a_run(), 80, 80, 80, 80, step=20, verified=10)
    assert halted(run) is None
    assert run.memory.restore_verified
    ended(run, 80, 80, 80, 80, step=26, verified=10)
    assert "non_finite 2 times" in halted(run)


def test_unreadable_progress_is_charged_to_the_window_only():
    run = a_run()
    for _ in range(6):
        run.relaunched() if run.memory.attempt else run.launched()
        run.blind("progress")
        run.over(*KILL)
        assert halted(run) is None
        assert run.memory.no_progress == []
    run.seeing(progress=None).relaunched().blind("progress").over(*KILL)
    assert "within 6 h" in halted(run)


def test_window_is_told_before_what_counts_since_progress():
    run = a_run(budget=Budget(window_restarts=1, no_progress_incidents=2))
    assert halted(ended(run, *KILL, step=11, verified=10)) is None
    assert "within 6 h" in halted(ended(run, *KILL, step=11, verified=10))


def test_never_retry_is_told_before_the_window():
    run = a_run(budget=Budget(window_restarts=0))
    assert "cannot cure" in halted(ended(run, 2, 94, 94, 94))


def test_operator_resumes_and_everything_counted_is_forgiven():
    run = a_run()
    for step in (11, 15, 19):
        ended(run, *KILL, step=step, verified=10)
        halted(run)
    assert run.memory.halted
    run.asked("resume").pass_once()
    assert run.memory.halted is None
    assert verbs_of(run.seeing(intents=[]).decide())[-1] == "launch_gang"
    run.launched()
    assert halted(run.with_progress(23).over(*KILL)) is None


def test_hundred_drains_a_day_are_a_loop():
    run = a_run(budget=Budget(drains_a_day=3))
    for _ in range(3):
        run.launched().over(40, 40, 40, 40)
        assert halted(run) is None
    run.launched().over(40, 40, 40, 40)
    assert "planned ends within a day" in halted(run)


@given(st.integers(0, 100), st.text(max_size=20))
def test_delay_doubles_is_bounded_and_jitters_by_a_tenth_at_most(count, key):
    policy = a_run().policy
    budget = policy.budget
    delay = delay_of(policy, count, key)
    plain = min(budget.delay_ms * 2 ** max(count - 1, 0), budget.max_delay_ms)
    assert plain <= delay <= plain * 11 // 10
    assert delay == delay_of(policy, count, key)


def test_next_launch_waits_for_the_delay():
    run = ended(a_run(), *KILL)
    run.pass_once()
    delay = run.memory.delay_ms
    assert run.decide().rule == "wait_delay"
    assert run.decide().wake_in_ms == delay
    assert run.after(delay - 1).decide().rule == "wait_delay"
    assert run.after(1).decide().rule == "launch"


def test_machine_restart_ends_the_delay():
    assert ended(a_run(), *KILL).rebooted().decide().rule == "launch"


def test_window_over_a_machine_restart_is_told_by_the_wall_clock():
    before, after = an_instant(10_000), an_instant(5_000, boot_id="boot-2")
    assert is_within(before, after, 6_000)
    assert not is_within(before, after, 4_000)
