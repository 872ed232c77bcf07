import json
import re
from pathlib import Path

import pytest

from contract.plan import Line
from contract.wire import Drain, Phase
from controller.core.declared.planning import make_policy
from controller.core.declared.run_file import parse_run_file
from controller.core.memory import AttemptMemory, Memory, Wanted
from controller.core.readings import Instant, Unknown
from controller.core.snapshot import (
    CheckpointView,
    GangView,
    ProgressView,
    RankEnd,
    RankReading,
    RankTelemetry,
    RankView,
    Snapshot,
    StorageView,
    StoreView,
)
from controller.core.telling.figures import measure
from controller.core.telling.status import build_status
from tests.histories import step_record
from tests.run_files import GOOD, good_plan

PLAN = good_plan()
NOW = Instant(wall_ms=5_000, mono_ms=5_000, boot_id="b")


def memory(**changes):
    attempt = AttemptMemory(number=2, launched_at=NOW)
    values = {
        "policy": make_policy(parse_run_file(GOOD), "u"),
        "chain": [PLAN],
        "attempt": attempt,
        "last_decision": ("launch", "start attempt 2", NOW),
        "notes": [("storage", "nearly full", NOW), ("clock", "", NOW)],
    }
    return Memory(**(values | changes))


def telemetry(rank, phase=Phase.STEP, step=12):
    return RankReading(
        rank=rank,
        value=RankTelemetry(
            attempt=2, step=step, phase=phase, progress_age_ms=200, deadline_ms=9_000,
            plan_sha=PLAN.sha, plan_pending=False, control_refused=None,
            checkpoint_failures=0, commit_age_ms=0,
        ),
    )  # fmt: skip


def rank_view(rank, **changes):
    values = {
        "rank": rank, "claimed": True, "alive": True, "stopped": False, "has_stacks": False,
        "end": None,
    }  # fmt: skip
    return RankView(**(values | changes))


def snapshot(**changes):
    checkpoints = [
        CheckpointView(
            line="main", step=step, plan_sha=PLAN.sha, manifest_sha256="0" * 64,
            verified=step < 30, quarantined="bit flipped" if step == 40 else None,
        )
        for step in (10, 20, 30, 40)
    ]  # fmt: skip
    values = {
        "now": NOW,
        "epoch": 3,
        "gang": GangView(
            attempt=2, closed=False, ranks=[rank_view(0), rank_view(1)], remains=[]
        ),
        "telemetry": [telemetry(0), telemetry(1)],
        "progress": ProgressView(
            attempt=2, completed_steps=13, grown_age_ms=1, highest_step=20,
            replay_mismatch_step=None,
        ),
        "store": StoreView(checkpoints=checkpoints, ever_complete=True),
        "storage": StorageView(problem=None, free_bytes=7),
        "intents": [],
        "control": None,
    }  # fmt: skip
    return Snapshot(**(values | changes))


def test_status_is_json_and_tells_progress():
    status = json.loads(json.dumps(build_status(memory(), snapshot())))
    assert (status["state"], status["step"], status["total_steps"]) == ("training", 13, 50)
    assert status["tokens"] == 13 * 1024
    assert status["last_decision"]["reason"] == "start attempt 2"
    assert status["plan"]["adopted"] is True
    assert status["unknown"] == {}
    assert [note["subject"] for note in status["notes"]] == ["storage"]


def test_quarantined_checkpoints_are_named_and_not_counted():
    store = build_status(memory(), snapshot())["checkpoints"]
    assert (store["newest"], store["newest_verified"], store["count"]) == (30, 20, 3)
    assert store["quarantined"] == [{"line": "main", "step": 40, "reason": "bit flipped"}]


def test_checkpoints_of_an_abandoned_branch_are_not_the_newest():
    line = Line(name="main-2", fork_step=20, offset_blocks=0)
    plan = PLAN.model_copy(
        update={
            "kind": "line",
            "parent": PLAN.sha,
            "effective": 20,
            "lineage": [*PLAN.lineage, line],
        }
    )
    store = build_status(memory(chain=[PLAN, plan]), snapshot())["checkpoints"]
    assert (store["newest"], store["newest_verified"], store["count"]) == (20, 20, 2)


def test_new_line_begins_at_its_fork_whatever_the_old_one_reached():
    line = Line(name="main-2", fork_step=20, offset_blocks=0)
    plan = PLAN.model_copy(
        update={
            "kind": "line",
            "parent": PLAN.sha,
            "effective": 20,
            "lineage": [*PLAN.lineage, line],
        }
    )
    chain = {"chain": [PLAN, plan]}
    over = AttemptMemory(number=2, launched_at=NOW, ended=True, end_cause="superseded")
    opened = build_status(memory(**chain, attempt=over), snapshot(telemetry=[]))
    assert (opened["state"], opened["step"]) == ("starting", 20)
    begun = AttemptMemory(number=3, launched_at=NOW)
    launched = build_status(memory(**chain, attempt=begun), snapshot(telemetry=[telemetry(0)]))
    assert launched["step"] == 20
    gone = snapshot(store=StoreView(checkpoints=[], ever_complete=True), telemetry=[])
    assert build_status(memory(**chain, attempt=begun), gone)["step"] == 20


def test_gang_that_must_restore_a_verified_one_begins_there():
    begun = AttemptMemory(number=3, launched_at=NOW)
    status = build_status(memory(attempt=begun, restore_verified=True), snapshot(telemetry=[]))
    assert status["step"] == 20


