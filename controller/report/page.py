"""The whole page of one run."""

from collections.abc import Iterator

from controller.core.outcome import find_last_step_ms
from controller.core.summary import Evidence, make_summary
from controller.report.course import (
    show_attempts,
    show_evaluations,
    show_incidents,
    show_time,
    tell_origin,
)
from controller.report.drawing import FORMS, draw_rates, draw_times
from controller.report.facts import list_facts, tell_standing
from controller.report.markup import code, figure, folded, page, paragraph, rows, section, text
from controller.report.proposals import show_deadlines, show_plans, show_proposals
from controller.report.scene import set_rate_scene, set_time_scene
from controller.report.wording import MS_PER_S, show_duration, show_instant


def write_page(evidence: Evidence) -> str:
    """Return the page: a pure function of the evidence, so that the same run has the same bytes."""
    name = evidence.memory.policy.run_name
    return page(f"{name}: report", "\n".join(it for it in _list_sections(evidence) if it))


def _list_sections(evidence: Evidence) -> Iterator[str]:
    memory, summary = evidence.memory, make_summary(evidence)
    yield f"<h1>{text(memory.policy.run_name)}</h1>"
    yield paragraph(text(tell_standing(evidence, summary)), kind="lead")
    if evidence.ledger_findings:
        damage = "; ".join(evidence.ledger_findings)
        yield paragraph(text(f"The ledger is damaged: {damage}. What follows may lack its end."))
    yield paragraph(_tell_source(evidence), kind="muted")
    yield section("Over time", _explain_times(evidence), *_draw_times(evidence))
    yield section("Learning rate", *_draw_rates(evidence))
    yield section("Facts", rows(list_facts(summary)))
    yield section("Proposals", *show_proposals(evidence))
    yield section("Deadline moved", show_deadlines(evidence))
    yield section("Plans", show_plans(memory.chain))
    yield section("Forecasts as they were made", show_evaluations(evidence))
    yield section("Incidents", show_incidents(evidence, summary))
    yield section("Attempts", show_attempts(evidence))
    yield section("Where the time went", show_time(summary))


def _tell_source(evidence: Evidence) -> str:
    read_at = evidence.chronicle.read_at
    until = f" (written {show_instant(read_at.wall_ms)})" if read_at else ""
    uid = code(evidence.memory.policy.run_uid)
    record = f"record {evidence.memory.seq:,} of the ledger{until}"
    return f"Run {uid}, launched {text(tell_origin(evidence))}. As of {text(record)}."


def _explain_times(evidence: Evidence) -> str:
    told = "Dashed red lines are incidents, violet ones revisions"
    if len(evidence.chronicle.deadlines) > 1:
        told += ", dotted grey ones where the deadline was moved"
    told = f"{told}."
    if evidence.chronicle.evaluations:
        told = f"{_explain_forecasts(evidence)} {told}"
    return paragraph(text(told), kind="muted")


def _explain_forecasts(evidence: Evidence) -> str:
    """Say what exactly is forecast, and what the reserve is for."""
    terms = evidence.memory.policy.terms
    told = [
        "On top, each forecast over the moment it was made: of the end of the last step."
        " The final evaluation and save come after it"
    ]
    if terms.deadline_wall_ms is not None:
        reserve = show_duration(terms.reserve_ms / MS_PER_S)
        told.append(f"; they are what the reserve of {reserve} between due and deadline is for")
    last_ms, finished = find_last_step_ms(evidence.course), evidence.chronicle.completed_at
    if finished is not None and last_ms is not None and evidence.memory.rest == "completed":
        took = show_duration((finished.wall_ms - last_ms) / MS_PER_S)
        told.append(f", and took {took}")
    return f"{''.join(told)}."


def _draw_times(evidence: Evidence) -> Iterator[str]:
    if any(history.steps for history in evidence.histories):
        scene = set_time_scene(evidence)
        yield figure((form.name, draw_times(scene, form)) for form in FORMS)
    else:
        yield paragraph("No step was logged.")


def _draw_rates(evidence: Evidence) -> Iterator[str]:
    scene = set_rate_scene(evidence)
    yield figure((form.name, draw_rates(scene, form)) for form in FORMS)
    forks = [it for it in evidence.memory.adopted if it.kind == "horizon"]
    if forks:
        yield folded("what a revision of the horizon does", paragraph(text(RULE)))


RULE = (
    "From the fork on, the rate falls in a straight line from what it was to the same final share"
    " of the original peak, at the new last step. It is never raised, and no step before the fork"
    " changes in any bit."
)
