"""Commands that find a run in another state than they were made for say so, and what to type."""

import fcntl
import json
import os

import pytest

from contract import wire
from controller.cli import deps, verbs
from controller.cli.codes import Code
from tests.builders import a_run
from tests.run_files import GOOD, TEXT

DRILL = "- {atStep: 5, kind: corrupt}"


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_drills_of_a_launch_that_starts_nothing_are_said_not_to_be_armed(
    launched, hold_lock, folder, run_ctl
):
    hold_lock(launched)
    (folder / "drill.yaml").write_text(DRILL)
    code, _, err = run_ctl("ctl launch run.yaml --detach --drill drill.yaml")
    assert code == Code.DONE
    assert "are not armed" in err
    assert "ctl drill probe --file drill.yaml" in err


def test_interrupt_while_preparing_is_told(folder, run_ctl, monkeypatch):
    monkeypatch.setattr(deps, "create_run", interrupt)
    code, _, err = run_ctl("ctl launch run.yaml")
    assert code == Code.INTERRUPTED
    assert "interrupted; the run probe was not launched" in err


def test_interrupt_while_watching_is_told(launched, hold_lock, run_ctl, monkeypatch):
    hold_lock(launched)
    monkeypatch.setattr("controller.cli.looking.time.sleep", interrupt)
    code, _, err = run_ctl("ctl status probe --watch")
    assert code == Code.INTERRUPTED
    assert "interrupted; the run probe is not touched" in err


def test_interrupt_while_waiting_for_a_wish_says_that_the_wish_stays(folder, run_ctl, monkeypatch):
    monkeypatch.setattr(verbs, "ask", interrupt)
    code, _, err = run_ctl("ctl stop probe")
    assert code == Code.INTERRUPTED
    assert "stays asked" in err


# --- drills that hit nothing ---


@pytest.fixture
def live_rank(launched):
    """Make rank 1 of attempt 1 live."""
    for rank in (0, 1):
        (launched / wire.rank_dir(1, rank)).mkdir(parents=True)
    descriptor = os.open(
        launched / wire.rank_dir(1, 1) / wire.RANK_LOCK_FILE, os.O_RDWR | os.O_CREAT
    )
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield 1
    os.close(descriptor)


def test_drill_on_a_rank_that_does_not_live_names_those_that_do(live_rank, run_ctl):
    code, _, err = run_ctl("ctl drill probe freeze 7")
    assert code == Code.BAD_INPUT
    assert f"RANK is 7; ranks that live: {live_rank}. Next: ctl drill probe freeze 1" in err


@pytest.mark.parametrize(
    ("state", "words"),
    [("suspended", "Next: ctl resume probe"), ("completed", "Next: ctl log probe")],
)
def test_drill_on_a_run_at_rest_says_so(launched, run_ctl, state, words):
    (launched / wire.STATUS_FILE).write_text(f'{{"state": "{state}", "reason": ""}}')
    code, _, err = run_ctl("ctl drill probe kill 0")
    assert code == Code.BAD_INPUT
    assert f"run probe is {state}: no rank lives" in err
    assert words in err


def test_changed_evaluation_must_fit_the_text_of_the_launch(launched, folder, run_ctl):
    (folder / "text.txt").write_text(TEXT * 60_000)  # longer by now: not what the run has
    path = folder / "run.yaml"
    path.write_text(path.read_text().replace("finalSequences: 4", "finalSequences: 4_000"))
    code, _, err = run_ctl("ctl launch run.yaml --detach")
    assert code == Code.BAD_INPUT
    assert "the last evaluation needs" in err
    assert (launched / wire.RUN_FILE).read_text() != path.read_text()


# --- a deadline that is moved, or confirmed, while a controller steers ---

DATED = "  deadline: {{at: {at}}}\n  contingency: {{mode: propose, maxEpochs: 100}}\n  faults:"


@pytest.fixture
def heard(launched, monkeypatch):
    """Let a controller hear every wish at once; return the wishes."""
    wishes = []
    memory = a_run().memory

    def drop(_, intent):
        wishes.append(intent)

    def read(_):
        return memory.model_copy(update={"known_nonces": [it.nonce for it in wishes]})

    monkeypatch.setattr(deps, "drop_intent", drop)
    monkeypatch.setattr(deps, "read_memory", read)
    return wishes


def date(folder, at):
    """Write the run file with that deadline."""
    (folder / "run.yaml").write_text(GOOD.replace("  faults:", DATED.format(at=at)))


def test_deadline_of_a_steered_run_is_taken_up_live(launched, heard, hold_lock, folder, run_ctl):
    hold_lock(launched)
    date(folder, "2099-01-01T00:00:00Z")
    code, _, err = run_ctl("ctl launch run.yaml --detach --dry-run")
    assert (code, heard) == (Code.DONE, []), err
    code, _, err = run_ctl("ctl launch run.yaml --detach")
    assert code == Code.DONE, err
    assert "amended: " in err
    (wish,) = heard
    assert (wish.verb, wish.terms.mode) == ("amend", "propose")
    assert wish.terms.deadline_wall_ms == 4_070_908_800_000
    assert (launched / wire.RUN_FILE).read_text() == (folder / "run.yaml").read_text()
    date(folder, "2001-01-01T00:00:00Z")
    code, _, err = run_ctl("ctl launch run.yaml --detach")
    assert (code, "must lie in the future" in err, len(heard)) == (Code.BAD_INPUT, True, 1)


def test_deadline_beside_another_change_waits_for_a_suspension(
    launched, heard, hold_lock, folder, run_ctl
):
    hold_lock(launched)
    date(folder, "2099-01-01T00:00:00Z")
    path = folder / "run.yaml"
    path.write_text(path.read_text().replace("keep: 3", "keep: 4"))
    code, _, err = run_ctl("ctl launch run.yaml --detach")
    assert (code, heard) == (Code.DIFFERS, [])
    assert "ctl suspend probe" in err


def test_same_deadline_again_confirms_a_clock_that_jumped(
    launched, heard, hold_lock, folder, run_ctl
):
    hold_lock(launched)
    status = {"state": "training", "reason": "", "notes": []}
    (launched / wire.STATUS_FILE).write_text(json.dumps(status))
    run_ctl("ctl launch run.yaml --detach")
    assert heard == []
    note = {"subject": "clock", "text": "the wall clock jumped", "at": 1}
    (launched / wire.STATUS_FILE).write_text(json.dumps(status | {"notes": [note]}))
    run_ctl("ctl launch run.yaml --detach")
    assert [it.verb for it in heard] == ["amend"]


# --- a run that nobody steers ---


def test_resume_that_detaches_starts_a_controller_and_waits_for_nothing(
    launched, run_ctl, monkeypatch
):
    started = []
    monkeypatch.setattr(deps, "start_controller", started.append)
    monkeypatch.setattr(deps, "read_memory", lambda _: None)  # nothing was decided yet
    code, _, err = run_ctl("ctl resume probe --detach")
    assert (code, [path.name for path in started]) == (Code.DONE, ["probe"])
    assert "Next: ctl status probe --watch" in err
