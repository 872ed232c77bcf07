"""How attempts end: fence, patience, kill, record; and stuck gangs on two signals."""

import pytest

from contract.wire import Phase
from controller.core.readings import Unknown
from tests.builders import a_run, the, verbs_of


def test_first_end_fences_the_attempt_and_starts_the_clock():
    run = a_run().launched().with_end(2, 137)
    decision = run.pass_once()
    assert decision.rule == "close_ended"
    assert verbs_of(decision) == ["close_attempt"]
    run.with_gang(closed=True)
    assert run.after(run.policy.cascade_ms - 1).decide().rule == "watch"
    decision = run.after(1).pass_once()
    assert decision.rule == "kill_rest"
    assert the(decision, "kill_ranks").ranks == [0, 1, 3]


def test_ends_are_told_in_words_with_the_time_the_others_have():
    run = a_run().launched().with_end(2, 137)
    assert run.decide().reason == "rank 2 ended with 137 KILLED; the others have 20 s to follow"
    run = a_run().launched().with_end(2, 40)
    assert run.decide().reason.startswith("rank 2 ended with 40 DRAINED; the others have 1")
    run = a_run().launched().with_ends(0, 0, 0, None)
    assert run.decide().reason == (
        "attempt 1 is over: 3 ranks (0 to 2) ended with 0 DONE, rank 3 left no record"
    )


def test_stopped_rank_is_killed_like_the_others():
    run = a_run().launched().with_ends(124, 124, 124, 124)
    run.with_rank(1, alive=True, stopped=True, end=None).pass_once()
    run.with_gang(closed=True).after(run.policy.cascade_ms)
    assert the(run.pass_once(), "kill_ranks").ranks == [1]


def test_gang_that_leaves_as_planned_gets_the_drain_deadline():
    run = a_run().launched().with_end(2, 40)
    run.pass_once()
    run.with_gang(closed=True).after(run.policy.cascade_ms * 2)
    assert run.decide().rule == "watch"
    assert run.after(150_000).decide().rule == "kill_rest"


def test_end_is_recorded_only_when_no_rank_lives_and_none_can_start():
    run = a_run().launched().with_ends(137, 94, 94, 94)
    alive = run.with_rank(3, alive=True, end=None)
    assert alive.decide().rule == "close_ended"
    unclaimed = run.with_rank(3, alive=False, claimed=False)
    assert unclaimed.decide().rule == "close_ended"
    assert unclaimed.with_gang(closed=True).decide().rule == "record_end"


def test_end_of_all_at_once_is_recorded_without_more_ado():
    run = a_run().launched().with_ends(137, 137, 137, 137)
    decision = run.pass_once()
    assert decision.rule == "record_end"
    assert decision.wake_in_ms == 0


def test_end_holds_the_facts_it_is_judged_by():
    run = a_run().launched().with_checkpoints(10, 20).with_progress(27)
    run.with_ends(137, 94, 94, 94)
    end = the(run.decide(), "record_end")
    assert (end.completed_steps, end.verified_step, end.progress_known) == (27, 20, True)
    assert [view.end.code for view in end.ranks] == [137, 94, 94, 94]


@pytest.mark.parametrize("field", ["store", "progress"])
def test_end_with_unreadable_progress_says_so(field):
    run = a_run().launched().with_ends(137, 94, 94, 94).blind(field)
    assert the(run.decide(), "record_end").progress_known is False


@pytest.mark.parametrize("field", ["store", "progress"])
def test_success_is_believed_only_when_it_can_be_read(field):
    run = a_run().launched().with_ends(0, 0, 0, 0).blind(field)
    assert run.decide().rule == "record_end"
    assert run.decide().actions == []


def test_quarantined_checkpoint_is_not_the_newest_verified():
    run = a_run().launched().with_checkpoints(10, 20)
    views = run.seen["store"].checkpoints
    views[1] = views[1].model_copy(update={"quarantined": "digest"})
    run.with_ends(137, 94, 94, 94)
    assert the(run.decide(), "record_end").verified_step == 10


