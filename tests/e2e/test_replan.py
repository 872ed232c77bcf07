"""A run that lags, an owner who decides, and a gang that adopts while it trains."""

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from contract.schedule import round_binary32
from tests.waiting import wait_for

PEAK = Fraction(1, 2)
FINAL = Fraction(1, 20)
EVERY = "evaluateEvery: 2s, evaluations: 1, settle: 1s, minCleanSteps: 10, windowPercent: 70"


def declare(ctl, *, num_steps, due_s, mode="propose"):
    """Write a run file with a deadline so many seconds from now."""
    at = (datetime.now(UTC) + timedelta(seconds=due_s)).isoformat(timespec="seconds")
    contingency = f"contingency: {{maxEpochs: 100, mode: {mode}, {EVERY}}}"
    changes = {"contingency: {maxEpochs: 100}": f'deadline: {{at: "{at}"}}\n  {contingency}'}
    ctl.write_run_file(num_steps=num_steps, **changes)


def report(ctl, code=0):
    """Return what `ctl replan -o json` shows."""
    shown = ctl("replan", "probe", "-o", "json", code=code)
    return json.JSONDecoder().raw_decode(shown)[0]


def revision_of(ctl, kind):
    """Return the adopted revision of that kind, None before it."""
    found = [it for it in ctl.status()["revisions"] if it["kind"] == kind]
    return found[-1] if found else None


def test_late_run_is_shortened_with_consent_and_adopts_it_while_it_trains(ctl):
    declare(ctl, num_steps=500, due_s=8)  # 500 steps take 15 s
    ctl.pace(0.03)
    ctl("launch", "run.yaml", "--detach")
    wait_for(lambda: ctl.status().get("proposal"), 40, "the proposal")
    shown = report(ctl, code=4)
    proposal = shown["proposal"]
    assert proposal["change"]["total_steps"] == 375
    assert proposal["is_floor"] is True
    assert proposal["facts"]["shortfall_ms"] > 0
    assert all(proof["holds"] for proof in proposal["proofs"])
    assert "total_steps" in ctl("replan", "probe", "--diff", code=3)
    assert f"--approve {proposal['id']}" in ctl("status", "probe")

    wrong = "0123456789ab"
    assert "is not open" in ctl("replan", "probe", "--approve", wrong, code=1)
    assert "is open" in ctl("replan", "probe", "--horizon", "90", code=1)
    ranks = ctl.rank_pids()
    told = ctl("replan", "probe", "--approve", proposal["id"])
    revision = wait_for(lambda: revision_of(ctl, "horizon"), 30, "the adoption")
    assert f"takes effect at step {revision['fork_step']}; 375 steps" in told
    assert revision["proposal"] == proposal["id"]
    assert (ctl.status()["attempt"], ctl.rank_pids()) == (1, ranks)

    wait_for(lambda: ctl.status()["state"] == "completed", 60, "the end")
    steps = ctl.steps(1)
    assert [it["step"] for it in steps] == list(range(375))
    last = {group: float.fromhex(rate) for group, rate in steps[-1]["lr"].items()}
    assert set(last.values()) == {round_binary32(PEAK * FINAL)}
    before, after = (it["plan_sha"] for it in steps[revision["fork_step"] - 1 :][:2])
    assert before != after == revision["sha"]
    wait_for(lambda: not ctl.status()["controller"]["alive"], 20, "the end of the controller")
    assert "is finished" in ctl("replan", "probe", "--horizon", "80", code=1)
    assert "originally 500" in ctl("replan", "probe")
    assert "chain and anchors" in ctl("log", "probe", "--verify")
    assert f"proposal {proposal['id']} approved by" in ctl("log", "probe")


@pytest.fixture
def steered(ctl):
    """A run far from its deadline, which trains slowly."""
    declare(ctl, num_steps=1_000, due_s=86_400)
    ctl.pace(0.1)
    ctl("launch", "run.yaml", "--detach")
    wait_for(lambda: ctl.status().get("forecast"), 40, "a forecast")
    return ctl


