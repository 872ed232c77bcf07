"""What whoever looks on is told: news as they come, and how the run rests in the end.

Shared by the view of `ctl launch` and `ctl status --watch`; loads no model.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from controller.cli import output
from controller.cli.codes import Code
from controller.cli.peek import View, look, read_summary
from controller.cli.summing import describe_summary
from controller.cli.wording import (
    clock,
    describe_decision,
    describe_evaluation,
    describe_finish,
    describe_incident,
    describe_last_words,
    describe_line,
    describe_open,
    describe_revision,
    is_finished,
    list_of,
    members_of,
)

REFRESH_S = 0.5
LINE_EVERY_S = 5.0
MAX_TOLD = 50
TOLD_OTHERWISE = frozenset({"notes", "evaluate", "propose", "record_adoption"})
"""Rules whose decisions have lines of their own."""


def is_over(view: View) -> bool:
    """Return whether nobody steers the run any more."""
    return not view.controller.is_alive


def watch_lines(directory: Path) -> None:
    """A line every few seconds, one for each incident and decision: for logs and pipes."""
    said, told, shown_at = "", [""], -LINE_EVERY_S
    while True:
        view = look(directory)
        for key, text in list_news(view):
            if key not in told:
                output.emit(f"           {text}")
                told = [*told[-MAX_TOLD:], key]
        line = describe_line(view)
        if view.status and line != said and time.monotonic() - shown_at >= LINE_EVERY_S:
            output.emit(line)
            said, shown_at = line, time.monotonic()
        if is_over(view):
            return
        time.sleep(REFRESH_S)


def list_news(view: View) -> Iterator[tuple[str, str]]:
    """Yield what was decided and what happened, newest last: what it is told once by, and words."""
    evaluation = members_of(view.status or {}, "evaluation")
    if evaluation:
        # By its instant: the row of late ones is counted anew when a proposal is over.
        at = evaluation.get("at")
        yield f"evaluation {at}", f"{clock(at)} {describe_evaluation(evaluation)}"
    yield from ((text, text) for text in _list_texts(view))


def _list_texts(view: View) -> Iterator[str]:
    status = view.status or {}
    for incident in list_of(members_of(status, "incidents"), "recent"):
        yield f"{clock(incident['at'])} {describe_incident(incident)}: {incident['evidence']}"
    for note in list_of(status, "notes"):
        yield f"{clock(note['at'])} {note['subject']}: {note['text']}"
    yield from _list_plan_news(view)
    decision = members_of(status, "last_decision")
    if decision and decision.get("rule") not in TOLD_OTHERWISE:
        yield describe_decision(status)


def _list_plan_news(view: View) -> Iterator[str]:
    status = view.status or {}
    proposal = members_of(status, "proposal")
    if proposal:
        # As made: what each evaluation says of it is told with the evaluation.
        made = {**proposal, "newest": None}
        told = describe_open(view.name, made, members_of(status, "approval"))
        yield f"{clock(proposal.get('at'))} proposal {told}"
    for closed in list_of(status, "closed"):
        if closed["outcome"] != "approved":
            text = f"proposal {closed['id']} is {closed['outcome']}: {closed['reason']}"
            yield f"{clock(closed.get('at'))} {text}"
    for revision in list_of(status, "revisions"):
        yield f"{clock(revision.get('adopted_at'))} adopted {describe_revision(revision)}"


def conclude(directory: Path) -> int:
    """Say how the run rests and return the exit code."""
    view = look(directory)
    summary = read_summary(directory) if is_finished(view) else None
    with contextlib.suppress(KeyError):
        ending = ENDINGS[view.state].format(name=view.name)
        verdict = describe_finish(summary)
        output.tell(f"{view.name} {ending}{': ' if verdict else ''}{verdict}")
    if view.state == "halted" and view.status is not None:
        output.tell(f"  {view.status['reason']}")
        if words := describe_last_words(view):
            output.tell(f"  {words}")
        output.tell(f"Next: ctl log {view.name}; when it is cured: ctl resume {view.name}")
        return Code.FAILED
    if view.is_blind:
        output.tell(f"its controller is gone; the gang may live on. Next: ctl resume {view.name}")
        return Code.BLIND
    if summary is not None:
        output.emit(describe_summary(summary))
        output.tell(f"all of it: {directory / 'summary.json'}")
        if (directory / "report.html").exists():
            output.tell(f"on one page: {directory / 'report.html'}")
    return Code.DONE


ENDINGS = {
    "completed": "is finished",
    "suspended": "is suspended; ctl resume {name} goes on",
    "stopped": "is stopped; ctl resume {name} goes on",
    "halted": "halted",
}
