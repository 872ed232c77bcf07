"""Revisions from a plan and a change: for every plan, what the proofs will ask of them holds."""

from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from contract.plan import check_child, check_plan
from contract.schedule import last_rise, value_at
from controller.core.proposal import Change, WantedStage
from controller.core.revise import align_up, revise
from tests.contract.builders import a_plan, parts_of, plans

HOW = {"author": "controller", "reason": "late", "midtrain_steps": 0}


@st.composite
def cuts(draw):
    """Draw a plan, an aligned fork after its warm-up, and fewer steps."""
    plan = draw(plans(min_steps=24))
    first = align_up(max(1, last_rise(plan.knots_of("learning_rate"))), plan.align_steps)
    assume(first < plan.total_steps - 3)
    fork = align_up(draw(st.integers(first, plan.total_steps - 3)), plan.align_steps)
    assume(fork < plan.total_steps - 3)
    total = draw(st.integers(fork + 2, plan.total_steps - 1))
    return plan, fork, total


@given(cuts())
def test_horizon_is_a_sound_child_for_every_plan(case):
    plan, fork, total = case
    child = revise(plan, Change(kind="horizon", total_steps=total), fork, **HOW)
    # A stage that no aligned step is left for may begin after the end; the proofs refuse it.
    assume(all(stage.start < total for stage in child.mixture.stages))
    assert check_plan(child) == []
    assert check_child(plan, child) == []
    assert child.knots_of("learning_rate")[-1] == (total - 1, Fraction(1, 20))


@given(cuts())
def test_rate_is_the_line_from_the_fork_to_the_original_end(case):
    plan, fork, total = case
    child = revise(plan, Change(kind="horizon", total_steps=total), fork, **HOW)
    at_fork = value_at(plan.knots_of("learning_rate"), fork)
    low = Fraction(1, 20)
    for step in range(fork, total):
        wanted = at_fork - (at_fork - low) * Fraction(step - fork, total - 1 - fork)
        assert child.fraction_at("learning_rate", step) == wanted


@given(cuts())
def test_materialising_is_a_pure_function_of_proposal_and_step(case):
    plan, fork, total = case
    change = Change(kind="horizon", total_steps=total)
    assert revise(plan, change, fork, **HOW).sha == revise(plan, change, fork, **HOW).sha


def test_stages_ahead_move_to_their_share_and_the_past_stays():
    plan = a_plan()  # 400 steps; mixture at 80%, context at 50%, blocks of two steps
    child = revise(plan, Change(kind="horizon", total_steps=301), 100, **HOW)
    assert [stage.start for stage in child.mixture.stages] == [0, 240]
    assert [stage.start for stage in child.context] == [0, 150]
    late = revise(plan, Change(kind="horizon", total_steps=301), 250, **HOW)
    assert [stage.start for stage in late.mixture.stages] == [0, 250]
    assert [stage.start for stage in late.context] == [0, 200]


def test_last_stage_keeps_its_floor_of_tokens():
    plan = a_plan()
    child = revise(
        plan, Change(kind="horizon", total_steps=300), 100, **HOW | {"midtrain_steps": 71}
    )
    assert child.mixture.stages[-1].start == 228  # 300 - 71 = 229, down to a whole block


def test_second_revision_of_the_horizon_goes_on_from_the_first():
    plan = a_plan()
    first = revise(plan, Change(kind="horizon", total_steps=350), 100, **HOW)
    second = revise(first, Change(kind="horizon", total_steps=320), 150, **HOW)
    assert check_child(first, second) == []
    assert [stage.start for stage in second.mixture.stages] == [0, 256]
    assert second.fraction_at("learning_rate", 120) == first.fraction_at("learning_rate", 120)


@given(st.data())
def test_wanted_mixture_takes_the_future_and_leaves_the_past(data):
    plan = data.draw(plans(min_steps=24))
    units = plan.mixture.block_tokens // plan.mixture.unit_tokens
    fork = align_up(data.draw(st.integers(1, plan.total_steps - 2)), plan.align_steps)
    assume(fork < plan.total_steps)
    percents = sorted(data.draw(st.sets(st.integers(1, 99), max_size=3)))
    stages = [
        WantedStage(from_percent=percent, parts=data.draw(parts_of(units)))
        for percent in (0, *percents)
    ]
    child = revise(plan, Change(kind="mixture", stages=stages), fork, **HOW)
    assert check_child(plan, child) == []
    assert check_plan(child) == []
    starts = [stage.start for stage in child.mixture.stages]
    assert fork in starts or plan.align_steps == 0
    assert child.mixture.stages[-1].parts == stages[-1].parts


def test_execution_changes_nothing_else():
    plan = a_plan()
    other = plan.execution.model_copy(update={"waves": 2})
    child = revise(plan, Change(kind="execution", execution=other), 7, **HOW)
    assert check_child(plan, child) == []
    assert child.anneals == plan.anneals
    assert child.execution == other
