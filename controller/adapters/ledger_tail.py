"""The ledger read as it grows, by somebody who does not own it."""

import os
from collections.abc import Iterator
from pathlib import Path

from contract.wire import LedgerHead
from controller.adapters.ledger_format import (
    NUL,
    ROOT_HASH,
    Scan,
    read_line,
    segment_epochs,
    segment_path,
)
from controller.adapters.system import port_errors
from controller.ports import LedgerRecord

CHUNK_BYTES = 1 << 16
"""Of one look at the end of a segment, which is preallocated: its size says nothing."""


class LedgerTail:
    """Yields each record once; the first call of `read` yields all there are."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._epochs: list[int] = []
        self._hashes: list[str] = []
        self._offset = 0
        self.damage: str | None = None
        """What was found changed or cut; nothing more is read then."""
        self.withdrawn = 0
        """Records told before that fell behind the seal of the next controller."""

    def read(self) -> Iterator[LedgerRecord]:
        """Yield what was appended since the last call.

        Raises:
            Damaged: the ledger folder is missing.
            Unavailable: a file of it cannot be read.
        """
        if self.damage is not None:
            return
        if segment_epochs(self._directory) != self._epochs:
            yield from self._read_all()
            return
        for line in self._read_lines():
            found = read_line(line, self._epochs[-1], self._head)
            if isinstance(found, str):
                # Half written, or changed: only a look at all of it can tell.
                self._epochs = []
                return
            self._offset += len(line) + 1
            self._hashes.append(found.hash)
            yield found

    @property
    def num_records(self) -> int:
        """Those that count, so far."""
        return len(self._hashes)

    @property
    def _head(self) -> LedgerHead:
        newest = self._hashes[-1] if self._hashes else ROOT_HASH
        return LedgerHead(seq=len(self._hashes), hash=newest)

    def _read_all(self) -> Iterator[LedgerRecord]:
        """Walk over the whole ledger, as another epoch began, and yield what was not told yet."""
        scan, told = Scan(self._directory), self._hashes
        num_same = 0
        for record in scan.records():
            if num_same == record.seq - 1 and told[num_same : record.seq] == [record.hash]:
                num_same += 1
            else:
                yield record
        self.withdrawn += len(told) - num_same
        self.damage = scan.damage
        self._hashes, self._epochs = scan.hashes, scan.epochs
        self._offset = scan.ends[-1].bytes if scan.ends else 0

    def _read_lines(self) -> Iterator[bytes]:
        if not self._epochs:
            return
        with port_errors("cannot read the ledger"):
            descriptor = os.open(
                segment_path(self._directory, self._epochs[-1]), os.O_RDONLY | os.O_CLOEXEC
            )
            try:
                text = _read_text(descriptor, self._offset)
            finally:
                os.close(descriptor)
        yield from text.split(b"\n")[:-1]


def _read_text(descriptor: int, offset: int) -> bytes:
    """Return what is written from `offset` on."""
    text = b""
    while data := os.pread(descriptor, CHUNK_BYTES, offset + len(text)):
        part, nul, _ = data.partition(NUL)
        text += part
        if nul:
            break
    return text
