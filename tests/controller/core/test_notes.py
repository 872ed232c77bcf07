"""What people are told: once, in words, and until it is over."""

from controller.core.notes import LINGER_MS, MIN_LINGER_MS
from controller.core.snapshot import ControlView, StorageView
from tests.builders import a_checkpoint, a_run


def noted(run):
    """Record what is new and return subject -> text."""
    run.pass_once()
    return {subject: text for subject, text, _ in run.memory.notes}


def test_wall_clock_jump_is_told_once_with_its_size_and_moves_no_deadline():
    run = a_run().launched().with_end(1, 137)
    run.pass_once()
    run.with_gang(closed=True).after(1_000, wall_jump_ms=3_600_000)
    assert run.decide().rule == "notes"
    assert noted(run)["clock"] == "the wall clock jumped by +3600 s against the monotonic clock"
    assert run.decide().rule == "watch"
    run.after(1_000, wall_jump_ms=-7_200_000)
    assert "by -7200 s" in noted(run)["clock"]


def test_jump_is_told_for_a_day():
    run = a_run().launched().after(1_000, wall_jump_ms=3_600_000)
    noted(run)
    assert "clock" in noted(run.after(LINGER_MS["clock"] - 1))
    assert "clock" not in noted(run.after(1))


def test_small_corrections_of_the_clock_are_not_told():
    run = a_run().launched().after(1_000, wall_jump_ms=60_000)
    assert noted(run) == {}


def test_machine_restart_is_no_jump():
    run = a_run().launched().rebooted().after(0, wall_jump_ms=10**9)
    assert "clock" not in noted(run)


def test_notes_ride_along_with_other_decisions():
    run = a_run().launched().with_ends(137, 137, 137, 137).after(0, wall_jump_ms=10**7)
    decision = run.pass_once()
    assert decision.rule == "record_end"
    assert [action.verb for action in decision.actions] == ["note", "record_end"]


def test_refused_control_document_is_told_and_taken_back():
    run = a_run().launched().with_telemetry(0, 1, 2, 3, control_refused="plan_chain")
    assert noted(run)["control"] == "ranks refuse the control document: plan_chain"
    run.with_telemetry(0, 1, 2, 3).after(LINGER_MS["control"] - 1)
    assert "control" in noted(run)
    assert "control" not in noted(run.after(1))


def test_replaced_control_document_is_told():
    view = ControlView(epoch=1, seq=99, plan_sha="f" * 64, drain=None)
    run = a_run().launched().seeing(control=view)
    assert "did not write" in noted(run)["control"]


def test_silence_of_all_ranks_is_told_after_the_start():
    run = a_run().launched().with_telemetry()
    assert noted(run) == {}
    run.after(run.policy.start_ms)
    assert "no rank answers" in noted(run)["telemetry"]
    run.with_telemetry(3)
    assert "telemetry" in noted(run.after(MIN_LINGER_MS - 1))
    assert "telemetry" not in noted(run.after(1))


def test_gang_that_was_launched_and_is_not_to_be_seen_is_told():
    run = a_run().launched()
    gang = run.gang
    assert "fleet" not in noted(run.seeing(gang=None))
    assert "fleet" not in noted(run.seeing(gang=gang).after(run.policy.start_ms))
    assert "attempt 1 was launched" in noted(run.seeing(gang=None))["fleet"]
    assert "fleet" in noted(run.blind("gang"))
    assert "fleet" not in noted(run.seeing(gang=gang).after(MIN_LINGER_MS))


def test_silence_of_a_gang_that_leaves_is_not_told():
    run = a_run().launched().after(200_000).with_telemetry().with_end(1, 0)
    assert "telemetry" not in noted(run)
    assert "telemetry" not in noted(run.with_ends(0, 0, 0, 0))


def test_refused_new_line_is_told_for_a_while_only():
    run = a_run().launched().asked("resume_from", "w", step=7)
    run.pass_once()
    assert "no complete checkpoint" in noted(run.seeing(intents=[]))["resume_from"]
    assert "resume_from" in noted(run.after(LINGER_MS["resume_from"] - 1))
    assert "resume_from" not in noted(run.after(1))


def test_note_is_no_decision():
    run = a_run().launched()
    before = run.memory.last_decision
    assert "jumped" in noted(run.after(1_000, wall_jump_ms=3_600_000))["clock"]
    assert run.memory.last_decision == before
    assert before[0] == "launch"


def test_checkpoint_that_was_moved_aside_is_named_and_not_marked_again():
    run = a_run().launched().with_checkpoints(20).over(137, 137, 137, 137)
    aside = a_checkpoint(20, run.plan, quarantined="digest", plan_sha=None, manifest_sha256=None)
    store = run.seen["store"].model_copy(update={"set_aside": [aside]})
    assert noted(run.seeing(store=store))["quarantine"] == "quarantined: main/20 (digest)"
    assert run.after(200_000).decide().rule == "launch"


def test_storage_problem_is_told_until_it_is_over():
    run = a_run().launched().with_telemetry(0)
    run.seeing(storage=StorageView(problem="no space left", free_bytes=0))
    assert "no space left" in noted(run)["storage"]
    run.seeing(storage=StorageView(problem=None, free_bytes=1)).after(MIN_LINGER_MS)
    assert noted(run) == {}


def test_failed_saves_are_told_until_one_works_again():
    run = a_run().launched().with_checkpoints(10).with_telemetry(0, 1, checkpoint_failures=2)
    assert noted(run)["storage"] == (
        "2 saves of this attempt failed; the newest checkpoint is of step 10"
    )
    assert run.decide().actions == []
    assert noted(run.with_checkpoints(10, 20))["storage"] == ("saving works again after 2 failures")
    assert run.with_checkpoints(10, 20, 30).decide().actions == []
    run.with_telemetry(0, 1, checkpoint_failures=3)
    assert "3 saves of this attempt failed" in noted(run)["storage"]


def test_failed_saves_do_not_name_an_abandoned_checkpoint():
    run = a_run().launched().with_checkpoints(10, 20).with_telemetry(0, checkpoint_failures=2)
    run.seen["store"].checkpoints.append(a_checkpoint(40, run.plan, line="abandoned"))
    assert noted(run)["storage"].endswith("the newest checkpoint is of step 20")


def test_launch_does_not_wait_for_the_pace_of_a_repair():
    run = a_run().launched().blind("control")
    for _ in range(6):
        run.after(300_000).pass_once(ok=False)
    run.with_ends(137, 137, 137, 137).pass_once()
    assert run.after(20_000).decide().rule == "launch"


def test_quarantined_checkpoints_are_named():
    run = a_run().launched()
    marked = a_checkpoint(20, run.plan, quarantined="digest of blocks/0")
    store = run.seen["store"].model_copy(update={"checkpoints": [marked]})
    assert noted(run.seeing(store=store))["quarantine"] == (
        "quarantined: main/20 (digest of blocks/0)"
    )


def test_replay_that_differs_is_told():
    run = a_run().launched().with_progress(30, replay_mismatch_step=21)
    assert "step 21" in noted(run)["replay"]


def test_what_cannot_be_read_changes_no_note():
    run = a_run().launched().with_telemetry(0)
    run.seeing(storage=StorageView(problem="full", free_bytes=0))
    before = noted(run)
    run.blind("storage", "store", "progress").seeing(telemetry=[])
    assert noted(run) == before


def test_nothing_new_is_nothing_recorded():
    run = a_run().launched().with_telemetry(0, 1, control_refused="stale", checkpoint_failures=1)
    run.pass_once()
    assert run.decide().actions == []
