import ast
import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from controller.cli.codes import Code
from controller.core import fold
from controller.core.decide import GANG, PLAN
from controller.core.declared import fields
from controller.core.declared.spec_rules import check_contingency
from tools.docstrings import read_docstrings
from tools.environment_reference import find_variables, render_environment
from tools.ledger_reference import RECORD_KINDS, list_verbs, render_ledger
from tools.reference import PAGES, RENDERERS, render_exits, render_metrics
from tools.rules_reference import find_refusals
from tools.run_file_reference import KINDS, render_run_file


@pytest.mark.parametrize("name", RENDERERS)
def test_generated_page_is_what_the_code_says(name):
    assert (PAGES / name).read_text() == RENDERERS[name](), "next: make docs"


def test_generated_pages_are_the_only_ones_there():
    assert {path.name for path in PAGES.iterdir()} == set(RENDERERS)


def test_exit_codes_page_tells_meaning_and_consequence():
    page = render_exits()
    assert "| 0 | `DONE` | The horizon is reached" in page
    assert "| 124 | `STALL` | The watchdog ended a rank" in page
    assert page.count("halt: a restart cannot cure it") >= 3


def test_metrics_page_names_labels_and_producer():
    assert "| `moe_train_tokens_total` | counter | rank 0 | `replay` |" in render_metrics()


def test_exit_codes_page_has_those_of_ctl_too():
    page = render_exits().partition("## Of `ctl`")[2]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)] == [*Code]
    assert "| 5 | `BLIND` | Nobody steers the run" in page


def test_ledger_page_knows_every_kind_that_the_fold_knows():
    source = Path(fold.__file__).read_text()
    assert set(re.findall(r'record\.kind [!=]= "(\w+)"', source)) == set(RECORD_KINDS)


def test_ledger_page_lists_every_verb_and_every_rule_in_order():
    page = render_ledger()
    for action in list_verbs():
        assert f"| `{action.model_fields['verb'].default}` |" in page
    rules = page.partition("## Rules of the gang")[2]
    places = [rules.index(f"\n| `{rule.name}` |") for rule in (*GANG, *PLAN)]
    assert places == sorted(places)
    assert "| the world, after a fresh look | End ranks by SIGKILL" in page


def test_every_environment_variable_says_what_it_means():
    assert all(text for _, _, text in find_variables())
    page = render_environment()
    assert "| `CTL_RUNS_DIR` | `--runs-dir VALUE`" in page
    assert "| `STEERSMAN_RANK` | This rank, from 0. |" in page


def test_run_file_page_says_bounds_defaults_and_sizes():
    page = render_run_file()
    for row in (
        "| `metadata.name` | name | required | a-z, 0-9",
        "| `spec.contingency.coolDown` | duration | 7d | time between two |",
        "| `spec.contingency.settle` | duration | 4d | training time before evaluations count |",
        "| `spec.checkpoints.keep` | whole number, 2 or more | 3 |",
        "| `spec.faults.deadlines.saveBlock` | duration, longer than 0 | 2m |",
        "| `spec.deadline` | mapping | none |",
        "| `spec.data.alternatives.NAME[].fromPercent` | whole percent, 0 to 100 | required |",
        "| `experts` | 16 | 384 |",
    ):
        assert row in page, row


@pytest.mark.parametrize("name", ["Positive", "Count", "Percent", "Share", "CapacityPercent"])
def test_bounds_in_words_are_those_of_the_types(name):
    adapter = TypeAdapter(getattr(fields, name))
    low, *high = map(int, re.findall(r"\d+", KINDS[name]))
    assert adapter.validate_python(low) == low
    for outside in (low - 1, *(top + 1 for top in high)):
        with pytest.raises(ValidationError):
            adapter.validate_python(outside)


def test_rules_are_found_with_what_they_say():
    found = {it.rule: it for it in find_refusals()}
    assert found["contingency.target"].demand == "it must lie above onTimePercent (..)"
    assert found["mesh-waves"].place == "contract/model.py"
    assert found["value.instant-offset"].demand.startswith("it needs an offset")
    assert "spec.deadline" not in found
    ids = {it.rule for it in find_refusals() if it.place.endswith("spec_rules.py")}
    told = re.findall(
        r'yield "(?!spec)([a-z.-]+)"', Path(check_contingency.__code__.co_filename).read_text()
    )
    assert told
    assert set(told) <= ids


def test_docstrings_are_those_below_an_assignment():
    body = ast.parse('A = 1\n"""Of\n   A."""\nB: int = 2\n"""Of B."""\nC = 3').body
    assert read_docstrings(body) == {"A": "Of A.", "B": "Of B."}
