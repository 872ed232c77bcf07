"""The ledger of a rehearsal: every record is made, hashed and counted, and none is kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from contract.canonical import encode_canonical
from contract.wire import LedgerHead
from controller.core.readings import Instant
from controller.ports import LedgerRecord
from controller.simulate.book import ROOT_HASH, Book, BookLedger

Listener = Callable[[bytes], None]


@dataclass
class Scroll(Book):
    """What is left of all records: how many, how large, and the newest one's hash."""

    count: int = 0
    bytes: int = 0
    hash: str = ROOT_HASH
    on_line: Listener | None = None
    """Told of each record as its canonical line, without the newline."""

    def take(self, record: LedgerRecord) -> None:
        """Count one more record."""
        line = encode_canonical(record.model_dump(mode="json", exclude={"seal"}))
        self.count, self.hash = record.seq, record.hash
        self.bytes += len(line) + 1
        if self.on_line is not None:
            self.on_line(line)

    def open_epoch(self) -> "ScrollLedger":
        """Return the ledger of the only controller."""
        self.epoch += 1
        return ScrollLedger(self, self.epoch, None)

    @property
    def head(self) -> LedgerHead:
        """The newest record; number 0 before the first."""
        return LedgerHead(seq=self.count, hash=self.hash)


@dataclass
class ScrollLedger(BookLedger):
    """The scroll in the hands of the controller."""

    first: list[LedgerRecord] = field(default_factory=list[LedgerRecord])
    """Those that a controller begins with."""
    is_open: bool = True
    """Records are still kept."""

    def append(self, kind: str, body: Mapping[str, object], at: Instant) -> LedgerRecord:
        """Append one record."""
        book = self.book
        assert isinstance(book, Scroll)
        record = self.make_record(kind, body, at)
        book.take(record)
        if self.is_open:
            self.first.append(record)
        return record

    def records(self) -> Sequence[LedgerRecord]:
        """Return the first records: the only controller reads them once, as it begins."""
        assert self.is_open, "a rehearsal's records are not kept"
        self.is_open = False
        return self.first
