"""Every proof refuses a plan that violates exactly it, and prints its value."""

from dataclasses import replace
from fractions import Fraction

import pytest

from contract.model import PRESETS
from contract.plan import MixtureStage
from controller.core.proofs import PROOFS, Case, Room, list_failures, prove
from controller.core.proposal import Change, WantedStage
from controller.core.revise import revise
from controller.core.terms import Fit, Terms
from tests.contract.builders import a_plan, write

HOW = {"author": "controller", "reason": "late", "midtrain_steps": 0}
FORK = 90
TERMS = Terms(
    window_percent=25,
    floor_percent=75,
    source_tokens={"code": 200_000, "docs": 200_000, "web": 200_000},
    fit=Fit(shape=PRESETS["tiny"], expert_axis=4, replicas=1, devices_per_rank=2),
)
ROOM = Room(rank_bytes=10**9, machine_bytes=16 * 10**9, ranks=2)
PLAN = a_plan()


def a_case(change, *, terms=TERMS, room=ROOM, fork=FORK, parent=PLAN, **changes):
    """Return the case of a good revision with some members replaced."""
    child = revise(parent, change, fork, **HOW).model_copy(update=changes)
    return Case(genesis=PLAN, parent=parent, child=child, terms=terms, room=room)


CUT = Change(kind="horizon", total_steps=320)
MIX = Change(
    kind="mixture", stages=[WantedStage(from_percent=0, parts={"code": 8, "docs": 4, "web": 4})]
)
RUN = Change(kind="execution", execution=PLAN.execution.model_copy(update={"waves": 2}))


@pytest.mark.parametrize("change", [CUT, MIX, RUN], ids=lambda change: change.kind)
def test_good_revision_proves_everything(change):
    proofs = prove(a_case(change))
    assert list_failures(proofs) == []
    assert {proof.name for proof in proofs} == {
        check.__name__.removeprefix("prove_") for check in PROOFS[change.kind]
    }
    assert all(proof.value and proof.bound for proof in proofs)


def knots(*pairs):
    """Return an anneal as plans hold it."""
    return write([(step, Fraction(value)) for step, value in pairs])


GOOD = revise(PLAN, CUT, FORK, **HOW)
RATE = GOOD.knots_of("learning_rate")
AT_FORK = PLAN.fraction_at("learning_rate", FORK)


def anneals(**changes):
    """Return the good revision's anneals with some replaced."""
    return {"anneals": GOOD.anneals | changes}


def stages(*starts, percents=(0, 80)):
    """Return the mixture with other starts."""
    kept = [
        stage.model_copy(update={"start": start, "from_percent": percent})
        for stage, start, percent in zip(PLAN.mixture.stages, starts, percents, strict=True)
    ]
    return {"mixture": PLAN.mixture.model_copy(update={"stages": kept})}


REANCHORED = knots((0, "1/20"), (19, 1), (FORK - 1, PLAN.fraction_at("learning_rate", FORK - 1)),
                   (FORK, AT_FORK * Fraction(9, 10)), (319, "1/20"))  # fmt: skip
RISING = knots((0, "1/20"), (19, 1), (FORK, AT_FORK), (FORK + 9, AT_FORK * Fraction(21, 20)),
               (319, "1/20"))  # fmt: skip
HIGHER_END = knots(*RATE[:-1], (319, "1/10"))
JUMPING = knots((0, 1), (FORK - 1, PLAN.fraction_at("weight_decay", FORK - 1)), (FORK, "7/10"),
                (319, "1/2"))  # fmt: skip
OTHER_PAST = knots((0, "1/20"), (10, "1/2"), (19, 1), (FORK, AT_FORK), (319, "1/20"))


def child_of(change=CUT, **changes):
    """Return a case whose child has some members replaced after it was built."""
    case = a_case(change)
    return replace(case, child=case.child.model_copy(update=changes))


