"""Pacing of real processes: who was stopped is continued, whatever becomes of the pacer."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from statistics import median

import psutil
import pytest

from contract import wire
from controller.adapters import drilling, pacing
from controller.adapters.rundir import DRILLS_FILE
from controller.adapters.scrape import TIMEOUT_S
from controller.adapters.system import Processes
from controller.core.declared.drills import Drill
from controller.core.governor import MAX_STOP_S
from controller.ports import Refused, Unavailable
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
RANK = """
import fcntl, json, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
begun = time.monotonic()
step = 0
with open(sys.argv[2], "a") as log:
    while time.monotonic() - begun < 60:
        start = time.monotonic()
        # Work that a stop suspends, unlike a sleep.
        spent = 0
        while spent < float(sys.argv[3]):
            time.sleep(0.001)
            spent += 0.001
        took = time.monotonic() - start
        log.write(json.dumps({"step": step, "step_s": took, "tags": []}) + "\\n")
        log.flush()
        step += 1
"""
PACE = """
import sys, threading
from pathlib import Path
from controller.adapters.pacing import open_pacer
with open_pacer(Path(sys.argv[1])) as pacer:
    pacer.pace(float(sys.argv[2]))
    print("pacing", flush=True)
    threading.Event().wait(60)
"""


class Gang:
    """Two processes that count steps as a trainer's ranks do, in attempt after attempt."""

    def __init__(self, run_dir):
        self.run_dir = run_dir
        self.processes = []

    def start(self, attempt, step_s=0.02):
        """Start both ranks of an attempt; rank 0 keeps the log, the other one counts for itself."""
        for rank in range(2):
            directory = self.run_dir / wire.rank_dir(attempt, rank)
            directory.mkdir(parents=True)
            log = directory.parent / (wire.STEPS_FILE if rank == 0 else "other.jsonl")
            words = [str(directory / wire.RANK_LOCK_FILE), str(log), str(step_s)]
            process = subprocess.Popen([sys.executable, "-c", RANK, *words], stdout=subprocess.PIPE)
            process.stdout.readline()
            self.processes.append(process)
            identity = Processes().identity_of(process.pid)
            claim = wire.Claim(
                attempt=attempt, rank=rank, epoch=1, shim=identity, process=identity, wall_s=1.0
            )
            (directory / wire.CLAIM_FILE).write_text(claim.model_dump_json())

    def times(self, attempt, rank=0):
        """Return how long each step took so far."""
        name = wire.STEPS_FILE if rank == 0 else "other.jsonl"
        lines = (self.run_dir / wire.attempt_dir(attempt) / name).read_text().splitlines()
        return [json.loads(line)["step_s"] for line in lines if line.endswith("}")]

    def states(self):
        return [psutil.Process(it.pid).status() for it in self.processes if it.poll() is None]

    def await_steps(self, attempt, count):
        before = len(self.times(attempt))
        wait_for(lambda: len(self.times(attempt)) >= before + count, 30, "steps")
        return self.times(attempt)[-count:]

    def await_running(self):
        """Wait until no rank is stopped, and stays so."""
        for _ in range(3):
            wait_for(lambda: psutil.STATUS_STOPPED not in self.states(), 10, "all to run")
            self.await_steps(1, 2)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def gang(tmp_path):
    made = Gang(tmp_path)
    yield made
    made.end()


def drills_of(run_dir):
    return [json.loads(line) for line in (run_dir / DRILLS_FILE).read_text().splitlines()]


def test_one_stop_is_far_from_the_timeout_of_a_scrape():
    assert MAX_STOP_S < 0.4 < TIMEOUT_S


def test_steps_come_at_the_set_point_and_the_ranks_run_on_afterwards(gang, tmp_path):
    gang.start(1)
    with pacing.open_pacer(tmp_path) as pacer:
        assert pacer.pace(0.15) == "pacing at 0.15 s a step"
        gang.await_steps(1, 10)
        paced = gang.await_steps(1, 12)
        assert pacer.is_pacing
    assert median(paced) == pytest.approx(0.15, rel=0.25)
    gang.await_running()
    begun, ended = drills_of(tmp_path)
    assert begun["done"] == "pacing at 0.15 s a step"
    assert ended["pacedSteps"] >= 20
    assert float(ended["medianStepS"]) == pytest.approx(0.15, rel=0.25)
    assert ended["lateSteps"] <= ended["pacedSteps"]


def test_moved_set_point_takes_effect_and_zero_ends_pacing(gang, tmp_path):
    gang.start(1)
    with pacing.open_pacer(tmp_path) as pacer:
        pacer.pace(0.06)
        gang.await_steps(1, 8)
        pacer.pace(0.2)
        gang.await_steps(1, 4)
        assert median(gang.await_steps(1, 6)) > 0.15
        pacer.pace(0)
        gang.await_steps(1, 4)
        assert not pacer.is_pacing
        assert median(gang.await_steps(1, 10)) < 0.15
    assert [it["stepS"] for it in drills_of(tmp_path)] == ["0.06", "0.06", "0.2", "0.2", "0"]


