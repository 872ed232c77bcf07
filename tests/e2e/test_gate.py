"""`ctl gate` from outside: what it says and how it leaves."""

import json
import signal

import psutil

from contract import wire
from tests.waiting import wait_for


def list_ranks(folder):
    found = []
    for process in psutil.process_iter(["environ"]):
        home = (process.info["environ"] or {}).get(wire.ENV_RUN_DIR, "")
        if home.startswith(str(folder)):
            found.append(process.pid)
    return found


def test_gate_passes_a_machine_that_is_fast_enough_and_leaves_no_run(ctl):
    ctl.write_run_file(**{"  contingency:": "  gate: {minTokensPerSecond: 10}\n  contingency:"})
    said = ctl("gate", "run.yaml")
    assert "passed: " in said
    assert "15 of 20 steps" in said
    assert "VmHWM" in said
    assert list((ctl.folder / "runs").iterdir()) == []
    assert list_ranks(ctl.folder) == []


def test_gate_fails_a_machine_that_is_too_slow(ctl):
    text = "  gate: {minTokensPerSecond: 1_000_000_000}\n  contingency:"
    ctl.write_run_file(**{"  contingency:": text})
    done = ctl("gate", "run.yaml", "-o", "json", "--steps", "5", code=3)
    told = json.loads(done[: done.rindex("}") + 1])
    assert told["verdict"] == "failed"
    assert (told["steps"], told["measured_steps"]) == (5, 3)
    # The pace that the trainer keeps here is 0.05 s a step.
    assert 1024 / 0.05 >= told["tokens_per_second"] > 0


def test_gate_without_a_minimum_says_so(ctl):
    assert "no minimum is declared" in ctl("gate", "run.yaml", "--steps", "4")


def test_gate_refuses_more_steps_than_the_run_has_and_starts_nothing(ctl):
    said = ctl("gate", "run.yaml", "--steps", "61", code=2)
    assert "--steps is 61; it must be 4 to the run's 60 steps" in said
    assert not (ctl.folder / "runs").exists()
    assert "--output" in ctl("gate", "run.yaml", "-o", "yaml", code=2)


def test_gate_ends_with_1_where_the_gang_does_not_get_there(ctl):
    (ctl.folder / "broken.py").write_text("raise SystemExit('no such device')\n")
    text = (ctl.folder / "run.yaml").read_text()
    start, end = text.index("  trainer:"), text.index("  model:")
    text = f"{text[:start]}  trainer: {{command: [python, broken.py]}}\n{text[end:]}"
    (ctl.folder / "run.yaml").write_text(text)
    assert "no such device" in ctl("gate", "run.yaml", code=1)


def test_interrupted_gate_leaves_neither_ranks_nor_folder(ctl):
    ctl.pace(0.5)
    gate = ctl.start("gate", "run.yaml")
    try:
        wait_for(lambda: len(list_ranks(ctl.folder)) >= 2, 30, "the ranks")
        gate.send_signal(signal.SIGINT)
        _, said = gate.communicate(timeout=30)
    finally:
        gate.kill()
    assert gate.returncode == 130
    assert "nothing of it is left" in said
    assert list((ctl.folder / "runs").iterdir()) == []
    assert list_ranks(ctl.folder) == []
