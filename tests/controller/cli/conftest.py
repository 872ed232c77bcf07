"""Commands run in this process, in a folder of their own; and runs as their files look."""

import fcntl
import json
import os
import shlex
import sys

import pytest

from contract import wire
from controller.adapters import rundir
from controller.adapters.ledger import SegmentedLedger
from controller.cli import main as ctl
from controller.core.readings import Instant
from tests.run_files import write_good


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a right run file and its text; commands run there."""
    write_good(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run_ctl(monkeypatch, capsys):
    """Runs a command in this process; returns its exit code, data and talk."""

    def run(command):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as left:
            ctl.main()
        shown = capsys.readouterr()
        return int(left.value.code or 0), shown.out, shown.err

    return run


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