def test_pacing_follows_a_restart(gang, tmp_path):
    gang.start(1)
    with pacing.open_pacer(tmp_path) as pacer:
        pacer.pace(0.15)
        gang.await_steps(1, 5)
        for process in gang.processes:
            process.kill()
            process.wait()
        gang.start(2)
        gang.await_steps(2, 30)
        assert median(gang.await_steps(2, 8)) > 0.1


def test_slow_steps_are_never_stopped_and_told_as_late(gang, tmp_path):
    gang.start(1, step_s=0.1)
    with pacing.open_pacer(tmp_path) as pacer:
        pacer.pace(0.05)
        gang.await_steps(1, 8)
    told = drills_of(tmp_path)[-1]
    assert told["lateSteps"] == told["pacedSteps"] >= 5
    assert "100% slower by themselves" in told["done"]


def test_pacer_that_may_not_stop_the_ranks_says_so(gang, tmp_path, monkeypatch):
    gang.start(1)

    def refuse(*_):
        raise PermissionError("not yours")

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with pacing.open_pacer(tmp_path) as pacer:
        pacer.pace(0.2)
        with pytest.raises(Unavailable, match="cannot pace the run: not yours"):
            wait_for(lambda: not pacer.is_pacing, 30, "the refusal")


def test_only_one_pacer_paces_a_run(gang, tmp_path):
    with pacing.open_pacer(tmp_path) as first, pacing.open_pacer(tmp_path) as second:
        first.pace(0.5)
        with pytest.raises(Refused, match=r"another drill paces .* end it with Ctrl-C there"):
            second.pace(0.5)


@pytest.fixture
def paced(gang, tmp_path):
    """Another process that paces the gang so slowly that the ranks are stopped most of the time."""
    gang.start(1)
    words = [sys.executable, "-c", PACE, str(tmp_path), "0.35"]
    pacer = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pacer.stdout.readline()
    wait_for(lambda: gang.states() == [psutil.STATUS_STOPPED] * 2, 30, "a stop")
    yield pacer
    with pacer:
        pacer.send_signal(signal.SIGCONT)
        pacer.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_ranks_run_on_when_the_pacer_is_ended(gang, paced, number):
    paced.send_signal(number)
    paced.wait(10)
    gang.await_running()
    assert median(gang.await_steps(1, 10)) < 0.2


def test_ranks_run_on_when_the_pacer_is_frozen(gang, paced):
    wait_for(lambda: gang.states() == [psutil.STATUS_STOPPED] * 2, 30, "a stop")
    paced.send_signal(signal.SIGSTOP)
    gang.await_running()


def test_frozen_rank_stays_frozen_while_its_gang_is_paced(gang, paced, tmp_path):
    wait_for(lambda: gang.states() == [psutil.STATUS_STOPPED] * 2, 30, "a stop")
    drilling.drill(tmp_path, Drill.model_validate({"kind": "freeze", "rank": 1}))
    gang.await_steps(1, 6)
    wait_for(lambda: gang.states()[1] == psutil.STATUS_STOPPED, 10, "the freeze")
    before = len(gang.times(1, rank=1))
    gang.await_steps(1, 6)
    assert len(gang.times(1, rank=1)) == before


def test_rank_that_was_frozen_within_a_stop_is_frozen_again(gang, paced, tmp_path):
    # What another process leaves whose SIGSTOP came while the pacer held the rank.
    line = {"kind": "freeze", "attempt": 1, "ranks": [1]}
    wait_for(lambda: psutil.STATUS_STOPPED not in gang.states(), 30, "a moment between stops")
    with (tmp_path / DRILLS_FILE).open("a") as file:
        file.write(json.dumps(line) + "\n")
    gang.await_steps(1, 4)
    before = len(gang.times(1, rank=1))
    gang.await_steps(1, 4)
    assert len(gang.times(1, rank=1)) == before


def test_killed_rank_does_not_disturb_the_pacer(gang, paced, tmp_path):
    drilling.drill(tmp_path, Drill.model_validate({"kind": "kill", "rank": 1}))
    gang.processes[1].wait(10)
    gang.await_steps(1, 3)
    assert paced.poll() is None


def test_rank_that_somebody_else_stopped_is_left_alone(gang, tmp_path):
    gang.start(1)
    os.kill(gang.processes[1].pid, signal.SIGSTOP)
    with pacing.open_pacer(tmp_path) as pacer:
        pacer.pace(0.1)
        gang.await_steps(1, 6)
    assert gang.states()[1] == psutil.STATUS_STOPPED
