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
    an_evaluation,
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
    assert len(sized) == 4
    assert all("viewbox" in it and "width" not in it for it in sized)


def test_each_figure_has_a_form_for_phones_that_needs_no_scrolling(page):
    forms = re.findall(r'<div class="figure (\w+)"><svg viewBox="0 0 (\S+)', page)
    assert [name for name, _ in forms] == ["desk", "phone"] * 2
    assert [float(width) for _, width in forms] == pytest.approx([446.4, 237.6] * 2)
    [small] = re.findall(r"@media screen and \(max-width: 600px\) \{(.*?)\n\}", page, re.S)
    assert ".desk { display: none; } .phone { display: block; }" in small
    assert ".phone { display: none; }" in page.replace(small, "")
    assert "min-width: 29rem" not in page


def test_cells_of_a_card_know_the_heads_of_their_columns(page):
    [row] = re.findall(r"<tr>[^\n]*rank 1 ended first[^\n]*</tr>", page)
    assert re.findall('data-head="([^"]*)"', row) == [
        "incident", "ended", "cause", "rank", "step", "noticed in", "cost", "tokens again",
        "evidence",
    ]  # fmt: skip


def figures_of(page):
    return re.findall(r'<div class="figure \w+">(<svg.*?</svg>)</div>', page, re.S)


def test_axis_of_the_finish_has_its_unit_and_what_came_is_two_instants(page):
    for figure in figures_of(page)[:2]:
        assert "finish, minutes since launch" in figure
        assert "end of the last step" in figure
        assert ">finish<" in figure
        assert ">deadline moved<" not in figure


def test_page_says_what_is_forecast_and_what_the_reserve_is_for(page):
    assert "of the end of the last step" in page
    assert "what the reserve of 10.0 s between due and deadline is for, and took 5.0 s." in page


def test_moved_deadline_is_drawn_marked_and_listed():
    page = write_page(told(until_proposed()[0].move_deadline(130, 700), last=86).evidence)
    for figure in figures_of(page)[:2]:
        assert ">deadline moved<" in figure
    [section] = re.findall(r"<h2>Deadline moved</h2>(.*?)</section>", page, re.S)
    assert "2023-11-14 22:15:30 UTC" in section
    assert ">ada</td>" in section
    for second in ("22:24:00", "22:23:50", "22:25:00", "22:24:50"):
        assert f"2023-11-14 {second} UTC" in section


def test_band_that_is_far_wider_than_all_others_is_cut_and_said_to_be():
    scroll, _ = until_proposed()
    wide = an_evaluation(128, 81, 2.0, 21)
    far = wide.forecast.model_copy(update={"p90_wall_ms": wide.forecast.p90_wall_ms + 10**7})
    scroll.decide(128, wide.model_copy(update={"forecast": far}))
    whole, cut = (write_page(told(it, last=82).evidence) for it in (until_proposed()[0], scroll))
    assert "goes on beyond" not in whole
    assert "goes on beyond" in cut


def test_page_tells_how_the_gang_came_over_the_fork(page):
    assert '<span class="good">without a restart</span>' in page
    assert "attempt 2 before and after the fork; steps compiled for after the fork: 0" in page
    assert "step 90, the fork: 0.002362689" in page
    assert "would have given it the same to the bit" in page


def test_lag_is_told_in_lost_time_and_steps_against_the_even_pace(page):
    said = "39.0 s behind: 21.0 s lost time, 18.0 s lost by steps slower than the even pace"
    assert said in page


def test_bars_have_the_room_that_the_table_leaves(page):
    assert re.findall(r'<td class="b"><div class="bar" style="width: [\d.]+%">', page)
    assert "td.b { width: 60%;" in page


def test_page_tells_incidents_proposals_proofs_and_plans():
    evidence = told(a_shortened_run()).evidence
    page = write_page(evidence)
    [incident] = evidence.memory.incidents
    [story] = evidence.chronicle.stories
    assert incident.evidence in page
    assert story.proposal.id in page
    for proof in story.proposal.facts.proofs:
        assert f">{proof.name.replace('_', ' ')}</td>" in page
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