@pytest.mark.parametrize(
    ("code", "changes", "state"),
    [
        (0, {}, "finishing"),
        (42, {}, "finishing"),
        (40, {"control_drain": Drain(nonce="n", mode="stop")}, "draining"),
        (137, {}, "recovering"),
        (137, {"control_drain": Drain(nonce="n", mode="stop")}, "recovering"),
    ],
)
def test_ends_that_were_planned_are_no_fault(code, changes, state):
    end = RankEnd(code=code, wall_ms=1, step=None, detail="")
    ranks = [rank_view(0), rank_view(1, alive=False, end=end)]
    gang = GangView(attempt=2, closed=True, ranks=ranks, remains=[])
    attempt = AttemptMemory(number=2, launched_at=NOW, closed=True, first_end_at=NOW)
    status = build_status(memory(attempt=attempt, **changes), snapshot(gang=gang))
    assert status["state"] == state


@pytest.mark.parametrize(
    ("cause", "wanted", "state"),
    [
        ("done", "run", "finishing"),
        ("drained", "stopped", "draining"),
        ("drained", "run", "starting"),
        ("killed", "run", "recovering"),
    ],
)
def test_state_after_an_end_is_what_follows_it(cause, wanted, state):
    attempt = AttemptMemory(number=2, launched_at=NOW, ended=True, end_cause=cause)
    status = build_status(memory(attempt=attempt, wanted=Wanted(state=wanted)), snapshot())
    assert status["state"] == state


def test_checkpoint_that_was_moved_aside_stays_visible():
    aside = CheckpointView(
        line="main", step=30, plan_sha=None, manifest_sha256=None, verified=False,
        quarantined="array w differs",
    )  # fmt: skip
    seen = snapshot()
    store = seen.store.model_copy(update={"set_aside": [aside]})
    told = build_status(memory(), seen.model_copy(update={"store": store}))["checkpoints"]
    assert (told["newest"], told["count"]) == (30, 3)
    assert {"line": "main", "step": 30, "reason": "array w differs"} in told["quarantined"]


def test_what_cannot_be_read_is_unknown_with_its_reason_never_zero():
    blind = {name: Unknown(unknown="away") for name in ("gang", "progress", "store", "storage")}
    silent = [RankReading(rank=1, value=Unknown(unknown="no answer"))]
    status = build_status(memory(), snapshot(**blind, telemetry=silent))
    assert status["step"] is status["tokens"] is status["checkpoints"] is None
    assert status["unknown"]["progress"] == "away"
    assert status["unknown"]["telemetry of rank 1"] == "no answer"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"attempt": None}, "waiting"),
        ({"halted": "no luck"}, "halted"),
        ({"rest": "suspended"}, "suspended"),
        ({"rest": "completed"}, "completed"),
        ({"attempt": AttemptMemory(number=2, launched_at=NOW, ended=True)}, "recovering"),
        ({"attempt": AttemptMemory(number=2, launched_at=NOW, closed=True)}, "recovering"),
        ({"control_drain": Drain(nonce="n", mode="stop")}, "draining"),
        ({}, "training"),
    ],
)
def test_state_is_one_word_derived_from_memory(changes, state):
    status = build_status(memory(**changes), snapshot())
    assert status["state"] == state
    assert status["reason"]


def test_gang_that_does_not_step_yet_is_starting():
    status = build_status(memory(), snapshot(telemetry=[telemetry(0, Phase.COMPILE)]))
    assert (status["state"], status["phase"]) == ("starting", "compile")


def test_step_before_the_first_of_an_attempt_is_what_was_restored():
    progress = ProgressView(
        attempt=2, completed_steps=None, grown_age_ms=1, highest_step=20, replay_mismatch_step=None
    )
    at_once = build_status(memory(), snapshot(progress=progress, telemetry=[]))
    restored = build_status(memory(), snapshot(progress=progress, telemetry=[telemetry(0)]))
    assert (at_once["step"], restored["step"]) == (30, 12)


def test_ended_rank_is_shown_with_its_code_in_words():
    end = RankEnd(code=137, wall_ms=1, step=3, detail="gone")
    gang = GangView(attempt=2, closed=True, ranks=[rank_view(0, alive=False, end=end)], remains=[])
    (rank,) = build_status(memory(), snapshot(gang=gang))["ranks"]
    assert (rank["end"], rank["detail"], rank["alive"]) == ("137 KILLED", "gone", False)


def test_every_key_is_documented():
    page = (Path(__file__).parents[4] / "docs" / "cli.md").read_text()
    records = [step_record(n, n) for n in range(3)]
    status = build_status(memory(), snapshot(), measure(records, PLAN, 1e15))
    for name in [*status, *status["figures"], *status["ranks"][0], *status["checkpoints"]]:
        assert f"`{name}`" in page or name == "rank", name


def test_every_documented_key_is_there():
    page = (Path(__file__).parents[4] / "docs" / "cli.md").read_text()
    table = page.partition("## status.json\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    told = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert told == set(build_status(memory(), snapshot()))


def test_figures_are_of_clean_steps_and_never_beyond_the_peak():
    records = [step_record(n, n, step_s=60.0, tags=["save"]) for n in range(6)]
    records += [step_record(n, n, step_s=2.0) for n in range(6, 9)]
    flops = PLAN.context_at(0).flops_per_token
    figures = measure(records, PLAN, 1024 * flops)
    assert figures.step_s == 2.0
    assert figures.tokens_per_second == 512.0
    assert figures.mfu_percent == pytest.approx(50.0)
    assert figures.drops_percent == pytest.approx(3.0)
    assert measure(records, PLAN, 10 * flops).mfu_percent is None
    assert measure([], PLAN, None) is None
