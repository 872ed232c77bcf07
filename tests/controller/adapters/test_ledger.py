"""The ledger's files: chain, seals, torn tails, cuts, a full disk."""

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.canonical import encode_canonical, hash_bytes
from contract.wire import LedgerHead
from controller.adapters.ledger import (
    RESERVE_BYTES,
    SPARE_FILE,
    SegmentedLedger,
    create_ledger,
    next_epoch,
    read_ledger,
    verify_ledger,
)
from controller.adapters.ledger_format import (
    HEAD_FILE,
    ROOT_HASH,
    SLOT_BYTES,
    SLOTS,
    check_anchors,
    segment_path,
)
from controller.core.readings import Instant
from controller.ports import Damaged, EpochLost, Unavailable

NOW = Instant(wall_ms=1_700_000_000_000, mono_ms=5, boot_id="boot")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "ledger"
    create_ledger(path)
    return path


def opened(folder: Path, epoch: int | None = None) -> SegmentedLedger:
    epoch = next_epoch(folder) if epoch is None else epoch
    return SegmentedLedger(folder, epoch=epoch, core_version="1", spec_sha="5" * 64)


def written(folder: Path, *counts: int) -> None:
    """Write one epoch per count, with so many records."""
    for count in counts:
        ledger = opened(folder)
        for number in range(count):
            ledger.append("outcome", {"key": f"k{number}", "ok": True}, NOW)
        ledger.close()


def content_bytes(path: Path) -> bytes:
    return path.read_bytes().partition(b"\0")[0]


def kinds(folder: Path) -> list[str]:
    return [finding.kind for finding in verify_ledger(folder)]


def test_records_are_chained_over_epochs(folder):
    written(folder, 3, 2)
    records = read_ledger(folder)
    assert [record.seq for record in records] == [1, 2, 3, 4, 5]
    assert [record.epoch for record in records] == [1, 1, 1, 2, 2]
    assert records[0].prev == ROOT_HASH
    assert all(left.hash == right.prev for left, right in pairwise(records))
    assert verify_ledger(folder) == []


def test_hash_is_sha256_of_prev_and_the_canonical_rest(folder):
    written(folder, 2)
    record = read_ledger(folder)[1]
    rest = record.model_dump(mode="json", exclude={"prev", "hash", "seal"})
    assert record.hash == hash_bytes(record.prev.encode() + encode_canonical(rest))


def test_first_record_of_an_epoch_seals_the_one_before(folder):
    written(folder, 2, 1)
    seal = read_ledger(folder)[2].seal
    assert seal is not None
    assert [(one.epoch, one.bytes) for one in seal] == [
        (1, len(content_bytes(segment_path(folder, 1))))
    ]
    assert seal[0].hash == read_ledger(folder)[1].hash


def test_epoch_without_records_is_sealed_with_the_next(folder):
    written(folder, 2, 0, 1)
    seal = read_ledger(folder)[2].seal
    assert [(one.epoch, one.bytes > 0) for one in seal or ()] == [(1, True), (2, False)]
    assert verify_ledger(folder) == []


def test_late_append_of_a_former_leader_falls_outside_the_seal(folder):
    written(folder, 2)
    first = segment_path(folder, 1)
    before = content_bytes(first)
    late = before.splitlines(keepends=True)[1]
    written(folder, 1)
    with first.open("r+b") as file:
        file.seek(len(before))
        file.write(late)
    assert [record.epoch for record in read_ledger(folder)] == [1, 1, 2]
    assert kinds(folder) == ["late"]


def test_former_leader_is_refused(folder):
    former = opened(folder)
    former.append("epoch", {}, NOW)
    opened(folder).close()
    with pytest.raises(EpochLost, match="epoch 2 took over from epoch 1"):
        former.append("outcome", {}, NOW)


def test_an_epoch_is_taken_once(folder):
    opened(folder, 1).close()
    with pytest.raises(EpochLost):
        opened(folder, 1)


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_torn_last_record_is_ignored_said_and_sealed_away(folder, kept):
    written(folder, 3)
    path = segment_path(folder, 1)
    lines = content_bytes(path).splitlines(keepends=True)
    torn = b"".join(lines[:2]) + lines[2][:kept]
    path.write_bytes(torn.ljust(path.stat().st_size, b"\0"))
    # The head of a torn record was never written.
    set_head(folder, keep_seq=2)
    assert kinds(folder) == ["torn"]
    written(folder, 1)
    assert [record.epoch for record in read_ledger(folder)] == [1, 1, 2]
    assert [record.seq for record in read_ledger(folder)] == [1, 2, 3]
    assert kinds(folder) == ["late"]


