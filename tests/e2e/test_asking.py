"""Wishes that meet a bad day: a frozen controller, a later wish, a damaged ledger."""

import json
import os
import signal

from contract.wire import LOCK_FILE
from controller.cli import deps
from tests.waiting import wait_for

AN_HOUR_MS = 3_600_000


def age_heartbeat(run_dir):
    """Let the heart of the controller, which is stopped, have stopped an hour ago."""
    path = run_dir / LOCK_FILE
    holder = json.loads(path.read_text())
    holder["heartbeat"]["mono_ms"] -= AN_HOUR_MS
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, json.dumps(holder).encode().ljust(1_024), 0)
    os.close(descriptor)


def count_epochs(run_dir):
    return len(list((run_dir / "ledger").glob("*.jsonl")))


def test_frozen_controller_is_told_and_replaced(ctl):
    ctl.write_run_file(num_steps=200)
    ctl.pace(0.2)
    ctl("launch", "run.yaml", "--detach")
    ctl.wait_for_step(3)
    first, ranks = ctl.controller_pid(), ctl.rank_pids()
    os.kill(first, signal.SIGSTOP)
    age_heartbeat(ctl.run_dir)
    assert f"pid {first}, silent for 36" in ctl("status", "probe", code=5)
    ctl("resume", "probe")
    assert ctl.controller_pid() != first
    assert ctl.rank_pids() == ranks

    os.kill(ctl.controller_pid(), signal.SIGSTOP)
    age_heartbeat(ctl.run_dir)
    assert "nobody steers it" in ctl("launch", "run.yaml", "--detach")
    os.kill(ctl.controller_pid(), signal.SIGSTOP)
    age_heartbeat(ctl.run_dir)
    assert "stopped" in ctl("stop", "probe")
    assert ctl.status()["controller"]["alive"] is False


def test_racing_resumes_both_find_the_run_steered(ctl):
    ctl.write_run_file(num_steps=200)
    ctl.pace(0.2)
    ctl("launch", "run.yaml", "--detach")
    ctl.wait_for_step(3)
    os.kill(ctl.controller_pid(), signal.SIGKILL)
    wait_for(lambda: not ctl.status()["controller"]["alive"], 10, "the controller's end")
    racers = [ctl.start("resume", "probe") for _ in range(3)]
    told = [racer.communicate(timeout=60) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0], told


def test_wish_that_a_later_one_withdraws_fails(ctl):
    ctl.write_run_file(num_steps=200)
    ctl.pace(0.2)
    ctl("launch", "run.yaml", "--detach")
    ctl.wait_for_step(3)
    os.kill(ctl.rank_pids()[1], signal.SIGSTOP)  # so that the drain takes its time
    stop = ctl.start("stop", "probe")
    wait_for(lambda: ctl.status()["wanted"] == "stopped", 20, "the wish to stop")
    ctl("resume", "probe", "--no-wait")
    _, told = stop.communicate(timeout=30)
    assert (stop.returncode, "withdrawn by a later one" in told) == (1, True), told


def test_damaged_ledger_keeps_nobody_from_stopping_the_gang(ctl):
    ctl.write_run_file(num_steps=200)
    ctl.pace(0.2)
    ctl("launch", "run.yaml", "--detach")
    ctl.wait_for_step(3)
    segment = max((ctl.run_dir / "ledger").glob("*.jsonl"))
    with segment.open("r+b") as file:
        at = file.read().index(b"start attempt 1")
        file.seek(at)
        file.write(b"start attempt 2")
    told = ctl("stop", "probe")
    assert "damaged" in told
    assert ctl.status()["state"] == "stopped"


def test_lost_summary_is_made_again_and_an_old_one_does_not_outlive_a_resume(ctl):
    ctl.write_run_file(num_steps=20)
    ctl("launch", "run.yaml")
    path = ctl.run_dir / "summary.json"
    whole = ctl.summary()
    path.unlink()
    assert "is finished" in ctl("launch", "run.yaml")
    made = ctl.summary()
    assert {key: made[key] for key in ("outcome", "steps", "wall_seconds")} == {
        key: whole[key] for key in ("outcome", "steps", "wall_seconds")
    }
    path.write_text(json.dumps(whole | {"outcome": "stopped", "steps": 7}))
    assert "is finished" in ctl("resume", "probe")
    assert (ctl.summary()["outcome"], ctl.summary()["steps"]) == ("completed", 20)

    # The controller may die before it wrote the status, too.
    status = json.loads((ctl.run_dir / "status.json").read_text())
    (ctl.run_dir / "status.json").write_text(json.dumps(status | {"state": "training"}))
    assert "is finished" in ctl("resume", "probe")
    assert "completed" in ctl("status", "probe")

    ctl.pace(0.5)
    ctl("resume", "probe", "--from", "10")
    assert not path.exists()


def test_resume_of_a_run_that_halts_again_tells_why_and_tries_once(ctl):
    deps.create_run(deps.read_given(ctl.folder / "run.yaml"), ctl.run_dir.parent)
    (ctl.run_dir / "checkpoints" / ".probe" / "in the way").mkdir(parents=True)
    assert "halted" in ctl("launch", "run.yaml", code=1)
    assert count_epochs(ctl.run_dir) == 1
    told = ctl("resume", "probe", code=1)
    assert "probe halted: the checkpoint directory cannot be used" in told
    assert count_epochs(ctl.run_dir) == 2
    assert ctl.summary()["outcome"] == "halted"


def test_controller_that_dies_at_once_is_quoted_with_its_log(ctl):
    ctl.write_run_file(num_steps=200)
    ctl.pace(0.2)
    ctl("launch", "run.yaml", "--detach")
    ctl.wait_for_step(3)
    ctl("stop", "probe")
    (ctl.run_dir / LOCK_FILE).unlink()
    (ctl.run_dir / LOCK_FILE).mkdir()
    told = ctl("resume", "probe", code=1)
    assert "cannot open" in told
    assert "controller.log" in told
    ctl("status", "probe")
