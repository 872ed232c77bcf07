import pytest

from contract.plan import check_plan
from controller.core.fields import format_duration, parse_duration
from controller.core.problems import SpecError
from controller.core.run_file import parse_run_file
from controller.core.yaml_text import read_yaml
from tests.run_files import BAD, GOOD, good_plan, spoil


def problems_of(text):
    with pytest.raises(SpecError) as caught:
        parse_run_file(text, "my.yaml")
    return caught.value.problems


def test_good_file_parses_with_defaults():
    spec = parse_run_file(GOOD).spec
    assert spec.total_steps == 50
    assert spec.fleet.axis == 2
    assert spec.faults.heartbeat == 240_000
    assert spec.contingency.mode == "off"


@pytest.mark.parametrize(("rule", "old", "new", "words"), BAD)
def test_bad_file_names_rule_field_bound_and_next_command(rule, old, new, words):
    problems = problems_of(spoil(GOOD, old, new))
    found = [problem for problem in problems if problem.rule == rule]
    assert found, [str(problem) for problem in problems]
    assert any(words in str(problem) for problem in found), [str(it) for it in found]
    for problem in problems:
        assert str(problem).endswith("Edit my.yaml, then: ctl launch my.yaml --dry-run")


def test_rules_are_many():
    assert len({rule for rule, *_ in BAD}) >= 25


def test_message_has_the_documented_form():
    (problem,) = problems_of(
        GOOD.replace("  faults:", "  contingency: {floorPercent: 120}\n  faults:")
    )
    assert str(problem) == (
        "spec.contingency.floorPercent is 120; it must be 1 to 100. "
        "Edit my.yaml, then: ctl launch my.yaml --dry-run"
    )


def test_all_problems_are_told_at_once_across_sections():
    text = GOOD.replace("keep: 3", "keep: 1").replace("parts: {code: 8", "parts: {code: 9")
    rules = {problem.rule for problem in problems_of(text.replace("sequences: 2", "sequences: x"))}
    assert rules >= {"value.bound", "data.parts-sum", "field.type"}


def test_a_float_is_told_once_and_not_as_a_type_too():
    problems = problems_of(GOOD.replace("keep: 3", "keep: 3.5"))
    assert [problem.rule for problem in problems] == ["yaml.float"]


def test_an_alias_is_told_once_and_not_as_a_missing_value_too():
    text = GOOD.replace("keep: 3", "keep: *many").replace("everySteps: 10", "everySteps: &many 10")
    assert [problem.rule for problem in problems_of(text)] == ["yaml.alias"]


@pytest.mark.parametrize("text", ["", "- 1", "word", "spec: 3"])
def test_what_is_no_run_file_is_refused(text):
    assert problems_of(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"),
        ("yes", "yes"),
        ("010", 10),
        ("1_000", 1000),
        ("1:30", "1:30"),
        ("2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("'1.5'", "1.5"),
        ("true", True),
        ("~", None),
    ],
)
def test_yaml_words_mean_what_they_look_like(text, value):
    assert read_yaml(f"a: {text}", "")[0] == {"a": value}


@pytest.mark.parametrize("text", ["1.5", ".5", "-2.", "1.0e+3", ".inf"])
def test_yaml_reals_are_refused(text):
    assert [problem.rule for problem in read_yaml(f"a: {text}", "")[1]] == ["yaml.float"]


@pytest.mark.parametrize("text", ["15m", "1s", "90s", "2h", "7d", "250ms"])
def test_duration_survives_its_text(text):
    assert parse_duration(format_duration(parse_duration(text))) == parse_duration(text)


def test_plan_of_the_good_file_is_a_plan():
    assert check_plan(good_plan()) == []
