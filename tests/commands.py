"""Fixtures for commands that run in this process; a conftest hands them on."""

import shlex
import sys

import pytest

from controller.cli import main as ctl
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
