"""A run paced through `ctl drill`, as its controller sees it."""

import json
import signal
from statistics import median

import pytest

from tests.waiting import wait_for

pytestmark = pytest.mark.faults

DRILLS = """\
- {atStep: 0, kind: pace, stepS: "0.15"}
- {atStep: 25, kind: kill, rank: 1}
- {atStep: 40, kind: pace, stepS: "0.3"}
"""


def drills_of(ctl):
    return [json.loads(line) for line in (ctl.run_dir / "drills.jsonl").read_text().splitlines()]


def test_paced_run_is_slow_recovers_and_completes(ctl):
    ctl.write_run_file(num_steps=70)
    (ctl.folder / "drill.yaml").write_text(DRILLS)
    ctl("launch", "run.yaml", "--detach", "--drill", "drill.yaml")
    wait_for(lambda: ctl.status()["state"] == "completed", 90, "the end")
    wait_for(lambda: len(drills_of(ctl)) == 5, 30, "the last record")
    first, killed, reached, moved, ended = drills_of(ctl)
    assert (first["stepS"], killed["kind"], moved["stepS"]) == ("0.15", "kill", "0.3")
    assert (reached["stepS"], ended["stepS"]) == ("0.15", "0.3")
    assert float(ended["medianStepS"]) == pytest.approx(0.3, rel=0.2)
    # The stops were no reason for its controller to act.
    assert [it["cause"] for it in ctl.status()["incidents"]["recent"]] == ["killed"]
    slow = [it["step_s"] for it in ctl.steps(2) if it["step"] > 42 and not it["tags"]]
    assert median(slow) == pytest.approx(0.3, rel=0.2)


def test_pace_of_one_command_ends_with_it(ctl):
    ctl.write_run_file(num_steps=400)
    ctl("launch", "run.yaml", "--detach")
    pacer = ctl.start("drill", "probe", "pace", "--step-s", "0.3")
    try:
        wait_for(
            lambda: max(it["step_s"] for it in ctl.steps(1) or [{"step_s": 0}]) > 0.2, 30, "it"
        )
        pacer.send_signal(signal.SIGINT)
        _, said = pacer.communicate(timeout=30)
    finally:
        pacer.kill()
    assert "pacing at 0.3 s a step" in said
    assert pacer.returncode == 130
    reached = len(ctl.steps(1))
    wait_for(lambda: len(ctl.steps(1)) > reached + 20, 30, "twenty more steps")
    assert median(it["step_s"] for it in ctl.steps(1)[-10:]) < 0.2
    ctl("stop", "probe")
    assert "no rank lives" in ctl("drill", "probe", "pace", "--step-s", "0.3", code=2)


def test_pace_without_seconds_or_with_too_many_is_refused(ctl):
    assert "stepS" in ctl("drill", "probe", "pace", code=2)
    assert "it must be 0 to 60" in ctl("drill", "probe", "pace", "--step-s", "61", code=2)
    assert "decimal number" in ctl("drill", "probe", "pace", "--step-s", "-1", code=2)
    assert "takes no rank" in ctl("drill", "probe", "pace", "1", "--step-s", "1", code=2)
