"""Launching: storage, plan, control document, ranks; and what a launch may start from."""

import pytest

from contract.wire import Restore
from controller.core.snapshot import ControlView, StorageView, StoreView
from tests.builders import a_checkpoint, a_run, the, verbs_of

BAD_STORAGE = StorageView(problem="no space left", free_bytes=0)


def test_first_launch_publishes_then_starts():
    decision = a_run().pass_once()
    assert verbs_of(decision) == ["publish_plan", "publish_control", "launch_gang"]
    order = the(decision, "launch_gang")
    assert (order.attempt, order.restore, order.highest_step) == (1, Restore.NONE, 0)


def test_lost_checkpoints_are_never_taken_for_a_run_that_had_none():
    run = a_run().launched().with_checkpoints(10, 20).over(40, 40, 40, 40)
    empty = StoreView(checkpoints=[], ever_complete=False)
    run.after(60_000).seeing(store=empty)
    order = the(run.pass_once(), "launch_gang")
    assert order.restore is Restore.REQUIRED
    assert run.rebuilt().had_checkpoint


def test_launch_publishes_the_plans_anew_to_mend_a_damaged_file():
    run = a_run().launched().over(137, 94, 94, 94).after(60_000)
    assert the(run.pass_once(), "publish_plan").plan == run.plan


def test_control_document_of_a_former_controller_is_published_anew_at_a_launch():
    run = a_run().launched().over(137, 94, 94, 94).after(60_000)
    assert "publish_control" not in verbs_of(run.decide())
    former = run.snapshot().control.model_copy(update={"epoch": run.ledger.epoch - 1})
    assert "publish_control" in verbs_of(run.seeing(control=former).decide())


@pytest.mark.parametrize("field", ["gang", "store", "storage"])
def test_nothing_is_launched_blind(field):
    assert a_run().blind(field).decide().actions == []


@pytest.mark.parametrize("field", ["progress", "control", "intents"])
def test_other_blindness_does_not_keep_from_launching(field):
    assert a_run().blind(field).decide().rule == "launch"


def test_bad_storage_halts_before_the_first_launch():
    run = a_run().seeing(storage=BAD_STORAGE)
    assert verbs_of(run.pass_once()) == ["halt"]
    assert "no space left" in run.memory.halted


def test_bad_storage_delays_a_later_launch():
    run = a_run().launched().over(137, 94, 94, 94).after(60_000).seeing(storage=BAD_STORAGE)
    run.pass_once()
    assert run.decide().rule == "launch"
    assert run.decide().actions == []
    assert run.memory.halted is None
    assert [subject for subject, _, _ in run.memory.notes] == ["storage"]
    run.seeing(storage=StorageView(problem=None, free_bytes=1))
    assert verbs_of(run.decide())[-1] == "launch_gang"


def test_old_ranks_keep_a_new_gang_from_starting():
    run = a_run().launched().over(137, 94, 94, 94).with_remains(0, 2).after(10_500)
    assert run.decide().rule == "launch"
    assert run.decide().actions == []


def test_attempt_unknown_to_the_ledger_is_never_reused():
    gang = a_run().launched().gang.model_copy(update={"attempt": 7, "ranks": []})
    foreign = a_run().seeing(gang=gang)
    assert the(foreign.decide(), "launch_gang").attempt == 8


def test_complete_checkpoint_must_be_restored():
    run = a_run().launched().with_checkpoints(10).over(137, 94, 94, 94).after(60_000)
    assert the(run.decide(), "launch_gang").restore == Restore.REQUIRED


def test_lost_checkpoints_do_not_mean_a_start_at_zero():
    run = a_run().seeing(store=StoreView(checkpoints=[], ever_complete=True))
    assert the(run.decide(), "launch_gang").restore == Restore.REQUIRED


