"""Bad days ordered through `ctl drill`, seen through `ctl status`."""

import pytest

from tests.waiting import wait_for

pytestmark = pytest.mark.faults

IMPATIENT = """\
  faults:
    deadlines: {step: 2s, saveBlock: 2s}
    heartbeat: 30s
    margin: 2s
  contingency:"""


def test_frozen_rank_is_found_named_and_replaced(ctl):
    ctl.write_run_file(num_steps=120, **{"  contingency:": IMPATIENT})
    ctl("launch", "run.yaml", "--detach")
    ctl.wait_for_step(15)
    assert "SIGSTOP to rank 1" in ctl("drill", "probe", "freeze", "1")
    wait_for(lambda: ctl.status()["incidents"]["count"] == 1, 60, "the incident")
    (incident,) = ctl.status()["incidents"]["recent"]
    assert (incident["cause"], incident["root_rank"]) == ("stall", 1)
    wait_for(lambda: ctl.status()["state"] == "completed", 60, "the end")
    wait_for(lambda: not ctl.status()["controller"]["alive"], 20, "the end of the controller")
    # None: the checkpoint was of the very step at which the rank froze.
    assert ctl.summary()["replay_max_loss_difference"] in (0.0, None)
    assert "stall (rank 1" in ctl("status", "probe")


def test_damaged_checkpoint_is_set_aside_and_said(ctl):
    ctl.pace(0.2)
    ctl.write_run_file(num_steps=80)
    # In one go and between two saves: else the gang has a newer one to start from.
    drills = "- {atStep: 25, kind: corrupt}\n- {atStep: 25, kind: kill, rank: all}\n"
    (ctl.folder / "drill.yaml").write_text(drills)
    ctl("launch", "run.yaml", "--detach")
    assert "one bit flipped in checkpoints/main/20/" in ctl(
        "drill", "probe", "--file", "drill.yaml"
    )
    wait_for(lambda: ctl.status()["state"] == "completed", 90, "the end")
    wait_for(lambda: not ctl.status()["controller"]["alive"], 20, "the end of the controller")
    summary = ctl.summary()
    assert [it["cause"] for it in summary["incidents"]] == ["killed"]
    assert summary["replay_max_loss_difference"] == 0.0
    assert summary["replayed_steps"] > 0
    # Kept, with its reason, beside its place or moved aside by a later save of the same step.
    store = ctl.run_dir / "checkpoints" / "main"
    (mark,) = store.rglob("*quarantined.json")
    assert "sha256" in mark.read_text()
