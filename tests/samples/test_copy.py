"""A copy of the minimal trainer, elsewhere: what another team begins with."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
LOOK = "import runpy, sys; print(runpy.run_path(sys.argv[1])['Learner'].whose)"


@pytest.fixture
def copy(tmp_path):
    """Return a copy of the trainer whose learner is marked as theirs."""
    folder = tmp_path / "team"
    shutil.copytree(SAMPLES / "minimal", folder / "minimal")
    shutil.copy(SAMPLES / "minimal_trainer.py", folder / "our_trainer.py")
    with (folder / "minimal" / "learner.py").open("a") as learner:
        learner.write('Learner.whose = "theirs"\n')
    return folder / "our_trainer.py"


@pytest.mark.parametrize("beside", [("contract",), ("contract", "samples")])
def test_copy_takes_its_own_learner_whatever_is_on_the_path(copy, tmp_path, beside):
    place = tmp_path / "path"
    for name in beside:
        shutil.copytree(ROOT / name, place / name)
    path = os.pathsep.join([str(place), str(place / "samples")])
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(copy)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "theirs\n"), done.stderr
