"""The report of one run as a document: the same for a page and for an issue tracker."""

from collections.abc import Callable, Iterator, Sequence

from controller.core.telling.outcome import find_last_step_ms
from controller.core.telling.summary import make_summary
from controller.report.blocks import (
    Block,
    Document,
    Fold,
    Pairs,
    Paragraph,
    Picture,
    Section,
    code,
    entry,
)
from controller.report.canvas import FORMS, Form
from controller.report.charts import draw_rates, draw_series, draw_timeline
from controller.report.course import list_attempts, list_forecasts, list_incidents
from controller.report.dossier import Dossier
from controller.report.drawing import draw_forecasts, draw_progress
from controller.report.facts import list_facts
from controller.report.goodput import list_accounts
from controller.report.markdown import show_document
from controller.report.markup import show_page
from controller.report.plans import list_plans, list_revisions
from controller.report.proposals import list_deadlines, list_proposals
from controller.report.record import find_cited, list_checks, list_declared, list_entries
from controller.report.scene import origin_s, set_rate_scene, set_time_scene
from controller.report.series import set_series
from controller.report.standing import tell_standing
from controller.report.timeline import set_timeline
from controller.report.wording import MS_PER_S, count_of, show_duration, show_instant


def write_page(dossier: Dossier) -> str:
    """Return the page: a pure function of the dossier, so that the same run has the same bytes."""
    return show_page(make_document(dossier, is_drawn=True))


def write_text(dossier: Dossier) -> str:
    """Return the same facts in Markdown; pictures are left out, their numbers stand in tables."""
    document = show_document(make_document(dossier, is_drawn=False))
    seq = dossier.trail.seq
    return f"{document}\nEntry {seq}: next time `--since {seq}`\n"


def make_document(dossier: Dossier, *, is_drawn: bool) -> Document:
    """Return the report; one that is not drawn leaves out what only pictures show."""
    sections = [it for it in _list_sections(dossier, is_drawn=is_drawn) if it.blocks]
    told = [block for section in sections for block in section.blocks]
    entries = list(list_entries(dossier, find_cited(told)))
    if entries:
        title = "Entries of the ledger" if is_drawn else "Entries"
        sections.append(Section(title, [Fold("what the ledger says", entries)], "entries"))
    name = dossier.evidence.memory.policy.run_name
    return Document(name, list(_list_heads(dossier)), sections)


def _list_heads(dossier: Dossier) -> Iterator[Block]:
    evidence = dossier.evidence
    yield Paragraph(tell_standing(dossier), "lead")
    if evidence.ledger_findings:
        damage = "; ".join(evidence.ledger_findings)
        yield Paragraph(f"The ledger is damaged: {damage}. What follows may lack its end.")
    read_at = evidence.chronicle.read_at
    until = f" (written {show_instant(read_at.wall_ms)})" if read_at else ""
    launched = show_instant(round(origin_s(evidence) * MS_PER_S))
    uid = code(evidence.memory.policy.run_uid)
    said = f", launched {launched}. As of entry {evidence.memory.seq:,} of the ledger{until}."
    yield Paragraph(["Run ", uid, f"{said} All instants are in UTC."], "muted")
    if dossier.is_part:
        yield Paragraph(["Only what is new since ", entry(dossier.since), "."], "muted")


def _list_sections(dossier: Dossier, *, is_drawn: bool) -> Iterator[Section]:
    """Yield the sections; in a part of a report those that do not change are left out."""
    summary = make_summary(dossier.evidence)
    yield Section(
        "On time?",
        [
            *(_draw_times(dossier) if is_drawn else ()),
            *list_forecasts(dossier),
            *list_deadlines(dossier),
        ],
    )
    if not dossier.is_part:
        yield Section("Facts", [Pairs(list(list_facts(summary)))])
    yield Section(
        "Learning rate and mixture",
        [*(_draw_rates(dossier) if is_drawn else ()), *list_revisions(dossier)],
    )
    if is_drawn:
        yield Section("Speed, loss and drops", list(_draw_series(dossier)))
        yield Section("What took the time", list(_draw_timeline(dossier)))
    yield Section("Incidents", list(list_incidents(dossier, summary)), "incidents")
    yield Section("Proposals", list(list_proposals(dossier)), "proposals")
    yield Section("Attempts", list(list_attempts(dossier)))
    if not dossier.is_part:
        yield Section("Goodput", list(list_accounts(dossier)))
        yield Section("What was declared", list(list_declared(dossier)))
        yield Section("Plans", list(list_plans(dossier)))
        yield Section("How to check this report", list(list_checks(dossier)))


