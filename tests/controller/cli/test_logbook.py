"""Runs that are copied, moved or damaged can be read; copies cannot be steered."""

import json
import shutil

import pytest

from contract import wire
from controller.cli import deps, replaying, verbs
from controller.cli.codes import Code
from controller.core import decide
from controller.core.telling import replay
from tests.builders import a_run
from tests.recorded import make_run, write_records


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
    assert (code, out) == (
        Code.DONE,
        "copied: 2 records (1 kB); chain and anchors in checkpoints hold\n",
    )
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
    told = " ".join(capsys.readouterr().out.split())
    assert "LACKS run probe halted; it crashed. Next: ctl log probe" in told
    damage(launched)
    verbs.examine(launched.parent)
    assert "its ledger is damaged: record 2" in capsys.readouterr().out


# --- what is shown ---


@pytest.fixture
def told(tmp_path, monkeypatch):
    """A run with a launch, an incident and a restart, recorded by this core."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    directory = make_run(tmp_path)
    run = a_run().launched().with_end(1, 137)
    run.pass_once()
    run.over(94, 137, 94, 94).relaunched()
    write_records(directory, run.book.records)
    return directory


def numbers(out):
    return [json.loads(line)["seq"] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("", range(1, 13)),
        ("--kind decision,epoch", [2, 3, 7, 9, 10]),
        ("--rule launch", [3, 10]),
        ("--verb launch_gang", [3, 6, 10, 12]),
        ("--since '#9' --until 10", [9, 10]),
        ("--last 2 --kind outcome", [11, 12]),
        ("--since 2023-11-14T22:30:01Z", [10, 11, 12]),
        ("--until 2023-11-14T23:30:00+01:00", range(1, 10)),
        ("--since 1h", []),
    ],
)
def test_records_are_chosen_by_kind_rule_verb_time_and_number(told, run_ctl, options, shown):
    code, out, err = run_ctl(f"ctl log probe -o jsonl {options}")
    assert (code, numbers(out), err) == (Code.DONE, list(shown), "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--kind decisions", '--kind is "decisions"; it is not known. Did you mean "decision"?'),
        ("--rule lunch", '--rule is "lunch"; it is not known. Did you mean "launch"?'),
        ("--verb kill", "--verb is "),
        ("--since yesterday", "it must be an instant with an offset such as"),
        ("--since 2023-11-14T22:30:00", "it must be an instant with an offset such as"),
        ("--last 0", "it must be 1 to 1000000"),
        ("--last 99999999999999999999", "it must be 1 to 1000000"),
        (f"--until {'9' * 5000}", "it must be an instant with an offset such as"),
        (f"--explain {'9' * 5000}", "it must be the number of a record"),
        ("--since ''", "it must be an instant with an offset such as"),
        ("--since 2027-01-31", "it must be an instant with an offset such as"),
        ("--replay --verify", "--verify: it does not go with --replay"),
        ("--verify --last 3", "--last: it does not go with --verify"),
        ("--explain 3 --kind run", "--kind: it does not go with --explain"),
        ("--replay -o jsonl", "it must be text or json with --replay"),
        ("--explain x", 'it must be the number of a record, or "last"'),
        ("--explain 13", "it must be 1 to 12"),
        ("-o table", "it must be text or json or jsonl"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_in_words(told, run_ctl, options, words):
    code, out, err = run_ctl(f"ctl log probe {options}")
    assert (code, out) == (Code.BAD_INPUT, "")
    assert words in err
    assert "Next: ctl log probe" in err


def test_last_decision_of_none_is_refused(launched, run_ctl):
    code, _, err = run_ctl("ctl log probe --explain last")
    assert code == Code.BAD_INPUT
    assert '--explain is "last"; no decision is recorded yet' in err


def test_text_names_the_zone(told, run_ctl):
    _, out, _ = run_ctl("ctl log probe --last 1")
    assert out.startswith("   12  2023-11-14 23:00:00 UTC  outcome   launch_gang: done")


def test_explanation_tells_inputs_every_rule_acts_and_keys(told, run_ctl):
    code, out, _ = run_ctl("ctl log probe --explain last")
    assert code == Code.DONE
    for words in (
        "decision 10 of probe: launch: start attempt 2",
        "2023-11-14 23:00:00 UTC, by the controller of epoch 1",
        "this core decides the same of the same inputs, bit for bit",
        "rank 1 ended with 137 KILLED at 2023-11-14 22:30:00 UTC",
        "  stay_at_rest        nothing to say",
        "> launch              ACTED ",
        "start attempt 2 -- Start the next attempt, once nothing of an older one lives.",
        "[needs gang, store, storage]",
        "    key sim/2/launch_gang/-/9",
        "    done (record 12)",
    ):
        assert words in out, words


def test_record_that_is_no_decision_is_told_with_its_decision(told, run_ctl):
    code, out, err = run_ctl("ctl log probe --explain 5 -o json")
    found = json.loads(out)
    assert (code, found["seq"], found["rule"]) == (Code.DONE, 3, "launch")
    assert found["repeated"]["is_equal"]
    assert err == "record 5 is no decision: how an act went. It belongs to decision 3:\n"
    code, out, err = run_ctl("ctl log probe --explain 2")
    assert (code, out) == (Code.DONE, "")
    assert err == "record 2 is no decision: the begin of a controller\n"


# --- made again ---


def test_replay_of_this_core_is_equal_bit_for_bit(told, run_ctl):
    code, out, _ = run_ctl("ctl log probe --replay")
    assert code == Code.DONE
    assert "this core: 4 of 4 decisions bit for bit" in out
    code, out, _ = run_ctl("ctl log probe --replay --since 4 --until 9 -o json")
    (version,) = json.loads(out)["versions"]
    assert (version["decisions"], version["differ"], version["is_same"]) == (2, 0, True)


def change_policy(monkeypatch):
    """Let the core start a gang before it spends the budget, and forgive nothing."""
    order = [*(it for it in decide.GANG if it.name != "record_end"), *decide.GANG[:1]]
    monkeypatch.setattr(replay.replay_one, "__defaults__", (tuple(order), decide.PLAN))


@pytest.mark.parametrize(("core", "code"), [(None, Code.FAILED), ("older", Code.DIFFERS)])
def test_replay_shows_what_would_be_decided_now(told, run_ctl, monkeypatch, core, code):
    if core is not None:
        monkeypatch.setattr(deps, "core_version", lambda: core)
    change_policy(monkeypatch)
    found, out, _ = run_ctl("ctl log probe --replay")
    assert found == code
    assert "    9  2023-11-14 22:30:00 UTC  record_end\n" in out
    assert "         rule: record_end -> watch\n" in out
    assert "         - record_end attempt 1, ranks (4), progress_known true\n" in out
    assert "3 of 4 decisions" in out
    found, out, _ = run_ctl("ctl log probe --replay -o json")
    (difference,) = json.loads(out)["differences"]
    assert (found, difference["seq"], difference["rule"]) == (code, 9, "record_end")


def test_replay_caps_what_it_shows_and_counts_the_rest(told, run_ctl, monkeypatch):
    monkeypatch.setattr(replaying, "MAX_SHOWN", 1)
    monkeypatch.setattr(replay.replay_one, "__defaults__", ((), ()))
    code, out, _ = run_ctl("ctl log probe --replay")
    assert code == Code.FAILED
    assert out.count("rule: ") == 1
    assert "and 3 decisions more that differ\n" in out


@pytest.mark.parametrize("options", ["--replay", "--explain 2"])
def test_record_in_a_form_of_another_core_is_told_not_traced(
    tmp_path, monkeypatch, run_ctl, options
):
    monkeypatch.chdir(tmp_path)
    directory, run = make_run(tmp_path), a_run().launched()
    first, second = run.book.records[:2]
    foreign = first.model_copy(update={"body": {**first.body, "policy": {"foreign": 1}}})
    write_records(directory, [foreign, second], "foreign")
    code, out, err = run_ctl(f"ctl log probe {options}")
    assert (code, out) == (Code.FAILED, "")
    assert "this core cannot read it: " in err
    assert "Next: use the release that wrote it" in err


HAND_MADE = [
    ("run", {}),
    ("epoch", {"takeover": True}),
    ("decision", {"rule": "launch", "reason": "why", "actions": 7, "snapshot": {}}),
    ("decision", {"rule": "launch", "reason": "why", "actions": [{}], "snapshot": []}),
    ("outcome", {"key": 5, "ok": True}),
    ("outcome", {"key": "a", "ok": True}),
]


@pytest.mark.parametrize("options", ["", "--replay", "--explain last"])
@pytest.mark.parametrize(("kind", "body"), HAND_MADE)
def test_record_that_nobody_wrote_is_told_not_traced(
    tmp_path, monkeypatch, run_ctl, kind, body, options
):
    monkeypatch.chdir(tmp_path)
    directory, run = make_run(tmp_path), a_run().launched()
    records = list(run.book.records[:2])
    hand_made = records[1].model_copy(update={"kind": kind, "body": body})
    write_records(directory, [*records, hand_made])
    _, _, err = run_ctl(f"ctl log probe {options}")
    assert "Traceback" not in err


def test_report_of_a_record_that_nobody_wrote_names_it(tmp_path, monkeypatch, run_ctl):
    monkeypatch.chdir(tmp_path)
    directory, run = make_run(tmp_path), a_run().launched()
    records = list(run.book.records[:2])
    broken = records[1].model_copy(update={"kind": "decision", "body": {"actions": [7]}})
    write_records(directory, [*records, broken])
    code, _, err = run_ctl("ctl report probe")
    assert code == Code.FAILED
    assert "this release cannot read record 3" in err
    assert "Next: ctl log probe --verify" in err


def test_words_of_others_begin_no_line_and_turn_no_letters(tmp_path, monkeypatch, run_ctl):
    monkeypatch.chdir(tmp_path)
    directory, run = make_run(tmp_path), a_run().launched()
    forged = "why\n    4  2026-01-01 00:00:00 UTC  outcome   kill_ranks: done \u202eback"
    body = {**run.book.records[2].body, "reason": forged}
    record = run.book.records[2].model_copy(update={"body": body})
    write_records(directory, [*run.book.records[:2], record])
    code, out, _ = run_ctl("ctl log probe")
    assert (code, len(out.splitlines())) == (Code.DONE, 3)
    assert "why\\u000a" in out
    assert "\u202e" not in out
