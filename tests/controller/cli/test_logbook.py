"""Runs that are copied, moved or damaged can be read; copies cannot be steered."""

import json
import shutil

import pytest

from contract import wire
from controller.cli import verbs
from controller.cli.codes import Code


@pytest.fixture
def copy(launched):
    """Return a copy of the run beside it."""
    return shutil.copytree(launched, launched.with_name("copied"))


def damage(directory):
    """Change the second record."""
    (segment,) = (directory / wire.LEDGER_DIR).glob("*.jsonl")
    segment.write_bytes(segment.read_bytes().replace(b'"pid":42', b'"pid":43'))


def test_copy_is_read_and_verified_and_said_to_be_one(copy, launched, run_ctl):
    code, out, err = run_ctl("ctl log copied --verify")
    assert (code, out) == (Code.DONE, "copied: 2 records; chain and anchors in checkpoints hold\n")
    assert f"is a copy of the run launched in {launched}" in err
    code, out, err = run_ctl("ctl log copied")
    assert (code, len(out.splitlines())) == (Code.DONE, 2)
    assert "is a copy" in err
    _, _, err = run_ctl("ctl status copied")
    assert "is a copy" in err


def test_moved_run_is_no_copy(launched, run_ctl):
    launched.rename(launched.with_name("moved"))
    code, _, err = run_ctl("ctl log moved --verify")
    assert (code, err) == (Code.DONE, "")


@pytest.mark.parametrize("verb", ["suspend", "resume", "stop", "drill"])
def test_copy_is_not_steered_and_the_commands_told_are_right(verb, copy, launched, run_ctl):
    code, _, err = run_ctl(f"ctl {verb} copied" + (" kill 0" if verb == "drill" else ""))
    assert code == Code.BAD_INPUT
    assert f"ctl status probe --runs-dir {launched.parent}" in err
    assert err.rstrip().endswith("ctl resume copied --adopt-copy")


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_shows_what_stands_before_the_damage(form, launched, run_ctl):
    damage(launched)
    code, out, err = run_ctl(f"ctl log probe -o {form}")
    assert code == Code.FAILED
    assert len(json.loads(out) if form == "json" else out.splitlines()) == 1
    assert "record 2 of epoch 1 was changed" in err
    assert "ctl log probe --verify" in err


def test_steering_a_damaged_run_names_the_command_that_judges_it(launched, run_ctl):
    damage(launched)
    code, _, err = run_ctl("ctl suspend probe")
    assert code == Code.FAILED
    assert "Next: ctl log probe --verify" in err


def test_doctor_names_damaged_and_halted_runs(launched, capsys):
    (launched / wire.STATUS_FILE).write_text('{"state": "halted", "reason": "it crashed"}')
    verbs.examine(launched.parent)
    assert (
        "LACKS  run probe  halted; it crashed. Next: ctl log probe"
        in capsys.readouterr().out.replace("   ", "  ")
    )
    damage(launched)
    verbs.examine(launched.parent)
    assert "its ledger is damaged: record 2" in capsys.readouterr().out
