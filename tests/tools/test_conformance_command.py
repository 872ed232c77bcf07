"""`python -m tests.conformance`: what another team sees of the suite."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from contract.wire import STEPS_FILE, Drops, StepRecord, attempt_dir
from tests.conformance.harness import Run
from tests.conformance.surviving import check_survivors, rates_from_file
from tests.conformance.trainers import MINIMAL

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
    shutil.copytree(ROOT / "samples" / "minimal", tmp_path / "minimal")
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


# What the suite says of step logs, in words: these asserts stand outside the files of its cases.


def write_log(run, attempt=1, **changes):
    """Write a log of four steps as the plan wants them, save for the changes."""
    lines = [
        StepRecord(
            **{
                "line": "main", "step": step, "plan_sha": run.plan.sha, "code": "theirs",
                "execution_sha": run.plan.execution_sha, "loss": (5.0 - step).hex(),
                "lr": rates_from_file(run, run.plan, step), "grad_norm": "0x1p+0", "tokens": 1,
                "assignments": 0, "drops": Drops(sender=0, receiver=0), "step_s": 1.0,
                "data_wait_s": 0.0, "wall_s": 0.0, "tags": [],
            } | changes
        ).model_dump_json()
        for step in range(4)
    ]  # fmt: skip
    path = run.path / attempt_dir(attempt) / STEPS_FILE
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n")


def test_sound_log_survives(tmp_path):
    run = Run(tmp_path, MINIMAL)
    write_log(run)
    assert [record.step for record in check_survivors(run, run.plan)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lr": {"matrix": "0x1p-1", "other": "0x1p-1"}}, "step 0: `lr` is .*0x1p-1.*values_at"),
        ({"plan_sha": "0" * 64}, "step 0: `plan_sha` is 0{64}; it must be [0-9a-f]{64}, in force"),
        ({"loss": "0x1p+9"}, "step 0: `loss` is 0x1p[+]9; it must be .*same bits"),
        ({"step": 1}, "steps.jsonl of all attempts: .0, 1, 1, 1, 1. survive"),
    ],
)
def test_wrong_log_is_told_in_words(tmp_path, changes, words):
    run = Run(tmp_path, MINIMAL)
    write_log(run)
    write_log(run, 2, **changes)
    with pytest.raises(AssertionError, match=words):
        check_survivors(run, run.plan)
