"""Root or cascade: a table of ends, and what each is called."""

import pytest

from contract.exits import Exit
from contract.wire import Drain
from tests.builders import START_MS, a_run, an_end


def newest(run):
    return run.memory.incidents[-1]


def judged(run, *codes, **details):
    """Let the launched run end with these codes and return the incident."""
    run.over(*codes, **details)
    return newest(run)


def test_killed_worker_is_root_and_its_peers_are_not():
    run = a_run().launched()
    run.with_end(0, Exit.ABORTED, at_ms=START_MS + 9_000)
    run.with_end(1, Exit.PEER_LOST, at_ms=START_MS + 7_000)
    run.with_end(2, Exit.KILLED, at_ms=START_MS)
    run.with_end(3, Exit.ABORTED, at_ms=START_MS + 8_000)
    run.with_progress(42).pass_once()
    incident = newest(run)
    assert (incident.cause, incident.code, incident.root_rank) == ("killed", 137, 2)
    assert incident.confidence == "high"
    assert incident.step == 42
    assert incident.ended_wall_ms == an_end(0).wall_ms


def test_earliest_own_end_wins_however_ranks_are_numbered():
    run = a_run().launched()
    run.with_end(0, Exit.ERROR, at_ms=START_MS + 5_000, step=7, detail="late")
    run.with_end(1, Exit.ABORTED, at_ms=START_MS)
    run.with_end(2, Exit.ABORTED, at_ms=START_MS + 1)
    run.with_end(3, Exit.SEGV, at_ms=START_MS + 2_000, step=6)
    run.with_progress(6).pass_once()
    incident = newest(run)
    assert (incident.cause, incident.root_rank, incident.step) == ("crashed", 3, 7 - 1)


@pytest.mark.parametrize(
    ("apart_ms", "root", "confidence"), [(1_999, 1, "low"), (2_000, 1, "low"), (2_001, 3, "high")]
)
def test_ends_within_the_clock_skew_are_a_tie_that_the_lowest_rank_wins(apart_ms, root, confidence):
    run = a_run().launched()
    run.with_ends(Exit.ABORTED, Exit.ERROR, Exit.ABORTED, Exit.ERROR, at_ms=START_MS + apart_ms)
    run.with_end(3, Exit.ERROR, at_ms=START_MS)
    run.pass_once()
    assert (newest(run).root_rank, newest(run).confidence) == (root, confidence)


