"""How the ledger lies on disk, and what reading it can find.

Nothing here writes. A record is one line of canonical JSON; `hash` = sha256(prev + canonical
rest), where the rest is every member but `prev` and `hash`.
"""

import hashlib
import json
import os
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from pydantic import ValidationError

from contract.canonical import encode_canonical, hash_bytes
from contract.wire import LedgerHead
from controller.adapters.files import open_file, read_file
from controller.adapters.system import port_errors
from controller.core.readings import Instant
from controller.ports import Damaged, LedgerRecord, SealedSegment

VERSION = 1
ROOT_HASH = "0" * 64
"""`prev` of the first record of all."""
SEGMENT_SUFFIX = ".jsonl"
HEAD_FILE = "head"
SLOT_BYTES = 512
"""One disk sector: a slot is written whole or not at all."""
SLOTS = 2
NUL = b"\0"


FindingKind = Literal["torn", "late", "cut", "changed", "head", "anchor", "unanchored"]


@dataclass(frozen=True)
class Finding:
    """What is not as it was written."""

    kind: FindingKind
    text: str

    @property
    def is_damage(self) -> bool:
        """Return whether records are lost or false; a torn or late record never counted."""
        return self.kind in ("cut", "changed", "anchor")


@dataclass(frozen=True)
class HeadSlot:
    """One slot of the head file."""

    epoch: int
    seq: int
    hash: str


@dataclass(frozen=True)
class Content:
    """The valid records of a ledger, where each segment ends, and what was found."""

    records: list[LedgerRecord]
    ends: list[SealedSegment]
    findings: list[Finding]
    head: LedgerHead
    """The newest record; number 0 and the root hash before the first."""

    def unsealed(self) -> list[SealedSegment]:
        """Return the ends of the segments that no record seals yet."""
        sealed = {one.epoch for record in self.records for one in record.seal or ()}
        return [end for end in self.ends if end.epoch not in sealed]


def segment_path(directory: Path, epoch: int) -> Path:
    """Return the file of one epoch's records."""
    return directory / f"{epoch:08d}{SEGMENT_SUFFIX}"


