"""The admission test with real processes of the JAX-free trainer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from contract import wire
from controller.adapters import gate, rundir
from controller.core.declared.spec import Faults
from controller.ports import Unavailable
from tests.run_files import spoil, write_good
from tests.waiting import wait_for
from trainer import compile_cache

TRAINER = Path(__file__).parents[3] / "samples" / "minimal_trainer.py"
HOLD = """
import fcntl, sys, threading
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
threading.Event().wait(60)
"""


@pytest.fixture
def give(tmp_path):
    """Returns a run file whose ranks run `command`, with further changes."""

    def make(command, **changes):
        path = write_good(tmp_path)
        text = spoil(path.read_text(), "[python, -c, pass]", command)
        for old, new in changes.items():
            text = spoil(text, old, new)
        path.write_text(text)
        return rundir.read_given(path)

    return make


def list_ranks(place):
    """Return the processes that work for a run below `place`."""
    found = []
    for process in psutil.process_iter(["environ"]):
        home = (process.info["environ"] or {}).get(wire.ENV_RUN_DIR, "")
        if home.startswith(str(place)):
            found.append(process)
    return found


def test_first_steps_are_measured_and_nothing_is_left(give, tmp_path):
    runs = tmp_path / "runs"
    found = gate.measure(give(f"[python, {TRAINER}]"), runs, 6, lambda _: None)
    assert [record.step for record in found.records] == [0, 1, 2, 3, 4, 5]
    assert set(found.memory_bytes) == {0, 1}
    assert all(size > 1_000_000 for size in found.memory_bytes.values())
    assert found.peak is not None
    assert found.peak.origin == "measured"
    assert found.start_s > 0
    assert list(runs.iterdir()) == []
    assert list_ranks(runs) == []


def test_run_is_as_declared_but_neither_saves_nor_evaluates(give, tmp_path):
    seen = []

    def look(text):
        if text == "15 of 20 steps":
            seen.extend(path.name for path in tmp_path.glob("runs/.gate-*/probe/attempts/1/*"))
            seen.extend(path.name for path in tmp_path.glob("runs/.gate-*/probe/checkpoints/*"))

    given = give(f"[python, {TRAINER}]", **{"everySteps: 25": "everySteps: 5"})
    found = gate.measure(given, tmp_path / "runs", 20, look)
    assert all(set(record.tags) <= {"first", "compile"} for record in found.records)
    assert {record.tokens for record in found.records} == {1024}
    assert "main" not in seen


def test_rank_that_ends_is_named_with_its_last_words(give, tmp_path):
    given = give("""[python, -c, 'raise SystemExit("no such device")']""")
    with pytest.raises(Unavailable, match="ended with 1 ERROR after 0 steps: no such device"):
        gate.measure(given, tmp_path / "runs", 6, lambda _: None)
    assert list((tmp_path / "runs").iterdir()) == []


def test_trainer_that_hangs_at_once_ends_with_the_deadline_of_its_phase(give, tmp_path):
    command = '[python, -c, "import threading; threading.Event().wait(60)"]'
    # Of the other phases' deadlines, minutes each, none is waited for.
    given = give(command, **{"{cascade: 5s}": "{deadlines: {start: 100ms}, margin: 100ms}"})
    told = r"phase start: spec\.faults\.deadlines\.start is 0\.1 s, spec\.faults\.margin 0\.1 s"
    with pytest.raises(Unavailable, match=told):
        gate.measure(given, tmp_path / "runs", 6, lambda _: None)
    assert list_ranks(tmp_path / "runs") == []


def test_gang_is_where_its_last_rank_is_and_each_phase_has_its_own_time(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(gate.time, "monotonic", lambda: now_s)
    phase, faults = wire.Phase, Faults.model_validate(
        {"deadlines": {"start": "5s", "rendezvous": "5s", "firstStep": "9s", "step": "20s"},
         "margin": "1s"}
    )  # fmt: skip
    watch = gate._Watch(faults)
    now_s = 6.0
    watch.see([phase.RENDEZVOUS, phase.START], 0)
    assert watch.explain_silence() is None
    now_s = 6.1
    assert "deadlines.start is 5 s" in watch.explain_silence()
    watch.see([phase.RENDEZVOUS, phase.RENDEZVOUS], 0)
    now_s = 12.0
    assert watch.explain_silence() is None, "its time began with it"
    now_s = 12.2
    assert "hangs in phase rendezvous" in watch.explain_silence()
    watch.see([phase.FIRST_STEP, phase.STEP], 0)
    now_s = 22.3
    assert "spec.faults.deadlines.firstStep is 9 s" in watch.explain_silence()
    watch.see([phase.STEP, phase.STEP], 3)
    now_s = 43.0
    watch.see([phase.STEP, phase.STEP], 4)
    assert watch.explain_silence() is None
    now_s = 64.1
    assert "deadlines.step is 20 s" in watch.explain_silence()
    assert "4 steps were made" in watch.explain_silence()


def test_interruption_kills_the_ranks_and_removes_the_run(give, tmp_path):
    pids = []

    def interrupt(text):
        if "steps" in text:
            pids.extend(process.pid for process in list_ranks(tmp_path / "runs"))
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        gate.measure(give(f"[python, {TRAINER}]"), tmp_path / "runs", 30, interrupt)
    assert pids
    assert list_ranks(tmp_path / "runs") == []
    assert list((tmp_path / "runs").iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_remains_of_a_killed_admission_test_are_ended_and_removed(tmp_path):
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, check=True).stdout.decode().strip()  # fmt: skip
    stale = tmp_path / f"{rundir.GATE_PREFIX}probe-{dead}"
    own = tmp_path / f"{rundir.GATE_PREFIX}probe-{os.getpid()}"
    lock = stale / "probe" / wire.rank_dir(1, 0) / wire.RANK_LOCK_FILE
    for folder in (lock.parent, own):
        folder.mkdir(parents=True)
    rank = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE)
    with rank:
        rank.stdout.readline()
        gate.sweep(tmp_path)
        assert wait_for(rank.poll, 10, "the end of the rank") == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == [own]


def test_long_wait_for_the_first_step_is_said_again_and_again():
    said = [gate.describe_wait(it) for it in (0.0, 9.9, 10.0, 19.9, 20.0)]
    assert said[:2] == ["", ""]
    assert said[2] == said[3] == " for 10 s; this may take a minute"
    assert said[4] == " for 20 s; this may take a minute"


def test_programs_go_from_an_admission_test_to_the_next_and_to_the_launch(tmp_path):
    given, runs = rundir.read_given(write_good(tmp_path)), tmp_path / "runs"
    made = runs / "place" / "probe" / wire.PROGRAMS_DIR
    made.mkdir(parents=True)
    (made / "program").write_text("compiled")
    rundir.keep_programs(made.parent, runs, "probe")
    rundir.lend_programs(runs, runs / "place", "probe")
    again = rundir.create_run(given, runs / "place" / "inner", "u", 1.0)
    assert not (again.directory / wire.PROGRAMS_DIR).exists()
    rundir.lend_programs(runs / "place", runs, "probe")
    run = rundir.create_run(given, runs, "u", 1.0)
    assert (run.directory / wire.PROGRAMS_DIR / "program").read_text() == "compiled"
    assert not list(runs.glob(".warm-*"))


def test_the_place_of_programs_is_the_trainer_s():
    assert wire.PROGRAMS_DIR == compile_cache.CACHE_DIR