def test_unseen_fleet_ends_nothing():
    run = a_run().launched().with_ends(137, 137, 137, 137).blind("gang")
    assert run.after(10**7).decide().actions == [] or run.decide().rule == "notes"


def test_lost_telemetry_does_not_keep_a_dead_gang_from_recovery():
    run = a_run().launched().with_ends(137, 137, 137, 137)
    run.blind("control", "intents", "storage").seeing(telemetry=[])
    assert run.pass_once().rule == "record_end"


def test_ranks_that_never_start_end_the_attempt():
    run = a_run().launched().with_rank(3, claimed=False, alive=False)
    assert run.after(run.policy.start_ms - 1).decide().rule == "watch"
    decision = run.after(1).pass_once()
    assert verbs_of(decision) == ["close_attempt", "kill_ranks"]
    assert the(decision, "kill_ranks").ranks == [0, 1, 2]


def test_live_rank_without_a_claim_did_start():
    run = a_run().launched().with_rank(3, claimed=False)
    assert run.after(10 * run.policy.start_ms).decide().rule == "watch"


def test_gang_that_logged_a_step_is_never_a_failed_start():
    run = a_run().launched().with_rank(3, claimed=False, alive=False).with_progress(1)
    assert run.after(10 * run.policy.start_ms).decide().rule == "watch"


@pytest.mark.parametrize("sees_own", [False, True], ids=["before-launch", "before-claims"])
def test_gang_is_not_ended_by_a_view_older_than_its_start(sees_own):
    old = a_run().launched()
    for rank in range(4):
        old.with_rank(rank, claimed=False, alive=False)
    old.with_telemetry(0, 1, 2, 3) if sees_own else old.seeing(gang=None)
    assert verbs_of(old.after(10 * old.policy.start_ms).decide()) == []


def test_gang_without_claims_whose_log_grows_is_left_alone():
    run = a_run().launched().with_progress(1, grown_age_ms=5_000).after(10**6)
    for rank in range(4):
        run.with_rank(rank, claimed=False, alive=False)
    assert run.decide().rule == "watch"


def test_dead_gang_that_lost_its_claims_is_closed_all_the_same():
    run = a_run().launched().with_progress(1, grown_age_ms=10**6).after(10**6)
    for rank in range(4):
        run.with_rank(rank, claimed=False, alive=False)
    assert verbs_of(run.pass_once()) == ["close_attempt"]
    assert run.with_gang(closed=True).decide().rule == "record_end"


def test_new_controller_gives_an_unfinished_launch_its_time_anew():
    run = a_run()
    run.pass_once(ok=False)
    run.after(10 * run.policy.start_ms)
    run.record("epoch", {"pid": 2, "host": "here", "takeover": False})
    assert run.decide().rule == "finish_launch"


def test_ranks_of_older_attempts_are_ended_after_a_while():
    run = a_run().launched().over(137, 94, 94, 94).with_remains(0, 2)
    assert run.pass_once().rule != "kill_remains"
    decision = run.after(run.policy.cascade_ms).pass_once()
    assert decision.rule == "kill_remains"
    assert verbs_of(decision) == ["close_attempt", "kill_ranks"]
    assert (the(decision, "kill_ranks").attempt, the(decision, "kill_ranks").ranks) == (0, [2])


def test_remains_beside_a_living_gang_are_ended_too():
    run = a_run().launched().after(60_000).with_remains(0, 1)
    assert run.decide().rule == "kill_remains"


def test_act_is_repeated_only_after_it_had_time_to_show():
    run = a_run().launched().with_end(2, 137)
    run.pass_once()
    run.with_gang(closed=True).after(run.policy.cascade_ms).pass_once()
    assert run.decide().rule == "watch"
    assert run.decide().wake_in_ms <= 1_000
    again = run.after(1_000).decide()
    assert again.rule == "kill_rest"


