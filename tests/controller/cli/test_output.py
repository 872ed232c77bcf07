"""Output that cannot be written is a line and an exit code, never a trace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(folder, *words, **streams):
    """Run `ctl` in a process of its own, which ends as Python ends."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "controller.cli.main", *words],
        cwd=folder, env=environment, timeout=60, text=True, check=False, **streams,
    )  # fmt: skip


@pytest.mark.parametrize("words", [("log", "probe"), ("status",), ("status", "-o", "json")])
def test_full_disk_is_told_in_a_line(words, launched, folder):
    with Path("/dev/full").open("w") as full:
        done = run(folder, *words, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (
        1, "cannot write the output: No space left on device\n",
    )  # fmt: skip


def test_help_on_a_full_disk_is_a_line_too(folder):
    with Path("/dev/full").open("w") as full:
        done = run(folder, "replan", "--help", stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "cannot write: No space left on device\n")


def test_reader_who_left_is_told_nothing(launched, folder):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        done = run(folder, "log", "probe", stdout=pipe, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "")


def test_talk_that_nobody_hears_ends_nothing(launched, folder):
    with Path("/dev/full").open("w") as full:
        done = run(folder, "log", "probe", stdout=subprocess.PIPE, stderr=full)
        assert (done.returncode, done.stdout != "") == (0, True)
        assert run(folder, "log", "gone", stdout=full, stderr=full).returncode == 2
