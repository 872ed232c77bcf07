"""What docs/contract.md repeats from the code, it repeats in full."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from contract import wire
from contract.exits import Exit
from contract.metrics import METRICS, REQUIRED_OF_EVERY_RANK, REQUIRED_OF_RANK_0
from contract.wire import RANK_PHASES, ControlRefusal

PAGE = (Path(__file__).parents[2] / "docs" / "contract.md").read_text()


def first_cells(head: str) -> list[str]:
    """Return the names in the first column of the table with this head."""
    body = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)`", body, re.MULTILINE)


def test_environment_table_lists_every_variable():
    names = [value for name, value in vars(wire).items() if name.startswith("ENV_")]
    assert first_cells("Variable") == names


def test_refusal_table_lists_every_reason_in_order():
    assert first_cells("Reason") == list(ControlRefusal)


def test_metric_table_lists_every_required_one_with_its_producer():
    required = [*REQUIRED_OF_EVERY_RANK, *REQUIRED_OF_RANK_0]
    assert first_cells("Metric") == [metric.name for metric in required]
    for metric in required:
        assert f"| `{metric.name}` | {metric.producer} |" in PAGE


def test_every_metric_that_is_named_is_declared():
    named = set(re.findall(r"moe_\w+", PAGE))
    assert named <= {metric.name for metric in METRICS}


def test_every_rank_phase_is_named():
    for phase in RANK_PHASES:
        assert re.search(rf"\b{phase}\b", PAGE), phase


@pytest.mark.parametrize(
    "code",
    [
        Exit.CONFIG,
        Exit.ERROR,
        Exit.DRAINED,
        Exit.RESTART,
        Exit.NON_FINITE,
        Exit.NO_CHECKPOINT,
        Exit.STORAGE,
        Exit.PLAN_MISMATCH,
        Exit.NO_RETRY,
        Exit.STALL,
        Exit.PEER_LOST,
    ],
)
def test_every_code_that_a_trainer_chooses_is_explained(code):
    assert re.search(rf"\b{code.value}\b", PAGE), code


def test_names_of_the_code_that_the_page_mentions_exist():
    modules = {"plan", "wire", "config", "data", "checkpoint", "digest"}
    for module, name in re.findall(r"`(\w+)\.(\w+)", PAGE):
        if module in modules:
            source = (Path(wire.__file__).parent / f"{module}.py").read_text()
            assert re.search(rf"^ *(class|def) {name}\b", source, re.MULTILINE), f"{module}.{name}"


def test_rank_in_forty_lines_is_python_and_imports_what_there_is():
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("contract"):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names), node.module


EXAMPLES = {
    "control": wire.ControlDocument,
    "step": wire.StepRecord,
    "phase": wire.PhaseRecord,
    "detail": wire.EndDetail,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_of_a_document_is_one(name):
    (block,) = re.findall(rf"```json {name}\n(.*?)```", PAGE, re.DOTALL)
    EXAMPLES[name].model_validate_json(block)


def test_failures_that_are_shown_are_cases_of_the_suite():
    for path, case in re.findall(r"FAILED (\S+)::(\w+)", PAGE):
        source = (Path(__file__).parents[2] / path).read_text()
        assert f"def {case}(" in source
