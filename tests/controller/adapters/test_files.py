"""Files written whole or not at all, and a run directory that knows who it is."""

import shutil

import pytest

from contract.wire import IDENTITY_FILE, Identity
from controller.adapters import files
from controller.adapters.files import (
    adopt_identity,
    check_identity,
    numbered,
    read_or_none,
    stamp_of,
    write_atomically,
    write_once,
)
from controller.ports import Damaged, Refused, Unavailable


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_replaced_file_is_whole_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "a.json"
    write_atomically(path, b"old")
    write_atomically(path, b"new", durable=False)
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["a.json"]


def test_file_that_cannot_be_written_is_unavailable_and_the_old_one_stays(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_atomically(path, b"old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(Unavailable, match=r"cannot write a\.json: No space left on device ENOSPC"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.json"]


def test_directory_that_is_a_file_is_unavailable(tmp_path):
    (tmp_path / "d").touch()
    with pytest.raises(Unavailable):
        write_atomically(tmp_path / "d" / "a.json", b"x")


def test_file_is_created_once(tmp_path):
    path = tmp_path / "n.json"
    assert write_once(path, b"first")
    assert not write_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["n.json"]


def test_missing_file_is_none_and_has_no_stamp(tmp_path):
    assert read_or_none(tmp_path / "x") is None
    assert stamp_of(tmp_path / "x") is None
    (tmp_path / "x").write_bytes(b"1")
    assert stamp_of(tmp_path / "x") is not None


def test_numbered_directories_are_sorted_as_numbers(tmp_path):
    for name in ("10", "9", "x", "1.tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "8").touch()
    assert numbered(tmp_path) == [9, 10]
    assert numbered(tmp_path / "none") == []


@pytest.fixture
def home(tmp_path):
    """Return a directory that a run was launched in."""
    path = tmp_path / "a"
    path.mkdir()
    identity = Identity(
        run_uid="u", name="a", directory=str(path), inode=path.stat().st_ino, created_wall_s=1.5
    )
    (path / IDENTITY_FILE).write_text(identity.model_dump_json())
    return path


def test_moved_directory_is_the_original(home):
    moved = home.rename(home.with_name("b"))
    assert check_identity(moved).run_uid == "u"


def test_copied_directory_is_refused_until_adopted(home):
    copy = home.with_name("b")
    shutil.copytree(home, copy)
    with pytest.raises(Refused, match=f"is a copy of run a, launched in {home}"):
        check_identity(copy)
    adopt_identity(copy)
    assert check_identity(copy).directory == str(copy)
    assert check_identity(home).directory == str(home)


def test_directory_without_or_with_a_damaged_identity_says_so(tmp_path):
    with pytest.raises(Unavailable, match="holds no run"):
        check_identity(tmp_path)
    (tmp_path / IDENTITY_FILE).write_bytes(b"{}")
    with pytest.raises(Damaged):
        check_identity(tmp_path)
