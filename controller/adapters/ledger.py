"""The append-only, hash-chained record of everything decided and done.

One segment of JSON lines per epoch, `ledger/EPOCH.jsonl`, created exclusively by the controller of
that epoch. Its first record seals the segments before it (bytes, hash), so a late append of a
former controller falls outside. Segments are preallocated: NUL bytes behind the last line mean
the end, and a full disk still takes records. A head file of two slots, written in place after
each record, tells a torn last record from a cut tail.
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.wire import LedgerHead
from controller.adapters.files import sync_directory
from controller.adapters.ledger_format import (
    HEAD_FILE,
    NUL,
    SLOT_BYTES,
    SLOTS,
    Finding,
    HeadSlot,
    Scan,
    check_anchors,
    encode_record,
    encode_slot,
    make_record,
    read_content,
    segment_epochs,
    segment_path,
)
from controller.adapters.system import port_errors
from controller.core.readings import Instant
from controller.ports import Damaged, EpochLost, LedgerRecord, SealedSegment, Unavailable

RESERVE_BYTES = 256 * 1024
"""Kept ahead of the last record; some 50 decisions of a few kB each."""
GROWTH_BYTES = 2 * RESERVE_BYTES
SPARE_FILE = "spare"
"""Preallocated for the next epoch, so that a takeover works on a full disk, too."""

log = logging.getLogger(__name__)


class Fence:
    """Tells a former controller that another one took over."""

    def __init__(self, directory: Path, epoch: int) -> None:
        self.epoch = epoch
        self._directory = directory

    def check(self) -> None:
        """Raise EpochLost when a higher epoch owns a segment of the ledger."""
        newest = max(segment_epochs(self._directory), default=0)
        if newest > self.epoch:
            raise EpochLost(f"epoch {newest} took over from epoch {self.epoch}")


def create_ledger(directory: Path) -> None:
    """Make the ledger of a new run; its absence later is damage."""
    with port_errors("cannot create the ledger"):
        directory.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError), (directory / HEAD_FILE).open("xb") as file:
            file.write(NUL * SLOT_BYTES * SLOTS)
        sync_directory(directory)


def next_epoch(directory: Path) -> int:
    """Return the epoch of the controller that starts now, lock in hand."""
    return max(segment_epochs(directory), default=0) + 1


def verify_ledger(directory: Path, anchors: Iterable[tuple[str, LedgerHead]] = ()) -> list[Finding]:
    """Return everything in the ledger that is not as it was written; see `judge_ledger`."""
    return judge_ledger(directory, anchors).findings


@dataclass(frozen=True)
class Judgement:
    """What a ledger holds, and everything in it that is not as it was written."""

    num_records: int
    num_bytes: int
    """Of the valid records."""
    findings: list[Finding]


def judge_ledger(directory: Path, anchors: Iterable[tuple[str, LedgerHead]] = ()) -> Judgement:
    """Return whether the ledger is as it was written.

    `anchors` are heads kept elsewhere (where, head), as in the manifests of checkpoints.

    Raises:
        Damaged: the ledger folder is missing.
    """
    scan = Scan(directory)
    num_records = sum(1 for _ in scan.records())
    findings = list(scan.findings)
    if not any(finding.is_damage for finding in findings):
        findings += check_anchors(scan.hashes, anchors)
    num_bytes = sum(end.bytes for end in scan.ends)
    return Judgement(num_records, num_bytes, findings)


def read_ledger(directory: Path) -> list[LedgerRecord]:
    """Return all valid records, oldest first, without owning the ledger.

    Raises:
        Damaged: the folder is missing, or a record was cut or changed.
    """
    content = read_content(directory)
    for finding in content.findings:
        if finding.is_damage:
            raise Damaged(f"{directory}: {finding.text}")
    return content.records


class SegmentedLedger:
    """The ledger as written by the controller of one epoch."""

    def __init__(
        self,
        directory: Path,
        *,
        epoch: int,
        core_version: str,
        spec_sha: str,
        anchors: Iterable[tuple[str, LedgerHead]] = (),
    ) -> None:
        """Take the ledger over for `epoch`, unless it or `anchors` (see verify_ledger) say damage.

        Raises:
            Damaged: the folder is missing, or a record was cut or changed.
            EpochLost: another controller has this epoch or a higher one.
        """
        content = read_content(directory)
        for finding in content.findings + check_anchors(
            [it.hash for it in content.records], anchors
        ):
            if finding.is_damage:
                raise Damaged(f"{directory}: {finding.text}")
            log.warning("ledger: %s", finding.text)
        self._directory = directory
        self._versions = {"core_version": core_version, "spec_sha": spec_sha}
        self._head = content.head
        self._seal: list[SealedSegment] | None = content.unsealed() or None
        self._end = 0
        self.fence = Fence(directory, epoch)
        self.fence.check()
        with port_errors("cannot open the ledger"):
            self._segment = _create_segment(directory, epoch)
            self._heads = os.open(directory / HEAD_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            sync_directory(directory)
        self._keep_reserve()

    @property
    def epoch(self) -> int:
        """The epoch this ledger is written in."""
        return self.fence.epoch

    def append(self, kind: str, body: Mapping[str, object], at: Instant) -> LedgerRecord:
        """Append one record durably.

        Raises:
            EpochLost: another controller took over.
            Unavailable: the disk is full and the reserve is used up, or it failed.
        """
        self.fence.check()
        rest: dict[str, object] = {**self._versions, "body": body, "seal": self._seal}
        record = make_record(head=self._head, epoch=self.epoch, kind=kind, at=at, rest=rest)
        self._write(encode_record(record))
        self._head = LedgerHead(seq=record.seq, hash=record.hash)
        self._seal = None
        self._write_head()
        self._keep_reserve()
        return record

    def records(self) -> Sequence[LedgerRecord]:
        """Return all valid records, oldest first, read anew: a long run's are not kept."""
        return read_ledger(self._directory)

    def head(self) -> LedgerHead:
        """Return the newest record's number and hash; (0, zeros) before the first."""
        return self._head

    def close(self) -> None:
        """Give the files back; what was appended is durable already."""
        os.close(self._segment)
        os.close(self._heads)

    def _write(self, line: bytes) -> None:
        with port_errors("cannot append to the ledger"):
            try:
                written = os.pwrite(self._segment, line, self._end)
                if written < len(line):
                    raise Unavailable("cannot append to the ledger: the disk is full")
                os.fdatasync(self._segment)
            except (OSError, Unavailable):
                # Half a record must not lie behind a shorter one that comes next.
                with contextlib.suppress(OSError):
                    os.pwrite(self._segment, NUL * len(line), self._end)
                raise
        self._end += len(line)

    def _write_head(self) -> None:
        slot = encode_slot(HeadSlot(self.epoch, self._head.seq, self._head.hash))
        try:
            os.pwrite(self._heads, slot, self._head.seq % SLOTS * SLOT_BYTES)
            os.fdatasync(self._heads)
        except OSError as error:
            # The record itself is durable; a head that stays behind is told from a cut.
            log.warning("ledger: cannot write the head: %s", error.strerror)

    def _keep_reserve(self) -> None:
        """Grow the segment ahead of need; on a full disk go on in what is there."""
        size = os.fstat(self._segment).st_size
        if size - self._end >= RESERVE_BYTES:
            return
        try:
            os.posix_fallocate(self._segment, size, GROWTH_BYTES)
        except OSError as error:
            log.warning("ledger: %d bytes of reserve left: %s", size - self._end, error.strerror)


def _create_segment(directory: Path, epoch: int) -> int:
    """Create the epoch's segment exclusively, from the spare one if it is there."""
    path = segment_path(directory, epoch)
    spare = directory / SPARE_FILE
    try:
        creation = 0 if _take_spare(spare, path) else os.O_CREAT | os.O_EXCL
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | creation, 0o644)
    except FileExistsError as error:
        raise EpochLost(f"epoch {epoch} has another controller already") from error
    _make_spare(spare)
    return descriptor


def _take_spare(spare: Path, path: Path) -> bool:
    if not spare.exists():
        return False
    # Two names: a controller died between the two lines below, and the file is its segment.
    is_free = spare.stat().st_nlink == 1
    if is_free:
        path.hardlink_to(spare)
    spare.unlink()
    return is_free


def _make_spare(spare: Path) -> None:
    with contextlib.suppress(OSError), spare.open("xb") as file:
        os.posix_fallocate(file.fileno(), 0, GROWTH_BYTES)
