"""Paths that lead to no text: refused at once, whatever stands there."""

import os
import socket
from pathlib import Path

import pytest

from controller.adapters.given import MAX_BYTES, read_given_text
from controller.core.declared.problems import SpecError


def a_pipe(path):
    os.mkfifo(path)


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def a_link_to_itself(path):
    path.symlink_to(path)


def a_ring_of_links(path):
    other = path.with_name("other")
    path.symlink_to(other)
    other.symlink_to(path)


def a_huge_file(path):
    """A hundred gigabytes that take no room: reading them would."""
    with path.open("wb") as file:
        file.truncate(100_000_000_000)


def leading_to(target):
    return lambda path: path.symlink_to(target)


def holding(data):
    return lambda path: path.write_bytes(data)


REFUSED = {
    "nothing": (lambda path: None, "file.missing", "there is no such file"),
    "a link to nothing": (leading_to("gone"), "file.missing", "there is no such file"),
    "a file as a folder": (leading_to("/dev/null/x"), "file.missing", "there is no such file"),
    "a folder": (lambda path: path.mkdir(), "file.kind", "this is a directory"),
    "a pipe that nobody writes to": (a_pipe, "file.kind", "this is a pipe"),
    "a socket": (a_socket, "file.kind", "it must be a regular file"),
    "a device without an end": (leading_to("/dev/zero"), "file.kind", "this is a device"),
    "a link to itself": (a_link_to_itself, "file.loop", "lead to each other"),
    "links in a ring": (a_ring_of_links, "file.loop", "lead to each other"),
    "a file that cannot be read": (leading_to("/proc/self/mem"), "file.unreadable", "readable ("),
    "a hundred gigabytes": (a_huge_file, "file.size", "at most 1,048,576 bytes"),
    "one byte too many": (holding(b"#" * (MAX_BYTES + 1)), "file.size", "at most 1,048,576"),
    "UTF-16": (holding("a: 1\n".encode("utf-16")), "file.encoding", "this is UTF-16"),
    "UTF-32": (holding("a: 1\n".encode("utf-32")), "file.encoding", "UTF-16 or UTF-32"),
    "Latin-1": (holding(b"# a\n# \xe9t\xe9\n"), "file.encoding", "byte 0xe9 in line 2"),
    "a program": (holding(b"\x7fELF\x02\x01\x01\0\xff"), "file.encoding", "byte 0xff in line 1"),
}


def count_open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize(("make", "rule", "words"), REFUSED.values(), ids=list(REFUSED))
def test_path_that_leads_to_no_text_is_refused(make, rule, words, tmp_path):
    path = tmp_path / "run.yaml"
    make(path)
    before = count_open_files()
    with pytest.raises(SpecError) as caught:
        read_given_text(path, "FILE", "Next: ls")
    (problem,) = caught.value.problems
    assert (problem.rule, problem.field) == (rule, "FILE")
    assert str(problem).startswith(f'FILE is "{path}"; ')
    assert words in str(problem)
    assert str(problem).endswith("Next: ls")
    assert count_open_files() == before


def test_path_with_a_zero_byte_is_no_path(tmp_path):
    with pytest.raises(SpecError, match="it is no path"):
        read_given_text(tmp_path / "a\0b", "FILE", "Next: ls")


def test_path_that_is_no_text_is_refused_with_its_bytes_shown(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xe9t\xe9")
    folder.mkdir()
    (folder / "run.yaml").write_text("a: 1")
    with pytest.raises(SpecError, match=r".udce9t.udce9/run.yaml\"; its whole path must be UTF-8"):
        read_given_text(folder / "run.yaml", "FILE", "Next: ls")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfa: 1\r\n", "\ufeffa: 1\n"),
        (b"a: 1\rb: 2\r", "a: 1\nb: 2\n"),
        (b"", ""),
        (b"x" * MAX_BYTES, "x" * MAX_BYTES),
    ],
)
def test_text_of_other_systems_is_read(data, text, tmp_path):
    (tmp_path / "run.yaml").write_bytes(data)
    (tmp_path / "link").symlink_to("run.yaml")
    assert read_given_text(tmp_path / "link", "FILE", "") == text
