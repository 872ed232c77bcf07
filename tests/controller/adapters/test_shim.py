"""The shim as a process, and the names that it cannot import."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contract import wire
from contract.exits import SIGNAL_BASE
from controller.adapters import shim
from controller.adapters.ledger_format import segment_path
from controller.adapters.system import Processes
from tests.waiting import wait_for

PRINT_AND_LEAVE = (
    "import sys; print('out'); print('err', file=sys.stderr); sys.exit(int(sys.argv[1]))"
)
SLEEP = "import signal; print('up', flush=True); signal.pause()"


@pytest.fixture
def rank_dir(tmp_path):
    path = tmp_path / wire.rank_dir(3, 1)
    path.mkdir(parents=True)
    return path


@pytest.fixture
def start(tmp_path, rank_dir):
    """Return a starter of shims; none of them, and no rank, outlives the test."""
    shims: list[subprocess.Popen[bytes]] = []

    def begin(*command: str, epoch: int = 2) -> subprocess.Popen[bytes]:
        arguments = ["-I", "-S", shim.__file__, str(tmp_path), "3", "1", str(epoch), *command]
        shims.append(subprocess.Popen([sys.executable, *arguments], start_new_session=True))
        return shims[-1]

    yield begin
    for holder in Processes().holders_of(rank_dir / wire.RANK_LOCK_FILE):
        os.kill(holder.pid, signal.SIGKILL)
    for process in shims:
        process.wait(20)


def await_up(rank_dir: Path) -> None:
    log = rank_dir / wire.STDOUT_FILE
    wait_for(lambda: log.exists() and log.read_bytes(), 20, "the rank to run")


def claim_of(rank_dir: Path) -> wire.Claim:
    def read() -> bytes:
        path = rank_dir / wire.CLAIM_FILE
        return path.read_bytes() if path.exists() else b""

    return wire.Claim.model_validate_json(wait_for(read, 10, "the claim"))


def exit_of(rank_dir: Path) -> wire.ExitRecord:
    return wire.ExitRecord.model_validate_json((rank_dir / wire.EXIT_FILE).read_bytes().strip())


def test_names_are_those_of_the_contract():
    for name in ("CLAIM_FILE", "EXIT_FILE", "EXIT_BYTES", "CLOSED_FILE", "STDOUT_FILE",
                 "STDERR_FILE", "LEDGER_DIR"):  # fmt: skip
        assert getattr(shim, name) == getattr(wire, name), name
    assert shim.LOCK_FILE == wire.RANK_LOCK_FILE
    assert shim.SIGNAL_BASE == SIGNAL_BASE


def test_imports_nothing_but_the_standard_library_and_little_of_it():
    run = f"exec(open({shim.__file__!r}).read(), {{'__name__': 'shim'}})"
    code = f"import sys; {run}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert {"pathlib", "subprocess", "pydantic", "typing"}.isdisjoint(done.stdout.split())


def test_rank_that_leaves_is_recorded_with_its_code_and_logs(start, tmp_path, rank_dir):
    process = start(sys.executable, "-c", PRINT_AND_LEAVE, "42")
    assert process.wait(20) == shim.STARTED
    record = exit_of(rank_dir)
    assert (record.code, record.signal) == (42, None)
    assert (rank_dir / wire.EXIT_FILE).stat().st_size == wire.EXIT_BYTES
    assert (rank_dir / wire.STDOUT_FILE).read_text() == "out\n"
    assert (rank_dir / wire.STDERR_FILE).read_text() == "err\n"
    claim = claim_of(rank_dir)
    assert (claim.attempt, claim.rank, claim.epoch, claim.shim.pid) == (3, 1, 2, process.pid)


def test_rank_that_is_killed_is_recorded_as_128_and_its_signal(start, tmp_path, rank_dir):
    process = start(sys.executable, "-c", SLEEP)
    os.kill(claim_of(rank_dir).process.pid, signal.SIGKILL)
    process.wait(20)
    record = exit_of(rank_dir)
    assert (record.code, record.signal) == (137, signal.SIGKILL)


def test_command_that_does_not_exist_ends_127_and_says_so(start, tmp_path, rank_dir):
    assert start("no-such-program").wait(20) == shim.STARTED
    assert exit_of(rank_dir).code == shim.NO_COMMAND
    assert "cannot run no-such-program" in (rank_dir / wire.STDERR_FILE).read_text()


def test_shim_survives_the_terminals_signals_and_the_rank_keeps_their_defaults(
    start, tmp_path, rank_dir
):
    process = start(sys.executable, "-c", SLEEP)
    claim = claim_of(rank_dir)
    await_up(rank_dir)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        process.send_signal(number)
    os.kill(claim.process.pid, signal.SIGTERM)
    process.wait(20)
    assert exit_of(rank_dir).code == SIGNAL_BASE + signal.SIGTERM


def test_closed_attempt_starts_no_rank(start, tmp_path, rank_dir):
    (rank_dir.parent / wire.CLOSED_FILE).touch()
    assert start(sys.executable, "-c", SLEEP).wait(20) == shim.FENCED
    assert not (rank_dir / wire.CLAIM_FILE).exists()


def test_shim_of_a_former_controller_starts_no_rank(start, tmp_path, rank_dir):
    ledger = tmp_path / wire.LEDGER_DIR
    ledger.mkdir()
    segment_path(ledger, 3).touch()
    assert start(sys.executable, "-c", SLEEP, epoch=2).wait(20) == shim.FENCED
    assert not (rank_dir / wire.CLAIM_FILE).exists()


def test_rank_that_was_claimed_once_is_never_started_again(start, tmp_path, rank_dir):
    start(sys.executable, "-c", PRINT_AND_LEAVE, "7").wait(20)
    assert start(sys.executable, "-c", PRINT_AND_LEAVE, "8").wait(20) == shim.FENCED
    assert exit_of(rank_dir).code == 7


def test_second_shim_leaves_while_the_first_lives(start, tmp_path, rank_dir):
    first = start(sys.executable, "-c", SLEEP)
    claim = claim_of(rank_dir)
    assert start(sys.executable, "-c", SLEEP).wait(20) == shim.LOCKED
    assert claim_of(rank_dir) == claim
    assert first.poll() is None


def test_a_look_at_the_lock_does_not_keep_the_shim_from_starting(start, tmp_path, rank_dir):
    lock = os.open(rank_dir / wire.RANK_LOCK_FILE, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_SH)
    process = start(sys.executable, "-c", PRINT_AND_LEAVE, "0")
    wait_for(lambda: Path(f"/proc/{process.pid}/fd/3").exists(), 10, "the shim to try the lock")
    os.close(lock)
    assert process.wait(20) == shim.STARTED


def test_rank_of_a_killed_shim_keeps_the_lock(start, tmp_path, rank_dir):
    process = start(sys.executable, "-c", SLEEP)
    claim = claim_of(rank_dir)
    await_up(rank_dir)
    process.kill()
    process.wait(20)
    lock = os.open(rank_dir / wire.RANK_LOCK_FILE, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.kill(claim.process.pid, signal.SIGKILL)
    os.close(lock)
    assert not (rank_dir / wire.EXIT_FILE).read_bytes().strip()


def test_rank_that_is_killed_at_its_gate_is_recorded_too(tmp_path, rank_dir):
    code = f"""
