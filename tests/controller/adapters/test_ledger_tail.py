"""The ledger read as it grows."""

import pytest

from controller.adapters.ledger import SegmentedLedger, create_ledger, next_epoch
from controller.adapters.ledger_format import segment_path
from controller.adapters.ledger_tail import LedgerTail
from controller.core.readings import Instant
from controller.ports import Damaged

NOW = Instant(wall_ms=1_700_000_000_000, mono_ms=5, boot_id="boot")


@pytest.fixture
def folder(tmp_path):
    create_ledger(tmp_path / "ledger")
    return tmp_path / "ledger"


def opened(folder):
    epoch = next_epoch(folder)
    return SegmentedLedger(folder, epoch=epoch, core_version="1", spec_sha="0" * 64)


def numbers(tail):
    return [record.seq for record in tail.read()]


def append(ledger, count=1):
    for _ in range(count):
        ledger.append("outcome", {"text": "x" * 100}, NOW)


def test_records_are_told_once_as_they_come(folder):
    tail, ledger = LedgerTail(folder), opened(folder)
    assert numbers(tail) == []
    append(ledger, 3)
    assert numbers(tail) == [1, 2, 3]
    assert numbers(tail) == []
    append(ledger, 2)
    assert numbers(tail) == [4, 5]
    assert (tail.num_records, tail.damage) == (5, None)
    ledger.close()


def test_record_larger_than_one_look_is_whole(folder):
    ledger, tail = opened(folder), LedgerTail(folder)
    assert numbers(tail) == []
    ledger.append("decision", {"text": "x" * 200_000}, NOW)
    append(ledger)
    assert numbers(tail) == [1, 2]
    ledger.close()


def test_next_segment_is_read_on(folder):
    first, tail = opened(folder), LedgerTail(folder)
    append(first, 2)
    assert numbers(tail) == [1, 2]
    second = opened(folder)
    assert numbers(tail) == []
    append(second, 2)
    assert numbers(tail) == [3, 4]
    assert tail.withdrawn == 0


def write_behind(folder, epoch, data):
    """Write behind the last record of a segment, as a controller does that was taken over."""
    path = segment_path(folder, epoch)
    text = path.read_bytes()
    end = text.index(b"\0")
    path.write_bytes(text[:end] + data + text[end + len(data) :])


def test_half_a_record_waits_for_its_other_half(folder):
    other = folder.with_name("other")
    create_ledger(other)
    for place in (folder, other):
        append(opened(place), 1)
    tail, longer = LedgerTail(folder), opened(other)
    assert numbers(tail) == [1]
    longer.close()
    line = segment_path(folder, 1).read_bytes().partition(b"\0")[0]
    write_behind(folder, 1, line[:50])
    assert numbers(tail) == []
    assert tail.damage is None


def test_late_record_of_a_former_controller_is_withdrawn(folder):
    first, tail = opened(folder), LedgerTail(folder)
    append(first)
    second = opened(folder)
    first.fence.check = lambda: None  # It does not know yet.
    append(first)
    hidden = segment_path(folder, 2)
    aside = hidden.rename(hidden.with_suffix(".aside"))
    assert numbers(tail) == [1, 2]
    aside.rename(hidden)
    append(second, 2)
    assert numbers(tail) == [2, 3]
    assert (tail.withdrawn, tail.num_records) == (1, 3)


def test_changed_record_ends_the_reading(folder):
    ledger, tail = opened(folder), LedgerTail(folder)
    append(ledger)
    assert numbers(tail) == [1]
    append(ledger, 2)
    path = segment_path(folder, 1)
    path.write_bytes(path.read_bytes().replace(b'"seq":2', b'"seq":7'))
    assert numbers(tail) == []
    assert numbers(tail) == []
    assert tail.damage.startswith("record 2 of epoch 1 was changed")


def test_missing_folder_is_damage(tmp_path):
    with pytest.raises(Damaged, match="is missing"):
        numbers(LedgerTail(tmp_path / "ledger"))