def set_head(folder: Path, *, keep_seq: int) -> None:
    """Blank the slots of the head that name a later record."""
    data = bytearray((folder / HEAD_FILE).read_bytes())
    for slot in range(SLOTS):
        part = bytes(data[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
        if f'"seq":{keep_seq}'.encode() not in part:
            data[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES] = bytes(SLOT_BYTES)
    (folder / HEAD_FILE).write_bytes(data)


def test_head_one_record_behind_is_legal(folder):
    written(folder, 3)
    set_head(folder, keep_seq=2)
    assert verify_ledger(folder) == []


def test_cut_tail_is_told_from_a_torn_record(folder):
    written(folder, 3)
    path = segment_path(folder, 1)
    lines = content_bytes(path).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    findings = verify_ledger(folder)
    assert [finding.kind for finding in findings] == ["cut"]
    assert "records 3 to 3 are missing" in findings[0].text
    with pytest.raises(Damaged, match="missing"):
        opened(folder)


def test_removed_segment_is_a_cut(folder):
    written(folder, 2, 2)
    segment_path(folder, 2).unlink()
    assert kinds(folder) == ["cut"]


def test_segment_removed_from_the_middle_is_found(folder):
    written(folder, 2, 2, 2)
    segment_path(folder, 2).unlink()
    assert "changed" in kinds(folder)


def test_sealed_segment_that_was_shortened_is_a_cut(folder):
    written(folder, 3, 1)
    path = segment_path(folder, 1)
    lines = content_bytes(path).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    assert kinds(folder)[0] == "cut"


def test_missing_folder_is_damage_never_a_new_run(tmp_path):
    with pytest.raises(Damaged, match="is missing"):
        opened(tmp_path / "ledger", 1)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_changed_byte_of_a_record_is_found(folder, data):
    if not segment_path(folder, 1).exists():
        written(folder, 3, 2)
    path = segment_path(folder, data.draw(st.sampled_from([1, 2])))
    original = path.read_bytes()
    content = content_bytes(path)
    place = data.draw(st.integers(0, len(content) - 1))
    changed = data.draw(st.integers(0, 255).filter(lambda value: value != content[place]))
    path.write_bytes(original[:place] + bytes([changed]) + original[place + 1 :])
    try:
        assert any(finding.is_damage for finding in verify_ledger(folder))
    finally:
        path.write_bytes(original)
    assert verify_ledger(folder) == []


def test_record_that_only_reads_the_same_is_found(folder):
    written(folder, 2)
    path = segment_path(folder, 1)
    path.write_bytes(content_bytes(path).replace(b'"seq":2', b'"seq": 2'))
    assert kinds(folder) == ["changed"]


def test_rewritten_history_is_found_by_heads_kept_elsewhere(folder):
    written(folder, 3)
    records = read_ledger(folder)
    kept = LedgerHead(seq=2, hash=records[1].hash)
    hashes = [record.hash for record in records]
    assert check_anchors(hashes, [("checkpoint main/10", kept)]) == []
    forged = LedgerHead(seq=2, hash="f" * 64)
    ahead = LedgerHead(seq=9, hash="f" * 64)
    findings = verify_ledger(folder, [("main/10", forged), ("main/20", ahead)])
    assert [finding.kind for finding in findings] == ["anchor", "anchor"]
    assert "main/10 names another record 2" in findings[0].text
    assert "the ledger ends at 3" in findings[1].text


def test_checkpoint_without_an_anchor_is_said_and_is_no_damage(folder):
    written(folder, 2)
    findings = verify_ledger(folder, [("main/10", LedgerHead(seq=0, hash="0" * 64))])
    assert [(finding.kind, finding.is_damage) for finding in findings] == [("unanchored", False)]


def test_ledger_that_a_checkpoint_contradicts_is_not_taken_over(folder):
    written(folder, 2)
    anchors = [("checkpoint main/10", LedgerHead(seq=2, hash="f" * 64))]
    with pytest.raises(Damaged, match="checkpoint main/10 names another record 2"):
        SegmentedLedger(folder, epoch=2, core_version="1", spec_sha="s", anchors=anchors)
    assert next_epoch(folder) == 2


def test_reserve_is_kept_ahead(folder):
    ledger = opened(folder)
    for _ in range(3):
        ledger.append("decision", {"text": "x" * 200_000}, NOW)
    path = segment_path(folder, 1)
    assert path.stat().st_size - len(content_bytes(path)) >= RESERVE_BYTES
    ledger.close()


def refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_full_disk_still_takes_records_and_then_refuses_whole_ones(folder, monkeypatch):
    ledger = opened(folder)
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    real_pwrite, limit = os.pwrite, segment_path(folder, 1).stat().st_size

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        # As the kernel does: what fits is written, and only nothing at all is an error.
        return real_pwrite(descriptor, data[: limit - offset], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    for _ in range(4):
        ledger.append("decision", {"text": "x" * 100_000}, NOW)
    with pytest.raises(Unavailable, match="disk is full"):
        ledger.append("decision", {"text": "x" * 200_000}, NOW)
    ledger.append("outcome", {"small": True}, NOW)
    assert len(ledger.records()) == 5
    assert verify_ledger(folder) == []
    ledger.close()


def test_next_epoch_starts_in_the_spare_segment(folder):
    opened(folder).close()
    spare = (folder / SPARE_FILE).stat().st_ino
    opened(folder).close()
    assert segment_path(folder, 2).stat().st_ino == spare
    assert (folder / SPARE_FILE).stat().st_ino != spare


def test_spare_that_became_a_segment_is_not_used_twice(folder):
    opened(folder).close()
    # A controller died between linking and unlinking.
    segment_path(folder, 2).hardlink_to(folder / SPARE_FILE)
    written(folder, 1)
    assert segment_path(folder, 3).stat().st_ino != segment_path(folder, 2).stat().st_ino
    assert content_bytes(segment_path(folder, 2)) == b""


def test_head_is_number_and_hash_of_the_newest(folder):
    ledger = opened(folder)
    assert ledger.head() == LedgerHead(seq=0, hash=ROOT_HASH)
    record = ledger.append("run", {}, NOW)
    assert ledger.head() == LedgerHead(seq=1, hash=record.hash)
    ledger.close()
