"""Renders the environment variables: what `ctl` reads, what a rank is given, what else counts."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tools.cli_reference import list_variables
from tools.docstrings import read_docstrings, render_table

ROOT = Path(__file__).parent.parent
PREFIX = "ENV_"
OF_A_RANK = "contract/wire.py"
PLACES = ("contract", "controller", "trainer", "samples", "tests/conformance")


def render_environment() -> str:
    """Return the tables of all variables by reader."""
    found = sorted(find_variables())
    ranks = [(name, text) for place, name, text in found if place == OF_A_RANK]
    others = [(name, text, place) for place, name, text in found if place != OF_A_RANK]
    return (
        "# Environment variables\n\n## Of `ctl`\n\n"
        + render_table(("Variable", "Option"), list_variables())
        + "\n## Of a rank\n\nSet by the controller; a trainer that lacks one ends with 2.\n\n"
        + render_table(("Variable", "Meaning"), ((f"`{name}`", text) for name, text in ranks))
        + "\n## Others\n\n"
        + render_table(
            ("Variable", "Meaning", "Read in"),
            ((f"`{name}`", text, f"{place}") for name, text, place in others),
        )
    )


def find_variables() -> Iterator[tuple[str, str, str]]:
    """Yield (file, variable, docstring) of every constant `ENV_...` that names one."""
    for folder in PLACES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            body = ast.parse(path.read_text()).body
            said = read_docstrings(body)
            for node in body:
                if (found := _named_variable(node)) is not None:
                    constant, name = found
                    yield str(path.relative_to(ROOT)), name, said.get(constant, "")


def _named_variable(node: ast.stmt) -> tuple[str, str] | None:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
        return None
    target = node.targets[0]
    if not isinstance(target, ast.Name) or not target.id.startswith(PREFIX):
        return None
    return target.id, str(node.value.value)
