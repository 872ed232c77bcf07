"""Commands run in this process, and a run as its launch left it."""

import json
import os
import shutil

import pytest

from contract import wire
from controller.adapters import rundir
from controller.adapters.ledger import SegmentedLedger
from controller.cli import deps
from controller.core.declared.planning import make_genesis
from controller.core.readings import Instant
from tests.commands import folder, run_ctl
from tests.run_files import write_good

__all__ = ["folder", "run_ctl"]

LAUNCHED_AT = Instant(wall_ms=1_000, mono_ms=1, boot_id="b")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A run with a ledger, a status, an attempt and a checkpoint that no one vouches for."""
    folder = tmp_path_factory.mktemp("template")
    given = rundir.read_given(write_good(folder))
    run = rundir.create_run(given, folder / "runs", "uid", 1.5)
    directory = run.directory
    ledger = SegmentedLedger(
        directory / wire.LEDGER_DIR, epoch=1, core_version="c", spec_sha="0" * 64
    )
    policy, plan = deps.policy_of(run), make_genesis(run.run_file, "uid", run.facts.sources)
    body = {"policy": policy.model_dump(mode="json"), "plan": plan.model_dump(mode="json")}
    ledger.append("run", body, LAUNCHED_AT)
    ledger.append("epoch", {"pid": 41, "host": "here", "takeover": False}, LAUNCHED_AT)
    ledger.close()
    status = {"state": "training", "reason": "attempt 1 trains", "at": 1, "attempt": 1}
    (directory / wire.STATUS_FILE).write_text(json.dumps(status))
    (directory / wire.rank_dir(1, 0)).mkdir(parents=True)
    (directory / wire.rank_dir(1, 0) / wire.RANK_LOCK_FILE).touch()
    place = directory / wire.checkpoint_dir("main", 10)
    place.mkdir(parents=True)
    (place / wire.MANIFEST_FILE).write_text("{}")
    return folder


@pytest.fixture
def launched(template, folder):
    """Return the directory of a run of this test's own, in its folder."""
    directory = folder / "runs" / "probe"
    shutil.copytree(template / "runs", folder / "runs", symlinks=True)
    path = directory / wire.IDENTITY_FILE
    place = {"inode": directory.stat().st_ino, "directory": str(directory)}
    path.write_text(json.dumps(json.loads(path.read_text()) | place))
    return directory


@pytest.fixture(autouse=True)
def no_leftover_umask():
    """Give the mask back that a test may have changed."""
    mask = os.umask(0o022)
    yield
    os.umask(mask)
