"""`ctl report` draws whatever lies in a run's directory, in a process of its own."""

import shutil

import pytest

from contract import wire
from controller.adapters import rundir
from controller.adapters.ledger import SegmentedLedger
from controller.cli.codes import Code
from controller.core.planning import make_genesis, make_policy
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
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    (trained / wire.REPORT_FILE).unlink()
    run_ctl("ctl report probe")
    assert (trained / wire.REPORT_FILE).read_bytes() == page


def test_peak_that_the_summary_names_makes_the_mfu(trained, run_ctl):
    (trained / wire.SUMMARY_FILE).write_text('{"peak_flops_per_second": 1e9}')
    run_ctl("ctl report probe")
    assert "tokens/s, MFU " in (trained / wire.REPORT_FILE).read_text()
    (trained / wire.SUMMARY_FILE).write_text("[torn")
    assert run_ctl("ctl report probe")[0] == Code.DONE
    assert "MFU" not in (trained / wire.REPORT_FILE).read_text()


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
