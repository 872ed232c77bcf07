import fcntl
import json
import os

import pytest

from contract import wire
from controller.cli import peek, verbs
from controller.cli.codes import Code
from controller.cli.looking import code_of, show_status
from controller.cli.wording import describe, describe_line


@pytest.fixture
def run_dir(tmp_path):
    """A run that trains, as its files look; nobody steers it."""
    directory = tmp_path / "runs" / "probe"
    directory.mkdir(parents=True)
    (directory / "identity.json").write_text("{}")
    write_status(directory, state="training")
    return directory


def write_status(directory, **changes):
    status = {
        "format": 1, "state": "training", "reason": "attempt 1 trains", "at": 1_700_000_000_000,
        "step": 12, "total_steps": 50, "tokens": 12_288, "attempt": 1, "phase": "step",
        "figures": {
            "loss": 2.5, "grad_norm": 0.5, "step_s": 0.125, "tokens_per_second": 8_192.0,
            "mfu_percent": 12.5, "drops_percent": 3.0, "learning_rate": 0.1,
        },
        "ranks": [{"rank": 0, "alive": True, "stopped": False}],
        "checkpoints": {"newest": 10, "newest_verified": None, "quarantined": [
            {"line": "main", "step": 5, "reason": "a bit flipped"}]},
        "incidents": {"count": 1, "recent": [
            {"attempt": 1, "cause": "killed", "root_rank": 1, "step": 3,
             "evidence": "its exit record", "at": 1}]},
        "last_decision": {"rule": "launch", "reason": "start attempt 1", "at": 1},
        "notes": [{"subject": "storage", "text": "nearly full", "at": 1}],
        "unknown": {"telemetry of rank 1": "no answer"},
        "storage": {"problem": None, "free_bytes": 1},
    } | changes  # fmt: skip
    (directory / "status.json").write_text(json.dumps(status))


@pytest.fixture
def steered(run_dir):
    """The same run while somebody holds its lock."""
    path = run_dir / "controller.lock"
    path.write_text(json.dumps({"process": {"pid": 41}, "epoch": 7}).ljust(1024))
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield run_dir
    os.close(descriptor)


def test_names_are_those_of_the_contract():
    for name in (
        "IDENTITY_FILE", "STATUS_FILE", "LOCK_FILE", "SUMMARY_FILE", "ATTEMPTS_DIR",
        "RANK_LOCK_FILE", "STDERR_FILE",
    ):  # fmt: skip
        assert getattr(peek, name) == getattr(wire, name)


def test_unsteered_run_is_blind_and_says_what_to_type(run_dir):
    view = peek.look(run_dir)
    assert view.is_blind
    assert code_of(view) == Code.BLIND
    text = describe(view)
    assert "ctl resume probe" in text
    assert "s old: the ranks may live" in text
    assert "1 of 1 ranks alive when last seen" in text


def test_list_with_an_unsteered_run_is_blind(run_dir, capsys):
    assert show_status(run_dir.parent, None, watch=False, form="table") == Code.BLIND
    write_status(run_dir, state="suspended")
    assert show_status(run_dir.parent, None, watch=False, form="json") == Code.DONE


def test_watching_needs_a_name_and_says_which(run_dir, capsys):
    assert show_status(run_dir.parent, None, watch=True, form="table") == Code.BAD_INPUT
    assert "Next: ctl status probe --watch" in capsys.readouterr().err


def test_finished_run_has_no_phase_and_a_stopped_one_can_go_on(run_dir):
    write_status(run_dir, state="stopped", reason="the owner stopped the run", phase=None)
    text = describe(peek.look(run_dir))
    assert "phase" not in text
    assert "ctl resume goes on" in text


def test_what_is_not_known_is_never_shown_as_none(run_dir):
    write_status(run_dir, attempt=None, total_steps=None, tokens=None)
    view = peek.look(run_dir)
    assert "None" not in describe(view) + describe_line(view)
    write_status(run_dir, tokens=None)
    assert "? tokens" in describe(peek.look(run_dir))


def test_halted_run_shows_the_last_words_of_its_trainer(run_dir):
    folder = run_dir / "attempts" / "1" / "rank-1"
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text("the cause\n \n")
    write_status(run_dir, state="halted", reason="too often")
    assert f"{folder / 'stderr.log'}: the cause" in describe(peek.look(run_dir))


def test_steered_run_names_its_controller(steered):
    view = peek.look(steered)
    assert (view.controller.pid, view.controller.epoch, view.is_blind) == (41, 7, False)
    assert code_of(view) == Code.DONE
    assert "pid 41, epoch 7" in describe(view)


def test_everything_that_matters_is_shown(steered):
    text = describe(peek.look(steered))
    for words in (
        "12 of 50 (24.0%), 12,288 tokens", "8,192 tokens/s", "125 ms", "MFU 12.5%", "2.5000 nats",
        "drops 3.0%", "checkpoint 10", "main/5 is quarantined: a bit flipped", "start attempt 1",
        "storage: nearly full", "telemetry of rank 1: no answer", "killed (rank 1, step 3)",
    ):  # fmt: skip
        assert words in text


def test_one_line_for_logs(steered):
    line = describe_line(peek.look(steered))
    assert line.startswith("training")
    assert "step 12 of 50" in line
    assert "attempt 1" in line


@pytest.mark.parametrize("damage", ["", "{", "[1]", "{}"])
def test_unreadable_status_is_blind_never_a_crash(run_dir, damage):
    (run_dir / "status.json").write_text(damage)
    view = peek.look(run_dir)
    assert (view.status, view.is_blind, code_of(view)) == (None, True, Code.BLIND)
    assert "no status yet" in describe(view)
    assert describe_line(view)


def test_run_without_a_gang_or_figures_is_described(run_dir):
    write_status(
        run_dir, state="waiting", figures=None, step=None, tokens=None, ranks=[], checkpoints=None,
        storage=None, incidents={"count": 0, "recent": []}, last_decision=None, notes=[],
    )  # fmt: skip
    assert "? of 50" in describe(peek.look(run_dir))


@pytest.mark.parametrize(
    ("state", "code"), [("completed", Code.DONE), ("halted", Code.FAILED), ("stopped", Code.DONE)]
)
def test_run_at_rest_needs_no_controller(run_dir, state, code):
    write_status(run_dir, state=state, reason="because")
    assert code_of(peek.look(run_dir)) == code


@pytest.mark.parametrize("form", ["json", "yaml", "table"])
def test_forms_print_the_same_run(run_dir, capsys, form):
    show_status(run_dir.parent, None, watch=False, form=form)
    assert "probe" in capsys.readouterr().out or form != "table"
    show_status(run_dir.parent, "probe", watch=False, form=form)
    out = capsys.readouterr().out
    if form == "json":
        assert json.loads(out)["controller"]["alive"] is False
    assert "12" in out


def test_watching_a_run_that_nobody_steers_ends_at_once(run_dir, capsys):
    assert show_status(run_dir.parent, "probe", watch=True, form="table") == Code.BLIND
    assert "step 12 of 50" in capsys.readouterr().out


def test_doctor_names_what_it_looked_at_and_runs_that_nobody_steers(run_dir, capsys):
    assert verbs.examine(run_dir.parent) == Code.FAILED
    shown = capsys.readouterr().out
    assert "flock" in shown
    assert "LACKS  run probe" in shown
    assert "ctl resume probe" in shown
