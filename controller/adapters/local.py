"""Gangs of processes on this machine, one shim per rank; no process is the controller's own."""

import logging
import os
import socket
import sys
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

import contract
from contract import wire
from contract.plan import Frozen
from controller.adapters import shim
from controller.adapters.environment import clean
from controller.adapters.files import numbered, read_or_none, write_atomically, write_once
from controller.adapters.ledger import Fence
from controller.adapters.system import Processes, is_locked, port_errors, total_memory_bytes
from controller.core.actions import LaunchGang
from controller.core.snapshot import GangView, RankEnd, RankRef, RankView
from controller.ports import Refused, Unavailable

HOST = "127.0.0.1"
COORDINATOR_FILE = "coordinator"
SHIM = Path(shim.__file__)
SOURCES = Path(contract.__file__).parent.parent
"""Where `contract` lies: a rank finds it wherever it is started."""

FIRST_PORT = 20_000
PORTS = 12_000
"""Below the kernel's ephemeral range (32768 on), so that no client takes a chosen port."""
PORT_TRIES = 200

FREED_S = 2.0
"""After its rank was killed a shim needs milliseconds to record the end and leave."""
GONE_S = 10.0
"""After its last holder was killed the kernel needs a moment to free the lock."""
POLL_S = 0.01

log = logging.getLogger(__name__)

Document = TypeVar("Document", bound=Frozen)


@dataclass(frozen=True)
class GangOrder:
    """What is the same for every attempt of a run."""

    run_uid: str
    ranks: int
    command: tuple[str, ...]
    """The rank's program and arguments; relative paths are the run directory's."""
    config: bytes
    """The attempt's config file (contract.config)."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the controller's own."""


