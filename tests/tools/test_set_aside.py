import fcntl
from pathlib import Path

import pytest

from tools.set_aside import main, set_aside


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rank = tmp_path / "demo" / "attempts" / "1" / "rank-0"
    rank.mkdir(parents=True)
    (rank / "lock").touch()
    (tmp_path / "demo" / "controller.lock").touch()
    return tmp_path / "demo"


def test_set_aside_nothing_there_does_nothing(tmp_path):
    assert set_aside(tmp_path / "demo") is None


def test_set_aside_finished_run_takes_the_first_free_number(run):
    (run.parent / "demo-1").mkdir()
    assert set_aside(run) == run.with_name("demo-2")
    assert not run.exists()
    assert (run.parent / "demo-2" / "controller.lock").is_file()


@pytest.mark.parametrize("lock", ["controller.lock", "attempts/1/rank-0/lock"])
def test_set_aside_held_lock_refuses_and_moves_nothing(run, lock, capsys):
    with (run / lock).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main([str(run)]) == 1
    message = capsys.readouterr().err
    assert lock in message
    assert "ctl stop demo" in message
    assert run.is_dir()
    assert main([str(run)]) == 0
