"""A ledger becomes a fixture: without names, whole, and repeated bit for bit."""

import pytest

from controller.adapters.ledger import read_ledger, verify_ledger
from tests.builders import a_run
from tests.recorded import make_run, write_records
from tools.record_ledger import AGAIN, main


@pytest.fixture
def record(tmp_path, capsys):
    """Records a story; returns the exit code, the fixture's folder and what was said."""

    def run(records, *options):
        directory, target = make_run(tmp_path), tmp_path / "fixture"
        write_records(directory, records[:3])
        write_records(directory, records[3:])
        code = main([str(directory), str(target), *options])
        shown = capsys.readouterr()
        return code, target, shown.out + shown.err

    return run


def a_story():
    run = a_run().launched().with_end(1, 137)
    run.pass_once()
    return run.over(94, 137, 94, 94).book.records


def altered(records, seq, **changes):
    return [
        it.model_copy(update={"body": {**it.body, **changes}}) if it.seq == seq else it
        for it in records
    ]


def test_names_are_replaced_and_the_chain_is_whole(record):
    code, target, said = record(altered(a_story(), 2, host="big-machine"))
    assert code == 0, said
    assert verify_ledger(target) == []
    assert {path.name for path in target.iterdir()} == {"00000001.jsonl", "00000002.jsonl", "head"}
    assert b"\0" not in (target / "00000001.jsonl").read_bytes()
    assert read_ledger(target)[1].body == {"pid": 1, "host": "a-host", "takeover": False}


def test_name_that_stands_in_words_is_refused(record):
    run = a_run().launched().asked("suspend")
    intent = run.seen["intents"][0].model_copy(update={"user": "somebody"})
    run.seeing(intents=[intent]).pass_once()
    code, target, said = record(run.book.records)
    assert (code, target.exists()) == (1, False)
    assert "names stand in other places, too: somebody" in said


def test_decision_in_other_words_is_refused_unless_made_again(record, tmp_path):
    story = altered(a_story(), 3, reason="in other words")
    code, target, said = record(story)
    assert (code, target.exists()) == (1, False)
    assert "decision 3 is not repeated bit for bit" in said
    assert main([str(tmp_path / "runs" / "probe"), str(target), AGAIN]) == 0
    assert read_ledger(target)[2].body["reason"] == "start attempt 1"


def test_act_that_is_not_decided_any_more_is_refused(record):
    story = altered(a_story(), 5, key="sim/1/launch_gang/-/9")
    code, _, said = record(story, AGAIN)
    assert code == 1
    assert "record 5 tells of an act that this core does not decide" in said


def test_missing_folder_is_bad_input(capsys):
    assert main(["runs/demo"]) == 2
    assert "usage: " in capsys.readouterr().err
