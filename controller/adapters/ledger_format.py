"""How the ledger lies on disk, and what reading it can find.

Nothing here writes. A record is one line of canonical JSON; `hash` = sha256(prev + canonical
rest), where the rest is every member but `prev` and `hash`.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from pydantic import ValidationError

from contract.canonical import encode_canonical, hash_bytes
from contract.wire import LedgerHead
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


@dataclass(frozen=True)
class Finding:
    """What is not as it was written."""

    kind: Literal["torn", "late", "cut", "changed", "head", "anchor", "unanchored"]
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


@dataclass
class Content:
    """The valid records of a ledger, where each segment ends, and what was found."""

    records: list[LedgerRecord] = field(default_factory=list[LedgerRecord])
    ends: list[SealedSegment] = field(default_factory=list[SealedSegment])
    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def head(self) -> LedgerHead:
        """The newest record; number 0 and the root hash before the first."""
        if not self.records:
            return LedgerHead(seq=0, hash=ROOT_HASH)
        return LedgerHead(seq=self.records[-1].seq, hash=self.records[-1].hash)

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
    epochs = segment_epochs(directory)
    with port_errors("cannot read the ledger"):
        data = {epoch: segment_path(directory, epoch).read_bytes() for epoch in epochs}
        head = read_head(directory)
    seals = {seal.epoch: seal for one in data.values() for seal in _seals_in(one)}
    content = Content()
    for epoch in epochs:
        is_whole = _read_segment(content, epoch, data[epoch], seals.get(epoch))
        if not is_whole:
            break
    content.findings.extend(_check_head(content, head))
    return content


def _seals_in(data: bytes) -> list[SealedSegment]:
    """Return what a segment's first record seals; the chain vouches for it later."""
    first, newline, _ = data.partition(b"\n")
    if not newline:
        return []
    try:
        return LedgerRecord.model_validate_json(first).seal or []
    except ValidationError:
        return []


def _read_segment(content: Content, epoch: int, data: bytes, seal: SealedSegment | None) -> bool:
    """Add a segment's records; return whether what follows it can be trusted."""
    text = data.partition(NUL)[0]
    if seal is not None:
        behind = text[seal.bytes :]
        text = text[: seal.bytes]
        if behind:
            note = f"{len(behind)} bytes behind the seal of epoch {epoch} are ignored"
            content.findings.append(Finding("late", note))
        if len(text) < seal.bytes:
            note = f"epoch {epoch} ends after {len(text)} of {seal.bytes} sealed bytes"
            content.findings.append(Finding("cut", note))
            return False
    valid_bytes = 0
    for line in _whole_lines(text):
        record = _read_record(content, epoch, line)
        if record is None:
            return False
        content.records.append(record)
        valid_bytes += len(line) + 1
    rest = len(text) - valid_bytes
    if rest:
        note = f"epoch {epoch} ends in a torn record of {rest} bytes: ignored"
        content.findings.append(Finding("torn", note))
    content.ends.append(SealedSegment(epoch=epoch, bytes=valid_bytes, hash=content.head.hash))
    return True


def _whole_lines(text: bytes) -> Iterator[bytes]:
    whole, newline, _ = text.rpartition(b"\n")
    if newline:
        yield from whole.split(b"\n")


def _read_record(content: Content, epoch: int, line: bytes) -> LedgerRecord | None:
    head = content.head
    problem = ""
    try:
        record = LedgerRecord.model_validate_json(line)
    except ValidationError as error:
        problem, record = str(error.errors()[0]["msg"]), None
    else:
        if (record.epoch, record.seq, record.prev) != (epoch, head.seq + 1, head.hash):
            problem = f"it does not follow record {head.seq}"
        elif hash_record(record) != record.hash or encode_record(record) != line + b"\n":
            problem = "its hash does not match its content"
    if problem:
        text = f"record {head.seq + 1} of epoch {epoch} was changed: {problem}"
        content.findings.append(Finding("changed", text))
        return None
    return record


def encode_slot(slot: HeadSlot) -> bytes:
    """Return the bytes of one head slot, its own check included."""
    body = encode_canonical({"epoch": slot.epoch, "hash": slot.hash, "seq": slot.seq})
    return (body + b"\n" + hash_bytes(body).encode() + b"\n").ljust(SLOT_BYTES, NUL)


def read_head(directory: Path) -> HeadSlot | None:
    """Return the newest valid head, None when there is none (yet)."""
    try:
        data = (directory / HEAD_FILE).read_bytes()
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


def _check_head(content: Content, slot: HeadSlot | None) -> Iterator[Finding]:
    """Compare the head file with the last record: ahead is a cut, one behind is a crash."""
    last = content.head
    if any(finding.is_damage for finding in content.findings):
        return
    if slot is None:
        if last.seq > 1:
            yield Finding("head", f"no readable head beside {last.seq} records")
        return
    if slot.seq > last.seq:
        yield Finding("cut", f"records {last.seq + 1} to {slot.seq} are missing")
    elif content.records and content.records[slot.seq - 1].hash != slot.hash:
        yield Finding("changed", f"record {slot.seq} is not the one that the head names")
    elif slot.seq < last.seq - 1:
        yield Finding("head", f"the head names record {slot.seq}, the last is {last.seq}")


def check_anchors(
    records: Sequence[LedgerRecord], anchors: Iterable[tuple[str, LedgerHead]]
) -> list[Finding]:
    """Return which heads, kept elsewhere under a name, contradict the records."""
    findings: list[Finding] = []
    for where, head in anchors:
        if head.seq == 0:
            text = f"{where} names no record: saved before its gang heard of the ledger"
            findings.append(Finding("unanchored", text))
        elif head.seq > len(records):
            text = f"{where} names record {head.seq}; the ledger ends at {len(records)}"
            findings.append(Finding("anchor", text))
        elif records[head.seq - 1].hash != head.hash:
            findings.append(Finding("anchor", f"{where} names another record {head.seq}"))
    return findings