CASES = {
    "all killed at once": ((137, 137, 137, 137), "killed", 0, "low"),
    "one aborts alone": ((134, 134, 134, 134), "peer_lost", 0, "low"),
    "config refused by all": ((2, 2, 2, 2), "config", 0, "low"),
    "not finite on all": ((80, 80, 80, 80), "non_finite", 0, "high"),
    "not finite on one": ((94, 80, 94, 94), "non_finite", 1, "high"),
    "no checkpoint": ((82, 82, 82, 82), "no_checkpoint", 0, "low"),
    "storage": ((83, 94, 94, 94), "storage", 0, "high"),
    "plan": ((94, 84, 134, 134), "plan_mismatch", 1, "high"),
    "replica": ((94, 94, 81, 94), "replica_mismatch", 2, "high"),
    "terminated from outside": ((143, 94, 94, 94), "killed", 0, "high"),
    "illegal instruction": ((94, 94, 132, 94), "crashed", 2, "high"),
    "no record, peers aborted": ((134, None, 134, 134), "unknown_end", 1, "high"),
    "no record of two": ((134, None, None, 134), "unknown_end", 1, "low"),
    "a record beats none": ((134, None, 1, 134), "error", 2, "high"),
    "one leaves as planned, one crashes": ((40, 1, 94, 94), "error", 1, "high"),
    "unclassified": ((94, 77, 94, 94), "error", 1, "high"),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ends_of_one_moment_are_classified(case):
    codes, cause, root, confidence = CASES[case]
    incident = judged(a_run().launched(), *codes)
    assert (incident.cause, incident.root_rank, incident.confidence) == (cause, root, confidence)
    assert incident.code == codes[root]


def test_memory_words_make_an_error_out_of_memory():
    run = a_run().launched()
    run.with_ends(94, 1, 94, 94).with_end(1, 1, detail="RESOURCE_EXHAUSTED: 3 GiB")
    run.pass_once()
    assert newest(run).cause == "out_of_memory"


def stalled(run, *with_stacks):
    for rank in with_stacks:
        run.with_rank(rank, has_stacks=True)
    return run


def test_frozen_rank_is_the_root_of_a_stall():
    run = a_run().launched()
    run.with_ends(124, 124, 124, 124)
    run.with_rank(2, alive=True, stopped=True, end=None)
    stalled(run, 0, 1, 3).pass_once()
    run.after(run.policy.cascade_ms)
    assert run.with_gang(closed=True).pass_once().rule == "kill_rest"
    run.with_end(2, Exit.KILLED)
    assert run.pass_once().rule == "record_end"
    incident = newest(run)
    assert (incident.cause, incident.root_rank, incident.confidence) == ("stall", 2, "high")


def test_stall_with_all_stacks_blames_the_lowest_rank_and_says_low():
    run = stalled(a_run().launched(), 0, 1, 2, 3)
    incident = judged(run, 94, 124, 124, 94)
    assert (incident.cause, incident.root_rank, incident.confidence) == ("stall", 1, "low")


def test_stall_with_two_silent_ranks_says_low():
    run = stalled(a_run().launched(), 0, 1)
    incident = judged(run, 124, 124, 137, 137)
    # Both were ended from outside at the same moment: ties go to the lowest, and it is a stall.
    assert incident.cause == "stall"
    assert (incident.root_rank, incident.confidence) == (2, "low")


def test_own_kill_is_never_a_root():
    run = a_run().launched()
    run.with_end(1, 134).pass_once()
    run.with_gang(closed=True).after(run.policy.cascade_ms)
    assert run.pass_once().rule == "kill_rest"
    run.with_ends(137, 134, 137, 137)
    run.pass_once()
    assert (newest(run).root_rank, newest(run).cause) == (1, "peer_lost")


def test_gang_found_stuck_by_the_controller_is_a_stall_of_the_suspect():
    run = a_run().launched().after(400_000).with_progress(5, grown_age_ms=400_000)
    run.with_telemetry(0, 1, 2, 3, progress_age_ms=10)
    late = run.with_telemetry(2, progress_age_ms=400_000)
    assert late.pass_once().rule == "end_stuck"
    run.over(137, 137, 137, 137)
    incident = newest(run)
    assert (incident.cause, incident.root_rank, incident.code) == ("stall", 2, 137)


def test_rank_that_never_started_is_a_failed_start():
    run = a_run().launched().with_rank(3, claimed=False, alive=False)
    run.after(run.policy.start_ms)
    assert run.pass_once().rule == "end_late_start"
    run.with_ends(137, 137, 137).with_gang(closed=True).pass_once()
    assert (newest(run).cause, newest(run).root_rank) == ("start", 3)


def test_attempt_of_which_no_rank_started_is_a_failed_start():
    run = a_run().launched()
    ranks = [view.model_copy(update={"claimed": False, "alive": False}) for view in run.gang.ranks]
    run.with_gang(ranks=ranks).after(run.policy.start_ms)
    assert run.pass_once().rule == "end_late_start"
    run.with_gang(closed=True).pass_once()
    assert (newest(run).cause, newest(run).code) == ("start", None)


@pytest.mark.parametrize("code", [40, 42])
def test_drained_gang_is_no_incident_whoever_asked(code):
    run = a_run().launched().over(code, code, code, code)
    assert run.memory.incidents == []
    assert run.memory.planned_ends == 1
    assert run.memory.attempt.end_cause == "drained"


def test_gang_ended_because_it_did_not_drain_is_no_incident():
    run = a_run().launched().asked("stop", "s")
    run.pass_once()
    assert run.pass_once().rule == "drain_gang"
    run.drained(Drain(nonce="s", mode="stop")).after(200_000)
    assert run.pass_once().rule == "end_undrained"
    run.over(137, 137, 137, 137)
    assert run.memory.incidents == []


def test_crash_while_draining_is_an_incident():
    run = a_run().launched().asked("suspend", "s")
    run.pass_once()
    run.pass_once()
    assert judged(run, 1, 94, 94, 94).cause == "error"


@pytest.mark.parametrize(
    ("completed", "verified", "is_done"),
    [(100, 100, True), (None, 100, True), (100, 90, False), (90, 90, False), (90, 100, False)],
)
def test_exit_zero_counts_only_at_the_horizon_with_a_verified_checkpoint(
    completed, verified, is_done
):
    run = a_run(steps=100).launched().with_checkpoints(verified).with_progress(completed)
    run.over(0, 0, 0, 0)
    causes = [incident.cause for incident in run.memory.incidents]
    assert causes == ([] if is_done else ["early_exit"])
    assert (run.memory.attempt.end_cause == "done") == is_done


def test_exit_zero_before_any_step_is_told_in_numbers():
    run = a_run(steps=100).launched().over(0, 0, 0, 0)
    (incident,) = run.memory.incidents
    assert incident.evidence == "exit 0 with 0 of 100 steps, verified none"


def test_exit_zero_of_some_ranks_is_not_the_end():
    run = a_run().launched().with_checkpoints(100).with_progress(100)
    assert judged(run, 0, 0, 0, 134).cause == "peer_lost"
