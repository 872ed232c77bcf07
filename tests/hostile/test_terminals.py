"""Terminals of any size and kind: ids, commands and reasons are all there, whole or wrapped."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from controller.cli import output
from controller.cli.codes import Code
from tests.e2e.harness import ROOT

COMMAND = [sys.executable, "-m", "controller.cli.main"]
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "TERM")
} | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "TZ": "Asia/Kathmandu"}
PROPOSAL = "3f9c1a77e2b84d06"
STATUS = {
    "format": 1, "state": "halted", "reason": "the restart budget is used up: 5 in 6 h",
    "at": 1_700_000_000_000, "step": 12_345, "total_steps": 50_000, "tokens": 12_641_280,
    "attempt": 12, "phase": "step",
    "figures": {"loss": 2.5, "grad_norm": 0.5, "step_s": 0.125, "tokens_per_second": 8_192.0},
    "ranks": [{"rank": 0, "alive": True, "stopped": False}],
    "checkpoints": {"newest": 10, "newest_verified": None, "quarantined": [
        {"line": "main", "step": 5, "reason": "array blocks/w13 does not match its digest"}]},
    "incidents": {"count": 7, "recent": [
        {"attempt": 12, "cause": "stall", "root_rank": 1, "step": 12_340, "at": 1_700_000_000_000,
         "evidence": "rank 1 passed its deadline and no step was logged for 140 s"}]},
    "last_decision": {"rule": "halt", "reason": "halt and page: it never loops", "at": 1},
    "notes": [{"subject": "storage", "text": "the disk is nearly full", "at": 1}],
    "proposal": {"id": PROPOSAL, "author": "controller", "facts": {},
                 "summary": "end at 90% of the horizon, 45,000 steps"},
    "unknown": {"telemetry of rank 1": "no whole answer within 1 s"},
}  # fmt: skip


@pytest.fixture
def told(launched):
    (launched / "status.json").write_text(json.dumps(STATUS))
    return launched


def show(folder, words, *, columns, lines=24, **changes):
    """Return exit code and what a terminal of that size is sent."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    with subprocess.Popen(
        [*COMMAND, *words.split()], cwd=folder, env=ENVIRONMENT | changes,
        stdin=writer, stdout=writer, stderr=writer,
    ) as process:  # fmt: skip
        os.close(writer)
        data = b""
        while part := read(reader):
            data += part
    os.close(reader)
    return process.returncode, data.decode().replace("\r", "")


def read(descriptor):
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the terminal's last user left
        return b""


def pipe(folder, words):
    done = subprocess.run(
        [*COMMAND, *words.split()], cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def letters(text):
    """Return the text without blanks: where it wraps makes no difference."""
    return "".join(text.split())


VERBS = ("status probe", "status", "log probe", "doctor", "replan probe", "stop nosuch")


@pytest.mark.parametrize("words", VERBS)
def test_narrow_terminal_loses_no_letter(told, folder, words):
    code, wide = pipe(folder, words)
    for columns in (40, 20):
        narrow_code, narrow = show(folder, words, columns=columns)
        assert narrow_code == code
        assert letters(narrow) == letters(wide)


@pytest.mark.parametrize("columns", [40, 20])
def test_words_are_whole_where_they_fit_on_a_line(told, folder, columns):
    _, shown = show(folder, "status probe", columns=columns)
    lines = shown.splitlines()
    for word in (PROPOSAL, "--approve", "halted:", "stall"):
        assert any(word in line for line in lines), (word, shown)
    assert all(len(line) <= columns for line in lines)


@pytest.mark.parametrize("words", ["launch --help", "replan --help"])
def test_help_on_a_narrow_terminal_loses_no_option_and_no_exit_code(folder, words):
    _, wide = pipe(folder, words)
    _, narrow = show(folder, words, columns=40)
    assert letters(narrow) == letters(wide)


def test_list_of_commands_on_a_narrow_terminal_is_whole(folder):
    _, wide = pipe(folder, "--help")
    _, narrow = show(folder, "--help", columns=40)
    (head, commands), (wide_head, wide_commands) = (
        text.split("Commands:") for text in (narrow, wide)
    )
    assert letters(head) == letters(wide_head)
    # Each is told in a line there, as long as there is room; its own --help tells the rest.
    assert first_words(commands) == first_words(wide_commands)


def first_words(text):
    lines = [line for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
    return [line.split()[0] for line in lines]


@pytest.mark.parametrize(
    "changes",
    [
        {"COLUMNS": "0"}, {"COLUMNS": "-5"}, {"COLUMNS": "many", "LINES": "few"},
        {"TERM": "dumb"}, {"TERM": ""}, {"TERM": "no-such-terminal"}, {"NO_COLOR": "1"},
    ],
    ids=str,
)  # fmt: skip
def test_odd_terminal_shows_the_same_words(told, folder, changes):
    _, wide = pipe(folder, "status probe")
    code, shown = show(folder, "status probe", columns=0, lines=0, **changes)
    assert (code, letters(shown)) == (Code.FAILED, letters(wide))


def test_terminal_that_cannot_be_drawn_on_is_told_lines(told, folder):
    for changes in ({"TERM": "dumb"}, {"columns": 20}, {"lines": 4}):
        place = {"columns": 80, "lines": 24} | {k: v for k, v in changes.items() if k != "TERM"}
        term = {name: value for name, value in changes.items() if name == "TERM"}
        code, shown = show(folder, "status probe --watch", **place, **term)
        assert code == Code.FAILED
        assert "\x1b" not in shown
        assert "Next: ctl log probe" in " ".join(shown.split())


def test_view_that_is_higher_than_the_terminal_says_where_the_rest_is(told, folder):
    code, shown = show(folder, "status probe --watch", columns=40, lines=12)
    assert code == Code.FAILED
    assert "more: ctl status probe" in shown


def test_lines_that_fit_are_all_shown(monkeypatch):
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "8")
    assert output.fit("a\nb\nc\nd\ne", "more") == "a\nb\nc\nd\ne"
    assert output.fit("a\nb\nc\nd\ne\nf", "more") == "a\nb\nc\nd\nmore"
    assert output.fit("a" * 25 + "\nb\nc", "more") == "a" * 25 + "\nb\nc"
    assert output.fit("a" * 25 + "\nb\nc\nd", "more") == "a" * 25 + "\nb\nmore"
    assert output.fit("a" * 250, "more") == "a" * 250 + "\nmore"


def test_file_and_pipe_get_a_row_a_line(told, folder, run_ctl):
    _, out, _ = run_ctl("ctl status probe")
    (row,) = [line for line in out.splitlines() if PROPOSAL in line]
    assert row.endswith(f"Next: ctl replan probe --approve {PROPOSAL}")
