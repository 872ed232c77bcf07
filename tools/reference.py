"""Writes the pages under docs/reference/ from the code they describe; a test compares them."""

import ast
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

from contract import exits
from contract.exits import CASCADE, NEVER_RETRY, PLANNED, Exit
from contract.metrics import METRICS
from tools.cli_reference import render_commands

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference"
NOTICE = "<!-- Written by `make docs` from {source}. Change that, not this page. -->\n"


def render_metrics() -> str:
    """Return the table of every metric, in the contract's order."""
    rows = (
        (f"`{metric.name}`", metric.kind, metric.producer, _labels(metric.labels), metric.help)
        for metric in METRICS
    )
    return (
        NOTICE.format(source="contract/metrics.py")
        + "# Metrics\n\nCounters are the truth; rates, MFU and goodput are derived from them.\n\n"
        + _table(("Name", "Kind", "Served by", "Labels", "Meaning"), rows)
    )


def _labels(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def render_exits() -> str:
    """Return the table of exit codes: what each means and what follows."""
    meanings = _attribute_docstrings(Path(exits.__file__), "Exit")
    rows = (
        (
            str(code.value),
            f"`{code.name}`",
            meanings.get(code.name, "A signal."),
            _follow(code),
        )
        for code in sorted(Exit)
    )
    return (
        NOTICE.format(source="contract/exits.py")
        + "# Exit codes of a rank\n\nNumbers above 128 are 128 + the signal.\n\n"
        + _table(("Code", "Name", "Meaning", "What follows"), rows)
    )


def _follow(code: Exit) -> str:
    """Return what the controller does about a rank that ends so."""
    if code is Exit.NON_FINITE:
        return "once again from the newest verified checkpoint, then halt"
    if code in NEVER_RETRY:
        return "halt: a restart cannot cure it"
    if code in PLANNED:
        return "nothing: it was asked for"
    if code in CASCADE:
        return "the root is looked for in another rank"
    return "restart, within the budget of its cause"


def _attribute_docstrings(path: Path, class_name: str) -> dict[str, str]:
    """Return name -> the string below an assignment, for the members of one class."""
    tree = ast.parse(path.read_text())
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_name)
    found: dict[str, str] = {}
    for node, below in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(below, ast.Expr):
            name, text = ast.unparse(node.targets[0]), ast.literal_eval(below.value)
            found[name] = " ".join(str(text).split())
    return found


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def render_cli() -> str:
    """Return every command of `ctl` with its arguments and options."""
    return NOTICE.format(source="controller/cli/main.py") + render_commands()


RENDERERS: dict[str, Callable[[], str]] = {
    "metrics.md": render_metrics,
    "exit-codes.md": render_exits,
    "cli.md": render_cli,
}


def main() -> int:
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, render in RENDERERS.items():
        (PAGES / name).write_text(render())
    sys.stderr.write(f"wrote {len(RENDERERS)} pages under {PAGES.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
