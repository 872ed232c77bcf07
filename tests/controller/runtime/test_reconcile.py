"""The pass: intent first, fresh eyes before destruction, outcome, one status."""

from dataclasses import replace

import pytest

from controller.ports import EpochLost, Unavailable
from controller.runtime.reconcile import UNWANTED, Reconciler
from controller.simulate.chaos.life import build_status
from controller.simulate.tap import Killer, tap
from tests.controller.runtime.stage import a_stage


def watched(ports):
    """Return the ports with every call's name kept in `watched.log`."""
    watched.log = Killer()
    return tap(ports, watched.log)


def test_intent_is_written_before_the_act_and_the_outcome_after_it():
    stage = a_stage(wrap=watched)
    names = [
        n for n in watched.log.names if n.startswith(("ledger.app", "publisher.pub", "fleet.l"))
    ]
    assert names == [
        "ledger.append",
        "publisher.publish_plan",
        "ledger.append",
        "publisher.publish_control",
        "ledger.append",
        "fleet.launch",
        "ledger.append",
    ]
    assert stage.kinds() == ["run", "epoch", "decision", *["outcome"] * 3]


def test_status_is_written_once_a_pass_and_last():
    a_stage(wrap=watched)
    assert watched.log.names.count("status.write") == 1
    assert watched.log.names[-1] == "status.write"


def test_quiet_pass_writes_nothing_but_a_status_at_its_pace():
    stage = a_stage(wrap=watched).after(60_000)
    stage.reconciler.pass_once()
    before = len(watched.log.names)
    for _ in range(4):
        stage.after(250).reconciler.pass_once()
    fresh = watched.log.names[before:]
    assert "ledger.append" not in fresh
    assert fresh.count("status.write") == 1


def test_failed_act_is_recorded_and_what_follows_it_waits():
    stage = a_stage(launched=False)
    original = stage.world.disk_full = True
    assert original
    stage.world.blind.clear()
    stage.reconciler.pass_once()
    assert stage.memory.halted, "the probe found the full disk before the first launch"

    stage = a_stage(launched=False)
    decision_seen = []

    class FullDisk:
        def __getattr__(self, name):
            return getattr(stage.ports.publisher, name)

        def publish_plan(self, plan):
            decision_seen.append(plan.sha)
            raise Unavailable("no space left")

    broken = Reconciler(replace(stage.ports, publisher=FullDisk()), build_status)
    broken.resume()
    broken.pass_once()
    outcomes = [dict(r.body) for r in stage.world.book.records if r.kind == "outcome"]
    assert [(o["ok"], o["error"]) for o in outcomes] == [(False, "no space left")]
    assert stage.world.gangs == []
    assert decision_seen == [stage.plan.sha]


def dying(stage):
    """Let a rank die and the fence be written; return when the others are overdue."""
    gang = stage.world.gang
    gang.freeze(gang.ranks[2])
    gang.kill(gang.ranks[0])
    gang.kill(gang.ranks[1])
    stage.reconciler.pass_once()
    return stage.after(stage.world.policy.cascade_ms)


def test_destructive_act_is_done_when_a_fresh_look_agrees():
    stage = dying(a_stage().after(60_000))
    stage.reconciler.pass_once()
    assert stage.world.acts[-1].verb == "kill_ranks"
    assert stage.world.live_attempts() == []


def test_destructive_act_is_left_undone_when_a_fresh_look_disagrees():
    stage = dying(a_stage().after(60_000))
    append = stage.ports.ledger.append

    class LateFleet:
        """Cannot be read any more once the intent is written."""

        def __getattr__(self, name):
            return getattr(stage.ports.fleet, name)

        def observe(self):
            if "kill_rest" in stage.decided():
                raise Unavailable("gone")
            return stage.ports.fleet.observe()

    late = Reconciler(replace(stage.ports, fleet=LateFleet()), build_status)
    late.resume()
    assert late.pass_once().rule == "kill_rest"
    last = stage.world.book.records[-1]
    assert (last.body["ok"], last.body["error"]) == (False, UNWANTED)
    assert all(act.verb != "kill_ranks" for act in stage.world.acts)
    assert append


def test_ledger_that_cannot_be_written_stops_every_act():
    stage = a_stage(launched=False)
    stage.world.book.is_full = True
    with pytest.raises(Unavailable):
        stage.reconciler.pass_once()
    assert stage.world.acts == []
    stage.world.book.is_full = False
    assert stage.reconciler.pass_once().rule == "launch"


def test_record_of_which_it_is_unsure_whether_it_was_written_is_read_back():
    stage = a_stage(launched=False)
    failures = ["fsync failed"]

    class Unsure:
        """Writes a record, and cannot say so."""

        def __getattr__(self, name):
            return getattr(stage.ports.ledger, name)

        def append(self, kind, body, at):
            record = stage.ports.ledger.append(kind, body, at)
            if failures:
                raise Unavailable(failures.pop())
            return record

    unsure = Reconciler(replace(stage.ports, ledger=Unsure()), build_status)
    unsure.resume()
    with pytest.raises(Unavailable):
        unsure.pass_once()
    stage.after(2_000)
    assert unsure.pass_once().rule == "finish_launch"
    assert unsure.memory.seq == stage.world.book.head.seq
    assert unsure.memory == Reconciler(stage.ports, build_status).resume()


def test_outcome_that_cannot_be_written_is_done_again_not_forgotten():
    stage = a_stage(launched=False)
    launch = stage.ports.fleet.launch

    class FillsTheDisk:
        def __getattr__(self, name):
            return getattr(stage.ports.fleet, name)

        def launch(self, order, *, epoch):
            launch(order, epoch=epoch)
            stage.world.book.is_full = True

    stage.reconciler = Reconciler(replace(stage.ports, fleet=FillsTheDisk()), build_status)
    with pytest.raises(Unavailable):
        stage.reconciler.pass_once()
    stage.world.book.is_full = False
    stage.reconciler = Reconciler(stage.ports, build_status)
    stage.after(2_000)
    for _ in range(3):
        stage.reconciler.pass_once()
        stage.after(2_000)
    assert len(stage.world.gangs) == 1
    assert stage.memory.attempt.number == 1


def test_former_controller_ends_without_an_act():
    stage = a_stage().after(60_000)
    stage.world.ports()
    gang = stage.world.gang
    gang.kill(gang.ranks[0])
    acts = len(stage.world.acts)
    with pytest.raises(EpochLost):
        stage.reconciler.pass_once()
    assert len(stage.world.acts) == acts


def test_new_controller_adopts_the_gang():
    stage = a_stage().after(60_000)
    ports = stage.world.ports()
    ports.ledger.append("epoch", {"pid": 2, "host": "here", "takeover": True}, ports.clock.now())
    other = Reconciler(ports, build_status)
    assert other.resume() == other.memory
    assert other.pass_once().rule == "watch"
    assert len(stage.world.gangs) == 1
    assert other.memory.attempt == stage.memory.attempt


def test_status_that_cannot_be_written_stops_nothing():
    stage = a_stage().after(60_000)
    stage.world.disk_full = True
    assert stage.after(2_000).reconciler.pass_once().rule in ("watch", "notes")


def test_memory_is_asked_for_after_resume():
    stage = a_stage(launched=False)
    with pytest.raises(AssertionError, match="resume"):
        _ = Reconciler(stage.ports, build_status).memory
