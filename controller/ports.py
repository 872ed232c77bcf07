"""What the controller needs from the world, and how that may fail.

    PortError                  something outside did not work; the text says what and where
    +-- Unavailable            could not be read or done now; may work later
    +-- Refused                will not be done: fenced, foreign, stale
    |   +-- EpochLost          another controller took over; this one must end
    +-- Damaged                what was read contradicts itself

A port's read returns a value or raises; `runtime.observe` turns the error into Unknown.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from contract.plan import Frozen, Plan
from contract.wire import ControlDocument, LedgerHead
from controller.core.actions import LaunchGang
from controller.core.readings import Instant
from controller.core.snapshot import (
    ControlView,
    GangView,
    OwnerIntent,
    ProgressView,
    RankReading,
    StorageView,
    StoreView,
)


class PortError(Exception):
    """Something outside did not work."""


class Unavailable(PortError):
    """Could not be read or done now."""


class Refused(PortError):
    """Will not be done."""


class EpochLost(Refused):
    """Another controller took over."""


class Damaged(PortError):
    """What was read contradicts itself."""


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> Instant:
        """Return the current instant."""
        ...

    def wait(self, timeout_ms: int) -> None:
        """Return after `timeout_ms`, or earlier when woken."""
        ...


class Fleet(Protocol):
    """Starts, watches and ends gangs."""

    def observe(self) -> GangView | None:
        """Return the newest attempt, None when there never was one."""
        ...

    def launch(self, order: LaunchGang, *, epoch: int) -> None:
        """Start the attempt's ranks; an attempt that exists already is a success."""
        ...

    def close(self, attempt: int) -> None:
        """Write the fence: no further rank of `attempt` can start."""
        ...

    def kill(self, attempt: int, ranks: Sequence[int]) -> None:
        """SIGKILL those of the ranks that still live; gone ones are a success."""
        ...


class Telemetry(Protocol):
    """What the ranks say about themselves."""

    def read(self, gang: GangView) -> list[RankReading]:
        """Return one reading per rank of the attempt; a silent rank is Unknown with the reason."""
        ...


class Progress(Protocol):
    """The step logs."""

    def read(
        self, gang: GangView, line: str, now: Instant, since_step: int = 0
    ) -> ProgressView | None:
        """Return the progress of the newest attempt, None when no step was ever logged.

        Its pace is that of the clean steps from `since_step` on.
        """
        ...


class Checkpoints(Protocol):
    """The checkpoint store."""

    def observe(self) -> StoreView:
        """Return every checkpoint."""
        ...

    def probe(self) -> StorageView:
        """Write, rename and delete a small file in the checkpoint directory."""
        ...

    def quarantine(self, line: str, step: int, reason: str, attempt: int) -> None:
        """Mark a checkpoint as not to be used; marked already is a success."""
        ...


class Publisher(Protocol):
    """Plans and the control document."""

    def read_control(self) -> ControlView | None:
        """Return the control document, None when there never was one; Damaged for garbage."""
        ...

    def publish_control(self, document: ControlDocument) -> None:
        """Replace the control document atomically."""
        ...

    def publish_plan(self, plan: Plan) -> None:
        """Write the plan's file; the same bytes there already is a success."""
        ...


class Intents(Protocol):
    """What the owner asked for."""

    def read(self, known: Sequence[str]) -> list[OwnerIntent]:
        """Return the intents whose nonce is not in `known`, oldest first."""
        ...


class SealedSegment(Frozen):
    """What a new epoch found of an earlier one; whatever is appended later falls outside."""

    epoch: int
    bytes: int
    hash: str
    """Of its last record."""


class LedgerRecord(Frozen):
    """One record of the ledger. `hash` = sha256(prev + canonical rest)."""

    v: int
    seq: int
    epoch: int
    kind: str
    """run | policy | epoch | decision | outcome"""
    at: Instant
    core_version: str
    spec_sha: str
    body: Mapping[str, object]
    prev: str
    hash: str
    seal: list[SealedSegment] | None = None
    """Only in the first record of an epoch; left out of file and hash where it is None."""


class Ledger(Protocol):
    """The append-only, hash-chained record of everything decided and done."""

    def append(self, kind: str, body: Mapping[str, object], at: Instant) -> LedgerRecord:
        """Append one record durably; raises EpochLost when a higher epoch owns the ledger."""
        ...

    def records(self) -> Sequence[LedgerRecord]:
        """Return all valid records, oldest first."""
        ...

    def head(self) -> LedgerHead:
        """Return the newest record's number and hash."""
        ...


class StatusSink(Protocol):
    """Where the one status write of a pass goes."""

    def write(self, status: Mapping[str, object]) -> None:
        """Replace the status."""
        ...