VIOLATIONS = {
    "chain": child_of(parent="f" * 64),
    "past_knots": child_of(**anneals(learning_rate=OTHER_PAST)),
    "past_stages": child_of(
        mixture=GOOD.mixture.model_copy(
            update={
                "stages": [
                    MixtureStage(start=0, from_percent=0, parts={"code": 9, "docs": 7}),
                    GOOD.mixture.stages[1],
                ]
            }
        )
    ),
    "pinned": child_of(peaks=PLAN.peaks | {"learning_rate": {"matrix": "1", "other": "1"}}),
    "alignment": a_case(CUT, fork=91),
    "data": a_case(CUT, terms=TERMS.model_copy(update={"source_tokens": {"code": 9, "docs": 9}})),
    "sound": child_of(
        mixture=GOOD.mixture.model_copy(update={"block_tokens": 4_096, "unit_tokens": 256})
    ),
    "warm_up": a_case(CUT, fork=10),
    "continuous": child_of(**anneals(learning_rate=REANCHORED)),
    "monotone": child_of(**anneals(learning_rate=RISING)),
    "end": child_of(**anneals(learning_rate=HIGHER_END)),
    "other_anneals": child_of(**anneals(weight_decay=JUMPING)),
    "window": a_case(CUT, fork=102),
    "floor": a_case(Change(kind="horizon", total_steps=299)),
    "change": a_case(Change(kind="horizon", total_steps=393)),
    "midtrain": child_of(**stages(0, 280)),
    "same_schedule": child_of(MIX, total_steps=399),
    "parts": a_case(
        Change(kind="mixture", stages=[WantedStage(from_percent=0, parts={"code": 8, "news": 8})]),
    ),
    "same_data": child_of(RUN, **stages(0, 300)),
    "execution": child_of(RUN, execution=PLAN.execution),
    "fit": a_case(RUN, room=Room()),
}


def test_every_proof_has_a_violation():
    assert set(VIOLATIONS) == {
        check.__name__.removeprefix("prove_") for checks in PROOFS.values() for check in checks
    }


SAME_FAULT = {
    "past_knots": {"continuous"},
    "past_stages": {"midtrain"},
    "pinned": set(),
    "monotone": set(),
    "warm_up": {"sound", "past_knots"},
    "data": set(),
    "parts": {"data"},
}
"""Other proofs that the same fault fails, too; `sound` repeats what trainers check themselves."""


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violation_is_refused_by_its_proof(name):
    failed = {proof.name for proof in list_failures(prove(VIOLATIONS[name]))}
    assert name in failed
    assert failed - {name, "sound"} <= SAME_FAULT.get(name, set()), failed


@pytest.mark.parametrize(
    ("room", "fit", "words"),
    [
        (Room(rank_bytes=10**9, machine_bytes=10**9, ranks=2), TERMS.fit, "bytes a rank"),
        (Room(rank_bytes=None, machine_bytes=10**10, ranks=2), TERMS.fit, "impossible"),
        (ROOM, None, "impossible"),
        (ROOM, TERMS.fit.model_copy(update={"expert_axis": 3}), "multiple of the expert axis"),
    ],
)
def test_execution_without_a_fit_that_can_be_checked_is_refused(room, fit, words):
    case = a_case(RUN, terms=TERMS.model_copy(update={"fit": fit}), room=room)
    [failure] = list_failures(prove(case))
    assert failure.name == "fit"
    assert words in failure.value


def test_data_budget_bounds_the_tokens():
    terms = TERMS.model_copy(update={"data_budget_tokens": 320 * 1_024 - 1})
    [failure] = list_failures(prove(a_case(CUT, terms=terms)))
    assert failure.name == "data"


def test_midtraining_floor_is_kept_or_refused():
    terms = TERMS.model_copy(update={"midtrain_min_tokens": 65 * 1_024})
    assert [proof.name for proof in list_failures(prove(a_case(CUT, terms=terms)))] == ["midtrain"]
    child = revise(PLAN, CUT, FORK, **HOW | {"midtrain_steps": 65})
    case = Case(genesis=PLAN, parent=PLAN, child=child, terms=terms, room=ROOM)
    assert list_failures(prove(case)) == []
