"""What the sources say about their own names: the string below an assignment."""

import ast
import inspect
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import ModuleType


def parse_module(module: ModuleType) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(inspect.getsource(module))


def find_class(owner: type) -> ast.ClassDef:
    """Return the syntax tree of a class that stands at the top of its module."""
    tree = parse_module(sys.modules[owner.__module__])
    return next(
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner.__name__
    )


def read_docstrings(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return name -> the string below its assignment, in one line."""
    found: dict[str, str] = {}
    for node, below in pairwise(body):
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            for name in _assigned_names(node):
                found[name] = _flatten(below.value.value)
    return found


def read_annotations(owner: type) -> dict[str, str]:
    """Return member -> its annotation as written."""
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in find_class(owner).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def first_sentence(text: str | None) -> str:
    """Return the first line of a docstring."""
    return (text or "").strip().partition("\n")[0]


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; bars within cells become slashes."""
    lines = [head, ["---" for _ in head], *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _assigned_names(node: ast.stmt) -> list[str]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _flatten(value: object) -> str:
    return " ".join(str(value).split())
