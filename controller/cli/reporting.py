"""`ctl report`: the run on one page."""

from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.peek import look


def report(runs_dir: Path, name: str) -> int:
    """Write the page of the run as it stands now and print its path; return the exit code.

    Raises:
        PortError: no such run, or the page could not be drawn or written.
    """
    run = deps.read_run(runs_dir, name)
    if (origin := look(run.directory).copy_of) is not None:
        output.tell(f"{run.directory} is a copy of the run launched in {origin}")
    output.emit(str(deps.write_report(run.directory)))
    return Code.DONE
