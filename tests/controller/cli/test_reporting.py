"""`ctl report` draws whatever lies in a run's directory, in a process of its own."""

import json
import os
import shutil

import pytest

from contract import wire
from controller.adapters import rundir
from controller.adapters.ledger import SegmentedLedger
from controller.cli.codes import Code
from controller.core.declared.planning import make_genesis, make_policy
from controller.core.readings import Instant
from tests.histories import step_record


@pytest.fixture
def trained(folder):
    """Return the directory of a run that trained 20 steps and is not at rest."""
    run = rundir.create_run(
        rundir.read_given(folder / "run.yaml"), folder / "runs", "uid", 1_700_000_000.0
    )
    policy = make_policy(run.run_file, "uid", run.facts.sources, 1_700_000_000_000)
    plan = make_genesis(run.run_file, "uid", run.facts.sources)
    ledger = SegmentedLedger(
        run.directory / wire.LEDGER_DIR, epoch=1, core_version="c", spec_sha="0" * 64
    )
    body = {"policy": policy.model_dump(mode="json"), "plan": plan.model_dump(mode="json")}
    ledger.append("run", body, Instant(wall_ms=1_700_000_001_000, mono_ms=1, boot_id="b"))
    ledger.close()
    attempt = run.directory / wire.attempt_dir(1)
    attempt.mkdir(parents=True)
    steps = [step_record(step, 1_700_000_010 + step).model_dump_json() for step in range(20)]
    (attempt / wire.STEPS_FILE).write_text("\n".join(steps) + "\n")
    return run.directory


def test_report_is_written_anywhere_anytime_with_the_same_bytes(trained, run_ctl, monkeypatch):
    code, out, err = run_ctl("ctl report probe")
    assert (code, out, err) == (Code.DONE, "runs/probe/report.html\n", "")
    page = (trained / wire.REPORT_FILE).read_bytes()
    assert b"had trained 20 of 50 steps by 2023-11-14 22:13:49 UTC" in page
    assert b"<th>wall time</th><td>29.0 s</td>" in page
    assert b'<td class="n" data-head="exactly">0.000 s</td>' in page
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.chdir(trained)
    run_ctl("ctl report probe --runs-dir .. --to ../elsewhere.html")
    assert (trained.parent / "elsewhere.html").read_bytes() == page


def test_peak_that_the_summary_names_makes_the_mfu(trained, run_ctl):
    (trained / wire.SUMMARY_FILE).write_text('{"peak_flops_per_second": 1e9}')
    run_ctl("ctl report probe")
    assert "tokens/s, MFU " in (trained / wire.REPORT_FILE).read_text()
    (trained / wire.SUMMARY_FILE).write_text("[torn")
    assert run_ctl("ctl report probe")[::2] == (Code.DONE, "")
    assert "There is no MFU" in (trained / wire.REPORT_FILE).read_text()


def test_copy_is_drawn_and_said_to_be_one(trained, run_ctl):
    copy = shutil.copytree(trained, trained.with_name("copied"))
    code, out, err = run_ctl("ctl report copied")
    assert (code, out) == (Code.DONE, "runs/copied/report.html\n")
    assert (copy / wire.REPORT_FILE).exists()
    assert f"is a copy of the run launched in {trained}" in err


def test_run_that_was_never_steered_has_no_report(folder, run_ctl):
    given = rundir.read_given(folder / "run.yaml")
    directory = rundir.create_run(given, folder / "runs", "uid", 1.5).directory
    (directory / wire.LEDGER_DIR).mkdir(exist_ok=True)
    code, out, err = run_ctl("ctl report probe")
    assert (code, out) == (Code.FAILED, "")
    assert err.startswith("the report was not written: ")
    assert "was never steered" in err
    assert not (directory / wire.REPORT_FILE).exists()


def test_unknown_run_is_bad_input(folder, run_ctl):
    code, _, err = run_ctl("ctl report nobody")
    assert code == Code.BAD_INPUT
    assert "nobody" in err


def test_facts_go_to_stdout_as_text_or_json(trained, run_ctl):
    code, out, err = run_ctl("ctl report probe -o md")
    assert (code, err) == (Code.DONE, "")
    assert out.startswith("## probe\n\n**probe had trained 20 of 50 steps by 2023-11-14")
    assert out.endswith("\n\nEntry 1: next time `--since 1`\n")
    code, out, err = run_ctl("ctl report probe -o json --since 1")
    facts = json.loads(out)
    assert (code, err) == (Code.DONE, "")
    assert facts["as_of"] == {"entry": 1, "at": "2023-11-14T22:13:21.000+00:00", "since": 1}
    assert facts["standing"].startswith("probe had trained 20 of 50 steps")
    assert facts["time"]["difference_ms"] == 0
    assert facts["tokens"]["processed"] == facts["tokens"]["unique"] == 20 * 1024
    assert len(facts["series"]["buckets"]) == 20
    assert facts["entries"] == []
    assert not (trained / wire.REPORT_FILE).exists()


def test_report_goes_where_it_is_told_to(trained, run_ctl):
    target = trained.parent / "told.md"
    code, out, _ = run_ctl(f"ctl report probe -o md --to {target}")
    assert (code, out) == (Code.DONE, f"{target}\n")
    assert target.read_text().startswith("## probe\n")
    code, out, _ = run_ctl("ctl report probe --to -")
    assert (code, out[:15]) == (Code.DONE, "<!DOCTYPE html>")
    assert not (trained / wire.REPORT_FILE).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-o pdf", "--output is pdf; it must be one of html, md, json. Next: ctl report probe"),
        ("--since 3", "--since is 3; a page tells everything"),
        ("-o md --to no/where.md", '--to is "no/where.md"; there is no folder no. Next: mkdir'),
    ],
)
def test_options_that_do_not_fit_are_bad_input(trained, run_ctl, words, said):
    code, out, err = run_ctl(f"ctl report probe {words}")
    assert (code, out) == (Code.BAD_INPUT, "")
    assert said in err


def test_report_is_told_without_the_text_that_was_read(trained, run_ctl):
    shutil.rmtree(trained / "data")
    code, out, _ = run_ctl("ctl report probe -o md")
    assert (code, out[:9]) == (Code.DONE, "## probe\n")


def test_report_replaces_nothing_that_is_no_file(trained, run_ctl):
    pipe = trained.parent / "pipe"
    os.mkfifo(pipe)
    code, out, err = run_ctl(f"ctl report probe -o md --to {pipe}")
    assert (code, out, pipe.is_fifo()) == (Code.BAD_INPUT, "", True)
    assert "it must be a new file, or one to replace. Next: ctl report probe -o md --to -" in err


def test_entry_that_does_not_exist_yet_is_refused(trained, run_ctl):
    code, out, err = run_ctl("ctl report probe -o md --since 7")
    assert (code, out) == (Code.FAILED, "")
    assert "--since is 7; the ledger ends at entry 1. Next: ctl report probe -o md" in err


def test_peak_that_is_declared_makes_the_mfu_of_a_run_that_goes_on(trained, run_ctl):
    path = trained / wire.RUN_FILE
    given = path.read_text()
    path.write_text(given.replace("{kind: local,", "{kind: local, peakFlopsPerDevice: 1000000000,"))
    assert run_ctl("ctl report probe")[::2] == (Code.DONE, "")
    assert "tokens/s, MFU " in (trained / wire.REPORT_FILE).read_text()
