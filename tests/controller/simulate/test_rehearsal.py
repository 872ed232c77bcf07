"""Whole runs in virtual time: where their time goes, what is seen of each failure, who waits."""

import json

import pytest

from controller.core.declared.supposition import MOST_CHANGES
from controller.core.telling.replay import replay
from controller.ports import LedgerRecord
from controller.simulate.book import CORE, ROOT_HASH, hash_record
from controller.simulate.rehearsal.course import plot_course
from tests.controller.simulate.rehearsals import ALL_KINDS, LATE, STEPS, Small, play

SEEDS = range(6)
STEP_MS = 19_980
"""4,096 tokens at 205 a second, rounded."""
FEW = "{rank: {effect: rank, every: 20h}}"
MANY = "{rank: {effect: rank, every: 4h}}"
TRAYS = "{tray: {effect: tray, every: 8h, repair: 4h}}"


def wall_ms(told):
    return told.ended_wall_ms - told.launched_wall_ms


# --- the account ---


@pytest.mark.parametrize("seed", SEEDS)
def test_every_millisecond_is_in_one_phase_and_every_step_is_paid_for(seed):
    told = play(seed, failures=ALL_KINDS).told
    assert told.outcome == "completed"
    assert sum(told.account.values()) == wall_ms(told)
    assert told.steps == told.total_steps == STEPS
    assert told.account["productive"] >= STEPS * STEP_MS
    lost = told.tokens_lost // 4_096
    assert told.account["replay"] >= lost * STEP_MS
    assert sum(it.replayed_steps for it in told.incidents) == lost
    assert told.attempts == 1 + sum(it.attempt is not None for it in told.incidents)


