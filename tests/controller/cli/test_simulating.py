"""`ctl simulate`: what it prints, draws and refuses, on runs of seconds."""

import io
import json
import multiprocessing
import re
import sys

import pytest

from controller.cli.rehearsing import Job, hear, rehearse_all
from controller.cli.simulating import compare, is_behind
from controller.cli.tallying import (
    Given,
    apportion,
    count_done_by,
    describe_json,
    find_quantile,
    sum_spares,
    tally,
)
from controller.core.declared.run_file import parse_run_file
from controller.core.declared.supposition import suppose
from controller.ports import Unavailable
from controller.report.rehearsals import Found, main, write_html, write_svg
from tests.rehearsals import DAY_MS, a_proposal, a_rehearsal, an_incident
from tests.run_files import GOOD, spoil

PACED = "  simulation: {throughput: [{fromDay: 0, tokensPerSecond: 500}]}\n"
RACKS = "{kind: kubernetes, racks: 1, traysPerRack: 2, devicesPerProcess: 1}"
FLEET = "{kind: local, processes: 2, devicesPerProcess: 1}"
TOKENS = {"code": 100_000, "docs": 100_000}


@pytest.fixture
def paced(folder):
    """The folder, with a run file that says how fast its fleet is."""
    (folder / "run.yaml").write_text(GOOD + PACED)
    return folder


def tally_of(*rehearsals, file="run.yaml", given=()):
    run_file = suppose(parse_run_file(GOOD + PACED), TOKENS, "")
    return tally(file, run_file, rehearsals, 70 * DAY_MS, list(given))


# --- the command ---


@pytest.mark.usefixtures("paced")
def test_table_tells_finish_time_and_incidents(run_ctl):
    code, told, _ = run_ctl("ctl simulate run.yaml --runs 1")
    rows = {line.split("  ")[0]: line for line in told.splitlines()}
    assert code == 0
    assert "plan       1 min 42 s when nothing fails" in told
    assert {"probe", "finish", "horizon", "time", "failures", "proposals", "spares"} <= set(rows)
    assert "productive" in rows["time"]
    assert "1 run, seed 0, launched 2026-01-01" in rows["probe"]


@pytest.mark.usefixtures("paced")
def test_json_holds_every_rehearsal_and_their_sum(run_ctl):
    code, told, _ = run_ctl("ctl simulate run.yaml --runs 1 --seed 7 -o json --deadline 1s")
    [file] = json.loads(told)["files"]
    [rehearsal] = file["rehearsals"]
    assert code == 0
    assert (rehearsal["seed"], rehearsal["outcome"], rehearsal["steps"]) == (7, "completed", 50)
    spent = sum(rehearsal["account"].values())
    assert spent == rehearsal["ended_wall_ms"] - rehearsal["launched_wall_ms"]
    assert file["finish_ms"]["p50"] == spent
    assert [it["done"] for it in file["by_deadline"]] == [0]
    assert sum(file["account_permille"].values()) == 1_000


def test_files_are_compared_on_the_same_seeds_in_two_processes(paced, run_ctl):
    (paced / "slow.yaml").write_text(GOOD + spoil(PACED, "500", "250"))
    code, told, talk = run_ctl("ctl simulate run.yaml slow.yaml --runs 1")
    heads, fast, slow = told.splitlines()
    assert code == 0
    assert heads.split()[:2] == ["file", "P10"]
    assert (fast.split()[0], slow.split()[0]) == ("run.yaml", "slow.yaml")
    assert "1 min" in fast
    assert "3 min" in slow
    assert "of virtual time in" in talk


def test_run_that_misses_its_deadline_half_the_time_is_behind(paced, run_ctl):
    times = '"2027-01-01T00:01:00Z"}\n'
    deadline = f"  deadline: {{at: {times}"
    launch = spoil(PACED, "{throughput", '{launchAt: "2027-01-01T00:00:00Z", throughput')
    (paced / "run.yaml").write_text(GOOD + deadline + launch)
    code, told, _ = run_ctl("ctl simulate run.yaml --runs 1")
    assert code == 3
    assert "0 of 1 runs, by" in told


