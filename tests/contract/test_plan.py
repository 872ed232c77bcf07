import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.canonical import encode_canonical, hash_bytes
from contract.model import Execution
from contract.plan import (
    ContextStage,
    Line,
    Mixture,
    MixtureStage,
    Plan,
    PlanError,
    chain_of,
    check_child,
    check_plan,
    is_admissible,
    read_plan,
)
from contract.schedule import format_fraction, round_binary32
from tests.contract.builders import a_horizon, a_line, a_plan, change, plans, revisions


@given(plans())
def test_drawn_plans_are_valid_and_round_trip_to_the_same_bytes(plan):
    assert check_plan(plan) == []
    data = plan.encode()
    again = read_plan(data, sha=plan.sha)
    assert again == plan
    assert again.encode() == data
    assert plan.sha == hash_bytes(data)


def test_plan_bytes_are_canonical():
    data = a_plan().encode()
    assert json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode() == data


@pytest.mark.parametrize("member", sorted(Plan.model_fields))
def test_every_member_is_part_of_the_sha(member):
    document = json.loads(a_plan().encode())
    without = {name: value for name, value in document.items() if name != member}
    assert hash_bytes(encode_canonical(without)) != a_plan().sha
    with pytest.raises(PlanError, match=member):
        read_plan(encode_canonical(without))


REFUSED_BYTES = {
    "empty": b"",
    "not JSON": b"\x00\xff",
    "not an object": b"[]",
    "cut": a_plan().encode()[:-1],
    "a space": a_plan().encode().replace(b":", b": ", 1),
    "a line end": a_plan().encode() + b"\n",
    "unknown member": a_plan().encode().replace(b'{"anneals"', b'{"aaa":1,"anneals"', 1),
    "twice": a_plan().encode().replace(b'"seed":0', b'"seed":0,"seed":0'),
    "a float": a_plan().encode().replace(b'"seed":0', b'"seed":0.0'),
    "text for a number": a_plan().encode().replace(b'"seed":0', b'"seed":"0"'),
    "a boolean for a number": a_plan().encode().replace(b'"seed":0', b'"seed":false'),
    "not lowest terms": a_plan().encode().replace(b'"1/20"', b'"2/40"'),
    "another format": a_plan().encode().replace(b'"format":1', b'"format":2'),
    "a lone surrogate": a_plan().encode().replace(b'"reason":"r"', b'"reason":"\\ud800"'),
    "escaped": a_plan().encode().replace(b'"reason":"r"', b'"reason":"\\u0072"'),
}


@pytest.mark.parametrize("name", REFUSED_BYTES)
def test_read_plan_refuses_what_is_not_canonical(name):
    assert REFUSED_BYTES[name] != a_plan().encode()
    with pytest.raises(PlanError):
        read_plan(REFUSED_BYTES[name])


@given(st.binary(max_size=200))
def test_read_plan_refuses_any_garbage_with_its_own_error(data):
    with pytest.raises(PlanError):
        read_plan(data)


@settings(max_examples=300)
@given(st.data())
def test_any_changed_byte_of_a_plan_is_refused(data):
    plan = a_plan()
    raw = bytearray(plan.encode())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PlanError):
        read_plan(bytes(raw), sha=plan.sha)


def with_knots(*knots):
    return {"anneals": {**a_plan().anneals, "learning_rate": list(knots)}}


def with_mixture(**changes):
    return {"mixture": a_plan().mixture.model_copy(update=changes)}


def stage(start, **parts):
    return MixtureStage(start=start, from_percent=0, parts=parts)


def context(*stages):
    return {
        "context": [
            ContextStage(start=s, from_percent=0, length=n, flops_per_token=1) for s, n in stages
        ]
    }


def lines(*named):
    return {"lineage": [Line(name=n, fork_step=s, offset_blocks=b) for n, s, b in named]}