# --- pictures, or why there is none ---


def _picture(draw: Callable[[Form], str], words: str) -> Picture:
    return Picture([(form.name, draw(form)) for form in FORMS], words)


def _draw_times(dossier: Dossier) -> Iterator[Block]:
    evidence = dossier.evidence
    scene = set_time_scene(evidence)
    has_steps = bool(scene.progress)
    if has_steps:
        yield _picture(lambda form: draw_progress(scene, form), "completed steps over time")
    if scene.guesses:
        yield Paragraph(_explain_forecasts(dossier), "muted")
        yield _picture(lambda form: draw_forecasts(scene, form), "every forecast as it was made")
    if has_steps or scene.guesses:
        yield Paragraph(_explain_marks(dossier), "muted")
    else:
        yield Paragraph("Nothing can be drawn yet: no step was logged and no forecast was made.")


def _explain_marks(dossier: Dossier) -> str:
    told = (
        "Dashed red lines, or red ticks where there are many, are incidents, violet lines revisions"
    )
    if len(dossier.evidence.chronicle.deadlines) > 1:
        told += ", dotted grey ones where the deadline was moved"
    return f"{told}."


def _explain_forecasts(dossier: Dossier) -> str:
    """Say what exactly is forecast, and what the reserve is for."""
    evidence = dossier.evidence
    terms = evidence.memory.policy.terms
    told = [
        "Each forecast over the moment it was made: of the end of the last step."
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


def _draw_rates(dossier: Dossier) -> Iterator[Block]:
    scene = set_rate_scene(dossier.evidence)
    yield _picture(lambda form: draw_rates(scene, form), "learning rate and mixture over steps")
    if any(it.kind == "horizon" for it in dossier.evidence.memory.adopted):
        yield Fold("what a revision of the horizon does", [Paragraph(RULE)])


RULE = (
    "From the fork on, the rate falls in a straight line from what it was to the same final share"
    " of the original peak, at the new last step. It is never raised, and no step before the fork"
    " changes in any bit."
)


def _draw_series(dossier: Dossier) -> Iterator[Block]:
    scene = set_series(dossier.evidence)
    if not scene.buckets:
        yield Paragraph("Nothing can be drawn yet: no step was logged.")
        return
    yield _picture(lambda form: draw_series(scene, form), "speed, loss and drops over tokens")
    size = count_of(scene.bucket_steps, "step")
    told = [f"Medians of {size} each, clean ones for the speed; dotted lines are later attempts."]
    told += [f"{what}." for what in _list_missing(scene.has_peak, dossier)]
    yield Paragraph(" ".join(told), "muted")


def _list_missing(has_peak: object, dossier: Dossier) -> Sequence[str]:
    told: list[str] = []
    if not has_peak:
        told.append(
            "There is no MFU: no peak is declared (fleet.peakFlopsPerDevice), and what the ranks"
            " measured is known only when the run rests"
        )
    if not any(it.assignments for it in dossier.evidence.course.surviving.values()):
        told.append("There are no drops: the model routes nothing")
    return told


def _draw_timeline(dossier: Dossier) -> Iterator[Block]:
    scene = set_timeline(dossier.evidence, dossier.rests)
    if scene.end_s <= 0 or not scene.attempts:
        yield Paragraph("Nothing can be drawn yet: no gang was started.")
        return
    yield _picture(lambda form: draw_timeline(scene, form), "phases, attempts and incidents")
    if any(it.cost_s is None for it in scene.outages):
        yield Paragraph("An incident that is not made up for yet costs until now.", "muted")
