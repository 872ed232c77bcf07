"""Bad input: field, value, bound, next command; exit code 2; nothing started or written."""

import os

import psutil
import pytest

from controller.cli.codes import Code
from tests.run_files import BAD, BAD_HERE, GOOD, spoil


def listing(folder):
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("rule", "old", "new", "words"), BAD + BAD_HERE, ids=[row[0] for row in BAD + BAD_HERE]
)
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


def test_fleet_of_racks_is_sent_to_the_rehearsal_by_launch_and_gate(folder, run_ctl):
    racks = spoil(GOOD, "kind: local, processes: 2", "kind: kubernetes, racks: 1, traysPerRack: 2")
    (folder / "run.yaml").write_text(racks)
    for verb in ("launch", "gate"):
        code, _, err = run_ctl(f"ctl {verb} run.yaml")
        assert code == Code.BAD_INPUT
        assert "spec.fleet.kind" in err
        assert "Next: ctl simulate run.yaml" in err


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
    assert code == Code.BAD_INPUT
    assert "Next: ctl launch FILE, or --runs-dir" in err
    assert 'no run "nosuch"' in err
    assert not (folder / "runs").exists()
    assert run_ctl("ctl launch run.yaml --dry-run")[0] == Code.DONE


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


def test_missing_kind_of_a_drill_is_said_to_be_missing(folder, run_ctl):
    code, _, err = run_ctl("ctl drill probe")
    assert code == Code.BAD_INPUT
    assert "KIND: it must be given" in err
    assert "None" not in err


@pytest.mark.parametrize("words", ["kill 0", "--at-step 5"])
def test_drill_is_of_a_file_or_of_the_words_never_both(words, folder, run_ctl):
    (folder / "drill.yaml").write_text("- {atStep: 5, kind: corrupt}")
    code, _, err = run_ctl(f"ctl drill probe {words} --file drill.yaml")
    assert code == Code.BAD_INPUT
    assert "leave out" in err


@pytest.mark.parametrize("command", ["status", "log probe"])
def test_unknown_form_of_output_is_refused(command, folder, run_ctl):
    code, out, err = run_ctl(f"ctl {command} -o xml")
    assert (code, out) == (Code.BAD_INPUT, "")
    assert "--output is" in err
    assert "xml" in err
    assert "json" in err


def test_yaml_error_names_the_file(folder, run_ctl):
    (folder / "run.yaml").write_text("metadata: [\n")
    _, _, err = run_ctl("ctl launch run.yaml")
    assert 'in "run.yaml", line 2' in err
    assert "unicode" not in err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("finalPercent: 5\n", "finalPercent: 5.5\n", "write a whole number or"),
        ('matrix: "0.5"', 'matrix: "-0.5"', "without sign or exponent"),
        ("heldOutPercent: 20", "heldOutPercents: 20", 'Did you mean "heldOutPercent"?'),
    ],
)
def test_advice_is_followed_by_no_further_refusal(old, new, words, folder, run_ctl):
    (folder / "run.yaml").write_text(spoil(GOOD, old, new))
    _, _, err = run_ctl("ctl launch run.yaml")
    assert words in err


def test_dry_run_tells_what_may_be_given_up_and_what_calls_for_it(folder, run_ctl):
    text = spoil(GOOD, "  faults:", f"{CONTINGENCY}  faults:")
    (folder / "run.yaml").write_text(text)
    code, out, err = run_ctl("ctl launch run.yaml --dry-run")
    assert code == Code.DONE, err
    (row,) = [line for line in out.splitlines() if line.startswith("contingency")]
    for words in (
        "P(on time) below 10% at 3 evaluations", "with 80%", "(floor 75%)", "first 25% (window)"
    ):  # fmt: skip
        assert words in row, words
    (folder / "run.yaml").write_text(spoil(text, "mode: propose", 'mode: "off"'))
    assert "off: the forecast is only reported" in run_ctl("ctl launch run.yaml --dry-run")[1]
    (folder / "run.yaml").write_text(GOOD)
    assert "contingency " not in run_ctl("ctl launch run.yaml --dry-run")[1]


CONTINGENCY = "  deadline: {at: 2099-01-01T00:00:00Z}\n  contingency: {mode: propose}\n"


