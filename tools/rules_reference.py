"""Renders every rule that a file or an argument of the owner's can be refused by."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.docstrings import render_table

ROOT = Path(__file__).parent.parent
PLACES = ("contract", "controller")
RULE = re.compile(r"[a-z]+\.[a-z]+(-[a-z]+)*|(model|mesh)-[a-z]+(-[a-z]+)*")
SUFFIXES = (".py", ".json", ".jsonl", ".log", ".html", ".yaml", ".txt")
NOT_RULES = frozenset({"spec.deadline", "save.block", "save.commit"})
"""Names of fields that look like a rule."""
BOUND = 3
"""Position of the bound in what names rule, field, value and bound; else it is the second."""
WITH_BOUND = (2, 4)
"""Sizes of the tuples that begin with a rule and end with its bound."""
SAID_ELSEWHERE = {
    "value.bound": "it must be at least .., or at most ..",
    "value.choice": "it must be one of ..",
    "value.empty": "it must not be empty",
    "value.many": "it must have at most .. members",
}
"""Rules that stand for errors of the library that reads the models, in our words."""
OF_COMMANDS = ("drill", "gate", "replan", "run", "file", "log", "report", "simulate", "status")
"""First words of the rules that are not about the fields of a run file."""


@dataclass(frozen=True, order=True)
class Refusal:
    """One rule, what it demands, and where it is checked."""

    rule: str
    place: str
    demand: str


def render_rules() -> str:
    """Return the tables of the rules, those of the run file first."""
    found = sorted(set(find_refusals()))
    mine = [it for it in found if not it.rule.startswith(OF_COMMANDS)]
    others = [it for it in found if it.rule.startswith(OF_COMMANDS)]
    return (
        "# Rules\n\nWhat is refused says field, value, bound and the next command; all of it at"
        " once. The id is for programs. `..` stands for what is worked out.\n\n"
        f"## Of a run file ({len({it.rule for it in mine})})\n\n"
        + _render(mine)
        + f"\n## Of commands and their files ({len({it.rule for it in others})})\n\n"
        + _render(others)
    )


def _render(refusals: list[Refusal]) -> str:
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for it in refusals:
        demands, places = rows.setdefault(it.rule, ([], []))
        demands += [it.demand] if it.demand and it.demand not in demands else []
        places += [it.place] if it.place not in places else []
    return render_table(
        ("Rule", "What it says", "Checked in"),
        (
            (f"`{rule}`", "; or: ".join(said) or SAID_ELSEWHERE.get(rule, ""), ", ".join(at))
            for rule, (said, at) in rows.items()
        ),
    )


def find_refusals() -> Iterator[Refusal]:
    """Yield every rule id that is yielded, raised or looked up in the sources."""
    for folder in PLACES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            place = str(path.relative_to(ROOT))
            for function, node in _walk(tree, tree):
                for rule, demand in _rules_of(node):
                    yield Refusal(rule, place, _say(demand, (function, tree), node))


def _walk(node: ast.AST, function: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield every node with the function it stands in."""
    for child in ast.iter_child_nodes(node):
        inner = child if isinstance(child, ast.FunctionDef) else function
        yield inner, child
        yield from _walk(child, inner)


def _rules_of(node: ast.AST) -> list[tuple[str, ast.expr | None]]:
    """Return the rule ids that a node puts in front of a bound, each with that bound."""
    found: list[tuple[ast.expr, ast.expr | None]] = []
    if isinstance(node, ast.Tuple) and len(node.elts) in WITH_BOUND:
        found = [(node.elts[0], node.elts[-1])]
    elif isinstance(node, ast.Call) and len(node.args) > 1:
        found = [(node.args[0], _bound_of(node.args))]
    elif isinstance(node, ast.Dict):
        found = [(value, None) for value in node.values]
    texts = [(it.value, bound) for it, bound in found if isinstance(it, ast.Constant)]
    return [(it, bound) for it, bound in texts if isinstance(it, str) and _is_rule(it)]


def _bound_of(arguments: list[ast.expr]) -> ast.expr:
    """Return the bound among what names a rule, and mostly also field and value."""
    return arguments[BOUND] if len(arguments) > BOUND else arguments[1]


def _is_rule(text: str) -> bool:
    return (
        RULE.fullmatch(text) is not None and not text.endswith(SUFFIXES) and text not in NOT_RULES
    )


def _say(demand: ast.expr | None, scopes: tuple[ast.AST, ...], near: ast.AST) -> str:
    """Return the text of a bound; a name is followed to where it was set last."""
    match demand:
        case ast.Constant(value=str(text)):
            return " ".join(text.split())
        case ast.JoinedStr(values=parts):
            return "".join(
                ".." if isinstance(it, ast.FormattedValue) else _word(it) for it in parts
            )
        case ast.Name(id=name):
            line = getattr(near, "lineno", 0)
            values = _set_before(scopes[0], name, line) or _set_before(
                scopes[-1], name, sys.maxsize
            )
            return next((_say(it, scopes, it) for it in values), "")
        case _:
            return ""


def _word(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else ""


def _set_before(function: ast.AST, name: str, line: int) -> list[ast.expr]:
    """Return what was assigned to a name above a line, the last first."""
    found = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and node.lineno < line
        and any(isinstance(it, ast.Name) and it.id == name for it in node.targets)
    ]
    return [node.value for node in sorted(found, key=lambda it: it.lineno, reverse=True)]
