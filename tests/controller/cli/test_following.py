"""`ctl log --follow` tells each record as it comes, and knows when none comes any more."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contract import wire
from controller.cli import following
from controller.cli.codes import Code
from controller.cli.peek import Controller, View
from tests.builders import a_run
from tests.recorded import make_run, write_records
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
NOBODY = Controller(is_alive=False, pid=None, epoch=None)
SOMEBODY = Controller(is_alive=True, pid=7, epoch=1)


@pytest.fixture
def story(tmp_path, monkeypatch):
    """The directory of a run without records, and the records of its launch."""
    monkeypatch.chdir(tmp_path)
    return make_run(tmp_path), a_run().launched().book.records


@pytest.fixture
def play(monkeypatch):
    """Makes each look at a run at rest do the next step; its controller ends with the last one."""

    def start(directory, steps, ending):
        left = list(steps)

        def look(_):
            step = left.pop(0) if left else None
            if step is not None:
                step()
            controller = SOMEBODY if left else NOBODY
            return View("probe", directory, {"state": ending}, controller, 0.0)

        monkeypatch.setattr(following, "look", look)
        monkeypatch.setattr(following, "POLL_S", 0)

    return start


def numbers(out):
    return [json.loads(line)["seq"] for line in out.splitlines()]


def test_records_are_told_as_they_come_over_segments_until_the_run_rests(story, play, run_ctl):
    directory, records = story
    steps = [lambda it=it: write_records(directory, it) for it in (records[:3], records[3:])]
    play(directory, steps, "completed")
    code, out, err = run_ctl("ctl log probe --follow -o jsonl")
    assert (code, numbers(out)) == (Code.DONE, [1, 2, 3, 4, 5, 6])
    assert err == "probe is completed and nobody steers it: no more records come\n"


def test_choice_holds_for_what_comes_and_last_for_what_is_there(story, play, run_ctl):
    directory, records = story
    write_records(directory, records[:3])
    steps = [lambda: None, lambda: write_records(directory, records[3:])]
    play(directory, steps, "stopped")
    code, out, _ = run_ctl("ctl log probe --follow --last 1 --kind decision,outcome -o jsonl")
    assert (code, numbers(out)) == (Code.DONE, [3, 4, 5, 6])


def test_run_that_nobody_steers_is_said_to_be_so_once(story, play, monkeypatch, run_ctl):
    directory, records = story
    write_records(directory, records)
    ends = [SOMEBODY, NOBODY, NOBODY]

    def look(_):
        state = "training" if ends else "halted"
        return View("probe", directory, {"state": state}, ends.pop(0) if ends else NOBODY, 0.0)

    monkeypatch.setattr(following, "look", look)
    monkeypatch.setattr(following, "POLL_S", 0)
    code, _, err = run_ctl("ctl log probe -f")
    assert code == Code.DONE
    assert err.count("nobody steers probe now; its next controller writes on") == 1
    assert err.endswith("probe is halted and nobody steers it: no more records come\n")


def test_damage_ends_it(story, play, run_ctl):
    directory, records = story

    def write_and_damage():
        write_records(directory, records)
        (segment,) = (directory / wire.LEDGER_DIR).glob("*.jsonl")
        segment.write_bytes(segment.read_bytes().replace(b'"seq":2', b'"seq":9'))

    play(directory, [lambda: None, write_and_damage], "completed")
    code, out, err = run_ctl("ctl log probe -f -o jsonl")
    assert (code, numbers(out)) == (Code.FAILED, [1])
    assert "record 2 of epoch 1 was changed" in err
    assert "Next: ctl log probe --verify" in err


@pytest.fixture
def follower(story):
    """A `ctl log --follow` in a process of its own, with its data in a pipe."""
    directory, records = story
    write_records(directory, records)
    (directory / "status.json").write_text('{"state": "training"}')
    child = subprocess.Popen(
        [sys.executable, "-m", "controller.cli.main", "log", "probe", "-f", "-o", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    yield child
    child.kill()
    child.wait()
    child.stdout.close()
    child.stderr.close()


def test_ctrl_c_is_a_good_end_and_lines_are_flushed(follower):
    lines = [follower.stdout.readline() for _ in range(6)]
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3, 4, 5, 6]
    follower.send_signal(signal.SIGINT)
    wait_for(lambda: follower.poll() is not None, 30, "the end of ctl log --follow")
    assert follower.returncode == Code.DONE
    assert b"Traceback" not in follower.stderr.read()


def test_reader_that_leaves_ends_it_quietly(follower):
    for _ in range(6):
        follower.stdout.readline()
    follower.stdout.close()
    wait_for(lambda: follower.poll() is not None, 30, "the end of ctl log --follow")
    assert b"Traceback" not in follower.stderr.read()
