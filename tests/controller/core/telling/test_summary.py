import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from contract.schedule import round_binary32
from contract.wire import EvalRecord
from controller.core.declared.planning import make_policy
from controller.core.declared.run_file import parse_run_file
from controller.core.memory import Incident, Memory
from controller.core.readings import Instant
from controller.core.telling.account import make_account
from controller.core.telling.chronicle import Chronicle
from controller.core.telling.history import find_replays, is_comparable, loss_difference
from controller.core.telling.summary import (
    Entropies,
    Evidence,
    cost_of,
    make_summary,
    surviving_steps,
)
from tests.histories import attempt
from tests.run_files import GOOD, good_plan

PLAN = good_plan()
LAST = round_binary32(Fraction(1, 40)).hex()


def instant(wall_s):
    return Instant(wall_ms=int(wall_s * 1000), mono_ms=int(wall_s * 1000), boot_id="b")


def an_incident(number=1):
    return Incident(
        attempt=number,
        cause="killed",
        code=137,
        root_rank=1,
        confidence="high",
        evidence="rank 1 ended first",
        step=30,
        fingerprint="f",
        verified_step=20,
        progress_known=True,
        at=instant(136.5),
        ended_wall_ms=136_000,
    )


def a_run():
    """50 steps: killed after step 30, restored at step 20, ended at 5% of the peak."""
    lr = {"matrix": LAST, "other": LAST}
    return [
        attempt(1, 100, range(31), plan_sha=PLAN.sha, lr=lr),
        attempt(2, 140, range(20, 50), plan_sha=PLAN.sha, lr=lr),
    ]


def evidence(histories, **changes):
    policy = make_policy(parse_run_file(GOOD), "u")
    memory = Memory(policy=policy, chain=[PLAN], incidents=[an_incident()], rest="completed")
    values = {
        "memory": memory,
        "histories": histories,
        "evals": [
            eval_record(25, "code", 3.0),
            eval_record(50, "code", 2.0),
            eval_record(50, "docs", 1.0),
        ],
        "entropies": {"code": Entropies(4.0, 3.0), "docs": Entropies(3.0, 2.0)},
        "account": make_account(histories, 98.0, 176.0, []),
        "ledger_findings": [],
        "peak_flops_per_second": 1e12,
        "chronicle": Chronicle(),
    }
    return Evidence(**(values | changes))


def eval_record(step, source, loss):
    return EvalRecord(step=step, source=source, loss=loss.hex(), tokens=1, wall_s=1.0)


def test_summary_tells_the_whole_run_and_is_json():
    summary = json.loads(json.dumps(make_summary(evidence(a_run()))))
    assert summary["outcome"] == "completed"
    assert (summary["steps"], summary["tokens_trained"]) == (50, 50 * 1024)
    assert summary["attempts"] == 2
    assert summary["replayed_steps"] == summary["replay_compared_steps"] == 11
    assert summary["replay_max_loss_difference"] == 0.0
    assert summary["final_lr_fraction"] == 0.05
    assert summary["ledger_verified"] is True
    assert summary["unattributed_percent"] == 0.0
    assert sum(summary["phase_seconds"].values()) == pytest.approx(summary["wall_seconds"])


def test_losses_are_weighted_as_the_last_mixture_stage():
    summary = make_summary(evidence(a_run()))
    assert summary["validation_loss"] == pytest.approx((2.0 * 8 + 1.0 * 24) / 32)
    assert summary["bigram_entropy"] == pytest.approx((3.0 * 8 + 2.0 * 24) / 32)
    assert summary["no_routed_experts_loss"] is None


def test_incident_costs_the_time_until_progress_and_the_tokens_again():
    (incident,) = make_summary(evidence(a_run()))["incidents"]
    # Step 30 ended at 136; step 31 begins where step 30 was repeated: second 156.
    assert incident["cost_seconds"] == pytest.approx(20.0)
    assert incident["cost_tokens"] == 11 * 1024
    assert incident["detection_seconds"] == 0.5


def test_cost_of_an_end_that_nothing_followed_is_open():
    assert cost_of(1, a_run()[:1]) == (None, 0)


def test_changed_bit_of_a_replayed_loss_shows():
    first, second = a_run()
    changed = second.steps[3].model_copy(update={"loss": (9.0).hex()})
    steps = [*second.steps[:3], changed, *second.steps[4:]]
    second = attempt(2, 140, range(20, 50)).__class__(
        2, 140.0, second.ended_wall_s, second.phases, steps
    )
    summary = make_summary(evidence([first, second]))
    assert summary["replay_max_loss_difference"] == pytest.approx(9.0 - 1 / 24)


