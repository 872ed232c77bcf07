"""Carries out drills on a run's processes and files, from outside its controller."""

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from contract import wire
from controller.adapters.checkpoints import list_checkpoints
from controller.adapters.files import numbered, read_identity, read_or_none
from controller.adapters.ledger import read_ledger
from controller.adapters.records import StepTail
from controller.adapters.rundir import DRILLS_FILE
from controller.adapters.system import Processes, is_locked
from controller.core.ancestry import list_usable
from controller.core.declared.drills import Drill
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.ports import Refused, Unavailable

POLL_S = 0.05
BIT = 1


def newest_attempt(run_dir: Path) -> int:
    """Return the newest attempt's number.

    Raises:
        Refused: none was launched yet.
    """
    attempts = numbered(run_dir / wire.ATTEMPTS_DIR)
    if not attempts:
        raise Refused("no attempt was launched yet")
    return attempts[-1]


def wait_for_step(run_dir: Path, step: int, is_over: Callable[[], bool]) -> bool:
    """Return whether the run completed `step` steps before it was over."""
    tail = StepTail(run_dir, keep=1)
    while True:
        attempts = numbered(run_dir / wire.ATTEMPTS_DIR)
        newest = tail.read(attempts[-1]) if attempts else ()
        if newest and newest[-1].step + 1 >= step:
            return True
        if is_over():
            return False
        time.sleep(POLL_S)


def drill(run_dir: Path, order: Drill) -> str:
    """Do it now, record it, and return what was done in words.

    Raises:
        Refused: there is nothing to hit.
        Unavailable: a file or a process cannot be reached.
    """
    assert order.kind != "pace", "a pacer does that (pacing.py)"
    if order.kind == "corrupt":
        facts: dict[str, object] = {"done": corrupt_newest(run_dir)}
    else:
        facts = _hit_ranks(run_dir, order)
    asked = order.model_dump(mode="json", by_alias=True, exclude_none=True)
    line = {**asked, "wallS": time.time(), **facts}
    with (run_dir / DRILLS_FILE).open("a") as file:
        file.write(json.dumps(line) + "\n")
    return str(facts["done"])


def _hit_ranks(run_dir: Path, order: Drill) -> dict[str, object]:
    attempt = newest_attempt(run_dir)
    processes = Processes()
    number = signal.SIGKILL if order.kind == "kill" else signal.SIGSTOP
    hit: list[int] = []
    for rank in _ranks_of(run_dir, attempt, order):
        identity = _identity_of(run_dir, attempt, rank)
        if identity is not None and processes.is_alive(identity):
            _send(identity.pid, number)
            hit.append(rank)
    if not hit:
        raise Refused(f"attempt {attempt} has no such rank alive: {order.rank}")
    ranks = ", ".join(map(str, hit))
    done = f"attempt {attempt}: {number.name} to rank {ranks}"
    # For a pacer, which must not continue whom this froze.
    return {"attempt": attempt, "ranks": hit, "done": done}


def _ranks_of(run_dir: Path, attempt: int, order: Drill) -> Sequence[int]:
    if order.rank != "all":
        assert order.rank is not None, "checked when the drill was parsed"
        return [order.rank]
    found = (run_dir / wire.attempt_dir(attempt)).glob("rank-*")
    return sorted(int(path.name.removeprefix("rank-")) for path in found)


def _identity_of(run_dir: Path, attempt: int, rank: int) -> wire.ProcessIdentity | None:
    directory = run_dir / wire.rank_dir(attempt, rank)
    data = read_or_none(directory / wire.CLAIM_FILE)
    if data is None or not is_locked(directory / wire.RANK_LOCK_FILE):
        return None
    try:
        return wire.Claim.model_validate_json(data).process
    except ValidationError:
        return None


def _send(pid: int, number: signal.Signals) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise Refused(f"process {pid} is gone") from error
    try:
        signal.pidfd_send_signal(descriptor, number)
    except OSError as error:
        raise Unavailable(f"cannot signal process {pid}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def corrupt_newest(run_dir: Path) -> str:
    """Flip one bit in the middle of the largest file of the checkpoint that would be restored.

    Raises:
        Refused: there is no checkpoint that the run's plan may start from.
        PortError: the ledger or the checkpoints cannot be read.
    """
    place = run_dir / _find_newest(run_dir)
    files = [path for path in place.rglob("*") if path.is_file()]
    target = max(files, key=lambda path: path.stat().st_size)
    where = target.stat().st_size // 2
    with target.open("r+b") as file:
        file.seek(where)
        byte = file.read(1)[0]
        file.seek(where)
        file.write(bytes([byte ^ BIT]))
        file.flush()
        os.fsync(file.fileno())
    return f"one bit flipped in {target.relative_to(run_dir)} at byte {where}"


def _find_newest(run_dir: Path) -> str:
    memory: Memory | None = None
    for record in read_ledger(run_dir / wire.LEDGER_DIR):
        memory = fold(memory, record)
    store = list_checkpoints(run_dir, read_identity(run_dir).run_uid)
    usable = list_usable(memory.chain, store.checkpoints) if memory else []
    if not usable:
        raise Refused("there is no checkpoint yet that the current line may start from")
    return wire.checkpoint_dir(usable[-1].line, usable[-1].step)