def test_racks_are_rehearsed_and_neither_launched_nor_measured(paced, run_ctl):
    restart = "{restart: {start: 1m, restore: 1m}, save: {commit: 1m}, throughput"
    (paced / "run.yaml").write_text(
        spoil(GOOD, FLEET, RACKS) + spoil(PACED, "{throughput", restart)
    )
    assert run_ctl("ctl simulate run.yaml --runs 1")[0] == 0
    for command in ("ctl launch run.yaml", "ctl gate run.yaml --steps 10"):
        code, _, talk = run_ctl(command)
        assert code == 2
        assert "Next: ctl simulate run.yaml" in talk
    code, told, talk = run_ctl("ctl launch run.yaml --dry-run")
    assert code == 2
    assert "nothing was written or started" in told
    assert "Next: ctl simulate run.yaml" in talk
    assert not (paced / "runs").exists()


def test_counted_text_is_rehearsed_and_not_launched(paced, run_ctl):
    files = "{kind: files, paths: [text.txt], heldOutPercent: 20}"
    text = spoil(GOOD, files, "{kind: declared, tokens: 100_000}")
    (paced / "run.yaml").write_text(text + PACED)
    assert run_ctl("ctl simulate run.yaml --runs 1")[0] == 0
    code, _, talk = run_ctl("ctl launch run.yaml --detach")
    assert code == 2
    assert "for `ctl simulate` only" in talk
    assert not (paced / "runs").exists()


WRONG = (
    ("--runs 0", "--runs is 0; it must be 1 to 10000"),
    ("-o yaml", '--output is "yaml"; it must be one of table, json'),
    ("--picture out.png", "it must end with .svg or .html"),
    ("--picture gone/out.svg", '--picture is "gone/out.svg"; its folder must exist'),
    ("--deadline soon", '--deadline is "soon"; it must be a time since the launch'),
    ("--deadline 2027-01-01T00:00:00", "instant with offset"),
)


@pytest.mark.usefixtures("paced")
@pytest.mark.parametrize(("options", "words"), WRONG)
def test_wrong_option_is_refused_before_anything_is_rehearsed(run_ctl, options, words):
    code, told, talk = run_ctl(f"ctl simulate run.yaml {options}")
    assert (code, told) == (2, "")
    assert words in talk
    assert "ctl simulate run.yaml" in talk


@pytest.mark.usefixtures("folder")
def test_file_without_a_pace_is_refused_with_what_to_declare(run_ctl):
    code, _, talk = run_ctl("ctl simulate run.yaml")
    assert code == 2
    assert "spec.simulation.throughput: it must be given" in talk
    assert "then: ctl simulate run.yaml" in talk


def test_section_changes_under_a_controller_and_is_not_sent_to_it(launched, run_ctl, hold_lock):
    hold_lock(launched)
    path = launched.parent.parent / "run.yaml"
    path.write_text(path.read_text() + PACED)
    code, _, talk = run_ctl("ctl launch run.yaml --detach")
    assert code == 0
    assert "that no controller reads" in talk
    assert "tokensPerSecond: 500" in (launched / "run.yaml").read_text()
    assert not list((launched / "intents").iterdir())


# --- the processes ---


def test_processes_give_what_one_gives_in_the_jobs_order():
    run_file = suppose(parse_run_file(GOOD + PACED), TOKENS, "")
    days = []
    jobs = [Job(run_file, seed) for seed in (3, 1, 2)]
    together = rehearse_all(jobs, lambda number, day: days.append((number, day)))
    alone = [rehearse_all([job], lambda *_: None)[0] for job in jobs]
    assert together == alone
    assert {number for number, _ in days} == {0, 1, 2}


def test_process_that_ends_before_its_time_is_told_as_a_failure():
    here, there = multiprocessing.Pipe()
    there.close()
    with pytest.raises(Unavailable, match=r"ended before its time"):
        hear(here)


# --- what it comes to ---


def test_quantile_counts_runs_that_never_finish():
    spans = [5, 3, None, 4, None]
    assert [find_quantile(spans, percent) for percent in (10, 50, 60, 90)] == [3, 5, 5, None]


def test_share_on_time_and_by_another_deadline_differ():
    runs = [a_rehearsal(seed, days=days) for seed, days in enumerate((85, 92, None))]
    assert tally_of(*runs).on_time_permille == 333
    assert count_done_by(runs, 92 * DAY_MS) == 2


def test_behind_is_below_half_on_time():
    early, late = a_rehearsal(days=80), a_rehearsal(days=95)
    assert not is_behind(tally_of(early, late))
    assert is_behind(tally_of(early, late, late))


