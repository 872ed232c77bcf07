"""Control document, plans and status as files."""

import json

import pytest

from contract import wire
from contract.wire import ControlDocument, Drain, LedgerHead
from controller.adapters.ledger import Fence, create_ledger
from controller.adapters.ledger_format import segment_path
from controller.adapters.publisher import FilePublisher, StatusFile
from tests.contract.builders import a_plan


@pytest.fixture
def publisher(tmp_path):
    create_ledger(tmp_path / wire.LEDGER_DIR)
    segment_path(tmp_path / wire.LEDGER_DIR, 1).touch()
    return FilePublisher(tmp_path, fence=Fence(tmp_path / wire.LEDGER_DIR, 1))


def a_document(seq: int, drain: Drain | None = None) -> ControlDocument:
    head = LedgerHead(seq=1, hash="0" * 64)
    return ControlDocument(
        run_uid="u", epoch=1, seq=seq, plan_sha="a" * 64, drain=drain, ledger_head=head
    )


def test_document_comes_back_as_published(tmp_path, publisher):
    assert publisher.read_control() is None
    publisher.publish_control(a_document(4))
    drain = Drain(nonce="n", mode="stop")
    publisher.publish_control(a_document(5, drain))
    view = publisher.read_control()
    assert (view.epoch, view.seq, view.plan_sha, view.drain) == (1, 5, "a" * 64, drain)
    data = (tmp_path / wire.CONTROL_FILE).read_bytes()
    assert wire.read_control(data, run_uid="u", newest=None) == a_document(5, drain)


def test_plan_lies_under_its_hash_and_garbage_there_is_replaced(tmp_path, publisher):
    plan = a_plan()
    publisher.publish_plan(plan)
    path = tmp_path / wire.plan_file(plan.sha)
    inode = path.stat().st_ino
    publisher.publish_plan(plan)
    assert path.stat().st_ino == inode
    path.write_bytes(b"garbage")
    publisher.publish_plan(plan)
    assert path.read_bytes() == plan.encode()


def test_equal_status_is_written_once(tmp_path):
    sink = StatusFile(tmp_path)
    sink.write({"state": "training", "step": 3})
    first = (tmp_path / wire.STATUS_FILE).stat().st_ino
    sink.write({"state": "training", "step": 3})
    assert (tmp_path / wire.STATUS_FILE).stat().st_ino == first
    sink.write({"state": "training", "step": 4})
    assert json.loads((tmp_path / wire.STATUS_FILE).read_bytes())["step"] == 4
