"""The ledger of a real demo run: whole, repeated bit for bit, and explained."""

import json
import shutil
from pathlib import Path

import pytest

from contract import wire
from controller.adapters.ledger import judge_ledger, read_ledger
from controller.cli import deps
from controller.cli.codes import Code
from controller.core import budget, proposing
from controller.core.decide import BOTH, GANG, NOTES, PLAN
from controller.core.fold import fold
from controller.core.recording import read_snapshot
from controller.core.telling.differences import compare_decisions
from controller.core.telling.explain import hear
from controller.core.telling.replay import replay
from tests.recorded import make_run

FIXTURE = Path(__file__).parents[2] / "fixtures" / "demo-ledger"


@pytest.fixture(scope="module")
def records():
    return read_ledger(FIXTURE)


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """A run's directory with that ledger in it; instants are told in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    directory = make_run(tmp_path)
    shutil.rmtree(directory / wire.LEDGER_DIR)
    shutil.copytree(FIXTURE, directory / wire.LEDGER_DIR)
    return directory


def find(records, rule, index=0):
    """Return the number of a decision of this rule."""
    return [it.seq for it in records if it.body.get("rule") == rule][index]


def test_it_is_whole():
    found = judge_ledger(FIXTURE)
    assert found.findings == []
    assert found.num_bytes < 1_000_000


def test_every_decision_is_repeated_bit_for_bit(records):
    repeated = replay(records, "")
    different = {it.seq: compare_decisions(it) for it in repeated if not it.is_equal}
    assert different == {}, "a change of the core alters decisions: see tests/fixtures/README.md"
    assert len(repeated) > 20


def test_rules_that_are_said_to_act_are_those_that_are_recorded(records):
    memory = None
    for record in records:
        if record.kind == "decision":
            snapshot = read_snapshot(record.body)
            turns = [*hear(GANG, snapshot, memory), *hear(PLAN, snapshot, memory)]
            acted = [turn.rule for turn in turns if turn.verdict == "acted"]
            assert BOTH.join(acted) == record.body["rule"].replace(NOTES, "")
        memory = fold(memory, record)


def test_it_tells_of_people_and_machines_by_stand_ins_only(records):
    (begin, *_) = [it.body for it in records if it.kind == "epoch"]
    assert begin["host"] == "a-host"


def test_command_repeats_it(demo, records, run_ctl):
    count = sum(it.kind == "decision" for it in records)
    code, out, err = run_ctl("ctl log probe --replay")
    assert (code, err) == (Code.DONE, "")
    assert f"{count} of {count} decisions" in out


def test_its_launch_is_explained(demo, records, run_ctl):
    code, out, _ = run_ctl(f"ctl log probe --explain {find(records, 'launch')}")
    assert code == Code.DONE
    assert "gang       no attempt was ever started\n" in out
    assert "> launch              ACTED" in out
    assert "start attempt 1 -- Start the next attempt, once nothing of an older one lives." in out
    assert "  propose                nothing to say" in out
    assert out.count("    done (record ") == 3


def test_its_incident_is_explained(demo, records, run_ctl):
    _, out, _ = run_ctl(f"ctl log probe --explain {find(records, 'record_end')}")
    for words in (
        "rank 1 ended with 137 KILLED at 20",
        "> record_end          ACTED",
        "record_end: attempt 1 is over: ",
        "done by being recorded",
    ):
        assert words in out, words
    _, out, _ = run_ctl(f"ctl log probe --explain {find(records, 'launch', 1)}")
    assert "1 of 6 restarts within 6 h" in out
    assert "the last: attempt 1, killed: rank 1 ended first with 137 KILLED" in out
    assert "the newest that may be restored: main/" in out


def test_its_proposal_is_explained(demo, records, run_ctl):
    _, out, _ = run_ctl(f"ctl log probe --explain {find(records, 'propose')}")
    assert "> watch               HELD on purpose" in out
    assert "> propose                ACTED" in out
    assert "late 3 of 3 in a row" in out
    for words in (
        r"under the target of 90%",
        "more tokens given up than the target needs",
        "it fails floor: ",
    ):
        assert words in out, words


def test_forbidden_restart_is_shown_as_what_would_be_decided_now(
    demo, records, run_ctl, monkeypatch
):
    monkeypatch.setattr(deps, "core_version", lambda: "stricter")
    monkeypatch.setattr(
        budget, "find_excess", lambda memory: "no restart is allowed" if memory.incidents else None
    )
    code, out, _ = run_ctl("ctl log probe --replay")
    assert code == Code.DIFFERS
    at = find(records, "launch", 1)
    assert f"\n{at:>5}  20" in out
    assert "     rule: launch -> spend_budget\n" in out
    assert "     reason: start attempt 2 -> no restart is allowed\n" in out
    assert "     - launch_gang attempt 2, plan_sha " in out
    assert "     + halt cause killed\n" in out


def test_longer_lead_is_shown_as_members_that_change(demo, records, run_ctl, monkeypatch):
    monkeypatch.setattr(deps, "core_version", lambda: "slower")
    monkeypatch.setattr(proposing, "NEWS_STEPS", proposing.NEWS_STEPS + 8)
    code, out, _ = run_ctl("ctl log probe --replay -o json")
    assert code == Code.DIFFERS
    told = {it["rule"]: it["lines"] for it in json.loads(out)["differences"]}
    assert growth_of(told["propose"], "propose: proposal.fork_first: ") == 8
    assert growth_of(told["materialise"], "publish_plan: plan.effective: ") == 8
    assert "record_end" not in told


def growth_of(lines, beginning):
    """Return by how much the number grows that a line tells of."""
    (line,) = [it for it in lines if it.startswith(beginning)]
    before, after = map(int, line.removeprefix(beginning).split(" -> "))
    return after - before
