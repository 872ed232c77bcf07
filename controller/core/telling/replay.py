"""Every decision of a ledger made again, and compared bit for bit."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from contract.canonical import encode_canonical
from controller.core.decide import GANG, PLAN, decide
from controller.core.fold import Record, fold
from controller.core.memory import Memory
from controller.core.recording import body_of, read_snapshot
from controller.core.rules import Rule
from controller.core.snapshot import Snapshot


class VersionedRecord(Record, Protocol):
    """A record that says which core decided."""

    @property
    def core_version(self) -> str:
        """Identity of the core's sources."""
        ...


@dataclass(frozen=True)
class Replayed:
    """One decision made again: `recorded` and `repeated` are canonical JSON."""

    seq: int
    snapshot: Snapshot
    is_same_core: bool
    recorded: bytes
    repeated: bytes

    @property
    def is_equal(self) -> bool:
        """Whether not a bit differs."""
        return self.recorded == self.repeated


def replay(records: Iterable[VersionedRecord], core_version: str) -> list[Replayed]:
    """Return every recorded decision beside the one that this core makes of the same inputs.

    Decisions of another core version may differ; `is_same_core` tells them apart.
    """
    memory: Memory | None = None
    found: list[Replayed] = []
    for record in records:
        if record.kind == "decision":
            assert memory is not None, "a decision before the run"
            found.append(replay_one(record, memory, core_version))
        memory = fold(memory, record)
    return found


def replay_one(
    record: VersionedRecord,
    memory: Memory,
    core_version: str,
    rules: tuple[Rule, ...] = GANG,
    plan_rules: tuple[Rule, ...] = PLAN,
) -> Replayed:
    """Return one recorded decision beside its repetition; `memory` is that of all older records."""
    body = dict(record.body)
    snapshot = read_snapshot(body)
    decision = decide(snapshot, memory, rules, plan_rules)
    return Replayed(
        seq=record.seq,
        snapshot=snapshot,
        is_same_core=record.core_version == core_version,
        recorded=encode_canonical(body),
        repeated=encode_canonical(body_of(decision, snapshot)),
    )