def test_quiet_run_spends_nothing_beside_its_start_its_steps_and_its_saves():
    told = play().told
    account = dict(told.account)
    assert account.pop("productive") == STEPS * STEP_MS
    assert account.pop("save_block") >= (STEPS // 100) * 4_000
    assert account.pop("schedule") < 60_000
    starts = {"start": 60, "rendezvous": 60, "restore": 300, "compile": 120, "first_step": 60}
    assert account == {name: 1_000 * s for name, s in starts.items()}
    assert not told.incidents
    assert told.on_time is None


def test_cost_of_an_incident_is_the_time_until_the_step_count_is_back():
    told = play(failures=FEW).told
    assert told.incidents
    for one in told.incidents:
        restart_ms = 600_000 + 10_000
        assert one.cost_ms >= restart_ms + one.replayed_steps * STEP_MS
    spent = told.account
    lost_ms = wall_ms(told) - spent["productive"] - spent["save_block"]
    first_start_ms = 610_000
    costs = sum(one.cost_ms for one in told.incidents)
    assert abs(lost_ms - first_start_ms - costs) < 120_000 * len(told.incidents)


def test_halt_is_charged_until_the_owner_resumes():
    told = play(failures=MANY, restarts="{window: 6h, inWindow: 1, withoutProgress: 30}").told
    assert told.outcome == "completed"
    halted_ms, detect_ms = told.account["halted"], 10_000
    halts = round(halted_ms / 1_810_000)
    assert halts > 2
    assert halted_ms == halts * (1_800_000 + detect_ms)
    assert sum(told.account.values()) == wall_ms(told)


def test_run_that_never_gets_on_is_given_up_as_halted():
    told = play(failures="{rank: {effect: rank, every: 1m}}").told
    assert told.outcome == "halted"
    assert told.finished_wall_ms is None
    assert "the same failure twice" in told.why
    assert sum(told.account.values()) == wall_ms(told)


def test_run_without_an_intact_checkpoint_is_lost():
    kinds = "{spoil: {effect: checkpoint, every: 3m}, rank: {effect: rank, every: 10h}}"
    told = play(failures=kinds).told
    assert told.outcome == "lost"
    assert told.incidents[-1].cause == "no_checkpoint"


# --- the same again ---


def test_same_seed_is_the_same_rehearsal_and_another_is_not():
    first, again = (play(3, failures=ALL_KINDS, drift=20) for _ in range(2))
    assert first == again
    assert play(4, failures=ALL_KINDS, drift=20).told.incidents != first.told.incidents


@pytest.mark.parametrize("declared", [{"failures": ALL_KINDS}, {"deadline": LATE}])
def test_looking_all_the_time_sees_and_does_nothing_else(declared):
    seldom = play(2, **declared)
    often = play(2, **declared, poll_ms=120_000)
    assert often.told.passes > 8 * seldom.told.passes
    assert deeds(often) == deeds(seldom)
    assert len(deeds(seldom)) > 15
    assert judgements(often) == judgements(seldom)


def judgements(heard):
    return [(it.name, it.attempt, it.cause, it.root_rank) for it in heard.told.incidents]


def deeds(heard):
    """Return what was decided, in order; whether a fence was set before or after the last rank
    ended depends on when one looks."""
    return [
        (record["body"]["rule"], [it["verb"] for it in record["body"]["actions"] if is_deed(it)])
        for record in heard.records
        if record["kind"] == "decision" and any(map(is_deed, record["body"]["actions"]))
    ]


def is_deed(action):
    return action["verb"] not in ("note", "close_attempt")


def test_ledger_is_whole_and_every_decision_of_it_repeats_bit_for_bit():
    heard = play(failures=ALL_KINDS, deadline=LATE)
    records = [LedgerRecord.model_validate_json(line) for line in heard.lines]
    assert len(records) == heard.told.records
    assert sum(len(line) + 1 for line in heard.lines) == heard.told.ledger_bytes
    prev = ROOT_HASH
    for record in records:
        assert (record.prev, hash_record(record)) == (prev, record.hash)
        prev = record.hash
    found = replay(records, CORE)
    assert len(found) > 50
    assert all(it.is_equal for it in found)


# --- what the controller makes of each failure ---


def test_lost_rank_is_found_as_the_crashed_one():
    told = play(failures=FEW).told
    ranks = {it.root_rank for it in told.incidents}
    assert {it.cause for it in told.incidents} == {"crashed"}
    assert {it.confidence for it in told.incidents} == {"high"}
    assert len(ranks) > 1
    # Two racks of two trays of one rank each.
    assert all(it.root_rank in (0, 1, 2, 3) and it.rack is not None for it in told.incidents)


def test_lost_tray_leaves_no_word_and_its_ranks_move_to_a_spare():
    told = play(failures=TRAYS).told
    assert {it.cause for it in told.incidents} == {"unknown_end"}
    assert told.spares.tray_moves + told.spares.rack_moves > 0
    assert told.account.get("waiting", 0) == 0


def test_lost_rack_takes_all_its_ranks_and_they_move_to_the_spare_rack():
    told = play(4, failures="{rack: {effect: rack, every: 1d, repair: 4h}}").told
    first = told.incidents[0]
    assert (first.cause, first.confidence, first.tray) == ("unknown_end", "low", None)
    assert first.root_rank == 2 * first.rack
    assert told.spares.rack_moves >= 1
    assert min(told.spares.fewest_by_rack) == 0


def test_hang_is_ended_by_the_watchdog_and_its_silent_rank_is_the_root():
    told = play(failures="{hang: {effect: hang, every: 20h}}").told
    assert {(it.cause, it.confidence) for it in told.incidents} == {("stall", "high")}
    assert told.account["stall"] >= 900_000 * len(told.incidents)


def test_slow_tray_stretches_the_steps_and_ends_nothing():
    kinds = "{slow: {effect: slow, every: 12h, repair: 4h, percent: 50}}"
    told = play(failures=kinds).told
    assert told.attempts == 1
    assert {it.cause for it in told.incidents} == {None}
    longer_ms = told.account["productive"] - STEPS * STEP_MS
    assert longer_ms > 0
    assert abs(longer_ms - sum(it.cost_ms for it in told.incidents)) < 0.1 * longer_ms


def test_full_storage_is_told_and_its_saves_are_missed():
    kinds = "{full: {effect: storage, every: 12h, repair: 4h}, rank: {effect: rank, every: 4h}}"
    heard = play(failures=kinds)
    assert any("no space left" in it for it in heard.notes("storage"))
    most = max(it.replayed_steps for it in heard.told.incidents)
    assert most > max(it.replayed_steps for it in play(failures=MANY).told.incidents)
    assert heard.told.outcome == "completed"


def test_damaged_checkpoint_is_set_aside_and_an_older_one_restored():
    kinds = "{spoil: {effect: checkpoint, every: 3h}, rank: {effect: rank, every: 4h}}"
    heard = play(failures=kinds)
    assert any("data does not match its digest" in it for it in heard.notes("quarantine"))
    # A hundred steps lie between two saves, and a commit takes 15.
    assert max(it.replayed_steps for it in heard.told.incidents) > 115
    assert heard.told.outcome == "completed"


def test_blind_controller_ends_nothing_and_forecasts_nothing():
    kinds = "{blind: {effect: blind, every: 8h, repair: 3h}}"
    told = play(failures=kinds, spread=0, deadline=LATE).told
    spells = [(it.at_wall_ms, it.at_wall_ms + 3 * 3_600_000) for it in told.incidents]
    assert len(spells) > 1
    assert told.attempts == 1
    assert len(told.forecasts) > 5
    assert not [it for it in told.forecasts for since, to in spells if since < it.at_wall_ms < to]


# --- pace ---


def test_declared_history_and_longer_contexts_decide_how_long_it_takes():
    slow = "{fromDay: 0, tokensPerSecond: 205}, {fromDay: 1, tokensPerSecond: 410}"
    told = play(throughput=slow).told
    day_ms = 86_400_000
    assert abs(told.account["productive"] - 1.5 * day_ms) < 0.01 * day_ms
    context = "{fromPercent: 0, length: 64}, {fromPercent: 50, length: 256}"
    longer = play(context=context, parts=32).told
    assert longer.account["productive"] > 1.005 * STEPS * STEP_MS


# --- spares ---


def test_with_too_few_trays_the_gang_waits_for_a_repair_and_that_is_no_failed_start():
    told = play(failures=TRAYS, trays=2, spare_trays=0, racks=2, spare_racks=0).told
    assert told.outcome == "completed"
    assert told.account["waiting"] == told.spares.waited_ms > 0
    assert {it.cause for it in told.incidents} == {"unknown_end"}
    assert told.spares.fewest == 0
    assert sum(told.account.values()) == wall_ms(told)


def test_more_spares_never_wait_longer_under_the_same_failures():
    waited = [
        sum(
            play(seed, failures=TRAYS, trays=2 + spare, spare_trays=spare).told.spares.waited_ms
            for seed in SEEDS
        )
        for spare in range(3)
    ]
    assert waited[0] > waited[1] >= waited[2]
    first = [play(0, failures=TRAYS, trays=2 + it, spare_trays=it).told for it in (0, 2)]
    few, many = (next((it.at_wall_ms, it.root_rank) for it in told.incidents) for told in first)
    assert few == many


def test_more_failures_finish_later():
    ends = [
        sum(wall_ms(play(seed, failures=kinds).told) for seed in SEEDS)
        for kinds in ("{}", FEW, MANY)
    ]
    assert ends == sorted(ends)
    assert ends[0] < ends[1] < ends[2]


# --- the owner ---


def test_owner_who_approves_gets_a_shorter_run_in_time():
    told = play(deadline=LATE).told
    (proposal,) = told.proposals
    assert proposal.outcome == "adopted"
    patience_ms = proposal.approved_wall_ms - proposal.proposed_wall_ms
    assert 3_600_000 <= patience_ms < 3_700_000
    assert proposal.adopted_wall_ms > proposal.approved_wall_ms
    assert proposal.total_steps == told.total_steps < STEPS
    assert proposal.tokens_given_up == (STEPS - told.total_steps) * 4_096
    assert proposal.fork_step <= STEPS // 2
    assert told.on_time
    assert told.horizon_percent == 100 * told.total_steps // STEPS
    assert told.forecasts


def test_owner_who_never_answers_leaves_the_horizon_alone():
    told = play(deadline=LATE, owner="{approvesAfter: never, resumesAfter: 30m}").told
    assert told.proposals
    assert {it.outcome for it in told.proposals} <= {"open", "expired", "void"}
    assert {it.approved_wall_ms for it in told.proposals} == {None}
    assert (told.horizon_percent, told.on_time) == (100, False)


def test_short_run_outlives_a_repair_that_takes_longer_than_all_its_steps():
    deadline = 'deadline: {at: "2026-01-06T00:00:00Z"}'
    failure = "{tray: {effect: tray, every: 10m, repair: 3h}}"
    few = {
        "racks": 1,
        "spare_racks": 0,
        "trays": 1,
        "spare_trays": 0,
        "horizon": 200 * 4_096,
        "evaluate": 200,
    }
    told = play(deadline=deadline, failures=failure, **few).told
    plan_ms = 200 * 20_000
    assert told.ended_wall_ms - told.launched_wall_ms > 3 * plan_ms
    assert (told.outcome, told.on_time, told.steps) == ("completed", True, 200)


def test_controller_that_cannot_see_an_end_looks_ever_less_often():
    blind = "{x: {effect: blind, every: 10m, repair: 3000d}}"
    told = play(failures=blind, horizon=400 * 4_096, evaluate=400).told
    assert (told.outcome, told.steps) == ("unfinished", 400)
    assert told.passes < 10_000


def test_jumps_end_after_so_many():
    supposed = Small().parse().spec.simulation
    changes = supposed.changes.model_copy(update={"every": 1_000, "percent": 5})
    course = plot_course(supposed.model_copy(update={"changes": changes}), 1, 3_000)
    assert len(course.moments) <= 3 * MOST_CHANGES + 3_000


def test_progress_is_told_each_day_and_at_the_end():
    days = []
    told = play(failures=FEW, on_day=days.append).told
    assert [step for _, step in told.progress] == sorted(step for _, step in told.progress)
    assert told.progress[0] == (told.launched_wall_ms, 0)
    assert told.progress[-1] == (told.ended_wall_ms, STEPS)
    assert len(told.progress) == 2 + wall_ms(told) // 86_400_000
    assert json.loads(told.model_dump_json())["progress"][0] == [told.launched_wall_ms, 0]
    assert days == list(range(1, len(told.progress) - 1))
