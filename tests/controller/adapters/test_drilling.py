import json
import shutil
import subprocess
import sys

import psutil
import pytest

from contract import wire
from controller.adapters import drilling
from controller.adapters.rundir import DRILLS_FILE
from controller.adapters.system import Processes
from controller.core.declared.drills import Drill
from controller.ports import Refused
from tests.forked import make_forked_run
from tests.histories import step_record
from tests.waiting import wait_for

HOLD = """
import fcntl, sys, threading
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
threading.Event().wait(60)
"""


@pytest.fixture
def rank(tmp_path):
    """A process that holds the lock of rank 1 of attempt 2, as a shim's child would."""
    directory = tmp_path / wire.rank_dir(2, 1)
    directory.mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory / wire.RANK_LOCK_FILE)], stdout=subprocess.PIPE
    )
    process.stdout.readline()
    identity = Processes().identity_of(process.pid)
    claim = wire.Claim(attempt=2, rank=1, epoch=1, shim=identity, process=identity, wall_s=1.0)
    (directory / wire.CLAIM_FILE).write_text(claim.model_dump_json())
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("which", [1, "all"])
def test_kill_ends_the_rank_and_is_recorded(tmp_path, rank, which):
    done = drilling.drill(tmp_path, Drill.model_validate({"kind": "kill", "rank": which}))
    assert done == "attempt 2: SIGKILL to rank 1"
    assert rank.wait(10) == -9
    (line,) = (tmp_path / DRILLS_FILE).read_text().splitlines()
    assert json.loads(line)["done"] == done


def test_freeze_stops_the_rank_and_lets_it_live(tmp_path, rank):
    drilling.drill(tmp_path, Drill.model_validate({"kind": "freeze", "rank": 1}))
    state = psutil.Process(rank.pid)
    wait_for(lambda: state.status() == psutil.STATUS_STOPPED, 10, "the stop")


@pytest.mark.parametrize("which", [0, 7])
def test_absent_rank_is_refused_and_not_recorded(tmp_path, rank, which):
    with pytest.raises(Refused, match="no such rank"):
        drilling.drill(tmp_path, Drill.model_validate({"kind": "kill", "rank": which}))
    assert rank.poll() is None
    assert not (tmp_path / DRILLS_FILE).exists()


def contents(run_dir):
    """Return file -> bytes of all checkpoints."""
    root = run_dir / wire.CHECKPOINTS_DIR
    return {str(it.relative_to(root)): it.read_bytes() for it in root.rglob("*") if it.is_file()}


def test_corrupt_flips_one_bit_of_the_newest_checkpoint_of_the_current_line(tmp_path):
    run_dir = make_forked_run(tmp_path).directory
    before = contents(run_dir)
    done = drilling.drill(run_dir, Drill.model_validate({"kind": "corrupt"}))
    (changed,) = [name for name, data in contents(run_dir).items() if data != before[name]]
    assert changed.startswith("main-2/30/")
    assert f"checkpoints/{changed} at byte" in done
    pairs = zip(before[changed], contents(run_dir)[changed], strict=True)
    assert sum((old ^ new).bit_count() for old, new in pairs) == 1


def test_corrupt_passes_over_a_quarantined_one_and_follows_the_ancestry(tmp_path):
    run_dir = make_forked_run(tmp_path).directory
    (run_dir / wire.line_dir("main-2") / f"30{wire.QUARANTINED_SUFFIX}").touch()
    assert "checkpoints/main/20/" in drilling.corrupt_newest(run_dir)


def test_corrupt_without_a_checkpoint_is_refused(tmp_path):
    run_dir = make_forked_run(tmp_path).directory
    shutil.rmtree(run_dir / wire.CHECKPOINTS_DIR)
    with pytest.raises(Refused, match="no checkpoint"):
        drilling.corrupt_newest(run_dir)


def test_waiting_for_a_step_ends_with_it_or_with_the_run(tmp_path):
    path = tmp_path / wire.attempt_dir(1) / wire.STEPS_FILE
    path.parent.mkdir(parents=True)
    path.write_text(step_record(4, 1).model_dump_json() + "\n")
    assert drilling.wait_for_step(tmp_path, 5, lambda: False)
    assert not drilling.wait_for_step(tmp_path, 6, lambda: True)
