"""A run from launch to summary, through the real `ctl` and real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.waiting import wait_for


def test_killed_rank_is_recovered_and_the_summary_tells_it(ctl):
    (ctl.folder / "drill.yaml").write_text("- {atStep: 27, kind: kill, rank: 1}\n")
    shown = ctl("launch", "run.yaml", "--drill", "drill.yaml")
    assert "is finished" in shown
    summary = ctl.summary()
    assert (summary["outcome"], summary["steps"], summary["attempts"]) == ("completed", 60, 2)
    assert summary["tokens_trained"] == 60 * 1024
    assert summary["final_lr_fraction"] == pytest.approx(0.05, abs=1e-7)
    (incident,) = summary["incidents"]
    assert (incident["cause"], incident["root_rank"], incident["code"]) == ("killed", 1, 137)
    assert incident["cost_seconds"] > 0
    assert incident["cost_tokens"] == summary["replayed_steps"] * 1024
    assert summary["replayed_steps"] >= 5
    assert summary["replay_max_loss_difference"] == 0.0
    assert summary["ledger_verified"] is True
    assert summary["unattributed_percent"] < 2
    assert sum(summary["phase_seconds"].values()) == pytest.approx(
        summary["wall_seconds"], abs=0.05
    )
    assert summary["validation_loss"] < summary["unigram_entropy"]
    drills = [json.loads(it) for it in (ctl.run_dir / "drills.jsonl").read_text().splitlines()]
    assert [drill["done"] for drill in drills] == ["attempt 1: SIGKILL to rank 1"]
    # Launching it again never starts it over.
    assert "is finished" in ctl("launch", "run.yaml")
    assert ctl.status()["state"] == "completed"
    assert "chain and anchors" in ctl("log", "probe", "--verify")


def test_owner_suspends_changes_resumes_forks_and_finishes(ctl):
    ctl.pace(0.2)
    ctl("launch", "run.yaml", "--detach")
    ctl.wait_for_step(5)
    assert "suspended" in ctl("suspend", "probe")
    status = ctl.status()
    assert (status["state"], status["controller"]["alive"]) == ("suspended", False)
    assert status["checkpoints"]["newest_verified"] == status["step"] >= 5
    assert "is suspended" in ctl("launch", "run.yaml")

    # What may change is taken up, and recorded, by the next controller; what may not is told.
    ctl.write_run_file(**{"keep: 3": "keep: 5"})
    assert "spec.checkpoints.keep: 3 -> 5" in ctl("launch", "run.yaml")
    ctl.write_run_file("other.yaml", **{'matrix: "0.5"': 'matrix: "0.4"'})
    told = ctl("launch", "other.yaml", code=3)
    assert 'peakLearningRate.matrix: "0.5" -> "0.4"   (may NOT change' in told

    assert "starting" in ctl("resume", "probe") or ctl.status()["state"] == "training"
    ctl.wait_for_step(24, attempt=2)
    config = json.loads((ctl.run_dir / "attempts" / "2" / "config.json").read_text())
    assert config["checkpointing"]["keep"] == 5
    assert "stopped" in ctl("stop", "probe")
    assert "step of a sound checkpoint" in ctl("resume", "probe", "--from", "7", code=2)
    mark = ctl.run_dir / "checkpoints" / "main" / "20.quarantined.json"
    mark.write_text("damaged")
    assert "a sound checkpoint" in ctl("resume", "probe", "--from", "20", code=2)
    mark.unlink()
    assert "main-2" not in ctl("log", "probe")

    ctl.pace(0.02)
    ctl("resume", "probe", "--from", "20")
    assert ctl.status()["plan"]["line"] == "main-2"
    wait_for(lambda: ctl.status()["state"] == "completed", 30, "the end of the new line")
    wait_for(lambda: not ctl.status()["controller"]["alive"], 20, "the end of the controller")
    assert ctl.steps(3)[0]["step"] == 20
    assert ctl.summary()["steps"] == 60
    assert ctl.summary()["phase_seconds"]["halted"] > 0
    assert "chain and anchors" in ctl("log", "probe", "--verify")


def test_second_controller_is_refused_and_a_new_one_adopts(ctl):
    ctl.pace(0.2)
    ctl("launch", "run.yaml", "--detach")
    ctl.wait_for_step(3)
    first, ranks = ctl.controller_pid(), ctl.rank_pids()
    assert f"controller {first} steers it already" in ctl("launch", "run.yaml", "--detach")
    second = subprocess.run(
        [sys.executable, "-m", "controller.cli.steer", str(ctl.run_dir)],
        env=ctl.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert second.returncode == 1
    assert f"pid {first}" in second.stderr

    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not ctl.status()["controller"]["alive"], 10, "the controller's end")
    assert "ctl resume probe" in ctl("status", "probe", code=5)
    ctl("resume", "probe", "--detach")
    wait_for(lambda: ctl.status()["controller"]["epoch"] == 2, 20, "the second controller")
    ctl.wait_for_step(20)
    assert ctl.rank_pids() == ranks
    assert not (ctl.run_dir / "attempts" / "2").exists()
    steps = [record["step"] for record in ctl.steps(1)]
    assert steps == list(range(len(steps)))
    ctl("stop", "probe")


def test_interrupted_launch_leaves_the_run_alone(ctl):
    ctl.pace(0.2)
    launch = ctl.start("launch", "run.yaml")
    ctl.wait_for_step(3)
    ranks = ctl.rank_pids()
    launch.send_signal(signal.SIGINT)
    _, told = launch.communicate(timeout=20)
    assert launch.returncode == 0
    assert "goes on" in told
    ctl.wait_for_step(ctl.steps(1)[-1]["step"] + 3)
    assert ctl.rank_pids() == ranks
    ctl("stop", "probe")
    assert ctl.status()["state"] == "stopped"


def test_copy_of_a_run_is_refused_and_damage_is_found(ctl):
    ctl.write_run_file(num_steps=20)
    ctl("launch", "run.yaml")
    shutil.copytree(ctl.run_dir, ctl.folder / "elsewhere" / "probe")
    for words in (["launch", "run.yaml"], ["resume", "probe"], ["stop", "probe"]):
        told = ctl(*words, "--runs-dir", "elsewhere", code=2)
        assert "is a copy of run probe" in told
    elsewhere = ("--runs-dir", "elsewhere")
    assert "is finished" in ctl("resume", "probe", "--adopt-copy", *elsewhere)
    assert "is finished" in ctl("launch", "run.yaml", *elsewhere)
    segment = max((ctl.run_dir / "ledger").glob("*.jsonl"))
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"start attempt 1", b"start attempt 2", 1))
    assert "DAMAGE" in ctl("log", "probe", "--verify", code=1)
    told = ctl("resume", "probe", "--from", "10", code=1)
    assert "was changed" in told


def test_run_that_cannot_go_on_halts_and_says_why(ctl):
    ctl.write_run_file(num_steps=30, **{'matrix: "0.5"': f'matrix: "1{"0" * 30}"'})
    told = ctl("launch", "run.yaml", code=1)
    assert "halted" in told
    assert "Next: ctl log probe" in told
    assert "non_finite" in ctl("status", "probe", code=1)
    assert ctl.summary()["outcome"] == "halted"
    assert ctl.summary()["reason"]
    assert "halted" in ctl("launch", "run.yaml", code=1)
