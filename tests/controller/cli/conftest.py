"""Commands run in this process, in a folder of their own; and runs as their files look."""

import fcntl
import json
import os

import pytest

from contract import wire
from controller.adapters import rundir
from controller.adapters.ledger import SegmentedLedger
from controller.core.readings import Instant
from tests.commands import folder, run_ctl

__all__ = ["folder", "run_ctl"]


@pytest.fixture
def launched(folder):
    """Return the directory of a run as its launch left it, with two records in its ledger."""
    given = rundir.read_given(folder / "run.yaml")
    directory = rundir.create_run(given, folder / "runs", "uid", 1.5).directory
    ledger = SegmentedLedger(
        directory / wire.LEDGER_DIR, epoch=1, core_version="c", spec_sha="0" * 64
    )
    for pid in (41, 42):
        body = {"pid": pid, "host": "here", "takeover": False}
        ledger.append("epoch", body, Instant(wall_ms=1_000, mono_ms=1, boot_id="b"))
    ledger.close()
    return directory


@pytest.fixture
def hold_lock():
    """Makes a controller of epoch 7 hold a run directory's lock."""
    held = []

    def hold(directory):
        path = directory / wire.LOCK_FILE
        path.write_text(json.dumps({"process": {"pid": 41}, "epoch": 7}).ljust(1024))
        held.append(os.open(path, os.O_RDWR))
        fcntl.flock(held[-1], fcntl.LOCK_EX)

    yield hold
    for descriptor in held:
        os.close(descriptor)