def test_dry_run_refuses_built_in_text_that_the_launch_would_refuse(folder, run_ctl):
    text = spoil(
        GOOD, "{kind: files, paths: [text.txt], heldOutPercent: 20}", "{kind: python-stdlib}"
    )
    text = spoil(text, "51_200", "102_400_000")
    (folder / "run.yaml").write_text(text)
    code, out, err = run_ctl("ctl launch run.yaml --dry-run")
    assert (code, out) == (Code.BAD_INPUT, "")
    assert "contingency.maxEpochs" in err


# --- files that are none, or mean harm: the same answer wherever a file is named ---

PLACES = {
    "FILE of launch": ("ctl launch evil", "FILE"),
    "FILE of gate": ("ctl gate evil", "FILE"),
    "FILE of simulate": ("ctl simulate evil", "FILE"),
    "launch --drill": ("ctl launch run.yaml --drill evil", "--drill"),
    "drill --file": ("ctl drill probe --file evil", "--file"),
    "replan --mixture": ("ctl replan probe --mixture evil", "--mixture"),
    "replan --execution": ("ctl replan probe --execution evil", "--execution"),
}


@pytest.mark.parametrize(("command", "field"), PLACES.values(), ids=list(PLACES))
def test_file_that_is_none_is_refused_wherever_it_is_named(
    command, field, launched, folder, run_ctl
):
    for make, words in (
        (lambda path: None, "there is no such file"),
        (lambda path: path.symlink_to("/dev/zero"), "this is a device"),
        (lambda path: path.symlink_to(path), "lead to each other"),
        (os.mkfifo, "this is a pipe"),
        (lambda path: path.write_bytes(b"a: \xe9"), "byte 0xe9 in line 1"),
    ):
        make(folder / "evil")
        code, out, err = run_ctl(command)
        assert (code, out) == (Code.BAD_INPUT, "")
        assert err.startswith(f'{field} is "evil"; '), err
        assert words in err
        assert "ctl " in err or "ls samples" in err
        (folder / "evil").unlink(missing_ok=True)


EVIL = (
    (b"a: &a [*a, *a]", "aliases (*name) are refused"),
    (b"[" * 10_000, "20 levels of nesting"),
    (b"a: 1\na: 2", "it stands twice"),
    (b"a: !!python/object/apply:os.system [ls]", "tags (!name) are refused"),
    (b"a: 1\n---\na: 2", "it must hold one document"),
    (b'a: "\x1b[2J"', "U+001B in line 1, column 5"),
    (b"#" * 300_000, "at most 262,144"),
)


@pytest.mark.parametrize(("command", "field"), PLACES.values(), ids=list(PLACES))
def test_text_that_means_harm_is_refused_wherever_it_is_read(
    command, field, launched, folder, run_ctl
):
    for data, words in EVIL:
        (folder / "evil").write_bytes(data)
        code, out, err = run_ctl(command)
        assert (code, out) == (Code.BAD_INPUT, ""), err
        assert words in err
        assert "evil, then: ctl " in err
        assert "\x1b" not in err


@pytest.mark.parametrize("word", ["x" * 5_000, "x" * 5_000 + ".py", "a/" * 3_000])
def test_word_of_the_command_may_be_longer_than_a_file_name(word, folder, run_ctl):
    (folder / "run.yaml").write_text(spoil(GOOD, "[python, -c, pass]", f"[python, -c, {word}]"))
    code, _, err = run_ctl("ctl launch run.yaml --dry-run")
    if word.endswith(".py"):
        assert (code, "there is no such file" in err) == (Code.BAD_INPUT, True)
    else:
        assert code == Code.DONE, err


@pytest.mark.parametrize("word", ["x" * 5_000, "a b", "pyth\u00f6n", "/tmp", ""])
def test_program_that_is_none_is_refused(word, folder, run_ctl):
    (folder / "run.yaml").write_text(spoil(GOOD, "[python, -c, pass]", f'["{word}"]'))
    code, _, err = run_ctl("ctl launch run.yaml --dry-run")
    assert (code, "it must be a program on the PATH" in err) == (Code.BAD_INPUT, True), err
