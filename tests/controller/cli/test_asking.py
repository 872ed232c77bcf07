"""`ctl resume --from`: only steps that the controller takes are offered, and asked for."""

import json

import pytest

from controller.cli import asking, deps
from controller.cli.orders import Wish
from controller.core.lines import REFUSAL
from controller.core.telling.status import build_status
from controller.ports import Refused
from tests.builders import a_run, an_instant
from tests.forked import make_forked_run, save

LATE_MS = 10**14


@pytest.fixture
def run(tmp_path):
    return make_forked_run(tmp_path)


def resume(run, step, *, wait=False):
    return asking.ask(run.directory.parent, run.name, Wish("resume", from_step=step, wait=wait))


@pytest.mark.parametrize("step", [40, 7])
def test_step_that_the_controller_would_refuse_is_refused_with_those_that_work(run, step):
    with pytest.raises(Refused) as refused:
        resume(run, step)
    assert f"--from is {step}" in str(refused.value)
    assert "(10, 20, 30). Next: ctl resume probe --from 30" in str(refused.value)
    assert list((run.directory / "intents").iterdir()) == []


@pytest.mark.parametrize(("step", "line"), [(30, "main-2"), (20, "main")])
def test_wish_names_the_line_that_holds_the_step_now(run, step, line, monkeypatch):
    monkeypatch.setattr(deps, "start_controller", lambda _: None)
    resume(run, step)
    (intent,) = (run.directory / "intents").iterdir()
    found = json.loads(intent.read_bytes())
    assert (found["verb"], found["line"], found["step"]) == ("resume_from", line, step)


def test_younger_line_is_asked_for_where_both_hold_the_step(run, monkeypatch):
    monkeypatch.setattr(deps, "start_controller", lambda _: None)
    save(run.directory, "main-2", 20, deps.read_memory(run).chain)
    resume(run, 20)
    (intent,) = (run.directory / "intents").iterdir()
    assert json.loads(intent.read_bytes())["line"] == "main-2"


def test_without_any_checkpoint_the_next_command_is_to_look(run):
    for place in (run.directory / "checkpoints").iterdir():
        place.rename(run.directory / f"gone-{place.name}")
    with pytest.raises(Refused, match=r"\(none\)\. Next: ctl status probe"):
        resume(run, 20)


def test_refusal_by_the_controller_has_a_next_command(run, monkeypatch):
    other = a_run()
    note = (REFUSAL, "cannot resume from main/20: gone", an_instant(LATE_MS))
    memory = other.memory.model_copy(update={"notes": [note]})
    status = {**build_status(memory, other.snapshot()), "at": LATE_MS}

    def refuse(directory):
        (directory / "status.json").write_text(json.dumps(status))

    monkeypatch.setattr(deps, "start_controller", refuse)
    with pytest.raises(Refused, match=r"main/20: gone\. Next: ctl resume probe --from 30"):
        resume(run, 20, wait=True)
