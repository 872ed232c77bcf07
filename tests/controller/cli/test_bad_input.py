"""Bad input: field, value, bound, next command; exit code 2; nothing started or written."""

import shlex
import sys

import psutil
import pytest

from controller.cli import main as ctl
from controller.cli.codes import Code
from tests.run_files import BAD, BAD_HERE, GOOD, spoil, write_good


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a right run file and its text; commands run there."""
    write_good(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run_ctl(monkeypatch, capsys):
    """Runs a command in this process; returns its exit code, data and talk."""

    def run(command):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as left:
            ctl.main()
        shown = capsys.readouterr()
        return int(left.value.code or 0), shown.out, shown.err

    return run


def listing(folder):
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize(("rule", "old", "new", "words"), BAD + BAD_HERE)
def test_bad_file_changes_nothing_and_names_a_command_that_works(
    rule, old, new, words, folder, run_ctl
):
    path = folder / "run.yaml"
    path.write_text(spoil(GOOD, old, new))
    files, children = listing(folder), psutil.Process().children()
    code, out, err = run_ctl("ctl launch run.yaml")
    assert (code, out) == (Code.BAD_INPUT, "")
    assert words in err
    assert (listing(folder), psutil.Process().children()) == (files, children)

    # The advice, followed: edit the file, then type the command.
    advice = err.strip().splitlines()[0].rpartition("then: ")[2]
    path.write_text(GOOD)
    code, out, _ = run_ctl(advice)
    assert (code, "nothing was written or started" in out) == (Code.DONE, True)
    assert listing(folder) == files


def test_rules_told_to_people_are_at_least_twenty_five():
    assert len({rule for rule, *_ in BAD + BAD_HERE}) >= 25


def test_missing_run_file_is_named(folder, run_ctl):
    code, _, err = run_ctl("ctl launch gone.yaml")
    assert code == Code.BAD_INPUT
    assert "gone.yaml" in err


def test_directory_that_holds_no_run_is_left_alone(folder, run_ctl):
    (folder / "runs" / "probe").mkdir(parents=True)
    (folder / "runs" / "probe" / "mine.txt").write_text("mine")
    files = listing(folder)
    code, _, err = run_ctl("ctl launch run.yaml")
    assert code == Code.BAD_INPUT
    assert "holds no run" in err
    assert listing(folder) == files


@pytest.mark.parametrize("verb", ["status", "suspend", "resume", "stop", "log", "drill"])
def test_unknown_run_is_named_with_those_that_are_there(verb, folder, run_ctl):
    extra = " kill 0" if verb == "drill" else ""
    code, _, err = run_ctl(f"ctl {verb} nosuch{extra}")
    assert code in (Code.BAD_INPUT, Code.FAILED)
    assert 'no run "nosuch"' in err
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- {atStep: 5, kind: explode, rank: 1}", "kind"),
        ("- {atStep: 5, kind: kill}", "needs a rank"),
        ("- {atStep: 5, kind: corrupt, rank: 1}", "takes no rank"),
        ("- {atStep: 0.5, kind: kill, rank: 1}", "real numbers are refused"),
        ("kill: 1", "a drill file is a list"),
    ],
)
def test_bad_drill_file_stops_the_launch_before_anything_is_written(text, words, folder, run_ctl):
    (folder / "drill.yaml").write_text(text)
    files = listing(folder)
    code, _, err = run_ctl("ctl launch run.yaml --drill drill.yaml")
    assert code == Code.BAD_INPUT
    assert words in err
    assert listing(folder) == files


@pytest.mark.parametrize("arguments", ["explode 1", "kill", "kill first", "corrupt 1"])
def test_bad_drill_is_refused(arguments, folder, run_ctl):
    code, _, err = run_ctl(f"ctl drill probe {arguments}")
    assert code == Code.BAD_INPUT
    assert "ctl drill probe kill 0" in err


def test_unknown_form_of_status_is_refused(folder, run_ctl):
    code, _, err = run_ctl("ctl status -o xml")
    assert code == Code.BAD_INPUT
    assert "json" in err