def test_replays_of_other_code_are_counted_but_not_compared():
    histories = [attempt(1, 0, range(5), code="x"), attempt(2, 20, range(5))]
    replays = list(find_replays(histories))
    assert len(replays) == 5
    assert not any(is_comparable(replay, [PLAN]) for replay in replays)
    assert all(loss_difference(replay) == 0.0 for replay in replays)


def test_replay_under_a_revision_compares_only_its_past():
    child = PLAN.model_copy(
        update={"kind": "mixture", "parent": PLAN.sha, "effective": 3, "reason": "r"}
    )
    histories = [
        attempt(1, 0, range(5), plan_sha=PLAN.sha),
        attempt(2, 20, range(5), plan_sha=child.sha),
    ]
    comparable = [is_comparable(it, [PLAN, child]) for it in find_replays(histories)]
    assert comparable == [True, True, True, False, False]


def test_surviving_steps_follow_the_line_and_leave_the_abandoned_ones():
    line = PLAN.lineage[0].model_copy(update={"name": "main-2", "fork_step": 20})
    plan = PLAN.model_copy(update={"lineage": [*PLAN.lineage, line]})
    histories = [attempt(1, 0, range(40)), attempt(2, 90, range(20, 30), line="main-2")]
    surviving = surviving_steps(histories, plan)
    assert list(surviving) == list(range(30))
    assert {record.line for step, record in surviving.items() if step >= 20} == {"main-2"}


def test_steps_between_two_forks_down_the_line_are_abandoned():
    lines = [("main-2", 20), ("main-3", 10)]
    forks = [PLAN.lineage[0].model_copy(update={"name": n, "fork_step": f}) for n, f in lines]
    plan = PLAN.model_copy(update={"lineage": [*PLAN.lineage, *forks]})
    histories = [attempt(1, 0, range(40)), attempt(2, 90, range(10, 13), line="main-3")]
    assert list(surviving_steps(histories, plan)) == list(range(13))


@pytest.mark.parametrize(
    ("rest", "halted", "words"),
    [
        ("completed", None, "the horizon is reached"),
        ("stopped", None, "the owner stopped"),
        (None, "no luck", "no luck"),
    ],
)
def test_summary_says_why_the_run_is_over(rest, halted, words):
    before = evidence(a_run())
    memory = before.memory.model_copy(update={"rest": rest, "halted": halted})
    assert words in make_summary(replace(before, memory=memory))["reason"]


def test_damaged_checkpoints_are_told():
    before = evidence(a_run())
    notes = [("quarantine", "quarantined: main/20 (digest)", instant(1))]
    memory = before.memory.model_copy(update={"notes": notes})
    assert make_summary(before)["quarantined"] == []
    assert make_summary(replace(before, memory=memory))["quarantined"] == [
        {"line": "main", "step": 20, "reason": "digest"}
    ]


def test_reasons_of_damage_may_hold_commas_and_brackets():
    told = "quarantined: main/20 (2 files differ (a, b), one is gone), main-2/30 (a bit)"
    memory = evidence(a_run()).memory.model_copy(
        update={"notes": [("quarantine", told, instant(1))]}
    )
    found = make_summary(evidence(a_run(), memory=memory))["quarantined"]
    assert [(it["line"], it["step"], it["reason"]) for it in found] == [
        ("main", 20, "2 files differ (a, b), one is gone"),
        ("main-2", 30, "a bit"),
    ]


def test_note_of_another_form_is_told_as_it_is():
    memory = evidence(a_run()).memory.model_copy(
        update={"notes": [("quarantine", "quarantined: two of them", instant(1))]}
    )
    found = make_summary(evidence(a_run(), memory=memory))["quarantined"]
    assert found == [{"line": None, "step": None, "reason": "two of them"}]


def test_unfinished_run_has_no_final_fraction():
    summary = make_summary(evidence(a_run()[:1]))
    assert summary["final_lr_fraction"] is None
    assert summary["replay_max_loss_difference"] is None


def test_damaged_ledger_is_said():
    summary = make_summary(evidence(a_run(), ledger_findings=["record 3 was changed"]))
    assert summary["ledger_verified"] is False


def test_every_key_is_documented():
    page = (Path(__file__).parents[4] / "docs" / "cli.md").read_text()
    summary = make_summary(evidence(a_run()))
    for name in [*summary, *summary["incidents"][0], *summary["drops_percent"]]:
        assert f"`{name}`" in page, name


def test_every_documented_key_is_there():
    page = (Path(__file__).parents[4] / "docs" / "cli.md").read_text()
    table = page.partition("## summary.json\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    told = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    inner = {"lr_at_fork_before_step", "lr_at_fork_after_step"}
    assert told == set(make_summary(evidence(a_run()))) - inner
