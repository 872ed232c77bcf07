"""Mixtures and executions that people write for `ctl replan`."""

import pytest

from contract.model import Execution
from controller.core.declared.plan_files import find_alternative, read_execution, read_mixture
from controller.core.declared.problems import SpecError
from controller.core.declared.run_file import parse_run_file
from tests.run_files import GOOD

NEXT = "Edit mix.yaml, then: ctl replan probe --mixture mix.yaml"


def mixture(text):
    return read_mixture(text, GOOD, "mix.yaml", NEXT)


def execution(text):
    return read_execution(text, GOOD, "fast.yaml", "Next: ctl replan probe")


def test_mixture_is_a_list_like_the_run_file_s():
    change = mixture(
        "- {fromPercent: 0, parts: {code: 4, docs: 28}}\n- {fromPercent: 90, parts: {docs: 32}}\n"
    )
    assert change.kind == "mixture"
    assert [(it.from_percent, it.parts) for it in change.stages] == [
        (0, {"code": 4, "docs": 28}),
        (90, {"docs": 32}),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- {fromPercent: 0, parts: {code: 4, docs: 27}}", "mixture.0.parts: parts sum to 31"),
        ("- {fromPercent: 5, parts: {code: 32}}", "mixture.0.fromPercent is 5; the first stage"),
        ("- {fromPercent: 0, parts: {cod: 32}}", 'unknown source "cod"'),
        ("- {fromPercent: 0, part: {code: 32}}", 'Did you mean "parts"'),
        ("fromPercent: 0", "mixture"),
        ("[]", "mixture"),
        ("", "mixture"),
        ("- {fromPercent: 0.5, parts: {code: 32}}", "real numbers are refused"),
        ("- [", "not YAML"),
    ],
)
def test_mixture_that_is_wrong_names_field_bound_and_next_command(text, words):
    with pytest.raises(SpecError) as refused:
        mixture(text)
    assert words in str(refused.value)
    assert NEXT in str(refused.value)
    assert "spec." not in str(refused.value)


def test_declared_alternative_is_found_by_name():
    text = GOOD.replace(
        "  budget:",
        "    alternatives:\n      late: [{fromPercent: 0, parts: {docs: 32}}]\n  budget:",
    )
    spec = parse_run_file(text).spec
    assert find_alternative(spec, "late", NEXT).stages[0].parts == {"docs": 32}
    with pytest.raises(SpecError, match=r'"@early"; it must be one of .*\(late\)'):
        find_alternative(spec, "early", NEXT)


def test_execution_is_a_mapping_like_the_run_file_s():
    change = execution("waves: 1\nreceiverCapacityPercent: 130\n")
    assert change.execution == Execution(waves=1, receiver_capacity_percent=130)
    with pytest.raises(SpecError, match=r"execution\.waves is 0; it must be at least 1"):
        execution("waves: 0")
    with pytest.raises(SpecError, match='Did you mean "waves"'):
        execution("wave: 1")
