"""`python -m tests.conformance`: what another team sees of the suite."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ONE_CASE = ("-k", "test_missing_environment_ends_2_naming_the_variable", "--start-s", "20")


def try_trainer(folder, trainer, *options):
    """Return exit code, and all that was said, of the command as called in `folder`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance", "--trainer", trainer, *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path):
    """Return a folder elsewhere with a copy of the sample, as another team would begin."""
    shutil.copy(ROOT / "samples" / "minimal_trainer.py", tmp_path / "theirs.py")
    return tmp_path


def test_trainer_of_another_folder_named_by_a_relative_path_conforms(folder):
    code, said = try_trainer(folder, f"{sys.executable} theirs.py", *ONE_CASE)
    assert code == 0, said
    assert "the trainer conforms" in said


def test_trainer_that_does_nothing_is_told_which_case_it_fails(folder):
    code, said = try_trainer(folder, f"{sys.executable} -c pass", *ONE_CASE)
    assert code == 1, said
    assert "FAILED tests/conformance/test_ends.py::test_missing_environment" in said
    assert "the trainer does not conform" in said


@pytest.mark.parametrize("trainer", ["", "no-such-program train.py"])
def test_command_that_cannot_start_is_refused_at_once(folder, trainer):
    code, said = try_trainer(folder, trainer)
    assert code == 2
    assert f'--trainer is "{trainer}"; it must begin with a program' in said