INCONSISTENT = {
    "genesis with parent": {"parent": "a" * 64},
    "genesis effective late": {"effective": 3},
    "child without parent": {"kind": "horizon"},
    "effective past the end": {"kind": "horizon", "parent": "a" * 64, "effective": 400},
    "no learning rate": {"anneals": {}, "peaks": {}},
    "peaks of another anneal": {"peaks": {"learning_rate": {"matrix": "1"}}},
    "knots do not start at 0": with_knots((1, "1/20"), (399, "1/20")),
    "knots end early": with_knots((0, "1/20"), (398, "1/20")),
    "knots do not increase": with_knots((0, "1/20"), (30, "1/1"), (30, "1/1"), (399, "1/20")),
    "no knots": with_knots(),
    "fraction above 1": with_knots((0, "1/20"), (19, "3/2"), (399, "1/20")),
    "fraction not in lowest terms": with_knots((0, "2/40"), (399, "1/20")),
    "stages do not start at 0": with_mixture(stages=[stage(2, code=16)]),
    "stages do not increase": with_mixture(stages=[stage(0, code=16), stage(0, code=16)]),
    "stage after the end": with_mixture(stages=[stage(0, code=16), stage(400, code=16)]),
    "stage not aligned": with_mixture(stages=[stage(0, code=16), stage(3, code=16)]),
    "parts do not fill a block": with_mixture(stages=[stage(0, code=15)]),
    "context does not start at 0": context((1, 64)),
    "context after the end": context((0, 64), (400, 128)),
    "context longer than a unit": context((0, 256)),
    "context does not divide a unit": context((0, 96)),
    "lines do not begin with main": lines(("b", 0, 0)),
    "a line twice": lines(("main", 0, 0), ("b", 5, 0), ("b", 9, 0)),
    "main forks": lines(("main", 5, 0)),
    "main skips": lines(("main", 0, 5)),
}


@pytest.mark.parametrize("name", INCONSISTENT)
def test_inconsistent_plan_is_refused_in_words(name):
    plan = change(a_plan(), **INCONSISTENT[name])
    problems = check_plan(plan)
    assert problems
    with pytest.raises(PlanError) as refused:
        read_plan(plan.encode())
    assert refused.value.problems


def test_blocks_that_are_not_whole_units_are_refused():
    mixture = Mixture(block_tokens=2_000, unit_tokens=128, stages=[stage(0, code=15)])
    assert any("whole units" in problem for problem in check_plan(a_plan(mixture=mixture)))


@settings(max_examples=60)
@given(revisions(), st.data())
def test_revision_is_accepted_and_its_past_is_bit_identical(drawn, data):
    parent, child = drawn
    assert check_plan(child) == []
    assert check_child(parent, child) == []
    end = min(child.effective, parent.total_steps, child.total_steps)
    for step in {data.draw(st.integers(0, max(0, end - 1))), max(0, end - 1), 0}:
        if step < end:
            left, right = parent.values_at(step), child.values_at(step)
            assert str(left) == str(right)
            assert parent.context_at(step) == child.context_at(step)
    assert parent.fraction_at("learning_rate", child.effective) == child.fraction_at(
        "learning_rate", child.effective
    )
    last = child.total_steps - 1
    assert child.fraction_at("learning_rate", last) == Fraction(1, 20)


PARENT = a_plan()
CHILD = a_horizon(PARENT, 150, 300)


def changed_anneal(**at):
    return {**CHILD.anneals, **at}


def reshaped(name, *knots):
    """Return the anneals with other knots from the fork to the last one."""
    kept = [knot for knot in CHILD.anneals[name] if knot[0] < 150]
    return changed_anneal(**{name: [*kept, *knots, CHILD.anneals[name][-1]]})


def reanchored(name):
    """Return the anneals with the full peak at the fork, whatever was reached before."""
    before = format_fraction(PARENT.fraction_at(name, 149))
    return reshaped(name, (149, before), (150, "1/1"))


AT_FORK = (150, CHILD.anneals["learning_rate"][-2][1])

