"""Two ways to one learning rate agree in every bit."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from contract.plan import Plan
from contract.schedule import round_binary32
from controller.core.telling.rates import find_mismatches, round_quotient
from controller.simulate.scenario import sim_plan
from tests.chronicles import a_child
from tests.contract.builders import a_plan
from tests.histories import step_record


@given(some.integers(1, 2**90), some.integers(1, 2**200))
def test_quotients_round_as_the_contract_rounds(numerator, denominator):
    expected = round_binary32(Fraction(numerator, denominator))
    assert round_quotient(numerator, denominator) == expected


@pytest.mark.parametrize(
    ("numerator", "denominator", "value"),
    [
        (0, 7, 0.0),
        (1, 1, 1.0),
        (2**24 + 1, 1, 2.0**24),  # a tie, to the even one below
        (2**24 + 3, 1, 2.0**24 + 4),  # a tie, to the even one above
        (2**25 - 1, 1, 2.0**25),  # a carry into the next power
        (1, 2**150, 0.0),  # half of the smallest, to even
        (3, 2**150, 2.0**-148),
        (1, 2**149, 2.0**-149),
    ],
)
def test_ties_carries_and_the_smallest_numbers(numerator, denominator, value):
    assert round_quotient(numerator, denominator) == value


def records_of(plan: Plan):
    return [
        step_record(
            step,
            step,
            lr={group: it.hex() for group, it in plan.values_at(step)["learning_rate"].items()},
        )
        for step in range(plan.total_steps)
    ]


@pytest.mark.parametrize("plan", [sim_plan(400), a_child(), a_plan()], ids=["one", "fork", "two"])
def test_every_step_of_a_plan_agrees(plan):
    assert find_mismatches(records_of(plan), plan) == []


def test_one_bit_in_one_group_is_found():
    plan = a_plan()
    records = records_of(plan)
    group = max(records[70].lr)
    bent = float.fromhex(records[70].lr[group]) * (1 + 2**-23)
    records[70] = records[70].model_copy(update={"lr": records[70].lr | {group: bent.hex()}})
    assert find_mismatches(records, plan) == [70]


def test_missing_group_and_step_past_the_end_are_found():
    plan = sim_plan(50)
    records = records_of(plan)
    records[3] = records[3].model_copy(update={"lr": {}})
    records.append(records[-1].model_copy(update={"step": 50}))
    assert find_mismatches(records, plan) == [3, 50]
