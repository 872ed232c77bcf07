"""What the machine refuses is words and an exit code; our own mistakes are traced."""

import errno
import os

import pytest

from controller.adapters.files import write_atomically, write_once
from controller.adapters.system import port_errors
from controller.cli.codes import Code
from controller.cli.failures import explain_failure
from controller.ports import Damaged, EpochLost, Refused, Unavailable

REFUSALS = (
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ELOOP,
    errno.ENAMETOOLONG, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EXDEV, errno.ENOTDIR,
    errno.EISDIR, errno.EFBIG, errno.ETXTBSY, errno.ENOLCK, errno.ENOMEM,
)  # fmt: skip


@pytest.mark.parametrize("number", REFUSALS, ids=lambda number: errno.errorcode[number])
def test_refusal_of_the_machine_names_the_file_and_why(number):
    failure = explain_failure(OSError(number, os.strerror(number), "runs/probe/ledger"))
    assert failure is not None
    assert failure.code == Code.FAILED
    assert f"runs/probe/ledger: {os.strerror(number)}. Next: ctl doctor" in failure.text


@pytest.mark.parametrize("number", REFUSALS, ids=lambda number: errno.errorcode[number])
def test_refusal_at_a_port_names_what_failed_where_and_why(number):
    def refuse():
        with port_errors("cannot write the plan"):
            raise OSError(number, os.strerror(number), "plans/a.json")

    with pytest.raises(Unavailable) as caught:
        refuse()
    name = errno.errorcode[number]
    assert (
        str(caught.value) == f"cannot write the plan: {os.strerror(number)} {name} (plans/a.json)"
    )


class FullDisk:
    """A disk with room for so many files; then it refuses, as a quota does."""

    def __init__(self, room):
        self.room = room

    def sync(self, descriptor):
        del descriptor
        if self.room == 0:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        self.room -= 1


@pytest.mark.parametrize("write", [write_atomically, write_once])
def test_quota_that_is_used_up_leaves_the_old_file_and_nothing_half_written(
    tmp_path, monkeypatch, write
):
    path = tmp_path / "a.json"
    disk = FullDisk(room=0)
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", disk.sync)
    with pytest.raises(Unavailable, match="Disk quota exceeded EDQUOT"):
        write(path if write is write_atomically else tmp_path / "b.json", b"new")
    assert [it.name for it in tmp_path.iterdir()] == ["a.json"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (Unavailable("the disk is full"), Code.FAILED, "the disk is full. Next: ctl doctor"),
        (Damaged("cut. Next: ctl log probe"), Code.FAILED, "cut. Next: ctl log probe"),
        (Refused("no such run. Next: ctl status"), Code.BAD_INPUT, "no such run. Next: ctl status"),
        (EpochLost("another one"), Code.BAD_INPUT, "another one"),
    ],
)
def test_failure_has_a_next_command(error, code, text):
    failure = explain_failure(error)
    assert failure is not None
    assert (failure.code, failure.text) == (code, text)


@pytest.mark.parametrize("error", [AssertionError("x"), ValueError("x"), KeyError("x")])
def test_mistake_of_ours_is_no_failure_of_the_machine(error):
    assert explain_failure(error) is None