VIOLATIONS = {
    "parent is": {"parent": "b" * 64},
    "run_uid changed": {"run_uid": "v"},
    "config_sha changed": {"config_sha": "2" * 64},
    "data_digest changed": {"data_digest": "2" * 64},
    "seed changed": {"seed": 1},
    "tokens_per_step changed": {"tokens_per_step": 2_048},
    "peaks changed": {"peaks": {**CHILD.peaks, "learning_rate": {"matrix": "0.003"}}},
    "mixture.block_tokens changed": {
        "mixture": CHILD.mixture.model_copy(update={"block_tokens": 4_096})
    },
    "mixture.unit_tokens changed": {
        "mixture": CHILD.mixture.model_copy(update={"unit_tokens": 256})
    },
    "execution changed": {"execution": Execution(waves=1)},
    "total_steps changed": {"kind": "mixture"},
    "learning_rate changes before": {
        "anneals": changed_anneal(
            learning_rate=[(0, "1/20"), (18, "1/1"), *CHILD.anneals["learning_rate"][2:]]
        )
    },
    "learning_rate ends at": {
        "anneals": changed_anneal(
            learning_rate=[*CHILD.anneals["learning_rate"][:-1], (299, "1/10")]
        )
    },
    "weight_decay is missing": {"anneals": {"learning_rate": CHILD.anneals["learning_rate"]}},
    "mixture changes before": {
        "mixture": CHILD.mixture.model_copy(update={"stages": [stage(0, code=9, docs=7)]})
    },
    "context changes before": {
        "context": [ContextStage(start=0, from_percent=0, length=128, flops_per_token=1)]
    },
    "lineage changed": lines(("main", 0, 0), ("b", 150, 0)),
    "learning_rate jumps at step 150": {"anneals": reanchored("learning_rate")},
    "learning_rate rises after step 150": {
        "anneals": reshaped("learning_rate", AT_FORK, (151, "1/20"), (200, "1/10"))
    },
    "weight_decay jumps at step 150": {"anneals": reanchored("weight_decay")},
    "weight_decay rises after step 150": {
        "anneals": reshaped("weight_decay", (150, "108/133"), (200, "1/1"))
    },
}


@pytest.mark.parametrize("words", VIOLATIONS)
def test_each_violation_of_a_child_is_found_and_found_once(words):
    assert check_child(PARENT, CHILD) == []
    problems = check_child(PARENT, change(CHILD, **VIOLATIONS[words]))
    assert len(problems) == 1, problems
    assert words in problems[0]


def test_horizon_that_cuts_the_warm_up_short_is_refused():
    assert check_child(PARENT, a_horizon(PARENT, 19, 300)) == []
    (problem,) = check_child(PARENT, a_horizon(PARENT, 18, 300))
    assert "before the end of the warm-up at 19" in problem


def test_horizon_that_forks_where_the_parent_has_ended_is_refused():
    anneals = {name: [*knots, (499, knots[-1][1])] for name, knots in PARENT.anneals.items()}
    child = change(CHILD, effective=400, total_steps=500, anneals=anneals)
    child = change(child, mixture=PARENT.mixture, context=PARENT.context)
    assert check_plan(child) == []
    assert check_child(PARENT, child) == ["effective step 400 is past the last step"]


def test_anneal_that_rises_by_declaration_may_go_on_rising():
    anneals = {**PARENT.anneals, "weight_decay": [(0, "1/2"), (399, "1/1")]}
    parent = change(PARENT, anneals=anneals)
    assert check_child(parent, a_horizon(parent, 150, 300)) == []
    assert check_child(parent, a_horizon(parent, 150, 500)) == []


@pytest.mark.parametrize("kind", ["mixture", "execution"])
def test_mixture_and_execution_leave_the_schedule_alone(kind):
    common = {"kind": kind, "parent": PARENT.sha, "effective": 150}
    assert check_child(PARENT, change(PARENT, **common)) == []
    lower = [*reanchored("learning_rate")["learning_rate"][:-1], (399, "1/20")]
    shorter = context((0, 64), (300, 128))["context"]
    assert check_child(PARENT, change(PARENT, **common, context=shorter)) == [
        f"context changed in a revision of kind {kind}"
    ]
    anneals = {**PARENT.anneals, "learning_rate": lower}
    assert check_child(PARENT, change(PARENT, **common, anneals=anneals)) == [
        f"anneals changed in a revision of kind {kind}"
    ]


