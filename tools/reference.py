"""Writes the pages under docs/reference/ from the code they describe; a test compares them."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from contract.exits import CASCADE, NEVER_RETRY, PLANNED, Exit
from contract.metrics import METRICS
from controller.cli.codes import Code
from tools.cli_reference import render_commands
from tools.docstrings import find_class, read_docstrings, render_table
from tools.environment_reference import render_environment
from tools.ledger_reference import render_ledger
from tools.rules_reference import render_rules
from tools.run_file_reference import render_run_file

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
        + render_table(("Name", "Kind", "Served by", "Labels", "Meaning"), rows)
    )


def _labels(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def render_exits() -> str:
    """Return the tables of exit codes: of `ctl`, and of a rank with what follows."""
    said = read_docstrings(find_class(Code).body)
    commands = ((str(it.value), f"`{it.name}`", said.get(it.name, "Done.")) for it in Code)
    meanings = read_docstrings(find_class(Exit).body)
    ranks = (
        (str(it.value), f"`{it.name}`", meanings.get(it.name, "A signal."), _follow(it))
        for it in sorted(Exit)
    )
    return (
        NOTICE.format(source="contract/exits.py and controller/cli/codes.py")
        + "# Exit codes\n\n## Of a rank\n\nNumbers above 128 are 128 + the signal.\n\n"
        + render_table(("Code", "Name", "Meaning", "What follows"), ranks)
        + "\n## Of `ctl`\n\nMeanings by command: [cli.md](cli.md).\n\n"
        + render_table(("Code", "Name", "Meaning"), commands)
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


def render_cli() -> str:
    """Return every command of `ctl` with its arguments and options."""
    return NOTICE.format(source="controller/cli/main.py") + render_commands()


def _note(source: str, page: str) -> str:
    return NOTICE.format(source=source) + page


RENDERERS: dict[str, Callable[[], str]] = {
    "metrics.md": render_metrics,
    "exit-codes.md": render_exits,
    "cli.md": render_cli,
    "run-file.md": lambda: _note(
        "controller/core/declared/spec.py and docs/run_file.md", render_run_file()
    ),
    "rules.md": lambda: _note("the checks themselves", render_rules()),
    "environment.md": lambda: _note("the sources that read them", render_environment()),
    "ledger.md": lambda: _note("controller/core and controller/ports.py", render_ledger()),
}


def main() -> int:
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, render in RENDERERS.items():
        (PAGES / name).write_text(render())
    sys.stderr.write(f"wrote {len(RENDERERS)} pages under {PAGES.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