def segment_epochs(directory: Path) -> list[int]:
    """Return the epochs that own a segment, lowest first.

    Raises:
        Damaged: there is no ledger: damage, never a new run.
        Unavailable: the folder cannot be read.
    """
    with port_errors("cannot read the ledger"):
        try:
            names = [entry.name for entry in os.scandir(directory)]
        except FileNotFoundError as error:
            raise Damaged(f"the ledger folder {directory} is missing") from error
    stems = [name.removesuffix(SEGMENT_SUFFIX) for name in names if name.endswith(SEGMENT_SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())


def make_record(
    *, head: LedgerHead, epoch: int, kind: str, at: Instant, rest: dict[str, object]
) -> LedgerRecord:
    """Return the record that follows `head`; `rest` holds core_version, spec_sha, body, seal."""
    bare = LedgerRecord.model_validate(
        {
            "v": VERSION,
            "seq": head.seq + 1,
            "epoch": epoch,
            "kind": kind,
            "at": at,
            "prev": head.hash,
            "hash": "",
            **rest,
        }
    )
    return bare.model_copy(update={"hash": hash_record(bare)})


def hash_record(record: LedgerRecord) -> str:
    """Return sha256(prev + canonical rest)."""
    rest = _members(record)
    del rest["prev"], rest["hash"]
    return hashlib.sha256(record.prev.encode() + encode_canonical(rest)).hexdigest()


def encode_record(record: LedgerRecord) -> bytes:
    """Return the record's line."""
    return encode_canonical(_members(record)) + b"\n"


def _members(record: LedgerRecord) -> dict[str, object]:
    return record.model_dump(mode="json", exclude={"seal"} if record.seal is None else None)


def read_content(directory: Path) -> Content:
    """Return everything valid in the ledger and what is not; stops at the first false record.

    Raises:
        Damaged: the ledger folder is missing.
        Unavailable: a file of it cannot be read.
    """
    scan = Scan(directory)
    records = list(scan.records())
    return Content(records, scan.ends, scan.findings, scan.head)


class Scan:
    """One walk over a ledger that keeps no record, only their hashes.

    `findings` and `ends` are whole once `records` is exhausted.
    """

    def __init__(self, directory: Path) -> None:
        """List the segments; what they hold is read by `records`, one segment at a time.

        Raises:
            Damaged: the ledger folder is missing.
        """
        self._directory = directory
        self.epochs = segment_epochs(directory)
        self.hashes: list[str] = []
        self.ends: list[SealedSegment] = []
        self.findings: list[Finding] = []

    @property
    def damage(self) -> str | None:
        """What was found changed or cut first, None where nothing was."""
        return next((it.text for it in self.findings if it.is_damage), None)

    @property
    def head(self) -> LedgerHead:
        """The newest valid record so far; number 0 and the root hash before the first."""
        return LedgerHead(seq=len(self.hashes), hash=self.hashes[-1] if self.hashes else ROOT_HASH)

    def records(self) -> Iterator[LedgerRecord]:
        """Yield the valid records, oldest first; ends at the first false one.

        Raises:
            Unavailable: a file of the ledger cannot be read.
        """
        with port_errors("cannot read the ledger"):
            # The head comes first: what is appended meanwhile must not look like a cut.
            head = read_head(self._directory)
            seals = {seal.epoch: seal for epoch in self.epochs for seal in self._seals_of(epoch)}
        for epoch in self.epochs:
            with port_errors("cannot read the ledger"):
                data = read_file(segment_path(self._directory, epoch))
            is_whole = yield from self._read_segment(epoch, data, seals.get(epoch))
            if not is_whole:
                break
        self.findings.extend(self._check_head(head))

    def _seals_of(self, epoch: int) -> list[SealedSegment]:
        """Return what a segment's first record seals; the chain vouches for it later."""
        with open_file(segment_path(self._directory, epoch)) as file:
            first = file.readline()
        if not first.endswith(b"\n"):
            return []
        try:
            return LedgerRecord.model_validate_json(first).seal or []
        except ValidationError:
            return []

    def _read_segment(
        self, epoch: int, data: bytes, seal: SealedSegment | None
    ) -> Generator[LedgerRecord, None, bool]:
        """Yield a segment's records; return whether what follows it can be trusted."""
        text = data.partition(NUL)[0]
        if seal is not None:
            behind = len(text) - seal.bytes
            text = text[: seal.bytes]
            if behind > 0:
                self._find("late", f"{behind} bytes behind the seal of epoch {epoch} are ignored")
            if behind < 0:
                note = f"epoch {epoch} ends after {len(text)} of {seal.bytes} sealed bytes"
                self._find("cut", note)
                return False
        valid_bytes = 0
        for line in _whole_lines(text):
            record = self._read_record(epoch, line)
            if record is None:
                return False
            self.hashes.append(record.hash)
            valid_bytes += len(line) + 1
            yield record
        if rest := len(text) - valid_bytes:
            note = f"epoch {epoch} ends in a torn record of {rest} bytes: ignored"
            self._find("torn", note)
        self.ends.append(SealedSegment(epoch=epoch, bytes=valid_bytes, hash=self.head.hash))
        return True

    def _find(self, kind: FindingKind, text: str) -> None:
        self.findings.append(Finding(kind, text))

    def _read_record(self, epoch: int, line: bytes) -> LedgerRecord | None:
        found = read_line(line, epoch, self.head)
        if isinstance(found, str):
            text = f"record {self.head.seq + 1} of epoch {epoch} was changed: {found}"
            self._find("changed", text)
            return None
        return found

    def _check_head(self, slot: HeadSlot | None) -> Iterator[Finding]:
        """Compare the head file with the last record: ahead is a cut, one behind is a crash."""
        last = len(self.hashes)
        if any(finding.is_damage for finding in self.findings):
            return
        if slot is None:
            if last > 1:
                yield Finding("head", f"no readable head beside {last} records")
            return
        if slot.seq > last:
            yield Finding("cut", f"records {last + 1} to {slot.seq} are missing")
        elif self.hashes and self.hashes[slot.seq - 1] != slot.hash:
            yield Finding("changed", f"record {slot.seq} is not the one that the head names")
        elif slot.seq < last - 1 and self._is_behind(last - 1):
            yield Finding("head", f"the head names record {slot.seq}, the last is {last}")

    def _is_behind(self, seq: int) -> bool:
        """Return whether the head is behind `seq` still; a controller may have moved it on."""
        with port_errors("cannot read the ledger"):
            slot = read_head(self._directory)
        return slot is None or slot.seq < seq


def _whole_lines(text: bytes) -> Iterator[bytes]:
    """Yield the lines that are whole, without copying all of them at once."""
    begin = 0
    while (end := text.find(b"\n", begin)) >= 0:
        yield text[begin:end]
        begin = end + 1


def read_line(line: bytes, epoch: int, head: LedgerHead) -> LedgerRecord | str:
    """Return the record that a line holds if it follows `head`, else what is wrong with it."""
    try:
        record = LedgerRecord.model_validate_json(line)
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    if (record.epoch, record.seq, record.prev) != (epoch, head.seq + 1, head.hash):
        return f"it does not follow record {head.seq}"
    if _is_as_hashed(line, record):
        return record
    if hash_record(record) != record.hash or encode_record(record) != line + b"\n":
        return "its hash does not match its content"
    return record


ENDING = re.compile(
    rb',"epoch":[0-9]+,("hash":"([0-9a-f]{64})",)"kind":"[a-z]+",("prev":"([0-9a-f]{64})",)'
    rb'(?:"seal":\[[^\[\]]*\],)?"seq":[0-9]+,"spec_sha":"[0-9a-f]*","v":[0-9]+\}'
)
"""How the line of a record ends, for members are sorted and `body` comes before these."""


def _is_as_hashed(line: bytes, record: LedgerRecord) -> bool:
    """Return whether the line's own bytes, without `hash` and `prev`, give its hash.

    Then they are the canonical ones that were hashed when it was written, and need not be encoded
    anew, which takes most of the time of reading. False says nothing: encoding decides.
    """
    found = ENDING.fullmatch(line, line.rfind(b',"epoch":'))
    if found is None or (found[2], found[4]) != (record.hash.encode(), record.prev.encode()):
        return False
    (hash_from, hash_to), (prev_from, prev_to) = found.span(1), found.span(3)
    digest = hashlib.sha256(found[4])
    for part in (line[:hash_from], line[hash_to:prev_from], line[prev_to:]):
        digest.update(part)
    return digest.hexdigest() == record.hash


def encode_slot(slot: HeadSlot) -> bytes:
    """Return the bytes of one head slot, its own check included."""
    body = encode_canonical({"epoch": slot.epoch, "hash": slot.hash, "seq": slot.seq})
    return (body + b"\n" + hash_bytes(body).encode() + b"\n").ljust(SLOT_BYTES, NUL)


def read_head(directory: Path) -> HeadSlot | None:
    """Return the newest valid head, None when there is none (yet)."""
    try:
        data = read_file(directory / HEAD_FILE)
    except FileNotFoundError:
        return None
    slots = [_read_slot(data[i * SLOT_BYTES : (i + 1) * SLOT_BYTES]) for i in range(SLOTS)]
    valid = [slot for slot in slots if slot is not None]
    return max(valid, key=lambda slot: (slot.epoch, slot.seq), default=None)


def _read_slot(data: bytes) -> HeadSlot | None:
    body, _, rest = data.partition(b"\n")
    if hash_bytes(body).encode() != rest.partition(b"\n")[0]:
        return None
    members = cast("dict[str, int | str]", json.loads(body))
    return HeadSlot(int(members["epoch"]), int(members["seq"]), str(members["hash"]))


def check_anchors(
    hashes: Sequence[str], anchors: Iterable[tuple[str, LedgerHead]]
) -> list[Finding]:
    """Return which heads, kept elsewhere under a name, contradict the records' hashes."""
    findings: list[Finding] = []
    for where, head in anchors:
        if head.seq == 0:
            text = f"{where} names no record: saved before its gang heard of the ledger"
            findings.append(Finding("unanchored", text))
        elif head.seq > len(hashes):
            text = f"{where} names record {head.seq}; the ledger ends at {len(hashes)}"
            findings.append(Finding("anchor", text))
        elif hashes[head.seq - 1] != head.hash:
            findings.append(Finding("anchor", f"{where} names another record {head.seq}"))
    return findings