def test_execution_leaves_the_mixture_alone():
    common = {"kind": "execution", "parent": PARENT.sha, "effective": 150}
    mixture = PARENT.mixture.model_copy(update={"stages": PARENT.mixture.stages[:1]})
    assert check_child(PARENT, change(PARENT, **common, mixture=mixture)) == [
        "mixture changed in a revision of kind execution"
    ]
    assert (
        check_child(PARENT, change(PARENT, **{**common, "kind": "mixture"}, mixture=mixture)) == []
    )


def test_revision_before_its_parents_is_refused():
    grandchild = a_horizon(CHILD, 149, 280)
    problems = check_child(CHILD, grandchild)
    assert any("before the parent's" in problem for problem in problems)


def test_pinned_but_not_part_of_the_sha_is_nothing():
    assert change(PARENT, seed=1).sha != PARENT.sha


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        (lines(("main", 0, 0), ("b", 149, 2)), "forks at 149, not 150"),
        (lines(("main", 0, 0), ("c", 0, 0), ("b", 150, 2)), "lineage first"),
        (lines(("main", 0, 0)), "lineage first"),
    ],
)
def test_line_extends_the_lineage_at_its_fork(changes, words):
    line = change(a_line(PARENT, "b", 150, 2), **changes)
    problems = check_child(PARENT, line)
    assert bool(problems) == (words is not None), problems
    assert not words or any(words in problem for problem in problems)


def test_line_may_leave_before_the_last_revision():
    line = a_line(CHILD, "b", 100)
    assert check_plan(line) == []
    assert check_child(CHILD, line) == []


def test_execution_may_change_in_its_own_kind_only():
    child = change(
        PARENT, kind="execution", parent=PARENT.sha, effective=10, execution=Execution(waves=1)
    )
    assert check_child(PARENT, child) == []
    assert child.execution_sha != PARENT.execution_sha


def test_values_outside_the_plan_are_an_error():
    with pytest.raises(ValueError, match="outside the plan"):
        PARENT.values_at(PARENT.total_steps)


def test_values_are_one_rounding_of_peak_times_fraction():
    twice = 0
    for step in range(PARENT.total_steps):
        fraction = PARENT.fraction_at("learning_rate", step)
        for group, peak in PARENT.peaks["learning_rate"].items():
            exact = Fraction(peak) * fraction
            got = PARENT.values_at(step)["learning_rate"][group]
            assert got == round_binary32(exact)
            twice += got != round_binary32(
                Fraction(round_binary32(Fraction(peak))) * Fraction(round_binary32(fraction))
            )
    # Why it matters: rounding the factors first gives other bits in many steps.
    assert twice > PARENT.total_steps // 4


def test_chain_runs_from_genesis_to_the_plan():
    grandchild = a_horizon(CHILD, 200, 280)
    held = {plan.sha: plan for plan in (grandchild, PARENT, CHILD)}
    assert chain_of(held, grandchild.sha) == [PARENT, CHILD, grandchild]
    del held[CHILD.sha]
    with pytest.raises(PlanError, match="missing"):
        chain_of(held, grandchild.sha)


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=4),
    st.integers(0, 4),
    st.integers(0, 300),
)
def test_admissible_is_before_every_fork_since(effectives, index, step):
    # Only shas and effective steps matter here, so the pasts need not fit.
    chain = [PARENT]
    for number, effective in enumerate(effectives):
        chain.append(
            change(
                PARENT, kind="horizon", parent=chain[-1].sha, effective=effective, seed=number + 1
            )
        )
    index = min(index, len(effectives))
    expected = index == len(effectives) or step <= min(effectives[index:])
    assert is_admissible(chain, chain[index].sha, step) == expected


def test_checkpoint_of_a_stranger_is_never_admissible():
    assert not is_admissible([PARENT, CHILD], "c" * 64, 0)
    assert is_admissible([PARENT, CHILD], PARENT.sha, CHILD.effective)
    assert not is_admissible([PARENT, CHILD], PARENT.sha, CHILD.effective + 1)
    assert is_admissible([PARENT, CHILD], CHILD.sha, 299)