def test_owner_proposes_rejects_and_is_refused_with_the_reason(steered):
    ctl = steered
    shown = report(ctl)
    assert [it["percent"] for it in shown["what_ifs"]] == [95, 90, 85, 80, 75]
    assert shown["horizon"]["meets_target"] is True
    assert "meets the target" in ctl("replan", "probe")
    assert "nothing is proposed" in ctl("replan", "probe", "--diff")

    assert "floor: 500 steps (FAILS" in ctl("replan", "probe", "--horizon", "50", code=1)
    assert "would be reached before" in ctl("replan", "probe", "--horizon", "1", code=1)
    assert "--horizon is 101" in ctl("replan", "probe", "--horizon", "101", code=2)
    assert "goes with none of" in ctl("replan", "probe", "--horizon", "90", "--diff", code=2)
    (ctl.folder / "fast.yaml").write_text("waves: 1\n")
    told = ctl("replan", "probe", "--execution", "fast.yaml", code=1)
    assert "fit: impossible" in told
    (ctl.folder / "fast.yaml").write_text("wave: 1\n")
    assert 'Did you mean "waves"' in ctl("replan", "probe", "--execution", "fast.yaml", code=2)

    assert "end after 900 steps" in ctl("replan", "probe", "--horizon", "90", code=4)
    first = ctl.status()["proposal"]["id"]
    told = ctl("replan", "probe", "--reject", first)
    assert f"proposal {first} is rejected" in told
    (closed,) = ctl.status()["closed"]
    assert (closed["id"], closed["outcome"]) == (first, "rejected")
    assert "is not open" in ctl("replan", "probe", "--approve", first, code=1)
    assert ctl.controller_pid() == ctl.status()["controller"]["pid"]


def test_edited_deadline_is_taken_up_live_and_voids_the_proposal(steered):
    ctl = steered
    ctl("replan", "probe", "--horizon", "90", code=4)
    opened = ctl.status()["proposal"]["id"]
    controller, ranks = ctl.controller_pid(), ctl.rank_pids()
    declare(ctl, num_steps=1_000, due_s=172_800)
    assert "amended: due" in ctl("launch", "run.yaml", "--detach")
    wait_for(lambda: ctl.status()["proposal"] is None, 20, "the end of the proposal")
    (closed,) = ctl.status()["closed"]
    assert (closed["id"], closed["outcome"]) == (opened, "void")
    assert "moved the deadline" in closed["reason"]
    assert (ctl.controller_pid(), ctl.rank_pids()) == (controller, ranks)
    # Anything else has to wait, as ever.
    text = (ctl.folder / "run.yaml").read_text()
    (ctl.folder / "run.yaml").write_text(text.replace("keep: 3", "keep: 4"))
    assert "ctl suspend probe" in ctl("launch", "run.yaml", "--detach", code=3)


def test_owner_s_mixture_governs_from_its_fork_on(steered):
    ctl = steered
    (ctl.folder / "mix.yaml").write_text("- {fromPercent: 0, parts: {code: 20, docs: 13}}\n")
    told = ctl("replan", "probe", "--mixture", "mix.yaml", code=2)
    assert "mixture.0.parts: parts sum to 33; they must sum to 32" in told
    (ctl.folder / "mix.yaml").write_text("- {fromPercent: 0, parts: {code: 4, docs: 28}}\n")
    shown = ctl("replan", "probe", "--mixture", "mix.yaml", code=4)
    assert "code 4 docs 28" in shown
    ctl("replan", "probe", "--approve", ctl.status()["proposal"]["id"])
    revision = wait_for(lambda: revision_of(ctl, "mixture"), 30, "the adoption")
    plan = json.loads((ctl.run_dir / "plans" / f"{revision['sha']}.json").read_text())
    assert [(it["start"], it["parts"]) for it in plan["mixture"]["stages"]] == [
        (0, {"code": 20, "docs": 12}),
        (revision["fork_step"], {"code": 4, "docs": 28}),
    ]
    assert ctl.status()["attempt"] == 1
    assert "mixture" in ctl("replan", "probe", "--diff", code=3)
