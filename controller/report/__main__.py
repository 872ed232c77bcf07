"""Writes the page of a run; a process of its own, so that no other one pays for the drawing.

python -m controller.report RUN_DIR
"""

import json
import sys
from pathlib import Path
from typing import cast

from contract import wire
from controller.adapters import finish, rundir
from controller.adapters.files import read_or_none, write_atomically
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.core.summary import Evidence
from controller.ports import PortError, Unavailable
from controller.report.page import write_page


def gather(directory: Path) -> Evidence:
    """Return the evidence that lies in a run's directory, up to the first damage of its ledger.

    Raises:
        PortError: it is no run, or a file cannot be read.
    """
    run = rundir.read_run(directory)
    records, _ = finish.read_valid(directory)
    memory: Memory | None = None
    for record in records:
        memory = fold(memory, record)
    if memory is None:
        raise Unavailable(f"{directory} was never steered: there is nothing to report yet")
    return finish.gather_evidence(run, records, memory, read_peak(directory))


def read_peak(directory: Path) -> float | None:
    """Return the peak that the run's summary was made with; ranks said it while they lived."""
    try:
        summary = json.loads(read_or_none(directory / wire.SUMMARY_FILE) or b"{}")
    except ValueError:
        return None
    if not isinstance(summary, dict):
        return None
    peak = cast("dict[str, object]", summary).get("peak_flops_per_second")
    return float(peak) if isinstance(peak, int | float) else None


def main(arguments: list[str]) -> int:
    """Write report.html into the directory named by `arguments`; return the exit code."""
    directory = Path(arguments[0])
    try:
        page = write_page(gather(directory))
        write_atomically(directory / wire.REPORT_FILE, page.encode(), durable=False)
    except (PortError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
