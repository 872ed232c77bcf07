"""One action through its port; twice equals once."""

import pytest

from contract.wire import ControlDocument, Drain, LedgerHead
from controller.core.actions import (
    CloseAttempt,
    KillRanks,
    LaunchGang,
    Note,
    PublishControl,
    PublishPlan,
    QuarantineCheckpoint,
)
from controller.runtime.act import control_number, execute
from controller.simulate.shelf import SimCheckpoint
from tests.controller.runtime.stage import a_stage

WHY = {"reason": "because", "nonce": "7"}


@pytest.fixture
def stage():
    return a_stage().after(60_000)


def do(stage, action):
    """Carry the action out under the newest record."""
    snapshot = stage.observer().observe(stage.memory)
    record = stage.world.book.records[-1]
    execute(stage.ports, action, record, snapshot, run_uid="sim")


def test_launch_starts_every_rank_once(stage):
    order = stage.memory.attempt.order
    assert isinstance(order, LaunchGang)
    do(stage, order)
    stage.after(1_000)
    assert len(stage.world.gangs) == 1
    assert all(rank.alive for rank in stage.world.gang.ranks)


def test_close_fences(stage):
    for _ in range(2):
        do(stage, CloseAttempt(attempt=1, **WHY))
    assert stage.world.gang.closed


def test_kill_ends_just_these_ranks(stage):
    stage.world.gang.healthy = False
    for _ in range(2):
        do(stage, KillRanks(attempt=1, ranks=[1], **WHY))
    assert [rank.alive for rank in stage.world.gang.ranks] == [True, False, True]


def test_plan_is_written(stage):
    plan = stage.plan.model_copy(update={"reason": "another"})
    for _ in range(2):
        do(stage, PublishPlan(plan=plan, **WHY))
    assert stage.world.plans[plan.sha] == plan


def test_quarantine_marks(stage):
    made = SimCheckpoint("main", 10, stage.plan.sha, 1, damage="manifest")
    stage.world.shelf.add(made)
    for _ in range(2):
        do(stage, QuarantineCheckpoint(line="main", step=10, **WHY))
    assert made.quarantined == "because"


def test_control_document_names_the_record_that_caused_it(stage):
    drain = Drain(nonce="n", mode="stop")
    do(stage, PublishControl(plan_sha=stage.plan.sha, drain=drain, **WHY))
    document = stage.world.control
    newest = stage.world.book.records[-1]
    assert (document.epoch, document.seq) == (newest.epoch, newest.seq)
    assert document.ledger_head == LedgerHead(seq=newest.seq, hash=newest.hash)
    assert document.drain == drain


@pytest.mark.parametrize(("epoch", "seq", "is_topped"), [(1, 900, True), (0, 900, False)])
def test_foreign_document_of_our_epoch_is_topped(stage, epoch, seq, is_topped):
    stage.world.control = ControlDocument(
        run_uid="sim",
        epoch=epoch,
        seq=seq,
        plan_sha="f" * 64,
        drain=None,
        ledger_head=LedgerHead(seq=0, hash="0" * 64),
    )
    snapshot = stage.observer().observe(stage.memory)
    newest = stage.world.book.records[-1]
    assert control_number(newest, snapshot) == (seq + 1 if is_topped else newest.seq)


def test_action_of_memory_alone_is_never_carried_out(stage):
    with pytest.raises(AssertionError, match="note"):
        do(stage, Note(subject="x", **WHY))
