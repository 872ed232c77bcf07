"""The page of a run: whole, on its own, the same every time, and right for runs of every kind."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from controller.core.actions import Halt, Rest
from controller.report.page import write_page
from controller.report.style import ROLES
from tests.chronicles import (
    FORK,
    SHORTER,
    STEPS,
    TERMS,
    Scroll,
    Told,
    a_shortened_run,
    told,
    until_proposed,
)


@pytest.fixture(scope="module")
def page():
    return write_page(told(a_shortened_run()).evidence)


class Reader(HTMLParser):
    """Collects elements with their attributes, and checks that they close in order."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, page):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


def test_page_is_the_same_for_the_same_run(page):
    assert write_page(told(a_shortened_run()).evidence) == page


def test_page_needs_nothing_from_outside(page):
    elements = Reader(page).elements
    assert "://" not in page
    assert not {tag for tag, _ in elements} & {"script", "link", "img", "iframe", "object", "image"}
    targets = [it[name] for _, it in elements for name in ("href", "src") if name in it]
    assert targets
    assert all(target.startswith("#") for target in targets)
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", page))


def test_identifiers_are_unique_and_those_referred_to_are_there(page):
    elements = Reader(page).elements
    ids = [it["id"] for _, it in elements if "id" in it]
    assert len(ids) == len(set(ids))
    wanted = {it["href"][1:] for _, it in elements if "href" in it}
    assert wanted | set(re.findall(r"url\(#([^)]*)\)", page)) <= set(ids)


def test_figures_take_their_colours_from_the_style(page):
    figures = "".join(re.findall(r"<svg.*?</svg>", page, re.S))
    assert re.findall(r"#[0-9a-f]{6}\b", figures) == []
    assert {f"var(--{role})" for role in ROLES} - {"var(--surface)"} <= set(
        re.findall(r"var\(--\w+\)", figures)
    )


def test_page_fits_a_phone_and_light_and_dark(page):
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "prefers-color-scheme: dark" in page
    sized = [it for tag, it in Reader(page).elements if tag == "svg"]
    assert len(sized) == 2
    assert all("viewbox" in it and "width" not in it for it in sized)


def test_page_tells_incidents_proposals_proofs_and_plans():
    evidence = told(a_shortened_run()).evidence
    page = write_page(evidence)
    [incident] = evidence.memory.incidents
    [story] = evidence.chronicle.stories
    assert incident.evidence in page
    assert story.proposal.id in page
    for proof in story.proposal.facts.proofs:
        assert f"<td>{proof.name.replace('_', ' ')}</td>" in page
    for plan in evidence.memory.chain:
        assert plan.sha[:12] in page
    assert f"{SHORTER} of {SHORTER} ({STEPS} at launch)" in page
    assert f"from step {FORK}, adopted when seen at step {FORK + 1}" in page
    assert page.count("deadline") > 1


def test_failed_proof_is_seen_at_a_glance():
    evidence = told(a_shortened_run()).evidence
    [story] = evidence.chronicle.stories
    facts = story.proposal.facts
    first = facts.proofs[0].model_copy(update={"holds": False})
    facts = facts.model_copy(update={"proofs": [first, *facts.proofs[1:]]})
    worse = replace(story, proposal=story.proposal.model_copy(update={"facts": facts}))
    chronicle = replace(evidence.chronicle, stories=[worse])
    page = write_page(replace(evidence, chronicle=chronicle))
    assert page.count('<span class="bad">FAILS</span>') == 1


def without_deadline():
    terms = TERMS.model_copy(update={"deadline_wall_ms": None})
    return told(Scroll(terms=terms).launch(0, 1), last=60)


def under_way():
    return told(until_proposed()[0], last=82)


def halted():
    scroll = until_proposed()[0].decide(130, Halt(reason="no luck", nonce="h", cause="killed"))
    return told(scroll, last=82)


def stopped():
    scroll = until_proposed()[0].decide(130, Rest(reason="so", nonce="h", state="stopped"))
    return told(scroll, last=82)


def never_trained():
    return Told(Scroll().launch(0, 1), [])


def late():
    return told(until_proposed()[0].complete(700), last=STEPS)


@pytest.mark.parametrize(
    ("make", "standing"),
    [
        (
            without_deadline,
            "sim had trained 60 of 400 steps by 2023-11-14 22:14:45 UTC; no forecast",
        ),
        (
            under_way,
            "sim had trained 82 of 400 steps by 2023-11-14 22:15:29 UTC; then forecast to finish"
            " on 2023-11-14 22:26:06 UTC, P(on time) 2.1%.",
        ),
        (halted, "sim halted after 82 of 400 steps: no luck."),
        (stopped, "sim is stopped after 82 of 400 steps."),
        (never_trained, "sim had trained 0 of 400 steps"),
        (late, "sim finished its 400 steps on 2023-11-14 22:25:00 UTC, 1 min AFTER its deadline."),
    ],
)
def test_every_kind_of_run_has_a_page_that_says_where_it_stands(make, standing):
    page = write_page(make().evidence)
    Reader(page)
    assert f'<p class="lead">{standing}' in page


def test_text_from_outside_stays_text():
    scroll, proposal = until_proposed()
    evil = "<script>alert(1)</script>"
    scroll.decide(130, Halt(reason=evil, nonce="h", cause="killed"))
    scroll.close(proposal, 131, "rejected", evil)
    page = write_page(told(scroll, last=82).evidence)
    assert evil not in page
    assert page.count("&lt;script&gt;") >= 2
    Reader(page)


def test_damaged_ledger_is_said_at_the_top():
    evidence = replace(told(a_shortened_run()).evidence, ledger_findings=["record 3 was changed"])
    assert "The ledger is damaged: record 3 was changed." in write_page(evidence)
