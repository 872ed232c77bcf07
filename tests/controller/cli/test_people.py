"""The name of who asks, on machines that know none."""

import os

import pytest

from controller.cli import people


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_user_without_an_entry_goes_by_its_number(error, monkeypatch):
    def fail():
        raise error("no such uid")

    monkeypatch.setattr("getpass.getuser", fail)
    assert people.name_user() == f"uid-{os.getuid()}"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("ada", "ada"), ("a\udcffb", "a?b"), ("x" * 99, "x" * 64), ("a\x1b\nb", "ab")],
)
def test_name_can_be_written_and_shown(name, shown, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: name)
    assert people.name_user() == shown
    assert people.name_user().encode()


@pytest.mark.parametrize("name", ["", " ", "\n"])
def test_name_of_nothing_is_none(name, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: name)
    assert people.name_user() == f"uid-{os.getuid()}"
