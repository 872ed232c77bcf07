"""What a publisher must do."""

import pytest

from contract.wire import ControlDocument, Drain, LedgerHead
from controller.ports import Damaged, EpochLost, Unavailable
from tests.contract.builders import a_plan
from tests.suites.stages import PLAN, FakePublisherStage, RealPublisherStage


@pytest.fixture(params=[FakePublisherStage, RealPublisherStage], ids=["fake", "real"])
def stage(request, tmp_path):
    return request.param(tmp_path)


def a_document(seq: int, drain: Drain | None = None) -> ControlDocument:
    head = LedgerHead(seq=1, hash="0" * 64)
    return ControlDocument(
        run_uid="u", epoch=1, seq=seq, plan_sha=PLAN.sha, drain=drain, ledger_head=head
    )


def test_nothing_was_ever_published(stage):
    assert stage.publisher.read_control() is None


def test_document_is_read_as_published(stage):
    drain = Drain(nonce="n", mode="stop")
    stage.publisher.publish_control(a_document(4))
    stage.publisher.publish_control(a_document(5, drain))
    view = stage.publisher.read_control()
    assert (view.epoch, view.seq, view.plan_sha, view.drain) == (1, 5, PLAN.sha, drain)


def test_garbage_is_damage_until_the_next_document(stage):
    stage.publisher.publish_control(a_document(4))
    assert stage.publisher.read_control().seq == 4
    stage.garble()
    with pytest.raises(Damaged):
        stage.publisher.read_control()
    stage.publisher.publish_control(a_document(5))
    assert stage.publisher.read_control().seq == 5


def test_plan_is_published_twice_as_once(stage):
    stage.publisher.publish_plan(a_plan())
    stage.publisher.publish_plan(a_plan())


def test_full_disk_is_unavailable_and_the_old_document_stays(stage):
    stage.publisher.publish_control(a_document(4))
    with stage.full_disk():
        with pytest.raises(Unavailable):
            stage.publisher.publish_control(a_document(5))
        with pytest.raises(Unavailable):
            stage.publisher.publish_plan(a_plan(seed=9))
    assert stage.publisher.read_control().seq == 4


def test_former_controller_publishes_nothing(stage):
    former = stage.publisher
    stage.publisher = stage.take_over()
    with pytest.raises(EpochLost):
        former.publish_control(a_document(4))
    with pytest.raises(EpochLost):
        former.publish_plan(a_plan())
    assert stage.publisher.read_control() is None