def test_account_of_all_runs_is_shared_by_phase():
    runs = [a_rehearsal(days=80), a_rehearsal(1, days=100, account={"productive": 100 * DAY_MS})]
    assert tally_of(*runs).account_permille == {"productive": 956, "restore": 44}


@pytest.mark.parametrize("amounts", [[1, 1, 1], [5], [997, 2, 1], [1] * 7, [10**15, 1, 10**14]])
def test_shares_sum_to_the_whole_and_none_is_off_by_one(amounts):
    shares = apportion(amounts, 1_000)
    assert sum(shares) == 1_000
    for amount, found in zip(amounts, shares, strict=True):
        assert abs(found - 1_000 * amount / sum(amounts)) < 1


def test_failures_are_told_by_class_with_their_cost_and_what_they_were_taken_for():
    lesser = an_incident(cost_ms=0, cause=None, attempt=None)
    incidents = [an_incident(), lesser, an_incident("hang")]
    kinds = tally_of(a_rehearsal(incidents=incidents)).kinds
    assert list(kinds) == ["gpu", "hang"]
    assert (kinds["gpu"].failures, kinds["gpu"].incidents) == (2, 1)
    assert kinds["gpu"].mean_cost_ms == 1_800_000
    assert kinds["gpu"].causes == {"error": 1}


def test_tokens_are_given_up_by_adopted_proposals_only():
    told = a_rehearsal(proposals=[a_proposal(), a_proposal("expired")])
    found = tally_of(told, a_rehearsal(1))
    assert found.proposals == {"adopted": 1, "expired": 1}
    assert found.tokens_given_up == 5 * 10**11


def test_spares_tell_the_worst_and_averages():
    spares = a_rehearsal().spares
    runs = [a_rehearsal(), a_rehearsal(1, spares=spares.model_copy(update={"waited_ms": 50}))]
    found = sum_spares(runs)
    assert (found["fewest"], found["fewest_of_a_rack"], found["mean_waited_ms"]) == (1, 0, 25)


def test_comparison_has_a_cell_for_each_head():
    late = tally_of(a_rehearsal(days=None), file="b.yaml")
    heads, first, second = compare([tally_of(a_rehearsal()), late])
    assert len(heads) == len(first) == len(second)
    assert "not at all" in second
    assert dict(zip(heads, second, strict=True))["on time"] == "0 of 1"


# --- the picture ---


def found_of(*tallies):
    return Found.model_validate_json(json.dumps(describe_json(tallies)))


def test_picture_is_the_same_bytes_and_follows_the_screen():
    void = a_proposal("void", adopted_wall_ms=None)
    told = tally_of(
        *(a_rehearsal(seed, days=80.0 + seed) for seed in range(3)),
        a_rehearsal(3, days=None, proposals=[a_proposal(), void]),
        given=[Given("82d", 82 * DAY_MS, 2)],
    )
    other = tally_of(a_rehearsal(days=70), file="<b>&.yaml")
    first, second = (write_svg(found_of(told, other)) for _ in range(2))
    assert first == second
    assert "prefers-color-scheme: dark" in first
    assert "#0101" not in first
    assert "asked about: day 82" in first
    assert "deadline: day 90" in first
    assert not re.search(r"<b>|<script|https?://(?!www\.w3\.org)", first)


def test_page_holds_the_figures_beside_the_picture():
    page = write_html(
        found_of(tally_of(a_rehearsal()), tally_of(a_rehearsal(days=None), file="<b>"))
    )
    assert "day 80.0" in page
    assert "not at all" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert page.count("<svg") == 2
    assert "<thead><tr><th>file" in page
    names = re.findall(r'\bid="([^"]*)"', page)
    assert len(names) == len(set(names))


def test_drawing_is_done_by_a_process_of_its_own(paced, run_ctl):
    code, _, talk = run_ctl("ctl simulate run.yaml --runs 1 --picture out.html")
    assert code == 0
    assert "drawn: out.html" in talk
    assert "<svg" in (paced / "out.html").read_text()


def test_drawing_names_the_file_that_it_cannot_write(tmp_path, monkeypatch, capsys):
    told = json.dumps(describe_json([tally_of(a_rehearsal())]))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(told.encode())))
    assert main([str(tmp_path / "gone" / "out.svg")]) == 1
    assert "out.svg: No such file" in capsys.readouterr().err
