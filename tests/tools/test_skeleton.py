"""The rank in forty lines of docs/contract.md, brought to its drain with functions of this file."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from contract.exits import Exit
from contract.wire import (
    CONFIG_FILE,
    ENV_ATTEMPT,
    ENV_PLAN_SHA,
    ENV_RANK,
    ENV_RUN_DIR,
    Drain,
    attempt_dir,
)
from tests.conformance.harness import Run
from tests.conformance.trainers import MINIMAL

PAGE = Path(__file__).parents[2] / "docs" / "contract.md"
(SKELETON,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
SILENT = ("serve_metrics", "enter", "start_watchdog", "require_texts", "join_gang", "poll_control")


class Leaving(Exception):
    """A rank leaves with a code."""


def leave(code):
    raise Leaving(code)


@pytest.fixture
def run(tmp_path, monkeypatch):
    run = Run(tmp_path, MINIMAL)
    path = tmp_path / attempt_dir(1) / CONFIG_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(run.config.encode())
    given = (ENV_RUN_DIR, str(tmp_path)), (ENV_ATTEMPT, "1"), (ENV_RANK, "0")
    for name, value in (*given, (ENV_PLAN_SHA, run.plan.sha)):
        monkeypatch.setenv(name, value)
    return run


@pytest.mark.parametrize(
    ("mode", "is_terminated", "code"),
    [
        (None, True, Exit.DRAINED),
        ("stop", False, Exit.DRAINED),
        ("restart", False, Exit.RESTART),
        ("restart", True, Exit.RESTART),
    ],
)
def test_skeleton_saves_and_leaves_when_asked_or_terminated(run, mode, is_terminated, code):
    saved = []
    drain = Drain(nonce="1", mode=mode) if mode else None
    theirs = {
        **dict.fromkeys(SILENT, lambda *_: None),
        "restore_newest_admissible": lambda run_dir, plan: (7, "state"),
        "agree_on": lambda _: SimpleNamespace(drain=drain, plan_sha=run.plan.sha),
        "was_terminated": lambda: is_terminated,
        "save": lambda state, step, plan: saved.append((step, plan.sha)),
        "leave": leave,
    }
    exec(SKELETON, theirs)
    with pytest.raises(Leaving) as left:
        theirs["main"]()
    assert (left.value.args, saved) == ((code,), [(7, run.plan.sha)])
