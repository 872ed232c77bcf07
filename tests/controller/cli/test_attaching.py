import io
import json

import pytest

from controller.cli import attaching
from controller.cli.codes import Code


class Keyboard(io.StringIO):
    """A terminal at which these lines are typed; None is a Ctrl-C."""

    def __init__(self, *lines):
        super().__init__()
        self.lines = list(lines)

    def isatty(self):
        return True

    def readline(self):
        line = self.lines.pop(0)
        if line is None:
            raise KeyboardInterrupt
        return line + "\n"


@pytest.mark.parametrize(
    ("keyboard", "choice"),
    [
        (Keyboard("d"), "detach"),
        (Keyboard(""), "detach"),
        (Keyboard("s"), "stop"),
        (Keyboard("Stop"), "stop"),
        (Keyboard("g"), "go"),
        (Keyboard(None), "detach"),
        (io.StringIO(), "detach"),
    ],
)
def test_interrupt_asks_and_detaches_by_default(keyboard, choice, monkeypatch):
    monkeypatch.setattr("sys.stdin", keyboard)
    assert attaching.ask_leave() == choice


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("completed", Code.DONE, "is finished"),
        ("suspended", Code.DONE, "is suspended; ctl resume probe goes on"),
        ("stopped", Code.DONE, "is stopped; ctl resume probe goes on"),
        ("halted", Code.FAILED, "ctl log probe"),
        ("training", Code.BLIND, "ctl resume probe"),
    ],
)
def test_end_of_a_view_says_how_the_run_rests(tmp_path, capsys, state, code, words):
    directory = tmp_path / "probe"
    directory.mkdir()
    (directory / "status.json").write_text(json.dumps({"state": state, "reason": "because"}))
    assert attaching.conclude(directory) == code
    assert words in capsys.readouterr().err


def test_end_of_a_halted_run_shows_the_trainer_s_last_words(tmp_path, capsys):
    directory = tmp_path / "probe"
    folder = directory / "attempts" / "3" / "rank-1"
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text("Traceback\nValueError: no such word\n\n")
    incident = {"attempt": 3, "cause": "error", "root_rank": 1, "evidence": "", "at": 1}
    status = {
        "state": "halted",
        "reason": "too often",
        "incidents": {"count": 1, "recent": [incident]},
    }
    (directory / "status.json").write_text(json.dumps(status))
    attaching.conclude(directory)
    assert f"{folder / 'stderr.log'}: ValueError: no such word" in capsys.readouterr().err


def test_view_of_a_run_at_rest_ends_at_once(tmp_path, capsys):
    directory = tmp_path / "probe"
    directory.mkdir()
    status = {"state": "stopped", "reason": "the owner stopped the run", "step": 3, "tokens": 3}
    (directory / "status.json").write_text(json.dumps(status | {"total_steps": 9, "attempt": 1}))
    assert attaching.attach(directory) == Code.DONE
    shown = capsys.readouterr()
    assert "step 3 of 9" in shown.out
    assert "is stopped" in shown.err
