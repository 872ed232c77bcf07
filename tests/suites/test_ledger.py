"""What a ledger must do."""

from itertools import pairwise

import pytest

from contract.canonical import encode_canonical, hash_bytes
from contract.wire import LedgerHead
from controller.adapters.ledger import SegmentedLedger, create_ledger, next_epoch
from controller.core.readings import Instant
from controller.ports import EpochLost
from controller.simulate.book import Book

NOW = Instant(wall_ms=1_700_000_000_000, mono_ms=5, boot_id="boot")
ROOT = LedgerHead(seq=0, hash="0" * 64)


@pytest.fixture(params=["fake", "real"])
def take_over(request, tmp_path):
    """Return a function that opens the ledger for the next controller."""
    if request.param == "fake":
        return Book().open_epoch
    create_ledger(tmp_path / "ledger")

    def open_next() -> SegmentedLedger:
        folder = tmp_path / "ledger"
        epoch = next_epoch(folder)
        return SegmentedLedger(folder, epoch=epoch, core_version="1", spec_sha="s")

    return open_next


def test_empty_ledger_has_no_record_and_the_root_as_its_head(take_over):
    ledger = take_over()
    assert list(ledger.records()) == []
    assert ledger.head() == ROOT


def test_record_comes_back_as_it_was_appended(take_over):
    ledger = take_over()
    record = ledger.append("outcome", {"key": "k", "ok": True, "list": [1, None]}, NOW)
    assert (record.seq, record.epoch, record.kind, record.at) == (1, 1, "outcome", NOW)
    assert list(ledger.records()) == [record]
    assert ledger.head() == LedgerHead(seq=1, hash=record.hash)


def test_records_of_all_epochs_are_one_chain(take_over):
    for _ in range(3):
        ledger = take_over()
        ledger.append("epoch", {}, NOW)
        ledger.append("decision", {"reason": "r"}, NOW)
    records = ledger.records()
    assert [record.epoch for record in records] == [1, 1, 2, 2, 3, 3]
    assert records[0].prev == ROOT.hash
    for before, after in pairwise(records):
        assert (after.seq, after.prev) == (before.seq + 1, before.hash)


def test_hash_is_sha256_of_prev_and_the_canonical_rest(take_over):
    ledger = take_over()
    ledger.append("run", {"plan": {}}, NOW)
    record = ledger.append("outcome", {"ok": False}, NOW)
    rest = record.model_dump(mode="json", exclude={"prev", "hash", "seal"})
    assert record.hash == hash_bytes(record.prev.encode() + encode_canonical(rest))


def test_first_record_of_an_epoch_seals_the_former_and_no_other_does(take_over):
    former = take_over()
    former.append("epoch", {}, NOW)
    last = former.append("outcome", {}, NOW)
    ledger = take_over()
    first, second = ledger.append("epoch", {}, NOW), ledger.append("outcome", {}, NOW)
    assert [(seal.epoch, seal.hash) for seal in first.seal] == [(1, last.hash)]
    assert second.seal is None


def test_former_controller_appends_nothing(take_over):
    former = take_over()
    former.append("epoch", {}, NOW)
    ledger = take_over()
    with pytest.raises(EpochLost):
        former.append("outcome", {}, NOW)
    assert len(ledger.records()) == 1
