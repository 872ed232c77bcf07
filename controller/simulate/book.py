"""The ledger in memory, hash-chained as the real one is."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from contract.canonical import encode_canonical
from contract.wire import LedgerHead
from controller.core.readings import Instant
from controller.ports import EpochLost, LedgerRecord, SealedSegment, Unavailable
from controller.simulate.tap import ControllerKilled

CORE = "simulated"
ROOT_HASH = "0" * 64


@dataclass
class Book:
    """All records of one run, and the newest epoch that was opened."""

    records: list[LedgerRecord] = field(default_factory=list[LedgerRecord])
    epoch: int = 0
    is_full: bool = False
    """Not even the reserve takes another record."""
    is_tearing: bool = False
    """The next record is written by half, and its controller dies of it."""
    half: LedgerRecord | None = None
    """What is half written behind the last record: it never counted."""
    torn: int = 0
    """Half records that a successor dropped."""

    def open_epoch(self) -> "BookLedger":
        """Return the ledger as the next controller sees it; older ones are fenced from now on."""
        self.epoch += 1
        seal = None
        # As in the real ledger: the seal ends behind the last whole record.
        self.torn += self.half is not None
        self.half = None
        if self.records:
            last = self.records[-1]
            seal = [SealedSegment(epoch=last.epoch, bytes=len(self.records), hash=last.hash)]
        return BookLedger(self, self.epoch, seal)

    @property
    def head(self) -> LedgerHead:
        """The newest record; number 0 before the first."""
        if not self.records:
            return LedgerHead(seq=0, hash=ROOT_HASH)
        return LedgerHead(seq=self.records[-1].seq, hash=self.records[-1].hash)

    def find_break(self) -> int | None:
        """Return the number of the first record that is not as it was written, None if all are."""
        prev = ROOT_HASH
        for seq, record in enumerate(self.records, 1):
            if (record.prev, record.seq) != (prev, seq) or hash_record(record) != record.hash:
                return seq
            prev = record.hash
        return None


@dataclass
class BookLedger:
    """The ledger in the hands of one controller."""

    book: Book
    epoch: int
    seal: list[SealedSegment] | None

    def append(self, kind: str, body: Mapping[str, object], at: Instant) -> LedgerRecord:
        """Append one record; EpochLost once a later controller opened the ledger."""
        if self.book.epoch > self.epoch:
            raise EpochLost(f"epoch {self.book.epoch} took over from epoch {self.epoch}")
        if self.book.is_full:
            raise Unavailable("cannot append to the ledger: the disk is full")
        record = self.make_record(kind, body, at)
        if self.book.is_tearing:
            self.book.is_tearing, self.book.half = False, record
            raise ControllerKilled(f"record {record.seq} is half written")
        self.seal = None
        self.book.records.append(record)
        return record

    def make_record(self, kind: str, body: Mapping[str, object], at: Instant) -> LedgerRecord:
        """Return the record that follows the newest one."""
        head = self.book.head
        bare = LedgerRecord(
            v=1,
            seq=head.seq + 1,
            epoch=self.epoch,
            kind=kind,
            at=at,
            core_version=CORE,
            spec_sha="",
            body=body,
            prev=head.hash,
            hash="",
            seal=self.seal,
        )
        return bare.model_copy(update={"hash": hash_record(bare)})

    def records(self) -> Sequence[LedgerRecord]:
        """Return all records, oldest first."""
        return list(self.book.records)

    def head(self) -> LedgerHead:
        """Return the newest record's number and hash."""
        return self.book.head


def hash_record(record: LedgerRecord) -> str:
    """Return sha256(prev + canonical rest)."""
    left_out = {"prev", "hash", "seal"} if record.seal is None else {"prev", "hash"}
    rest = record.model_dump(mode="json", exclude=left_out)
    return hashlib.sha256(record.prev.encode() + encode_canonical(rest)).hexdigest()
