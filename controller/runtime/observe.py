"""One snapshot from all ports. What could not be read is Unknown, never the last value.

Cheap facts are read each time; slow ports at their own pace, sooner when the gang changed.
Between two readings a slow port's value of the same gang stands, with its age at most the pace.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from controller.core.memory import Memory
from controller.core.readings import Instant, Unknown
from controller.core.rules import alive_ranks, has_passed
from controller.core.snapshot import (
    GangView,
    ProgressView,
    RankReading,
    Snapshot,
    StorageView,
    StoreView,
)
from controller.ports import (
    Checkpoints,
    Clock,
    EpochLost,
    Fleet,
    Intents,
    Ledger,
    PortError,
    Progress,
    Publisher,
    StatusSink,
    Telemetry,
)

Value = TypeVar("Value")


@dataclass(frozen=True)
class Ports:
    """Everything that a controller reaches the world through."""

    clock: Clock
    fleet: Fleet
    telemetry: Telemetry
    progress: Progress
    checkpoints: Checkpoints
    publisher: Publisher
    intents: Intents
    ledger: Ledger
    status: StatusSink


@dataclass(frozen=True)
class Cadence:
    """How old a reading of a slow port may be."""

    telemetry_ms: int = 2_000
    store_ms: int = 5_000
    probe_ms: int = 60_000
    probe_idle_ms: int = 5_000
    """While no gang is up, and a launch waits for a good probe."""


@dataclass
class _Held(Generic[Value]):
    """The last reading of one slow port."""

    value: Value | None = None
    read_at: Instant | None = None

    def refresh(self, now: Instant, max_age_ms: int, read: Callable[[], Value]) -> Value:
        """Return the reading, a new one when it is older than `max_age_ms`."""
        if self.value is None or self.read_at is None or has_passed(self.read_at, max_age_ms, now):
            self.value = read()
            self.read_at = now
        return self.value


def read_or_unknown(read: Callable[[], Value]) -> Value | Unknown:
    """Return the reading, or why there is none; a lost epoch ends the controller instead."""
    try:
        return read()
    except EpochLost:
        raise
    except PortError as error:
        return Unknown(unknown=str(error) or type(error).__name__)


def may_answer(gang: GangView) -> bool:
    """Return whether a rank lives, or may have started since the gang was looked at."""
    return any(view.alive or not view.claimed for view in gang.ranks)


@dataclass
class Observer:
    """Reads the ports."""

    ports: Ports
    epoch: int
    cadence: Cadence = field(default_factory=Cadence)
    _gang: GangView | Unknown | None = None
    _telemetry: _Held[list[RankReading]] = field(default_factory=_Held[list[RankReading]])
    _store: _Held[StoreView | Unknown] = field(default_factory=_Held[StoreView | Unknown])
    _storage: _Held[StorageView | Unknown] = field(default_factory=_Held[StorageView | Unknown])

    def forget(self) -> None:
        """Read every port anew next time."""
        self._telemetry, self._store, self._storage = _Held(), _Held(), _Held()

    def observe(self, memory: Memory) -> Snapshot:
        """Return what is seen now."""
        ports = self.ports
        now = ports.clock.now()
        gang = read_or_unknown(ports.fleet.observe)
        if gang != self._gang:
            self.forget()
        self._gang = gang
        return Snapshot(
            now=now,
            epoch=self.epoch,
            gang=gang,
            telemetry=self._read_telemetry(gang, now),
            progress=self._read_progress(gang, memory, now),
            store=self._store.refresh(
                now, self.cadence.store_ms, lambda: read_or_unknown(ports.checkpoints.observe)
            ),
            storage=self._read_storage(gang, now),
            intents=read_or_unknown(lambda: ports.intents.read(memory.known_nonces)),
            control=read_or_unknown(ports.publisher.read_control),
        )

    def _read_telemetry(self, gang: GangView | Unknown | None, now: Instant) -> list[RankReading]:
        # Ranks without a claim are asked, too: an answer says more than a view that may be old.
        if gang is None or isinstance(gang, Unknown) or not may_answer(gang):
            return []

        def read() -> list[RankReading]:
            value = read_or_unknown(lambda: self.ports.telemetry.read(gang))
            if isinstance(value, Unknown):
                return [RankReading(rank=view.rank, value=value) for view in gang.ranks]
            return value

        return self._telemetry.refresh(now, self.cadence.telemetry_ms, read)

    def _read_progress(
        self, gang: GangView | Unknown | None, memory: Memory, now: Instant
    ) -> ProgressView | Unknown | None:
        if gang is None or isinstance(gang, Unknown):
            return gang
        line = memory.plan.line.name
        # Each evaluation has a window of its own.
        since = memory.evaluated_step
        return read_or_unknown(lambda: self.ports.progress.read(gang, line, now, since))

    def _read_storage(self, gang: GangView | Unknown | None, now: Instant) -> StorageView | Unknown:
        is_up = isinstance(gang, GangView) and bool(alive_ranks(gang.ranks))
        pace_ms = self.cadence.probe_ms if is_up else self.cadence.probe_idle_ms
        probe = self.ports.checkpoints.probe
        return self._storage.refresh(now, pace_ms, lambda: read_or_unknown(probe))
