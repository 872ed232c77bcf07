"""The page of a run: whole, on its own, the same every time, and right for runs of every kind."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from contract.wire import Phase
from controller.core.actions import Halt, Rest
from controller.report.dossier import Declared, Dossier
from controller.report.page import write_page, write_text
from controller.report.style import ROLES
from controller.report.trail import follow
from tests.chronicles import (
    AGAIN_S,
    FORK,
    LAUNCHED_S,
    PLAN,
    SHORTER,
    STEPS,
    TERMS,
    Scroll,
    Told,
    a_forecast,
    a_shortened_run,
    an_evaluation,
    told,
    until_proposed,
)
from tests.histories import attempt


def dossier_of(run, **changes):
    """Return what a report is made from; `changes` are those of the evidence."""
    evidence = replace(run.evidence, **changes)
    return Dossier(evidence, follow(run.scroll.book.records), Declared())


def page_of(run, **changes):
    return write_page(dossier_of(run, **changes))


@pytest.fixture(scope="module")
def page():
    return page_of(told(a_shortened_run()))


class Reader(HTMLParser):
    """Collects elements with their attributes, and checks that they close in order."""

    VOID = frozenset({"meta"})

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
    assert page_of(told(a_shortened_run())) == page


def test_page_needs_nothing_from_outside(page):
    elements = Reader(page).elements
    assert "://" not in page
    assert not {tag for tag, _ in elements} & {"script", "link", "img", "iframe", "object", "image"}
    assert not [name for _, it in elements for name in it if name.startswith("on")]
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
    used = set(re.findall(r"var\(--(\w+)\)", figures))
    assert {"ink", "muted", "grid", "line", "ghost", "bad", "good", "revision", "s1"} <= used
    assert used <= set(ROLES)


def test_page_fits_a_phone_and_light_and_dark(page):
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "@media screen and (prefers-color-scheme: dark)" in page
    assert "@media print {\n  :root { color-scheme: light; }" in page
    sized = [it for tag, it in Reader(page).elements if tag == "svg"]
    assert len(sized) == 10
    assert all("viewbox" in it and "width" not in it for it in sized)


def test_each_figure_has_a_form_for_phones_that_needs_no_scrolling(page):
    forms = re.findall(r'<div class="figure (\w+)"><svg viewBox="0 0 (\S+)', page)
    assert [name for name, _ in forms] == ["desk", "phone"] * 5
    assert [float(width) for _, width in forms] == pytest.approx([446.4, 237.6] * 5)
    [small] = re.findall(r"@media screen and \(max-width: 600px\) \{(.*?)\n\}", page, re.S)
    assert ".desk { display: none; } .phone { display: block; }" in small
    assert ".phone { display: none; }" in page.replace(small, "")
    assert "min-width: 29rem" not in page


def test_cells_of_a_card_know_the_heads_of_their_columns(page):
    [row] = re.findall(r'<tr id="incident-1">[^\n]*</tr>', page)
    assert re.findall('data-head="([^"]*)"', row) == [
        "incident", "ended", "cause", "attempt", "root rank", "step", "noticed in", "cost",
        "tokens again",
    ]  # fmt: skip
    [note] = re.findall(r"<tr>[^\n]*rank 1 ended first[^\n]*</tr>", page)
    assert 'class="note" colspan="9" data-head="evidence, acts"' in note


def figures_of(page):
    return re.findall(r'<div class="figure \w+">(<svg.*?</svg>)</div>', page, re.S)


def test_axis_of_the_finish_has_its_unit_and_what_came_is_two_instants(page):
    for figure in figures_of(page)[2:4]:
        assert "finish, minutes since launch" in figure
        assert "end of the last step" in figure
        assert ">finish<" in figure
        assert ">deadline moved<" not in figure


def test_page_says_what_is_forecast_and_what_the_reserve_is_for(page):
    assert "of the end of the last step" in page
    assert "what the reserve of 10.0 s between due and deadline is for, and took 5.0 s." in page


def test_moved_deadline_is_drawn_marked_and_listed():
    page = page_of(told(until_proposed()[0].move_deadline(130, 700), last=86))
    for figure in figures_of(page)[:4]:
        assert ">deadline moved<" in figure
    [section] = re.findall(r"<h2>On time\?</h2>(.*?)</section>", page, re.S)
    assert "2023-11-14 22:15:30 UTC" in section
    assert ">ada</td>" in section
    for second in ("22:24:00", "22:23:50", "22:25:00", "22:24:50"):
        assert f"2023-11-14 {second} UTC" in section


def test_band_that_is_far_wider_than_all_others_is_cut_and_said_to_be():
    scroll, _ = until_proposed()
    wide = an_evaluation(128, 81, 2.0, 21)
    far = wide.forecast.model_copy(update={"p90_wall_ms": wide.forecast.p90_wall_ms + 10**7})
    scroll.decide(128, wide.model_copy(update={"forecast": far}))
    whole, cut = (page_of(told(it, last=82)) for it in (until_proposed()[0], scroll))
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
    assert "td.b { width: 40%;" in page


def test_page_tells_incidents_proposals_proofs_and_plans():
    evidence = told(a_shortened_run()).evidence
    page = page_of(told(a_shortened_run()))
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


def test_failed_proof_is_seen_at_a_glance():
    run = told(a_shortened_run())
    [story] = run.evidence.chronicle.stories
    facts = story.proposal.facts
    first = facts.proofs[0].model_copy(update={"holds": False})
    facts = facts.model_copy(update={"proofs": [first, *facts.proofs[1:]]})
    worse = replace(story, proposal=story.proposal.model_copy(update={"facts": facts}))
    page = page_of(run, chronicle=replace(run.evidence.chronicle, stories=[worse]))
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


def never_started():
    return Told(Scroll(), [])


KINDS = {
    without_deadline: (
        "sim had trained 60 of 400 steps by 2023-11-14 22:14:45 UTC and has no forecast yet;"
        " it goes on as planned."
    ),
    under_way: (
        "sim had trained 82 of 400 steps by 2023-11-14 22:15:29 UTC and was last forecast to finish"
        " on 2023-11-14 22:26:06 UTC, 2 min 16 s LATE with P(on time) 2.1%; proposal {id} to end"
        " after 320 steps waits for an answer (ctl replan sim --approve {id})."
    ),
    halted: ("sim halted after 82 of 400 steps: no luck; it waits for its owner (ctl resume sim)."),
    stopped: "sim is stopped after 82 of 400 steps; it waits for its owner (ctl resume sim).",
    never_trained: (
        "sim had trained 0 of 400 steps by 2023-11-14 22:13:20 UTC and has no forecast yet;"
        " the first forecast is made when enough clean steps are known."
    ),
    never_started: (
        "sim has not started yet: none of its 400 steps is trained; attempt 1 is to be started."
    ),
    late: (
        "sim finished its 400 steps on 2023-11-14 22:25:00 UTC, 1 min AFTER its deadline;"
        " nothing is left to do."
    ),
}


@pytest.mark.parametrize("make", KINDS, ids=lambda it: it.__name__)
def test_every_kind_of_run_has_a_page_that_says_where_it_stands(make):
    run = make()
    page = page_of(run)
    Reader(page)
    ids = [it.proposal.id for it in run.evidence.chronicle.stories]
    assert f'<p class="lead">{KINDS[make].format(id=(*ids, "")[0])}</p>' in page


def judged_anew(chance):
    """Return a run whose open proposal was evaluated once more, with this chance."""
    scroll, proposal = until_proposed()
    evaluation = an_evaluation(146, 90, 2.0, 1).model_copy(
        update={"proposed": a_forecast(146, 90, 2.0, SHORTER, chance)}
    )
    return told(scroll.decide(146, evaluation), last=92), proposal.id


def test_open_proposal_that_misses_its_target_by_now_says_so():
    run, key = judged_anew(6)
    page = page_of(run)
    assert "P(on time) 91.2%" in page
    assert "P(on time) 0.6%, of 2023-11-14 22:15:46 UTC" in page
    assert '<span class="bad">NOT met by now: P(on time) is under 80%</span>' in page
    assert (
        f"(ctl replan sim --approve {key}), though it does NOT meet the target of 80% now:"
        " P(on time) 0.6%."
    ) in page
    page = page_of(judged_anew(800)[0])
    assert "P(on time) 80%, of 2023-11-14 22:15:46 UTC" in page
    assert "NOT m" not in page


def test_chance_once_the_due_instant_passed_is_certain_as_in_the_log():
    scroll = until_proposed()[0].decide(650, an_evaluation(650, 300, 2.0, 0))
    page = page_of(told(scroll, last=302))
    assert "LATE with P(on time) 0%; " in page
    assert "&lt;0.1%" not in page


def test_steps_of_a_line_that_was_left_are_counted_apart_from_replays():
    scroll = Scroll().launch(0, 1).launch(AGAIN_S, 2)
    line = PLAN.lineage[0].model_copy(update={"name": "main-2", "fork_step": 20})
    changes = {"kind": "line", "parent": PLAN.sha, "effective": 20}
    lineage = [*PLAN.lineage, line]
    scroll.open_line(140, PLAN.model_copy(update={**changes, "lineage": lineage}))
    histories = [
        attempt(1, LAUNCHED_S, range(40)),
        attempt(2, LAUNCHED_S + 60, range(35, 41)),
        attempt(3, LAUNCHED_S + 150, range(20, 30), line="main-2"),
    ]
    text = write_text(dossier_of(Told(scroll, histories)))
    # 20 to 40 of the first line; 35 to 39 were trained twice on it.
    assert "21 steps on lines that the run left" in text
    assert "5 steps trained again on their own line" in text
    assert "lines that the run left" not in write_text(dossier_of(told(a_shortened_run())))


def test_cost_of_an_incident_before_the_first_step_says_from_where_it_counts():
    scroll = Scroll().launch(0, 1).kill(5, 1, -1).launch(AGAIN_S, 2)
    first, second = attempt(1, LAUNCHED_S, range(0)), attempt(2, LAUNCHED_S + 8, range(9))
    start = "An incident before the first step costs the time from that launch to the first step"
    assert start in page_of(Told(scroll, [first, second]))
    assert start not in page_of(told(a_shortened_run()))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (without_deadline, "No forecast was made: the run has no deadline."),
        (never_trained, "Nothing can be drawn yet: no step was logged and no forecast was made."),
        (never_trained, "No forecast was made yet: it takes 500 clean steps, and counts after"),
        (never_trained, "Nothing can be drawn yet: no step was logged.<"),
        (never_started, "Nothing can be drawn yet: no gang was started.<"),
        (never_started, "No gang was started yet."),
        (never_started, "No token was processed: no step was logged."),
        (
            under_way,
            "There is no MFU: no peak is declared (fleet.peakFlopsPerDevice), and what the",
        ),
        (never_started, "None: no attempt ended without being asked to."),
        (never_started, "None was made: it takes 2 late evaluations in a row"),
        (under_way, "Nothing was declared: the run file has no record section."),
        (under_way, "The plan of the launch was never revised."),
    ],
)
def test_what_is_missing_says_why(make, why):
    assert why in page_of(make())


def test_text_from_outside_stays_text():
    scroll, proposal = until_proposed()
    evil = "<script>alert(1)</script>"
    scroll.decide(130, Halt(reason=evil, nonce="h", cause="killed"))
    scroll.close(proposal, 131, "rejected", evil)
    page = page_of(told(scroll, last=82))
    assert evil not in page
    assert page.count("&lt;script&gt;") >= 2
    Reader(page)


def test_damaged_ledger_is_said_at_the_top():
    page = page_of(told(a_shortened_run()), ledger_findings=["record 3 was changed"])
    assert "The ledger is damaged: record 3 was changed." in page


def test_text_from_outside_steers_no_terminal_and_no_reader():
    scroll, proposal = until_proposed()
    scroll.close(proposal, 131, "rejected", "\x1b[31mred\x1b]0;title\x07\u202eback\x00")
    assert "redback" in page_of(told(scroll, last=82))


def test_only_links_of_the_web_are_links():
    run = told(a_shortened_run())
    links = ["https://example.org/?a=1&b=2", "javascript:alert(1)", 'http://x"onclick="y']
    page = write_page(replace(dossier_of(run), declared=Declared("why", ["one"], links)))
    targets = [it["href"] for tag, it in Reader(page).elements if tag == "a"]
    assert [it for it in targets if not it.startswith("#")] == [links[0], links[2]]
    assert "<td>javascript:alert(1)</td>" in page
    assert "<th>hypothesis</th><td>why</td>" in page


def test_statements_link_to_entries_that_the_page_holds(page):
    ids = {it["id"] for _, it in Reader(page).elements if "id" in it}
    cited = set(re.findall(r'href="#(entry-\d+)"', page))
    assert len(cited) > 10
    assert cited <= ids


def test_incident_says_what_was_done_about_it(page):
    [note] = re.findall(r'<td class="note"[^\n]*</td>', page)
    told_of = re.sub(r"<[^>]*>", "", note)
    assert told_of == (
        "rank 1 ended first with 137 KILLED (confidence high); recorded as entry 4;"
        " attempt 2 started from step 0, as no checkpoint existed (entry 5)"
    )


def test_accounts_sum(page):
    [section] = re.findall(r"<h2>Goodput</h2>(.*?)</section>", page, re.S)
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", it) for it in re.findall(r"<tr>.*?</tr>", section)]
    lines = {it[0]: it[2] for it in rows if len(it) == 5}
    assert lines.pop("difference") == "0.000 s"
    wall, whole = (lines.pop(it) for it in ("wall time", "sum of the phases"))
    assert wall == whole == "610.000 s"
    assert sum(float(it.removesuffix(" s")) for it in lines.values()) == pytest.approx(610, abs=0)
    tokens = {it[0]: it[1] for it in rows if len(it) == 4}
    assert tokens["unique, on the surviving line"] == f"{320 * 1024:,}"
    assert tokens["replayed after incidents"] == f"{11 * 1024:,}"
    assert tokens["processed, as logged"] == tokens["sum"] == f"{331 * 1024:,}"
    assert '<span class="good">0</span>' in tokens["difference"]


def test_account_that_does_not_sum_shows_by_how_much():
    run = told(a_shortened_run())
    short = replace(run.evidence.account, seconds={Phase.PRODUCTIVE: 600.0, Phase.UNKNOWN: 0.0})
    page = page_of(run, account=short)
    assert '<span class="bad">10.0 s</span></td><td class="n" data-head="exactly">10.000 s' in page


def test_revision_is_told_in_exact_values(page):
    [section] = re.findall(r"<h2>Learning rate and mixture</h2>(.*?)</section>", page, re.S)
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", it) for it in re.findall(r"<tr>.*?</tr>", section)]
    told_of = {row[0]: row[1:] for row in rows if row}
    assert told_of[f"step {FORK}, the fork"][0] == told_of[f"step {FORK}, the fork"][1]
    assert told_of[f"step {SHORTER - 1}, the last"][1] == "1/20 of the peak"
    assert told_of[f"step {STEPS - 1}"] == ["1/20 of the peak", "no such step", "-"]


def test_hundreds_of_incidents_fold_and_sum_by_cause():
    scroll = Scroll()
    for number in range(1, 201):
        scroll.launch(3 * number, number).kill(3 * number + 1, number, 5)
    page = page_of(Told(scroll, []))
    Reader(page)
    assert page.count('<tr id="incident-') == 200
    assert "<summary>incidents 1 to 50</summary>" in page
    opened = re.sub(r"<details>.*?</details>", "", page, flags=re.S)
    assert opened.count('<tr id="incident-') == 12
    assert '<td data-head="cause">killed</td>' in opened


# --- the same facts as text ---


def test_text_tells_the_same_and_where_to_go_on():
    run = told(a_shortened_run())
    text = write_text(dossier_of(run))
    for fact in (
        "sim finished its 320 steps on 2023-11-14 22:23:30 UTC, 30.0 s before its deadline",
        "rank 1 ended first with 137 KILLED (confidence high)",
        "entry 4",
        run.evidence.memory.plan.sha,
        "1/20 of the peak",
        "| difference | **0** | 0.000 s |",
        "██",
    ):
        assert fact in text
    assert "<svg" not in text
    seq = run.evidence.memory.seq
    assert text.endswith(f"\nEntry {seq}: next time `--since {seq}`\n")


def test_part_tells_only_what_later_entries_tell():
    run = told(a_shortened_run())
    whole = dossier_of(run)
    [proposal] = whole.trail.proposals
    before = max(whole.trail.evaluations[2], 9)
    text = write_text(replace(whole, since=before))
    assert "rank 1 ended first" not in text
    assert proposal in text
    assert "only what is new since entry 9" in text.lower()
    last = write_text(replace(whole, since=run.evidence.memory.seq))
    assert "###" not in last
    assert "sim finished its 320 steps" in last


def test_text_is_no_markup_mention_or_reference():
    scroll, proposal = until_proposed()
    evil = "@ada #12 <b>x</b> [a](http://b) | `c` *d*\n- e"
    scroll.close(proposal, 131, "rejected", evil)
    text = write_text(dossier_of(told(scroll, last=82)))
    assert "@ada" not in text
    assert "#12" not in text
    assert "<b>" not in text
    assert "](http" not in text
    assert "\\| \\`c\\` \\*d\\* - e" in text