def test_verified_last_checkpoint_completes_the_run():
    run = a_run().launched().with_checkpoints(100).with_progress(100).over(0, 0, 0, 0)
    assert verbs_of(run.pass_once()) == ["complete"]
    assert run.memory.rest == "completed"


# Stuck.

LONG_MS = 1_000_000


def stuck(**telemetry):
    """Return a gang of which rank 2 has not moved for long, nor has the step log."""
    run = a_run().launched().after(LONG_MS).with_progress(5, grown_age_ms=LONG_MS)
    return run.with_telemetry(0, 1, 2, 3, **({"progress_age_ms": LONG_MS} | telemetry))


def test_gang_past_its_deadlines_on_both_signals_is_ended():
    decision = stuck().pass_once()
    assert decision.rule == "end_stuck"
    assert verbs_of(decision) == ["close_attempt", "kill_ranks"]
    assert the(decision, "close_attempt").suspects == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("age_ms", "grown_ms"),
    [(LONG_MS, 150_000), (150_000, LONG_MS), (150_000, 150_000), (0, LONG_MS), (LONG_MS, 0)],
)
def test_one_signal_ends_nothing(age_ms, grown_ms):
    run = stuck(progress_age_ms=age_ms).with_progress(5, grown_age_ms=grown_ms)
    assert run.decide().rule == "watch"


def test_deadline_is_the_watchdogs_own_and_the_margin():
    limit = 120_000 + 30_000
    run = stuck(progress_age_ms=limit).with_progress(5, grown_age_ms=limit)
    assert run.decide().rule == "watch"
    run = stuck(progress_age_ms=limit + 1).with_progress(5, grown_age_ms=limit + 1)
    assert run.decide().rule == "end_stuck"


def test_rank_that_claims_a_shorter_deadline_gets_what_was_declared():
    run = stuck(progress_age_ms=100_000, deadline_ms=1_000).with_progress(5, grown_age_ms=100_000)
    assert run.decide().rule == "watch"


def test_unreadable_step_log_ends_nothing():
    assert stuck().blind("progress").decide().rule == "watch"


def test_step_log_of_the_attempt_before_is_no_second_signal():
    run = stuck().with_progress(5, grown_age_ms=LONG_MS, attempt=0)
    assert run.decide().rule == "watch"


def test_silent_rank_is_not_stuck_unless_it_is_stopped():
    run = stuck(progress_age_ms=0).with_telemetry(0, 1, 3, progress_age_ms=0)
    assert run.decide().rule == "watch"
    assert run.with_rank(2, stopped=True).decide().rule == "end_stuck"
    assert the(run.decide(), "close_attempt").suspects == [2]


def test_stopped_rank_without_telemetry_waits_for_the_step_log():
    run = stuck(progress_age_ms=0).with_telemetry(progress_age_ms=0).with_rank(2, stopped=True)
    run.with_progress(5, grown_age_ms=150_000).pass_once()
    assert run.decide().rule == "watch"
    assert run.with_progress(5, grown_age_ms=150_001).decide().rule == "end_stuck"


def test_stopped_rank_before_the_first_step_gets_the_longest_deadline():
    run = a_run().launched().with_rank(2, stopped=True).with_telemetry()
    run.after(330_000)
    assert run.decide().rule in ("watch", "notes")
    run.pass_once()
    assert run.after(1).decide().rule == "end_stuck"


def test_telemetry_of_another_attempt_counts_as_silence():
    assert stuck(attempt=9).decide().rule in ("watch", "notes")


def test_deadline_of_the_phase_counts():
    run = stuck(phase=Phase.COMPILE, deadline_ms=2 * LONG_MS)
    assert run.decide().rule == "watch"


def test_machine_restart_makes_ages_unknown():
    run = a_run().launched().with_rank(2, stopped=True).with_telemetry().rebooted()
    assert run.decide().rule in ("watch", "notes")
    assert isinstance(run.seen["telemetry"][0].value, Unknown)
