"""The verbs' procedures, each loaded when its verb is called.

Imports stand inside the functions, so that `ctl --help` and `ctl status` load no model at all; and
the procedures build what they work with through deps.py, which knows none of them.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.cli.orders import (
        DrillOrder,
        GateOrder,
        LaunchOrder,
        LogOrder,
        ReplanOrder,
        ReportOrder,
        SimulateOrder,
        Wish,
    )


def read_version() -> str:
    """Return the version; the package that holds it may be a stranger's until main has looked."""
    from contract import __version__

    return __version__


def launch(order: "LaunchOrder") -> int:
    """Do what `ctl launch` does."""
    from controller.cli import launching

    return launching.launch(order)


def gate(order: "GateOrder") -> int:
    """Do what `ctl gate` does."""
    from controller.cli import gating

    return gating.gate(order)


def simulate(order: "SimulateOrder") -> int:
    """Do what `ctl simulate` does."""
    from controller.cli import simulating

    return simulating.simulate(order)


def ask(runs_dir: Path, name: str, wish: "Wish") -> int:
    """Do what `ctl suspend`, `resume` and `stop` do."""
    from controller.cli import asking

    return asking.ask(runs_dir, name, wish)


def replan(order: "ReplanOrder") -> int:
    """Do what `ctl replan` does."""
    from controller.cli import replanning

    return replanning.replan(order)


def run_drills(order: "DrillOrder") -> int:
    """Do what `ctl drill` does."""
    from controller.cli import drilling

    return drilling.run_drills(order)


def show_log(order: "LogOrder") -> int:
    """Do what `ctl log` does."""
    from controller.cli import logbook

    return logbook.show_log(order)


def report(order: "ReportOrder") -> int:
    """Do what `ctl report` does."""
    from controller.cli import reporting

    return reporting.report(order)


def examine(runs_dir: Path) -> int:
    """Do what `ctl doctor` does."""
    from controller.cli import doctoring

    return doctoring.examine(runs_dir)
