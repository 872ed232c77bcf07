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


def told(ctl):
    """Return the status as the controller wrote it last: quicker than a command."""
    path = ctl.run_dir / "status.json"
    return json.loads(path.read_text()) if path.exists() else {}


def revision_of(ctl, kind):
    """Return the adopted revision of that kind, None before it."""
    found = [it for it in told(ctl)["revisions"] if it["kind"] == kind]
    return found[-1] if found else None


def test_late_run_is_shortened_with_consent_and_adopts_it_while_it_trains(ctl):
    # 360 steps take 18 s and 270 take 13: no cut helps, and only the owner may want one still.
    declare(ctl, num_steps=360, due_s=8)
    ctl.pace(0.05)
    ctl("launch", "run.yaml", "--detach")
    hopeless = "no horizon allowed meets the due date"
    wait_for(lambda: hopeless in str(told(ctl).get("silence")), 40, "the decline")
    ranks = ctl.rank_pids()
    ctl("replan", "probe", "--horizon", "75", code=4)
    proposal = told(ctl)["proposal"]
    said = ctl("replan", "probe", "--approve", proposal["id"])
    assert proposal["change"]["total_steps"] == 270
    assert proposal["facts"]["shortfall_ms"] > 0
    assert all(proof["holds"] for proof in proposal["proofs"])
    revision = wait_for(lambda: revision_of(ctl, "horizon"), 30, "the adoption")
    assert f"takes effect at step {revision['fork_step']}; 270 steps" in said
    assert revision["proposal"] == proposal["id"]
    assert (told(ctl)["attempt"], ctl.rank_pids()) == (1, ranks)

    wait_for(lambda: told(ctl)["state"] == "completed", 90, "the end")
    steps = ctl.steps(1)
    assert [it["step"] for it in steps] == list(range(270))
    last = {group: float.fromhex(rate) for group, rate in steps[-1]["lr"].items()}
    assert set(last.values()) == {round_binary32(PEAK * FINAL)}
    before, after = (it["plan_sha"] for it in steps[revision["fork_step"] - 1 :][:2])
    assert before != after == revision["sha"]
    wait_for(lambda: not ctl.status()["controller"]["alive"], 20, "the end of the controller")
    assert "is finished" in ctl("replan", "probe", "--horizon", "80", code=1)
    told_late = ctl("replan", "probe", code=3)
    assert "originally 360" in told_late
    assert "TOO LATE: finished" in told_late
    assert "total_steps" in ctl("replan", "probe", "--diff", code=3)
    assert "chain and anchors" in ctl("log", "probe", "--verify")
    log = ctl("log", "probe")
    assert f"proposal {proposal['id']} approved by" in log
    assert hopeless in log


@pytest.fixture
def steered(ctl):
    """A run far from its deadline, which trains slowly."""
    declare(ctl, num_steps=1_000, due_s=86_400)
    ctl.pace(0.1)
    ctl("launch", "run.yaml", "--detach")
    wait_for(lambda: told(ctl).get("forecast"), 40, "a forecast")
    return ctl


def test_owner_proposes_rejects_and_is_refused_with_the_reason(steered):
    ctl, controller = steered, steered.controller_pid()
    shown = report(ctl)
    assert [it["percent"] for it in shown["what_ifs"]] == [95, 90, 85, 80, 75]
    assert shown["horizon"]["meets_target"] is True
    assert "meets the target" in shown["advice"]
    assert "nothing is proposed" in ctl("replan", "probe", "--diff")

    assert "floor: 500 steps (FAILS" in ctl("replan", "probe", "--horizon", "50", code=1)
    assert "would be done before" in ctl("replan", "probe", "--horizon", "1", code=1)
    (ctl.folder / "fast.yaml").write_text("waves: 1\n")
    assert "fit: impossible" in ctl("replan", "probe", "--execution", "fast.yaml", code=1)

    assert "end after 900 steps" in ctl("replan", "probe", "--horizon", "90", code=4)
    first = report(ctl, code=4)["proposal"]["id"]
    assert f"--approve {first}" in ctl("status", "probe")
    assert "total_steps" in ctl("replan", "probe", "--diff", code=3)
    assert f"{first} is open" in ctl("replan", "probe", "--horizon", "80", code=1)
    assert "is not open" in ctl("replan", "probe", "--approve", "0123456789ab", code=1)
    assert f"proposal {first} is rejected" in ctl("replan", "probe", "--reject", first)
    (closed,) = told(ctl)["closed"]
    assert (closed["id"], closed["outcome"]) == (first, "rejected")
    assert "is not open" in ctl("replan", "probe", "--approve", first, code=1)
    assert controller == ctl.controller_pid()


def test_edited_deadline_is_taken_up_live_and_voids_the_proposal(steered):
    ctl = steered
    ctl("replan", "probe", "--horizon", "90", code=4)
    opened = told(ctl)["proposal"]["id"]
    controller, ranks = ctl.controller_pid(), ctl.rank_pids()
    declare(ctl, num_steps=1_000, due_s=172_800)
    assert "amended: due" in ctl("launch", "run.yaml", "--detach")
    wait_for(lambda: told(ctl)["proposal"] is None, 20, "the end of the proposal")
    (closed,) = told(ctl)["closed"]
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
    refused = ctl("replan", "probe", "--mixture", "mix.yaml", code=2)
    assert "mixture.0.parts: parts sum to 33; they must sum to 32" in refused
    (ctl.folder / "mix.yaml").write_text("- {fromPercent: 0, parts: {code: 4, docs: 28}}\n")
    shown = ctl("replan", "probe", "--mixture", "mix.yaml", code=4)
    assert "code 4 docs 28" in shown
    ctl("replan", "probe", "--approve", told(ctl)["proposal"]["id"])
    revision = wait_for(lambda: revision_of(ctl, "mixture"), 30, "the adoption")
    plan = json.loads((ctl.run_dir / "plans" / f"{revision['sha']}.json").read_text())
    assert [(it["start"], it["parts"]) for it in plan["mixture"]["stages"]] == [
        (0, {"code": 20, "docs": 12}),
        (revision["fork_step"], {"code": 4, "docs": 28}),
    ]
    assert told(ctl)["attempt"] == 1
    assert "mixture" in ctl("replan", "probe", "--diff", code=3)


def test_word_on_a_proposal_is_kept_while_the_run_is_suspended(steered):
    ctl = steered
    ctl("replan", "probe", "--horizon", "95", code=4)
    first = report(ctl, code=4)["proposal"]["id"]
    ctl("suspend", "probe")
    assert f"--approve {first}" in ctl("replan", "probe", code=4)
    said = ctl("replan", "probe", "--approve", first)
    assert f"proposal {first} is approved; probe is suspended: it is carried out once" in said
    assert "once the run trains again" in ctl("replan", "probe")
    assert f"{first} is rejected" in ctl("replan", "probe", "--reject", first)
    assert "it was rejected by" in ctl("replan", "probe", "--approve", first, code=1)

    ctl("resume", "probe")
    wait_for(lambda: (told(ctl).get("pace") or {}).get("clean_steps"), 40, "a pace")
    ctl("replan", "probe", "--horizon", "90", code=4)
    second = report(ctl, code=4)["proposal"]["id"]
    ctl("suspend", "probe")
    ctl("replan", "probe", "--approve", second)
    ctl("resume", "probe")
    revision = wait_for(lambda: revision_of(ctl, "horizon"), 40, "the adoption")
    assert (revision["proposal"], revision["total_steps"]) == (second, 900)