class LocalFleet:
    """Starts, watches and ends gangs of this machine."""

    def __init__(self, run_dir: Path, order: GangOrder, *, fence: Fence) -> None:
        self._run_dir = run_dir.resolve()
        self._order = order
        self._fence = fence
        self._processes = Processes()
        self._shims: set[int] = set()
        self._claims: dict[tuple[int, int], wire.Claim] = {}
        self._ended: dict[tuple[int, int], RankView] = {}
        self._gone: set[int] = set()
        self._memory_bytes = total_memory_bytes()

    def observe(self) -> GangView | None:
        """Return the newest attempt, None when there never was one."""
        self._reap()
        with port_errors("cannot look at the attempts"):
            attempts = numbered(self._run_dir / wire.ATTEMPTS_DIR)
            if not attempts:
                return None
            newest = attempts[-1]
            return GangView(
                attempt=newest,
                closed=self._is_closed(newest),
                ranks=[self._view(newest, rank) for rank in range(self._order.ranks)],
                remains=[ref for old in attempts[:-1] for ref in self._remains_of(old)],
                memory_bytes=self._memory_bytes,
                ranks_per_machine=self._order.ranks,
            )

    def launch(self, order: LaunchGang, *, epoch: int) -> None:
        """Start the ranks that were never started; those that were stay as they are.

        Raises:
            EpochLost: another controller took over.
            Refused: a higher attempt exists.
            Unavailable: files cannot be written or a process cannot be started.
        """
        self._fence.check()
        with port_errors(f"cannot launch attempt {order.attempt}"):
            attempts = numbered(self._run_dir / wire.ATTEMPTS_DIR)
            if attempts and attempts[-1] > order.attempt:
                raise Refused(f"attempt {order.attempt} is older than attempt {attempts[-1]}")
            directory = self._attempt(order.attempt)
            directory.mkdir(parents=True, exist_ok=True)
            if self._is_closed(order.attempt):
                return
            if not (directory / wire.CONFIG_FILE).exists():
                write_atomically(directory / wire.CONFIG_FILE, self._order.config)
            environment = self._environment(order, epoch=epoch)
            for rank in range(self._order.ranks):
                self._start(order.attempt, rank, epoch=epoch, environment=environment)

    def close(self, attempt: int) -> None:
        """Write the fence: no further rank of `attempt` can start."""
        self._fence.check()
        directory = self._attempt(attempt)
        with port_errors(f"cannot close attempt {attempt}"):
            directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(directory / wire.CLOSED_FILE, os.O_WRONLY | os.O_CREAT, 0o644)
            os.fsync(descriptor)
            os.close(descriptor)

    def kill(self, attempt: int, ranks: Sequence[int]) -> None:
        """SIGKILL those of the ranks that still live and wait until their locks are free.

        A rank is known by its claim; whoever else still holds its lock after that (a stopped
        shim, a child that the rank left) is known by the lock itself.

        Raises:
            Unavailable: a lock is still held after all.
        """
        self._fence.check()
        with port_errors(f"cannot kill ranks of attempt {attempt}"):
            for rank in ranks:
                claim = self._claim(attempt, rank)
                if claim is not None:
                    self._processes.kill(claim.process)
            stubborn = self._await_free(attempt, ranks, FREED_S)
            for rank in stubborn:
                self._kill_holders(attempt, rank)
            if stubborn := self._await_free(attempt, stubborn, GONE_S):
                raise Unavailable(f"attempt {attempt}: ranks {stubborn} still live after SIGKILL")

    # Looking.

    def _view(self, attempt: int, rank: int) -> RankView:
        """Return one rank as it is now; the view of an ended one of the past is kept."""
        key = (attempt, rank)
        if key in self._ended:
            return self._ended[key]
        directory = self._rank(attempt, rank)
        # In this order: the lock is held before the claim is written and after the end is. So a
        # rank that begins or ends in between is never taken for an unknown end.
        is_claimed = (directory / wire.CLAIM_FILE).exists()
        is_alive = is_locked(directory / wire.RANK_LOCK_FILE)
        claim = self._claim(attempt, rank)
        state = None if claim is None else self._processes.state_of(claim.process)
        stacks = directory / wire.STACKS_FILE
        view = RankView(
            rank=rank,
            claimed=is_claimed,
            alive=is_alive,
            stopped=state in ("T", "t"),
            has_stacks=stacks.exists() and stacks.stat().st_size > 0,
            end=self._end(directory),
        )
        if view.claimed and not view.alive and view.end is not None:
            self._ended[key] = view
        return view

    def _end(self, directory: Path) -> RankEnd | None:
        record = _parse(wire.ExitRecord, directory / wire.EXIT_FILE)
        if record is None:
            return None
        detail = _parse(wire.EndDetail, directory / wire.DETAIL_FILE)
        return RankEnd(
            code=record.code,
            wall_ms=round(record.wall_s * 1000),
            step=None if detail is None else detail.step,
            detail=record.detail if detail is None else detail.text,
        )

    def _claim(self, attempt: int, rank: int) -> wire.Claim | None:
        key = (attempt, rank)
        if key not in self._claims:
            claim = _parse(wire.Claim, self._rank(attempt, rank) / wire.CLAIM_FILE)
            if claim is None:
                return None
            self._claims[key] = claim
        return self._claims[key]

    def _remains_of(self, attempt: int) -> list[RankRef]:
        if attempt in self._gone:
            return []
        alive = [
            RankRef(attempt=attempt, rank=rank)
            for rank in range(self._order.ranks)
            if is_locked(self._lock(attempt, rank))
        ]
        # Silent and unable to start again, so it stays; looking would cost more each attempt.
        if not alive and (self._is_closed(attempt) or self._is_used_up(attempt)):
            self._gone.add(attempt)
        return alive

    def _is_used_up(self, attempt: int) -> bool:
        """Return whether every rank was started once: a claim is never given twice."""
        return all(
            (self._rank(attempt, rank) / wire.CLAIM_FILE).exists()
            for rank in range(self._order.ranks)
        )

    def _is_closed(self, attempt: int) -> bool:
        return (self._attempt(attempt) / wire.CLOSED_FILE).exists()

    def _attempt(self, attempt: int) -> Path:
        return self._run_dir / wire.attempt_dir(attempt)

    def _rank(self, attempt: int, rank: int) -> Path:
        return self._run_dir / wire.rank_dir(attempt, rank)

    def _lock(self, attempt: int, rank: int) -> Path:
        return self._rank(attempt, rank) / wire.RANK_LOCK_FILE

    # Starting.

    def _environment(self, order: LaunchGang, *, epoch: int) -> dict[str, str]:
        inherited = clean(os.environ) | dict(self._order.environment)
        paths = [str(SOURCES), *filter(None, [inherited.get("PYTHONPATH")])]
        return inherited | {
            "PYTHONPATH": os.pathsep.join(paths),
            wire.ENV_RUN_DIR: str(self._run_dir),
            wire.ENV_RUN_UID: self._order.run_uid,
            wire.ENV_EPOCH: str(epoch),
            wire.ENV_ATTEMPT: str(order.attempt),
            wire.ENV_RANKS: str(self._order.ranks),
            wire.ENV_COORDINATOR: self._coordinator(order.attempt),
            wire.ENV_PLAN_SHA: order.plan_sha,
            wire.ENV_RESTORE: order.restore.value,
            wire.ENV_HIGHEST_STEP: str(order.highest_step),
        }

    def _coordinator(self, attempt: int) -> str:
        """Return the attempt's host:port, the same however often the launch is repeated."""
        path = self._attempt(attempt) / COORDINATOR_FILE
        if (written := read_or_none(path)) is None:
            seed = zlib.crc32(f"{self._run_dir}/{attempt}".encode())
            write_once(path, f"{HOST}:{_free_port(seed)}".encode())
            written = path.read_bytes()
        return written.decode()

    def _start(
        self, attempt: int, rank: int, *, epoch: int, environment: Mapping[str, str]
    ) -> None:
        directory = self._rank(attempt, rank)
        directory.mkdir(exist_ok=True)
        is_started = (directory / wire.CLAIM_FILE).exists()
        if is_started or is_locked(directory / wire.RANK_LOCK_FILE):
            return
        where = [str(self._run_dir), str(attempt), str(rank), str(epoch)]
        arguments = [sys.executable, "-I", "-S", str(SHIM), *where, *self._order.command]
        null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
        log_file = os.open(directory / "shim.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            shim_pid = os.posix_spawn(
                sys.executable,
                arguments,
                {**environment, wire.ENV_RANK: str(rank)},
                file_actions=[
                    null,
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                    (os.POSIX_SPAWN_DUP2, log_file, 2),
                ],
                setsid=True,
            )
        finally:
            os.close(log_file)
        self._shims.add(shim_pid)

    def _reap(self) -> None:
        """Collect our own children that ended; the shims of others are not ours to wait for."""
        for pid in list(self._shims):
            try:
                ended = os.waitpid(pid, os.WNOHANG)[0]
            except ChildProcessError:
                ended = pid
            if ended:
                self._shims.discard(pid)

    # Ending.

    def _await_free(self, attempt: int, ranks: Sequence[int], timeout_s: float) -> list[int]:
        """Return which ranks' locks are still held after at most `timeout_s` for all of them."""
        pause = threading.Event()
        deadline = time.monotonic() + timeout_s
        held = list(ranks)
        while held := [rank for rank in held if is_locked(self._lock(attempt, rank))]:
            if time.monotonic() > deadline:
                break
            pause.wait(POLL_S)
        self._reap()
        return held

    def _kill_holders(self, attempt: int, rank: int) -> None:
        for holder in self._processes.holders_of(self._lock(attempt, rank)):
            log.warning("attempt %d rank %d: pid %d holds its lock", attempt, rank, holder.pid)
            self._processes.kill(holder)


def _parse(kind: type[Document], path: Path) -> Document | None:
    """Return the document in the file, None while it is missing, blank or half written."""
    data = read_or_none(path)
    if data is None:
        return None
    try:
        return kind.model_validate_json(data.strip())
    except ValidationError:
        return None


def _free_port(seed: int) -> int:
    """Return a port that nobody listens on, beginning at a place of the attempt's own."""
    why = ""
    for offset in range(PORT_TRIES):
        port = FIRST_PORT + (seed + offset) % PORTS
        try:
            with socket.socket() as probe:
                probe.bind((HOST, port))
                return port
        except OSError as error:
            why = error.strerror or str(error)
    last = FIRST_PORT + PORTS - 1
    text = f"no free port of {HOST} in {PORT_TRIES} tries between {FIRST_PORT} and {last}: {why}"
    raise Unavailable(f"{text}. Next: ss --listening --tcp")
