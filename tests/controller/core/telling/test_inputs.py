"""What a decision rested on is told in words, and a large gang as shortly as a small one."""

from contract.wire import Phase
from controller.core.readings import Unknown
from controller.core.snapshot import CheckpointView, RankReading, StoreView
from controller.core.telling.inputs import describe_memory, describe_snapshot
from tests.builders import a_checkpoint, a_run
from tests.plan_runs import a_late_run


def show(wall_ms):
    return f"<{wall_ms}>"


def seen(run):
    return {it.name: it.words for it in describe_snapshot(run.snapshot(), run.memory, show)}


def remembered(run):
    return {it.name: it.words for it in describe_memory(run.memory, show)}


def test_growth_of_the_log_is_what_this_controller_saw_and_the_loss_is_a_mean():
    words = seen(a_late_run())["progress"]
    assert "not seen to grow for 0.1 s since this controller looks" in words
    assert "mean loss of the newest steps 2.0000 nats" in words


def test_gang_of_704_ranks_is_as_short_as_what_differs():
    run = a_run(ranks=704).launched().with_end(17, 137).with_rank(20, stopped=True)
    run.with_telemetry(*range(17), *range(18, 700))
    end = run.gang.ranks[17].end.wall_ms
    told = seen(run)
    assert told["gang"] == (
        "attempt 1, open to further ranks; 702 ranks (0 to 16, 18 to 19, 21 to 703) alive;"
        f" rank 17 ended with 137 KILLED at <{end}>; rank 20 stopped"
    )
    assert told["telemetry"] == (
        f"699 ranks (0 to 16, 18 to 699): phase step of attempt 1, plan {run.plan.sha[:12]}, step"
        " 10, progress 100 ms ago (limit 120,000 ms); 5 ranks (17, 700 to 703): unknown: no answer"
    )


def test_ends_of_one_kind_are_told_with_the_span_of_their_instants():
    run = a_run().launched().with_end(0, 94).after(700).with_end(1, 94).with_rank(3, claimed=False)
    first, last = (run.gang.ranks[rank].end.wall_ms for rank in (0, 1))
    told = seen(run)["gang"]
    assert f"2 ranks (0 to 1) ended with 94 PEER_LOST from <{first}> to <{last}>" in told
    assert "rank 3 not started" in told
    run.with_end(2, None).with_remains(0, 1)
    assert "rank 2 gone without a record; rank 3 not" in seen(run)["gang"]
    assert "still alive: rank 1 of attempt 0" in seen(run)["gang"]


def test_ranks_that_end_alike_are_one_group_whatever_their_words():
    run = a_run(ranks=3).launched()
    for rank, port in enumerate((1, 2)):
        run.with_end(rank, 94, detail=f"lost peer at port {port}")
    told = seen(run)["gang"]
    assert "2 ranks (0 to 1) ended with 94 PEER_LOST at <" in told
    assert "> (one of them: lost peer at port 1); rank 2 alive" in told
    assert (
        "> (lost peer at port 1)" in seen(run.with_end(1, 94, detail="lost peer at port 1"))["gang"]
    )


def test_unknown_fields_come_first_with_their_reason():
    run = a_run().launched().blind("store", "gang")
    told = describe_snapshot(run.snapshot(), run.memory, show)
    assert [(it.name, it.is_unknown) for it in told[:3]] == [
        ("gang", True),
        ("store", True),
        ("telemetry", False),
    ]
    assert told[0].words == "unknown: no gang"


def test_every_field_has_words_before_anything_was_started():
    told = seen(a_run())
    assert told["gang"] == "no attempt was ever started"
    assert told["control"] == "never published"
    assert told["store"] == "no checkpoint"
    assert all(told.values())


def test_store_tells_what_may_not_be_restored():
    run = a_run().launched()
    marked = a_checkpoint(30, run.plan, quarantined="a bit was flipped")
    young = a_checkpoint(40, run.plan, verified=False)
    views: list[CheckpointView] = [a_checkpoint(20, run.plan), marked, young]
    run.seeing(store=StoreView(checkpoints=views, ever_complete=True))
    assert seen(run)["store"] == (
        "3 checkpoints, step 20 to 40; the newest that may be restored: main/40;"
        " quarantined: main/30 (a bit was flipped); not verified: 40"
    )


def test_telemetry_tells_refusals_phases_and_silence():
    run = a_run(ranks=3).launched()
    run.with_telemetry(0, phase=Phase.SAVE_BLOCK, control_refused="foreign", checkpoint_failures=2)
    told = seen(run)["telemetry"]
    assert "phase save_block of attempt 1" in told
    assert "refuses the control document: foreign, 2 failed saves" in told
    assert "2 ranks (1 to 2): unknown: no answer" in told


def test_ranks_that_are_silent_for_different_reasons_are_one_group():
    run = a_run(ranks=3).launched()
    whys = [RankReading(rank=rank, value=Unknown(unknown=f"port {rank}")) for rank in range(3)]
    told = seen(run.seeing(telemetry=whys))["telemetry"]
    assert told == "3 ranks (0 to 2): unknown, one of them: port 0"


def test_memory_tells_attempt_budget_plan_and_proposal():
    run = a_run().launched().over(94, 137, 94, 94)
    told = remembered(run)
    assert told["attempt"].startswith("1, launched at <")
    assert told["attempt"].endswith(", ended: killed")
    assert told["budget"].startswith(
        "1 of 6 restarts within 6 h; 1 of 3 incidents without a newer verified checkpoint; the"
        " last: attempt 1, killed: rank 1 ended first with 137 KILLED"
    )
    assert told["wanted"] == "run (the launch itself)"
    assert told["evaluation"] == "no deadline is declared"
    late = a_late_run()
    assert remembered(late)["proposal"].startswith(f"{late.memory.proposal.id} by controller: end")
    assert "late 3 of 3 in a row" in remembered(late)["evaluation"]


def test_memory_tells_wishes_drains_and_notes():
    run = a_run().launched().asked("suspend", nonce="n1")
    run.pass_once()
    run.pass_once()
    told = remembered(run)
    assert told["wanted"] == "suspended (wish n1)"
    assert told["attempt"].endswith("asked to suspend")
    run.seeing(storage=Unknown(unknown="no")).with_telemetry(0, control_refused="stale")
    run.after(100_000).pass_once()
    assert remembered(run)["note"] == "control: ranks refuse the control document: stale"
