"""Writes the page of a run; a process of its own, so that no other one pays for the drawing.

python -m controller.report RUN_DIR
"""

import sys
from pathlib import Path

from contract import wire
from controller.adapters import finish, rundir
from controller.adapters.files import write_atomically
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
    return finish.gather_evidence(run, records, memory, None)


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
