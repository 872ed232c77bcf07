"""Clock, processes and locks of the machine."""

import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

from controller.adapters.system import Processes, SystemClock, is_locked, port_errors
from controller.ports import Unavailable
from tests.waiting import wait_for


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


def test_clock_counts_in_whole_milliseconds_of_one_boot():
    clock = SystemClock()
    first, second = clock.now(), clock.now()
    assert first.boot_id == second.boot_id != ""
    assert 0 <= second.mono_ms - first.mono_ms < 10_000


def test_wait_ends_when_woken_and_only_once():
    clock = SystemClock()
    clock.wake()
    clock.wait(60_000)
    began = clock.now()
    clock.wait(60)
    assert clock.now().mono_ms - began.mono_ms >= 50, "it was woken once only"
    threading.Timer(0.05, clock.wake).start()
    clock.wait(60_000)


def test_process_is_known_beyond_its_number(sleeper):
    processes = Processes()
    identity = processes.identity_of(sleeper.pid)
    assert identity is not None
    assert processes.is_alive(identity)
    later = identity.model_copy(update={"start_ticks": identity.start_ticks + 1})
    other_boot = identity.model_copy(update={"boot_id": "other"})
    assert not processes.is_alive(later)
    assert not processes.is_alive(other_boot)
    assert not processes.kill(later)
    assert not processes.kill(other_boot)
    assert sleeper.poll() is None


def test_kill_ends_a_stopped_process_and_a_zombie_counts_as_gone(sleeper):
    processes = Processes()
    identity = processes.identity_of(sleeper.pid)
    assert identity is not None
    sleeper.send_signal(signal.SIGSTOP)
    wait_for(lambda: processes.state_of(identity) == "T", 10, "the process to stop")
    assert processes.kill(identity)
    # Not reaped yet: kill -0 would still answer.
    assert processes.wait_gone(identity, 10)
    wait_for(lambda: processes.state_of(identity) == "Z", 10, "a zombie")
    assert not processes.is_alive(identity)
    assert not processes.kill(identity)
    sleeper.wait()
    assert processes.identity_of(sleeper.pid) is None
    assert not processes.kill(identity)
    assert processes.wait_gone(identity, 0)


def test_wait_for_a_process_that_stays_says_so(sleeper):
    processes = Processes()
    identity = processes.identity_of(sleeper.pid)
    assert identity is not None
    assert not processes.wait_gone(identity, 0.01)


def test_lock_of_another_process_is_seen_and_its_holder_found(tmp_path):
    path = tmp_path / "lock"
    assert not is_locked(path)
    path.touch()
    assert not is_locked(path)
    code = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code + "; sys.stdin.read()", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    assert is_locked(path)
    assert [one.pid for one in Processes().holders_of(path)] == [holder.pid]
    holder.communicate(b"")
    assert not is_locked(path)
    assert Processes().holders_of(tmp_path / "none") == []


def test_two_lookers_do_not_see_each_other(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    assert not is_locked(path)
    os.close(descriptor)


def test_errors_of_the_system_say_what_failed_and_where(tmp_path):
    missing = tmp_path / "none"
    with (
        pytest.raises(Unavailable, match=r"cannot look: No such file .* ENOENT .*none"),
        port_errors("cannot look"),
    ):
        missing.read_bytes()
