"""Memory as a fold: a rebuild gives what lived, and each record changes what it should."""

import pytest

from controller.core.fold import fold
from controller.core.policy import Budget
from tests.builders import a_run, an_instant, the


class Bare:
    """A record of the least size."""

    def __init__(self, kind, body=None, seq=1, epoch=1):
        self.kind, self.body, self.seq, self.epoch = kind, body or {}, seq, epoch
        self.at = an_instant(seq)


def test_ledger_begins_with_a_run():
    with pytest.raises(ValueError, match="begins with a run"):
        fold(None, Bare("epoch"))


def a_whole_life():
    run = a_run().launched().with_checkpoints(10).with_progress(12)
    run.with_end(1, 137).pass_once()
    run.over(94, 137, 94, 94)
    run.relaunched().asked("suspend").pass_once()
    run.seeing(intents=[]).pass_once()
    run.over(40, 40, 40, 40).pass_once()
    run.asked("resume_from", "f", step=10).pass_once()
    run.seeing(intents=[]).pass_once()
    run.after(100_000, wall_jump_ms=3_600_000).launched()
    return run.over(2, 2, 2, 2)


def test_rebuild_equals_what_lived():
    run = a_whole_life()
    run.pass_once()
    assert run.rebuilt() == run.memory
    assert run.memory.plan.line.name == "main-2"


def test_memory_survives_json():
    run = a_whole_life()
    memory = run.memory
    assert type(memory).model_validate_json(memory.model_dump_json()) == memory


def test_policy_may_change_between_launches():
    run = a_run()
    policy = run.policy.model_copy(update={"budget": Budget(window_restarts=1)})
    run.record("policy", {"policy": policy.model_dump(mode="json"), "changed": ["budget"]})
    assert run.memory.policy == policy


def test_epoch_is_that_of_the_newest_record():
    run = a_run()
    run.ledger = run.book.open_epoch()
    run.record("epoch", {"pid": 2, "host": "there", "takeover": True})
    assert (run.memory.epoch, run.memory.epoch_at) == (2, run.now)


def test_intent_without_outcome_is_remembered_as_an_attempt():
    run = a_run()
    run.pass_once(ok=False)
    assert run.memory.attempt.number == 1
    assert not run.memory.attempt.launched
    assert run.memory.done_keys == []


def test_outcomes_tell_what_is_known_to_be_done():
    run = a_run().launched()
    assert run.memory.attempt.launched
    assert len(run.memory.done_keys) == 3


def test_recording_the_same_end_twice_counts_once():
    run = a_run().launched().with_ends(137, 94, 94, 94)
    snapshot, before = run.snapshot(), run.memory
    end = the(run.decide(), "record_end")
    body = {
        "rule": "record_end",
        "reason": "",
        "actions": [end.model_dump(mode="json")],
        "wake_in_ms": 0,
        "snapshot": snapshot.model_dump(mode="json"),
    }
    assert before.attempt.number == end.attempt
    run.record("decision", body).record("decision", body)
    assert len(run.memory.incidents) == 1


def test_owner_is_heard_once():
    run = a_run().asked("stop", "s")
    run.pass_once()
    assert run.memory.known_nonces == ["s"]
    assert run.decide().rule != "record_intents"


def test_later_wish_replaces_the_earlier_one():
    run = a_run().launched().with_checkpoints(10)
    run.asked("resume_from", "f", step=10).pass_once()
    run.asked("stop", "s").pass_once()
    assert run.memory.wanted.resume_from is None
    assert run.memory.wanted.state == "stopped"


def test_step_that_is_missing_is_no_wish():
    run = a_run()
    run.asked("resume_from", "f").pass_once()
    assert run.memory.wanted.resume_from is None


def test_what_is_kept_is_bounded():
    run = a_run().launched()
    for number in range(200):
        key = {"key": f"k{number}", "ok": True, "error": ""}
        run.record("outcome", key)
    assert len(run.memory.done_keys) == 64


def test_highest_step_is_never_lost():
    run = a_run().launched().with_progress(42).over(137, 94, 94, 94)
    run.relaunched().with_progress(30).over(137, 94, 94, 94)
    assert run.memory.highest_step == 42