def test_verified_is_asked_for_once_after_a_loss_that_is_not_finite():
    run = a_run().launched().with_checkpoints(10).over(80, 80, 80, 80).after(60_000)
    assert the(run.decide(), "launch_gang").restore == Restore.VERIFIED
    run.launched().over(137, 94, 94, 94).after(60_000)
    assert the(run.decide(), "launch_gang").restore == Restore.REQUIRED


def test_highest_step_survives_a_step_log_that_cannot_be_read():
    run = a_run().launched().with_progress(42).with_checkpoints(40).over(137, 94, 94, 94)
    run.after(60_000).blind("progress")
    assert the(run.decide(), "launch_gang").highest_step == 42


def test_launch_of_unknown_outcome_is_finished_under_the_same_key():
    run = a_run()
    first = run.pass_once(ok=False)
    run.after(1_000)
    again = run.decide()
    assert again.rule == "finish_launch"
    assert again.actions == first.actions


def test_repetitions_of_a_failing_act_get_rarer_and_end_as_a_failed_start():
    run = a_run()
    begun_ms, tried_ms = run.now.mono_ms, []
    run.pass_once(ok=False)
    for _ in range(200):
        run.after(run.policy.wake_ms)
        if run.decide().rule == "finish_launch":
            run.pass_once(ok=False)
            tried_ms.append(run.now.mono_ms - begun_ms)
    assert tried_ms == [1_000, 3_000, 7_000, 15_000]
    assert run.decide().rule == "end_late_start"


def test_launch_that_worked_is_not_repeated():
    run = a_run().launched().with_rank(2, claimed=False, alive=False)
    assert run.after(10_000).decide().rule == "watch"


@pytest.mark.parametrize(
    "view",
    [None, ControlView(epoch=9, seq=9, plan_sha="f" * 64, drain=None)],
    ids=["gone", "foreign"],
)
def test_wrong_control_document_is_replaced(view):
    run = a_run().launched().after(60_000).seeing(control=view)
    decision = run.pass_once()
    assert decision.rule == "repair_control"
    assert the(decision, "publish_control").plan_sha == run.plan.sha


def test_garbage_control_document_is_replaced_and_noted():
    run = a_run().launched().after(60_000).blind("control")
    decision = run.pass_once()
    assert verbs_of(decision) == ["publish_plan", "publish_control"]
    assert "control.json cannot be used" in run.memory.notes[0][1]
    assert run.decide().rule == "watch"


def test_checkpoint_without_manifest_is_marked_only_while_no_rank_lives():
    run = a_run().launched()
    damaged = a_checkpoint(20, run.plan, manifest_sha256=None, plan_sha=None)
    run.seeing(store=StoreView(checkpoints=[damaged], ever_complete=True))
    assert run.decide().rule == "watch"
    run.over(137, 94, 94, 94)
    decision = run.pass_once()
    assert decision.rule == "quarantine_damaged"
    mark = the(decision, "quarantine_checkpoint")
    assert (mark.line, mark.step) == ("main", 20)
    marked = damaged.model_copy(update={"quarantined": "manifest missing"})
    run.seeing(store=StoreView(checkpoints=[marked], ever_complete=True))
    assert run.pass_once().rule != "quarantine_damaged"
    assert "main/20" in run.memory.notes[0][1]


def test_nothing_is_marked_while_an_older_rank_lives():
    run = a_run().launched()
    damaged = a_checkpoint(20, run.plan, manifest_sha256=None, plan_sha=None)
    run.seeing(store=StoreView(checkpoints=[damaged], ever_complete=True))
    run.over(137, 94, 94, 94).with_remains(0, 1)
    assert run.decide().rule == "wait_delay"
    assert run.with_gang(remains=[]).decide().rule == "quarantine_damaged"


def test_nothing_is_marked_where_ranks_may_live():
    run = a_run().launched()
    damaged = a_checkpoint(20, run.plan, manifest_sha256=None, plan_sha=None)
    run.seeing(store=StoreView(checkpoints=[damaged], ever_complete=True))
    run.over(137, 94, 94, 94)
    assert run.blind("gang").decide().actions == []
