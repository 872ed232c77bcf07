"""`ctl report`: the run on one page, or the same facts as text for an issue tracker or as JSON."""

from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.orders import ReportOrder
from controller.cli.peek import look

FORMS = ("html", "md", "json")
STDOUT = "-"
MAX_TRACKER_CHARS = 65_536
"""What the issue trackers of GitHub and its kin take for one text."""


def report(order: ReportOrder) -> int:
    """Write the report of the run as it stands now; return the exit code.

    Raises:
        PortError: no such run, or the report could not be made or written.
    """
    if (wrong := _find_wrong(order)) is not None:
        output.tell(wrong)
        return Code.BAD_INPUT
    run = deps.read_run(order.runs_dir, order.name)
    if (origin := look(run.directory).copy_of) is not None:
        output.tell(f"{run.directory} is a copy of the run launched in {origin}")
    since = str(order.since or 0)
    if order.form == "html" and order.to is None:
        output.emit(str(deps.write_report(run.directory)))
    elif order.to in (None, STDOUT):
        text = deps.make_report(run.directory, (order.form, since, STDOUT))
        _warn_of_length(order, text)
        output.emit(text.removesuffix("\n"))
    else:
        path = Path(str(order.to))
        deps.make_report(run.directory, (order.form, since, str(path.resolve())))
        output.emit(str(path))
    return Code.DONE


def _find_wrong(order: ReportOrder) -> str | None:
    """Return what is wrong with the options, None where nothing is."""
    if order.form not in FORMS:
        bound = f"it must be one of {', '.join(FORMS)}"
        return f"--output is {order.form}; {bound}. Next: ctl report {order.name} -o md"
    if order.since is not None and order.form == "html":
        bound = "a page tells everything; only md and json can tell what is new"
        return f"--since is {order.since}; {bound}. Next: ctl report {order.name} -o md"
    if order.to is not None and order.to != STDOUT and not Path(order.to).parent.is_dir():
        parent = Path(order.to).parent
        return f'--to is "{order.to}"; there is no folder {parent}. Next: mkdir -p {parent}'
    if order.to is not None and Path(order.to).exists() and not Path(order.to).is_file():
        bound = "it must be a new file, or one to replace"
        return f'--to is "{order.to}"; {bound}. Next: ctl report {order.name} -o md --to -'
    return None


def _warn_of_length(order: ReportOrder, text: str) -> None:
    if order.form == "md" and len(text) > MAX_TRACKER_CHARS:
        output.tell(
            f"{len(text):,} characters are more than an issue tracker takes"
            f" ({MAX_TRACKER_CHARS:,}). Next: ctl report {order.name} -o md --since ENTRY"
        )
