"""One controller per run: who holds the lock, and what becomes of a silent holder."""

import os
import signal
import subprocess
import sys

import pytest

from contract.wire import LOCK_FILE
from controller.adapters.system import Processes, SystemClock
from controller.core.readings import Instant
from controller.ports import Unavailable
from controller.runtime.lease import LeaseHeld, acquire_lease, read_lease
from tests.waiting import wait_for

HOLD = """
import signal, sys
from pathlib import Path
from controller.adapters.system import Processes, SystemClock
from controller.runtime.lease import acquire_lease
lease = acquire_lease(Path(sys.argv[1]), Processes(), now=SystemClock().now, next_epoch=lambda: 1)
print("held", flush=True)
signal.pause()
"""


@pytest.fixture
def holder(tmp_path):
    """Return a process that holds the lease of the run in tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def later(ms: int):
    """Return a clock that is ahead of the machine's."""
    clock = SystemClock()

    def now() -> Instant:
        instant = clock.now()
        return instant.model_copy(update={"mono_ms": instant.mono_ms + ms})

    return now


def acquire(run_dir, *, now=None, stale_after_ms=30_000, processes=None):
    return acquire_lease(
        run_dir,
        processes or Processes(),
        now=now or SystemClock().now,
        next_epoch=lambda: 7,
        stale_after_ms=stale_after_ms,
    )


def test_free_lease_is_taken_and_shown(tmp_path):
    assert not read_lease(tmp_path).is_held
    lease = acquire(tmp_path)
    view = read_lease(tmp_path)
    assert view.is_held
    assert view.holder is not None
    assert (view.holder.process.pid, view.holder.epoch) == (os.getpid(), 7)
    assert (lease.epoch, lease.is_takeover) == (7, False)
    lease.release()
    assert not read_lease(tmp_path).is_held


def test_second_controller_is_refused_and_told_who_is_first(tmp_path, holder):
    with pytest.raises(LeaseHeld, match=f"controller pid {holder.pid} on .* since .* steers"):
        acquire(tmp_path)
    assert holder.poll() is None


def test_lease_of_a_dead_controller_is_free_at_once(tmp_path, holder):
    holder.kill()
    holder.wait()
    lease = acquire(tmp_path)
    assert not lease.is_takeover
    lease.release()


def test_stopped_holder_with_a_stale_heart_is_gone_before_the_lease_is_taken(tmp_path, holder):
    holder.send_signal(signal.SIGSTOP)
    lease = acquire(tmp_path, now=later(31_000))
    assert lease.is_takeover
    assert holder.wait(10) == -signal.SIGKILL
    lease.release()


def test_stopped_holder_whose_heart_is_fresh_is_left_alone(tmp_path, holder):
    holder.send_signal(signal.SIGSTOP)
    with pytest.raises(LeaseHeld):
        acquire(tmp_path, now=later(20_000))
    assert holder.poll() is None


def test_silent_holder_of_another_machine_is_left_alone(tmp_path, holder):
    path = tmp_path / LOCK_FILE
    text = path.read_text()
    host = read_lease(tmp_path).holder.host
    with path.open("r+") as file:  # in place: the holder keeps its lock
        file.write(text.replace(f'"{host}"', f'"{"x" * len(host)}"'))
    with pytest.raises(LeaseHeld):
        acquire(tmp_path, now=later(60_000))
    assert holder.poll() is None


def test_heartbeat_of_another_boot_is_no_proof_of_silence(tmp_path, holder):
    def other_boot() -> Instant:
        return SystemClock().now().model_copy(update={"boot_id": "another"})

    with pytest.raises(LeaseHeld):
        acquire(tmp_path, now=other_boot)


def test_holder_that_does_not_die_keeps_the_lease(tmp_path, holder):
    class Undying(Processes):
        def kill(self, identity):
            return True

        def wait_gone(self, identity, timeout_s):
            return False

    with pytest.raises(Unavailable, match="does not end"):
        acquire(tmp_path, now=later(31_000), processes=Undying())


def test_beat_moves_the_heart_but_not_too_often(tmp_path):
    lease = acquire(tmp_path)
    first = read_lease(tmp_path).holder.heartbeat
    lease.beat(later(300)())
    assert read_lease(tmp_path).holder.heartbeat == first
    lease.beat(later(5_000)())
    assert read_lease(tmp_path).holder.heartbeat.mono_ms >= first.mono_ms + 4_000
    lease.release()


def test_a_look_does_not_keep_the_next_controller_out(tmp_path):
    acquire(tmp_path).release()
    code = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH); print(flush=True)"
    )
    looker = subprocess.Popen(
        [sys.executable, "-c", code + "; sys.stdin.read()", str(tmp_path / LOCK_FILE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert looker.stdout is not None
    looker.stdout.readline()
    # A blocked look is as long as a controller waits; a real one lasts microseconds.
    with pytest.raises(LeaseHeld):
        acquire(tmp_path)
    looker.communicate(b"")
    wait_for(lambda: looker.poll() is not None, 10, "the looker to leave")
    acquire(tmp_path).release()
