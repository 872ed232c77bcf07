"""What a look from outside makes of files that nobody vouches for."""

import json
import os
import socket
import time

import pytest

from controller.adapters.system import read_boot_id
from controller.cli import output, peek
from controller.cli.codes import Code
from controller.cli.looking import code_of, show_status
from controller.cli.wording import describe, describe_line
from controller.runtime import lease

GOOD = {"state": "training", "reason": "attempt 1 trains"}


@pytest.fixture
def run_dir(tmp_path):
    directory = tmp_path / "runs" / "probe"
    directory.mkdir(parents=True)
    (directory / "identity.json").write_text("{}")
    (directory / "status.json").write_text(json.dumps(GOOD))
    return directory


@pytest.mark.parametrize(
    "odd",
    [
        {"state": []}, {"reason": None}, {"ranks": {}}, {"ranks": [1]}, {"ranks": [{}]},
        {"figures": {"loss": "much"}}, {"notes": [{}]},
        {"notes": [{"subject": "a", "text": "b", "at": "c"}]},
        {"incidents": {"count": 1, "recent": 3}}, {"incidents": {"recent": []}},
        {"incidents": {"count": 1, "recent": [{}]}},
        {"checkpoints": {"quarantined": [{"line": 1}]}}, {"last_decision": {}},
        {"at": "noon"}, {"plan": "main"},
    ],
)  # fmt: skip
def test_status_of_another_form_is_unreadable(run_dir, odd):
    assert peek.look(run_dir).status is not None
    (run_dir / "status.json").write_text(json.dumps(GOOD | odd))
    view = peek.look(run_dir)
    assert (view.status, code_of(view)) == (None, Code.BLIND)
    assert "no status yet" in describe(view)
    assert describe_line(view)


def test_lock_that_is_a_directory_is_nobodys(run_dir):
    (run_dir / "controller.lock").mkdir()
    view = peek.look(run_dir)
    assert (view.controller.is_alive, view.controller.pid) == (False, None)
    assert lease.read_lease(run_dir).holder is None


@pytest.mark.parametrize(
    ("change", "is_silent"),
    [
        ({}, True),
        ({"age_ms": 10_000}, False),
        ({"boot_id": "another"}, False),
        ({"host": "elsewhere"}, False),
        ({"pid": 2**22 + 1}, False),
    ],
)
def test_holder_whose_heart_stopped_is_silent(run_dir, hold_lock, change, is_silent):
    assert peek.STALE_AFTER_MS == lease.STALE_AFTER_MS
    age_ms = change.get("age_ms", lease.STALE_AFTER_MS + 60_000)
    holder = {
        "process": {"pid": change.get("pid", os.getpid())},
        "host": change.get("host", socket.gethostname()),
        "epoch": 7,
        "heartbeat": {
            "wall_ms": 1,
            "mono_ms": time.monotonic_ns() // 1_000_000 - age_ms,
            "boot_id": change.get("boot_id", read_boot_id()),
        },
    }
    hold_lock(run_dir)
    (run_dir / "controller.lock").write_text(json.dumps(holder).ljust(1024))
    view = peek.look(run_dir)
    assert view.controller.is_alive is not is_silent
    assert code_of(view) == (Code.BLIND if is_silent else Code.DONE)
    assert ("silent for" in describe(view)) is is_silent


def test_words_of_files_do_not_steer_the_terminal(run_dir, capsys):
    words = {"reason": "\x1b[2Jall\x9b\r gone\x07, \x7freally"}
    (run_dir / "status.json").write_text(json.dumps(GOOD | words))
    for form in ("table", "json", "yaml"):
        show_status(run_dir.parent, "probe", watch=False, form=form)
    output.tell("two\nlines\tand \x1b]0;a title")
    shown = capsys.readouterr()
    assert "[2Jall gone, really" in shown.out
    assert shown.err == "two\nlines\tand ]0;a title\n"
    assert not {"\x1b", "\x9b", "\r", "\x07", "\x7f"} & set(shown.out + shown.err)
