import pytest

from contract.plan import check_plan
from controller.core.declared.fields import format_duration, parse_duration
from controller.core.declared.plan_files import read_mixture
from controller.core.declared.problems import SpecError
from controller.core.declared.run_file import parse_run_file
from controller.core.declared.yaml_text import read_yaml
from tests.run_files import BAD, BAD_HERE, GOOD, good_plan, spoil
from tools.rules_reference import OF_COMMANDS, find_refusals


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


@pytest.mark.parametrize(("rule", "old", "new", "words"), BAD, ids=[row[0] for row in BAD])
def test_bad_file_names_rule_field_bound_and_next_command(rule, old, new, words):
    problems = problems_of(spoil(GOOD, old, new))
    found = [problem for problem in problems if problem.rule == rule]
    assert found, [str(problem) for problem in problems]
    assert any(words in str(problem) for problem in found), [str(it) for it in found]
    for problem in problems:
        assert str(problem).endswith("Edit my.yaml, then: ctl launch my.yaml --dry-run")


ELSEWHERE = {"data.built-in", "data.unreadable", "fleet.not-built", "trainer.missing"}
"""Cases of these need another Python or files of somebody else, or lead to another command."""
OF_REHEARSALS = ("simulation.", "data.declared-")


def test_every_rule_of_a_run_file_in_the_reference_has_a_case():
    told = {it.rule for it in find_refusals()}
    mine = {it for it in told if not it.startswith((*OF_COMMANDS, *OF_REHEARSALS))}
    cases = {rule for rule, *_ in BAD + BAD_HERE}
    assert mine - cases == ELSEWHERE
    assert cases <= mine


def test_rules_are_many():
    assert len({rule for rule, *_ in BAD + BAD_HERE}) >= 100


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
        ("0o17", "0o17"),
        ("0x10", "0x10"),
        ("1__0", "1__0"),
        ("1e6", "1e6"),
        (".", "."),
        ("-7", -7),
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


def test_slip_in_an_accepted_file_does_not_keep_its_run_from_being_steered():
    text = spoil(GOOD, "cascade: 5s", "stepFactor: 1")
    assert [problem.rule for problem in problems_of(text)] == ["faults.step-factor"]
    assert parse_run_file(text, is_accepted=True).spec.faults.step_factor == 1


def test_mixture_of_a_steered_run_may_leave_a_source_out():
    change = read_mixture("[{fromPercent: 0, parts: {code: 32}}]", GOOD, "mixture.yaml", "")
    assert change.stages[0].parts == {"code": 32}
