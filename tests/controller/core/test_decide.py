"""Ordered rules, each on its own fields; and what holds for any snapshot at all."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.core.actions import DESTRUCTIVE, LaunchGang, RecordEnd, key_of
from controller.core.decide import GANG, confirm, decide, pace_ms
from controller.core.readings import Unknown
from controller.core.rules import FIELDS, Answer, rule, unknown_fields
from controller.core.snapshot import GangView
from tests.builders import a_rank, a_run, an_end, the

BLINDABLE = ("gang", "progress", "store", "storage", "intents", "control")


def test_every_rule_has_a_name_of_its_own_and_says_what_it_does():
    names = [one.name for one in GANG]
    assert len(set(names)) == len(names)
    assert all(one.ask.__doc__ for one in GANG)
    assert all(set(one.needs) <= set(FIELDS) for one in GANG)


def test_first_rule_with_an_answer_wins_and_later_ones_are_not_asked():
    @rule()
    def first(_, memory):
        return Answer("first")

    @rule()
    def second(_, memory):
        raise AssertionError

    run = a_run()
    assert decide(run.snapshot(), run.memory, (first, second)).rule == "first"


def test_rule_without_one_of_its_fields_is_not_asked():
    @rule("store")
    def needy(_, memory):
        raise AssertionError

    @rule()
    def content(_, memory):
        return Answer("content")

    run = a_run().blind("store")
    assert unknown_fields(run.snapshot()) == {"store"}
    assert decide(run.snapshot(), run.memory, (needy, content)).rule == "content"


@pytest.mark.parametrize("field", BLINDABLE)
@pytest.mark.parametrize("stage", ["new", "up", "dying", "dead", "resting"])
def test_every_rule_bears_every_unread_field(field, stage):
    run = a_run()
    if stage != "new":
        run.launched()
    if stage == "dying":
        run.with_end(1, 137)
    if stage == "dead":
        run.over(137, 94, 94, 94).after(60_000)
    if stage == "resting":
        run.over(2, 2, 2, 2).pass_once()
    run.blind(field)
    for one in GANG:
        if field not in one.needs:
            one.ask(run.snapshot(), run.memory)


def ranks():
    ends = st.sampled_from([None, 0, 1, 2, 40, 42, 80, 94, 124, 134, 137, 139, 143])
    return st.builds(
        lambda claimed, alive, stopped, stacks, code: a_rank(
            0,
            claimed=claimed,
            alive=alive,
            stopped=stopped,
            has_stacks=stacks,
            end=None if alive or not claimed or code is None else an_end(code),
        ),
        *[st.booleans()] * 4,
        ends,
    )


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_is_seen_nothing_destructive_rests_on_the_unknown(data):
    run = a_run(ranks=3).launched()
    for _ in range(4):
        views = [data.draw(ranks()).model_copy(update={"rank": rank}) for rank in range(3)]
        gang = GangView(
            attempt=data.draw(st.integers(1, 3)),
            closed=data.draw(st.booleans()),
            ranks=views,
            remains=[],
        )
        run.seeing(gang=gang).with_progress(data.draw(st.one_of(st.none(), st.integers(0, 100))))
        unread = data.draw(st.sets(st.sampled_from(BLINDABLE)))
        run.blind(*unread).after(data.draw(st.sampled_from([0, 500, 30_000, 10**6])))
        decision = run.pass_once()
        assert decision.wake_in_ms >= 0
        if "gang" in unread:
            forbidden = (*DESTRUCTIVE, LaunchGang, RecordEnd)
            assert not any(isinstance(action, forbidden) for action in decision.actions)
        if decision.rule == "launch" and decision.actions:
            assert not any(view.alive for view in views)
        assert run.memory == run.rebuilt()
        run.seeing(intents=[], control=None)


def test_pace_grows_and_is_bounded():
    waits = [pace_ms(tries) for tries in range(1, 100)]
    assert waits[0] == 1_000
    assert waits == sorted(waits)
    assert waits[-1] == 300_000


def test_rule_whose_acts_are_paced_lets_the_next_ones_speak():
    run = a_run().launched().with_end(2, 137)
    assert run.pass_once(ok=False).rule == "close_ended"
    assert run.decide().rule == "watch"
    assert run.after(1_000).decide().rule == "close_ended"


def test_confirm_asks_the_same_rule_of_another_snapshot():
    run = a_run().launched().with_end(2, 137)
    run.pass_once()
    run.with_gang(closed=True).after(run.policy.cascade_ms)
    before, decision = run.memory, run.decide()
    kill = the(decision, "kill_ranks")
    assert confirm("kill_rest", kill, run.snapshot(), before)
    assert not confirm("end_stuck", kill, run.snapshot(), before)
    assert not confirm("kill_rest", kill, run.blind("gang").snapshot(), before)
    fewer = a_run().launched().gang.ranks
    assert len(fewer) == 4
    gone = [view.model_copy(update={"alive": False}) for view in fewer]
    run.seeing(gang=GangView(attempt=1, closed=True, ranks=gone, remains=[]))
    assert not confirm("kill_rest", kill, run.snapshot(), before)


def test_key_names_run_attempt_verb_subject_and_nonce():
    order = the(a_run().decide(), "launch_gang")
    assert key_of("uid", order) == f"uid/1/launch_gang/-/{order.nonce}"


def test_decision_is_a_pure_function():
    run = a_run().launched().with_end(1, 137)
    assert run.decide() == run.decide()


def test_unknown_is_not_none():
    assert Unknown(unknown="x") is not None
    assert a_run().seeing(gang=None).decide().rule == "launch"
    assert a_run().blind("gang").decide().rule == ""
