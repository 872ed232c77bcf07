"""The same scenes in two worlds: real processes and files, or the simulator's."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest

from contract import wire
from contract.canonical import hash_bytes
from contract.checkpoint import VerifiedMark, encode_sealed
from contract.wire import RANK_PHASES, Restore
from controller.adapters.checkpoints import CheckpointFiles
from controller.adapters.ledger import SegmentedLedger, create_ledger, next_epoch
from controller.adapters.local import GangOrder, LocalFleet
from controller.adapters.publisher import FilePublisher
from controller.adapters.system import Processes
from controller.core.actions import LaunchGang
from controller.core.policy import Budget, Policy
from controller.core.snapshot import GangView
from controller.ports import Checkpoints, Fleet, Publisher
from controller.simulate.shelf import SimCheckpoint
from controller.simulate.world import World
from tests.contract.builders import a_plan
from tests.suites.manifests import a_manifest
from tests.waiting import wait_for

RUN_UID = "u"
RANKS = 2
PLAN = a_plan()
PATIENCE_S = 20

RANK = Path(__file__).with_name("puppet_rank.py")


def an_order(attempt: int) -> LaunchGang:
    """Return the order of an attempt."""
    return LaunchGang(
        reason="test",
        nonce=str(attempt),
        attempt=attempt,
        plan_sha=PLAN.sha,
        restore=Restore.NONE,
        highest_step=0,
    )


class FleetStage(Protocol):
    """A fleet, and what happens to its ranks from outside."""

    fleet: Fleet

    def await_gang(self, predicate: Callable[[GangView], Any]) -> GangView:
        """Return the view once it fulfils `predicate`."""
        ...

    def take_over(self) -> Fleet:
        """Return the fleet of the next controller."""
        ...

    def kill_rank(self, rank: int) -> None: ...

    def freeze_rank(self, rank: int) -> None: ...

    def let_rank_leave(self, rank: int, code: int, step: int, text: str) -> None: ...

    def kill_shim(self, rank: int) -> None: ...

    def close(self) -> None: ...


class RealFleetStage:
    """Processes of this machine."""

    def __init__(self, path: Path) -> None:
        self.run_dir = path
        create_ledger(path / wire.LEDGER_DIR)
        self.processes = Processes()
        self.fleet = self.take_over()

    def take_over(self) -> LocalFleet:
        folder = self.run_dir / wire.LEDGER_DIR
        ledger = SegmentedLedger(folder, epoch=next_epoch(folder), core_version="", spec_sha="")
        order = GangOrder(RUN_UID, RANKS, (sys.executable, str(RANK)), b"{}")
        self.epoch = ledger.epoch
        fence = ledger.fence
        ledger.close()
        return LocalFleet(self.run_dir, order, fence=fence)

    def await_gang(self, predicate: Callable[[GangView], Any]) -> GangView:
        def look() -> GangView | None:
            gang = self.fleet.observe()
            return gang if gang is not None and predicate(gang) else None

        return wait_for(look, PATIENCE_S, "the gang")

    def claim(self, rank: int) -> wire.Claim:
        attempt = self.await_gang(lambda gang: gang.ranks[rank].claimed).attempt
        path = self.run_dir / wire.rank_dir(attempt, rank) / wire.CLAIM_FILE
        wait_for(path.read_bytes, PATIENCE_S, "the claim")
        return wire.Claim.model_validate_json(path.read_bytes())

    def rank_dir(self, rank: int) -> Path:
        gang = self.fleet.observe()
        assert gang is not None
        return self.run_dir / wire.rank_dir(gang.attempt, rank)

    def kill_rank(self, rank: int) -> None:
        self.processes.kill(self.claim(rank).process)

    def freeze_rank(self, rank: int) -> None:
        self.signal_by_file(rank, "freeze", "")

    def let_rank_leave(self, rank: int, code: int, step: int, text: str) -> None:
        detail = wire.EndDetail(step=step, text=text).model_dump_json()
        self.signal_by_file(rank, wire.DETAIL_FILE, detail)
        self.signal_by_file(rank, "leave", str(code))

    def signal_by_file(self, rank: int, name: str, text: str) -> None:
        path = self.rank_dir(rank) / name
        draft = path.with_name(f".{name}")
        draft.write_text(text)
        draft.replace(path)

    def kill_shim(self, rank: int) -> None:
        claim = self.claim(rank)
        wait_for(
            (self.rank_dir(rank) / wire.STDOUT_FILE).exists, PATIENCE_S, "the rank to pass its gate"
        )
        self.processes.kill(claim.shim)
        wait_for(lambda: not self.processes.is_alive(claim.shim), PATIENCE_S, "the shim to die")

    def close(self) -> None:
        for path in self.run_dir.glob("attempts/*/rank-*"):
            for holder in self.processes.holders_of(path / wire.RANK_LOCK_FILE):
                self.processes.kill(holder)
                self.processes.wait_gone(holder, PATIENCE_S)


class FakeFleetStage:
    """The simulator's processes, in virtual time."""

    def __init__(self, path: Path) -> None:
        del path
        policy = Policy(
            run_uid=RUN_UID,
            run_name="suite",
            ranks=RANKS,
            deadlines_ms=dict.fromkeys(RANK_PHASES, 60_000),
            margin_ms=1_000,
            cascade_ms=1_000,
            start_ms=10_000,
            heartbeat_ms=60_000,
            budget=Budget(),
        )
        self.world = World(policy, Random(1))  # a simulated one
        self.world.plans[PLAN.sha] = PLAN
        self.fleet = self.take_over()

    def take_over(self) -> Fleet:
        ports = self.world.ports()
        self.clock = ports.clock
        self.epoch = self.world.book.epoch
        return ports.fleet

    def await_gang(self, predicate: Callable[[GangView], Any]) -> GangView:
        for _ in range(1_000):
            gang = self.fleet.observe()
            if gang is not None and predicate(gang):
                return gang
            self.clock.wait(100)
        raise AssertionError("waited in vain for the gang")

    def rank(self, number: int) -> Any:
        gang = self.world.gang
        assert gang is not None
        self.await_gang(lambda view: view.ranks[number].claimed)
        return gang.ranks[number]

    def kill_rank(self, rank: int) -> None:
        self.world.gangs[-1].kill(self.rank(rank))

    def freeze_rank(self, rank: int) -> None:
        self.world.gangs[-1].freeze(self.rank(rank))

    def let_rank_leave(self, rank: int, code: int, step: int, text: str) -> None:
        self.world.gangs[-1].base = step
        self.world.gangs[-1].end(self.rank(rank), code, text)

    def kill_shim(self, rank: int) -> None:
        self.rank(rank).has_shim = False

    def close(self) -> None:
        pass


