"""A summary in words: what became of horizon and deadline is told where there was one."""

from controller.cli.summing import describe_summary
from controller.core.telling.summary import make_summary
from tests.chronicles import SHORTER, Scroll, a_shortened_run, told, until_proposed


def rows_of(scroll, last=SHORTER):
    text = describe_summary(make_summary(told(scroll, last).evidence))
    pairs = (line.split("  ", 1) for line in text.splitlines())
    return {label: value.strip() for label, value in pairs}


def test_shortened_run_is_told_whole(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    rows = rows_of(a_shortened_run())
    assert "approved by ada" in rows["proposal"]
    assert rows["revision"].startswith("horizon from step 90: 400 steps at launch, 320 now")
    assert "adopted at step 91 in attempt 2 of 2 without a restart" in rows["revision"]
    assert "no compilations after the fork" in rows["revision"]
    assert "last step ended 2023-11-14 22:23:25" in rows["deadline"]
    assert "finished 2023-11-14 22:23:30" in rows["deadline"]
    assert ": on time; P(on time) as proposed: 2.1% without, 91.2% with" in rows["deadline"]
    assert "130.0 s after the deadline (21.3% of the run)" in rows["unshortened"]
    assert "ended at exactly 0.05 of its peak; 320 steps as logged" in rows["learning rate"]
    assert "step 89 0.002369849, fork step 90 0.002362689" in rows["learning rate"]
    assert "(by the plan before it: the same)" in rows["learning rate"]


def test_moved_deadline_is_told(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    rows = rows_of(until_proposed()[0].move_deadline(130, 700), last=82)
    assert "22:15:30" in rows["deadline moved"]
    assert "by ada to 2023-11-14 22:25:00" in rows["deadline moved"]


def test_counterfactual_before_the_deadline_has_no_second_sign(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    summary = make_summary(told(a_shortened_run()).evidence)
    early = {"counterfactual_miss_seconds": -16.5, "counterfactual_miss_percent": -5.1}
    chances = {"p_on_time_before": 0.0, "p_on_time_after": 1.0}
    text = describe_summary({**summary, **early, **chances})
    assert "16.5 s before the deadline (5.1% of the run)" in text
    assert "<0.1% without, >99.9% with the revision" in text


def test_missed_deadline_cannot_be_overlooked():
    scroll, _ = until_proposed()
    rows = rows_of(scroll.complete(700), last=400)
    assert "TOO LATE" in rows["deadline"]
    assert rows["proposal"].endswith("(horizon): open")


def test_run_without_deadline_tells_of_none():
    terms = Scroll().memory.policy.terms.model_copy(update={"deadline_wall_ms": None})
    rows = rows_of(Scroll(terms=terms).launch(0, 1), last=60)
    assert not {"deadline", "revision", "proposal", "unshortened"} & set(rows)
    assert rows["learning rate"].startswith("ended at - of its peak; 60 steps")
