"""One decision is explained by the rules that made it."""

import pytest

from controller.core.decide import GANG, PLAN
from controller.core.telling.explain import Pointer, explain, hear
from controller.simulate.book import CORE
from tests.builders import a_checkpoint, a_run
from tests.plan_runs import a_late_run


def explained(run, rule, index=-1):
    """Return a decision of a rule, the newest one, explained."""
    found = [it.seq for it in run.book.records if it.body.get("rule") == rule]
    return explain(run.book.records, found[index], CORE, str)


def verdicts(turns):
    return {turn.rule: turn.verdict for turn in turns if turn.verdict not in ("silent", "after")}


def test_launch_is_explained_rule_by_rule_with_keys_and_outcomes():
    found = explained(a_run().launched(), "launch")
    assert [turn.rule for turn in found.gang] == [rule.name for rule in GANG]
    assert [turn.rule for turn in found.plan] == [rule.name for rule in PLAN]
    assert verdicts(found.gang) == {"launch": "acted"}
    assert found.gang[-1].meaning == "Start the next attempt, once nothing of an older one lives."
    assert found.gang[-1].needs == ("gang", "store", "storage")
    assert [act.verb for act in found.acts] == ["publish_plan", "publish_control", "launch_gang"]
    assert [[it.seq for it in act.outcomes] for act in found.acts] == [[4], [5], [6]]
    assert found.acts[-1].key == "sim/1/launch_gang/-/2"
    assert found.replayed.is_equal


def test_rules_after_the_one_that_had_its_say_are_not_asked():
    run = a_run().launched()
    turns = hear(GANG, run.snapshot(), run.memory)
    at = [turn.rule for turn in turns].index("watch")
    assert turns[at].verdict == "held"
    assert turns[at].words == "attempt 1 is up"
    assert {turn.verdict for turn in turns[:at]} == {"silent"}
    assert {turn.verdict for turn in turns[at + 1 :]} == {"after"}


def test_rule_that_rests_on_an_unknown_field_says_which_and_why():
    run = a_run().launched().blind("gang")
    told = {turn.rule: turn for turn in hear(GANG, run.snapshot(), run.memory)}
    assert told["record_end"].verdict == "blind"
    assert told["record_end"].words == "gang is unknown: no gang"
    assert told["repair_control"].verdict == "silent"


def test_rule_whose_act_was_intended_a_moment_ago_waits():
    run = a_run().launched().seeing(control=None)
    told = {it.rule: it for it in hear(GANG, run.after(200).snapshot(), run.memory)}
    assert told["repair_control"].verdict == "waits"
    assert told["repair_control"].words.startswith("intended a moment ago, waits 0.8 s: the cont")
    assert told["watch"].verdict == "held"


def test_failed_act_is_told_with_its_outcomes_up_to_the_first_success():
    run = a_run().launched().with_end(1, 137)
    run.pass_once(ok=False)
    run.after(5_000).pass_once()
    first = next(it for it in run.book.records if it.body.get("rule") == "close_ended")
    found = explain(run.book.records, first.seq, CORE, str)
    assert [(it.ok, it.error) for it in found.acts[0].outcomes] == [(False, "no"), (True, "")]


def test_incident_tells_who_ended_how():
    run = a_run().launched().with_end(1, 137)
    run.pass_once()
    found = explained(run.over(94, 137, 94, 94), "record_end")
    (gang,) = [it.words for it in found.seen if it.name == "gang"]
    assert "rank 1 ended with 137 KILLED" in gang
    assert found.reason.startswith("attempt 1 is over")
    assert not found.acts[0].has_effect


def test_restart_tells_which_checkpoints_were_refused():
    run = a_run().launched().with_checkpoints(10, 20)
    run.over(94, 137, 94, 94)
    store = run.seen["store"]
    bad = a_checkpoint(30, run.plan, quarantined="digest")
    foreign = a_checkpoint(40, run.plan, line="old")
    views = [*store.checkpoints, bad, foreign]
    run.seeing(store=store.model_copy(update={"checkpoints": views}))
    found = explained(run.relaunched(), "launch")
    assert [tuple(it) for it in found.refused] == [
        ("restore checkpoint main/30", "it is quarantined: digest"),
        ("restore checkpoint old/40", "line old is no ancestor of line main"),
    ]


def test_evaluation_tells_why_nothing_is_proposed():
    run = a_late_run()
    last = explained(run, "evaluate").refused[0]
    assert last.why == "nothing speaks against it any more: the next decision"
    silence, *what_ifs = explained(run, "evaluate", -2).refused
    assert silence == ("propose a shorter horizon", "late at 2 of 3 evaluations in a row")
    assert what_ifs[0].what == "end after 950 steps (95%)"
    assert "tokens given up" in what_ifs[0].why


def test_proposal_tells_which_horizons_failed_what():
    run = a_late_run()
    found = explained(run, "propose")
    chosen = run.memory.proposal.change.total_steps
    refused = dict(found.refused)
    assert "under the target of 80%" in refused["end after 1,000 steps (100%)"]
    just_more = next(why for what, why in refused.items() if f"{chosen + 1:,} steps" in what)
    assert "under the target of 80%" in just_more
    assert "more tokens given up than the target needs" in refused["end after 750 steps (75%)"]
    assert "it fails floor: 749 steps (FAILS" in refused["end after 749 steps (74%)"]


def test_revision_tells_why_it_forks_no_earlier():
    run = a_late_run(mode="auto")
    found = explained(run, "materialise")
    (earlier,) = found.refused
    assert earlier.what.endswith("already")
    assert "the gang must hear of a revision" in earlier.why


@pytest.mark.parametrize(
    ("seq", "kind", "decision"), [(1, "run", None), (2, "epoch", None), (5, "outcome", 3)]
)
def test_other_record_points_to_its_decision(seq, kind, decision):
    found = explain(a_run().launched().book.records, seq, CORE, str)
    assert found == Pointer(seq, kind, decision)


def test_number_beyond_the_ledger_is_none():
    assert explain(a_run().launched().book.records, 99, CORE, str) is None