class StoreStage(Protocol):
    """A checkpoint store, and what trainers and faults do to it."""

    store: Checkpoints

    def add(self, step: int, line: str = "main") -> None: ...

    def verify(self, step: int) -> None: ...

    def damage_manifest(self, step: int) -> None: ...

    def fill_disk(self) -> None: ...

    def take_over(self) -> Checkpoints: ...


class RealStoreStage:
    """Files."""

    def __init__(self, path: Path) -> None:
        self.run_dir = path
        create_ledger(path / wire.LEDGER_DIR)
        self.store = self.take_over()

    def take_over(self) -> CheckpointFiles:
        folder = self.run_dir / wire.LEDGER_DIR
        ledger = SegmentedLedger(folder, epoch=next_epoch(folder), core_version="", spec_sha="")
        fence = ledger.fence
        ledger.close()
        return CheckpointFiles(self.run_dir, run_uid=RUN_UID, fence=fence)

    def add(self, step: int, line: str = "main") -> None:
        place = self.run_dir / wire.checkpoint_dir(line, step)
        place.mkdir(parents=True)
        manifest = a_manifest(place, step=step, line=line)
        (place / wire.MANIFEST_FILE).write_bytes(encode_sealed(manifest))

    def manifest(self, step: int) -> Path:
        return self.run_dir / wire.checkpoint_dir("main", step) / wire.MANIFEST_FILE

    def verify(self, step: int) -> None:
        sha = hash_bytes(self.manifest(step).read_bytes())
        mark = VerifiedMark(step=step, manifest_sha256=sha, attempt=1)
        path = self.run_dir / wire.line_dir("main") / f"{step}{wire.VERIFIED_SUFFIX}"
        path.write_bytes(encode_sealed(mark))

    def damage_manifest(self, step: int) -> None:
        data = bytearray(self.manifest(step).read_bytes())
        data[len(data) // 2] ^= 1
        self.manifest(step).write_bytes(data)

    def fill_disk(self) -> None:
        # A directory that takes no file looks the same to the port; tests/faults has a full disk.
        root = self.run_dir / wire.CHECKPOINTS_DIR
        root.rename(root.with_name("moved")) if root.exists() else None
        root.touch()


class FakeStoreStage:
    """The simulator's shelf."""

    def __init__(self, path: Path) -> None:
        self._fleet = FakeFleetStage(path)
        self.world = self._fleet.world
        self.store = self.take_over()

    def take_over(self) -> Checkpoints:
        return self.world.ports().checkpoints

    def add(self, step: int, line: str = "main") -> None:
        self.world.shelf.add(SimCheckpoint(line, step, PLAN.sha, attempt=1))

    def verify(self, step: int) -> None:
        found = self.world.shelf.find("main", step)
        assert found is not None
        self.world.shelf.verify(found)

    def damage_manifest(self, step: int) -> None:
        found = self.world.shelf.find("main", step)
        assert found is not None
        found.damage = "manifest"

    def fill_disk(self) -> None:
        self.world.disk_full = True


class PublisherStage(Protocol):
    """A publisher, and what others do to its documents."""

    publisher: Publisher

    def take_over(self) -> Publisher: ...

    def garble(self) -> None: ...

    def full_disk(self) -> AbstractContextManager[None]: ...


class RealPublisherStage:
    """Files."""

    def __init__(self, path: Path) -> None:
        self.run_dir = path
        create_ledger(path / wire.LEDGER_DIR)
        self.publisher = self.take_over()

    def take_over(self) -> FilePublisher:
        folder = self.run_dir / wire.LEDGER_DIR
        ledger = SegmentedLedger(folder, epoch=next_epoch(folder), core_version="", spec_sha="")
        fence = ledger.fence
        ledger.close()
        return FilePublisher(self.run_dir, fence=fence)

    def garble(self) -> None:
        (self.run_dir / wire.CONTROL_FILE).write_bytes(b"garbage")

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        def refuse(_: int) -> None:
            raise OSError(28, "No space left on device")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("controller.adapters.files.os.fsync", refuse)
            yield


class FakePublisherStage:
    """The simulator's documents."""

    def __init__(self, path: Path) -> None:
        self.world = FakeFleetStage(path).world
        self.publisher = self.take_over()

    def take_over(self) -> Publisher:
        return self.world.ports().publisher

    def garble(self) -> None:
        self.world.is_garbage = True

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        self.world.disk_full = True
        yield
        self.world.disk_full = False
