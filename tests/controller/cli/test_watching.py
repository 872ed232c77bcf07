"""What whoever looks on is told: `ctl status --watch` and the view of a launch say the same."""

import json
from pathlib import Path

import pytest

from controller.cli import attaching, looking, replanning
from controller.cli.codes import Code
from controller.cli.peek import Controller, View, look
from controller.cli.watching import conclude, list_news
from controller.cli.wording import describe
from controller.core.telling.status import build_status
from controller.core.telling.summary import make_summary
from tests.chronicles import a_shortened_run, told
from tests.plan_runs import a_dated_run, a_late_run


@pytest.fixture
def rest(tmp_path, monkeypatch):
    """Makes the directory of a run whose status and summary are these; nobody steers it."""
    monkeypatch.setenv("TZ", "UTC")

    def make(run, summary=None, **changes):
        directory = tmp_path / "sim"
        directory.mkdir()
        (directory / "identity.json").write_text("{}")
        status = build_status(run.memory, run.snapshot()) | changes
        (directory / "status.json").write_text(json.dumps(status))
        if summary is not None:
            (directory / "summary.json").write_text(json.dumps(summary))
        return directory

    return make


def a_summary(**changes):
    summary = make_summary(told(a_shortened_run()).evidence)
    return json.loads(json.dumps(summary)) | changes


LATE = {
    "on_time": False,
    "deadline": "2023-11-14T22:20:00.000Z",
    "finished_at": "2023-11-14T22:21:02.500Z",
}


def a_view(run):
    status = json.loads(json.dumps(build_status(run.memory, run.snapshot())))
    return View("sim", Path("sim"), status, Controller(True, 7, 1), 0.0)


def news_of(run):
    return "\n".join(text for _, text in list_news(a_view(run)))


def test_news_hold_evaluations_proposals_and_what_became_of_them():
    run = a_late_run()
    proposal = run.memory.proposal.id
    told_so_far = news_of(run)
    assert "evaluated at step 105: P(on time) 6.9%, late 3 in a row (3 call for" in told_so_far
    assert f"proposal {proposal} by controller: end after" in told_so_far
    assert f"Next: ctl replan sim --approve {proposal}" in told_so_far
    assert told_so_far.count("evaluated at") == told_so_far.count(proposal + " by") == 1
    assert f"proposal {proposal}:" not in told_so_far  # the decision says no more
    run.asked("reject", proposal=proposal)
    run.settle()
    assert f"proposal {proposal} is rejected: me rejected it" in news_of(run)
    revised = a_late_run(mode="auto")
    revised.training(100).adopting().settle()
    assert f"adopted {revised.memory.plan.sha[:12]} (horizon) from step" in news_of(revised)
    assert "approved by controller (mode auto)" in news_of(revised)


def test_evaluation_is_told_once_though_its_row_is_counted_anew():
    run = a_late_run()
    before = next(iter(list_news(a_view(run))))
    run.memory = run.memory.model_copy(update={"late": 0})
    after = next(iter(list_news(a_view(run))))
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)


def test_status_watch_ends_with_what_the_view_of_a_launch_ends_with(rest, capsys):
    directory = rest(a_late_run(), a_summary(**LATE), state="completed")
    assert attaching.attach(directory) == Code.DONE
    attached = capsys.readouterr()
    assert looking.show_status(directory.parent, "sim", watch=True, form="table") == Code.DONE
    assert capsys.readouterr() == attached
    assert "sim is finished: TOO LATE: finished" in attached.err
    for words in ("--approve", "evaluated at step", "learning rate"):
        assert words in attached.out, words


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (LATE, Code.DIFFERS, "TOO LATE: finished 2023-11-14 22:21:02 UTC, 1 min 2 s after"),
        (LATE | {"on_time": True, "finished_at": "2023-11-14T22:19:30Z"}, Code.DONE,
         "on time: finished 2023-11-14 22:19:30 UTC, 30.0 s before the deadline 2023-11-14 22:20"),
        ({"deadline": None, "on_time": None}, Code.DONE, ""),
    ],
)  # fmt: skip
def test_completed_run_tells_whether_it_was_on_time(rest, capsys, changes, code, words):
    run = a_dated_run().training(100)
    run.memory = run.memory.model_copy(update={"rest": "completed"})
    directory = rest(run, a_summary(**changes))
    view = look(directory)
    assert replanning.code_of(view, run.memory) == code
    report = replanning.describe_report(replanning.make_report(view, run.memory))
    for text in (describe(view), report):
        assert words in text
        assert ("\nfinish " in text) == bool(words)
        assert "none" not in text.replace("none: the run is at rest", "")
    conclude(directory)
    assert f"sim is finished{': ' if words else ''}{words}" in capsys.readouterr().err