import os, runpy
names = runpy.run_path({shim.__file__!r}, run_name="shim")
real = names["claim"]
def claim(*args, process, **options):
    real(*args, process=process, **options)
    os.kill(process, 9)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
names["main"].__globals__["claim"] = claim
names["main"]({[str(tmp_path), "3", "1", "2", "true"]!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert exit_of(rank_dir).code == 137


def test_rank_without_a_claim_never_runs(tmp_path, rank_dir):
    """A shim that cannot claim (here: its directory is gone) leaves the gate shut."""
    marker = tmp_path / "ran"
    code = f"""
import runpy
names = runpy.run_path({shim.__file__!r}, run_name="shim")
def die(*_, **__): raise SystemExit(9)
names["main"].__globals__["claim"] = die
names["main"]({[str(tmp_path), "3", "1", "2", "touch", str(marker)]!r})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    lock = os.open(rank_dir / wire.RANK_LOCK_FILE, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)  # returns once the gated child is gone, too
    os.close(lock)
    assert not marker.exists()


def test_exit_record_is_one_document_of_the_contract():
    document = {"format": 1, "code": 0, "signal": None, "wall_s": 1.5, "detail": ""}
    assert len(json.dumps(document)) < wire.EXIT_BYTES
    wire.ExitRecord.model_validate_json(json.dumps(document))
