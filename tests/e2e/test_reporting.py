"""A run that rests leaves its page; that it cannot be drawn takes nothing back."""

from tests.e2e.harness import ROOT


def test_completed_run_leaves_its_page(ctl):
    ctl.write_run_file(num_steps=20)
    ctl.pace(0.01)
    assert "on one page: runs/probe/report.html" in ctl("launch", "run.yaml")
    page = (ctl.run_dir / "report.html").read_text()
    assert "probe finished its 20 steps on" in page
    said = ctl("report", "probe")
    assert str(ctl.run_dir.relative_to(ctl.folder) / "report.html") in said
    assert (ctl.run_dir / "report.html").read_text() == page


def test_page_that_cannot_be_drawn_takes_nothing_back(ctl):
    broken = ctl.folder / "broken" / "matplotlib"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no pencil')\n")
    ctl.environment["PYTHONPATH"] = f"{ROOT}:{broken.parent}"
    ctl.write_run_file(num_steps=20)
    ctl.pace(0.01)
    assert "on one page" not in ctl("launch", "run.yaml")
    assert ctl.summary()["outcome"] == "completed"
    assert not (ctl.run_dir / "report.html").exists()
    log = (ctl.run_dir / "controller.log").read_text()
    assert "no report: the report was not written: ImportError: no pencil" in log
