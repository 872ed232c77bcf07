"""What may lie in a run directory, and where one may lie: words and an exit code, or right work."""

import contextlib
import json
import os
import shutil
import socket
import sys

import pytest

from contract import wire
from controller.adapters import rundir
from controller.adapters.checkpoints import CheckpointFiles
from controller.adapters.intents import IntentFiles
from controller.adapters.ledger import Fence
from controller.adapters.local import GangOrder, LocalFleet
from controller.adapters.publisher import FilePublisher, StatusFile
from controller.adapters.records import StepTail
from controller.adapters.scrape import ScrapedTelemetry
from controller.adapters.steplog import StepLogs
from controller.cli.codes import Code
from controller.core.readings import Instant
from controller.core.snapshot import GangView, RankView
from controller.ports import PortError
from tests.hostile.places import another_file_system, as_nobody, fill, mounted, read_only

pytestmark = pytest.mark.timeout(60)

PLACES = (
    "identity.json", "launch.json", "run.yaml", "status.json", "summary.json", "control.json",
    "controller.lock", "controller.log", "ledger", "ledger/head", "ledger/00000001.jsonl",
    "attempts", "attempts/1", "attempts/1/rank-0", "attempts/1/rank-0/lock",
    "attempts/1/rank-0/claim.json", "attempts/1/rank-0/exit.json", "attempts/1/steps.jsonl",
    "checkpoints", "checkpoints/main", "checkpoints/main/10", "checkpoints/main/10/manifest.json",
    "intents", "intents/a.json", "plans", "data/code/train.txt",
)  # fmt: skip
NOW = Instant(wall_ms=1, mono_ms=1, boot_id="b")
LOOKERS = ("status probe", "doctor", "log probe --verify")
READERS = ("status", "log probe", "replan probe", *LOOKERS)
ASKERS = ("stop probe --no-wait", "drill probe corrupt", "resume probe --from 10")


def bind_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)
        server.bind(path.name)


KINDS = {
    "directory": lambda path: path.mkdir(),
    "empty file": lambda path: path.touch(),
    "garbage": lambda path: path.write_bytes(b"\xff\x00{["),
    "a list": lambda path: path.write_text("[1, 2]"),
    "nesting": lambda path: path.write_text("[" * 100_000),
    "link in a circle": lambda path: path.symlink_to(path),
    "link to nowhere": lambda path: path.symlink_to("nowhere/at/all"),
    "link to the root": lambda path: path.symlink_to("/"),
    "pipe": os.mkfifo,
    "socket": bind_socket,
    "nothing": lambda path: None,
}


def put(path, kind):
    """Put something else where `path` is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    KINDS[kind](path)


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_lies_in_a_run_directory_is_told_in_words(kind, launched, template, run_ctl):
    for place in PLACES:
        kept = launched / place
        aside = launched.parent.parent / "aside"
        if kept.exists():
            kept.rename(aside)
        put(kept, kind)
        os.chdir(launched.parent.parent)
        for command in READERS if kind == "directory" else LOOKERS:
            code, out, err = run_ctl(f"ctl {command}")
            where = (place, kind, command, code, out[-300:], err[-300:])
            assert code in set(Code), where
            assert "Traceback" not in out + err, where
            assert code == Code.DONE or out + err, where
        put(kept, "nothing")
        if aside.exists():
            aside.rename(kept)


def ports_of(directory):
    """Return every read of the run's ports, by name."""
    fence = Fence(directory / wire.LEDGER_DIR, epoch=1)
    order = GangOrder("uid", 2, (sys.executable, "-c", "pass"), b"{}")
    view = RankView(rank=0, claimed=True, alive=True, stopped=False, has_stacks=False, end=None)
    gang = GangView(attempt=1, closed=False, ranks=[view], remains=[])
    telemetry = ScrapedTelemetry(directory, run_uid="uid")
    store = CheckpointFiles(directory, run_uid="uid", fence=fence)
    return {
        "fleet": LocalFleet(directory, order, fence=fence).observe,
        "telemetry": lambda: (telemetry.read(gang), telemetry.close()),
        "progress": lambda: StepLogs(directory).read(gang, "main", NOW),
        "tail": lambda: StepTail(directory, keep=5).read(1),
        "checkpoints": store.observe,
        "anchors": store.anchors,
        "probe": store.probe,
        "control": FilePublisher(directory, fence=fence).read_control,
        "intents": lambda: IntentFiles(directory).read(()),
        "status": lambda: StatusFile(directory).write({"a": "b"}),
        "load": lambda: rundir.load_run(directory),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_lies_in_a_run_directory_is_a_value_or_a_port_s_error(kind, launched):
    for place in PLACES:
        kept = launched / place
        aside = launched.parent.parent / "aside"
        if kept.exists():
            kept.rename(aside)
        put(kept, kind)
        os.chdir(launched.parent.parent)
        for read in ports_of(launched).values():
            # Any other error would end the controller.
            with contextlib.suppress(PortError):
                read()
        put(kept, "nothing")
        if aside.exists():
            aside.rename(kept)


def test_directory_that_is_gone_is_an_error_and_is_not_made_again(launched):
    reads = ports_of(launched)
    shutil.rmtree(launched)
    fails = {"probe", "status", "load"}
    for name, read in reads.items():
        try:
            value = read()
        except PortError:
            fails.discard(name)
        else:
            if name == "probe":
                assert "cannot write" in value.problem
                fails.discard(name)
    assert fails == set()
    assert not launched.exists()


def test_names_that_are_no_text_and_names_at_the_limit_are_nobody_s(launched, run_ctl):
    odd = [b"\xff\xfe", b"x" * 255, "ünïcödé".encode(), b"a\nb", b" "]
    for parent in ("", "checkpoints", "attempts", "intents", "ledger", "checkpoints/main", "plans"):
        for name in odd:
            (launched / parent / os.fsdecode(name) / "10").mkdir(parents=True)
    (launched.parent / os.fsdecode(b"\xff\xfe")).mkdir()
    (launched.parent / os.fsdecode(b"\xff\xfe") / "identity.json").write_text("{}")
    for name, read in ports_of(launched).items():
        value = read()
        if name == "checkpoints":
            assert {view.line for view in value.checkpoints} == {"main"}
    for command in READERS:
        code, out, err = run_ctl(f"ctl {command}")
        assert code in set(Code)
        assert "Traceback" not in out + err
    json.loads(run_ctl("ctl status -o json")[1])


def test_thousands_of_stray_files_are_passed_over(launched, run_ctl):
    for parent in ("", "checkpoints/main", "attempts", "attempts/1", "intents", "plans"):
        for number in range(300):
            (launched / parent / f"stray {number}").touch()
    reads = ports_of(launched)
    assert [view.step for view in reads["checkpoints"]().checkpoints] == [10]
    assert reads["fleet"]().attempt == 1
    assert reads["intents"]() == []
    assert run_ctl("ctl status probe")[0] == Code.BLIND


# --- where a run may lie ---


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.touch(), "File exists"),
        (lambda path: path.symlink_to("nowhere/at/all"), "File exists"),
        (lambda path: path.symlink_to(path), "File exists"),
        (os.mkfifo, "File exists"),
    ],
    ids=["file", "link to nowhere", "link in a circle", "pipe"],
)
def test_runs_that_are_no_directory_are_named_and_nothing_is_made(folder, run_ctl, make, words):
    make(folder / "runs")
    before = sorted(folder.rglob("*"))
    code, out, err = run_ctl("ctl launch run.yaml --detach")
    assert (code, out) == (Code.FAILED, "")
    assert words in err, err
    assert "runs" in err
    assert "Next: ctl doctor" in err
    assert sorted(folder.rglob("*")) == before
    code, out, _ = run_ctl("ctl doctor")
    assert code == Code.FAILED
    assert "LACKS  disk" in out
    assert "runs is no directory" in out
    assert run_ctl("ctl status")[0] == Code.DONE


def test_full_disk_leaves_nothing_of_a_launch(folder, run_ctl):
    with mounted(folder / "runs", "size=256k") as is_small:
        if is_small:
            fill(folder / "runs")
        else:
            (folder / "runs").chmod(0o555)
        code, out, err = run_ctl("ctl launch run.yaml --detach")
        assert (code, out) == (Code.FAILED, "")
        assert "No space left on device ENOSPC" in err if is_small else "EACCES" in err
        assert "Next: ctl doctor" in err
        assert [path.name for path in (folder / "runs").iterdir() if path.name != "ballast"] == []
        code, out, _ = run_ctl("ctl doctor")
        assert code == Code.FAILED
        assert "LACKS  disk" in out


def test_read_only_disk_is_named_by_every_verb_that_writes(launched, folder, run_ctl):
    with read_only(folder / "runs"):
        for command in ("launch other.yaml --detach", *ASKERS, "resume probe", "report probe"):
            text = (folder / "run.yaml").read_text().replace("name: probe", "name: other")
            (folder / "other.yaml").write_text(text)
            code, out, err = run_ctl(f"ctl {command}")
            assert code in (Code.FAILED, Code.BAD_INPUT), (command, out, err)
            assert "Traceback" not in err
            assert "Next:" in err, (command, err)
        for command in ("status probe", "log probe", "replan probe"):
            assert "Traceback" not in "".join(run_ctl(f"ctl {command}")[1:])
        code, out, _ = run_ctl("ctl doctor")
        assert code == Code.FAILED
        assert "not writable" in out
    assert {path.name for path in (folder / "runs").iterdir()} == {"probe"}


def test_run_on_another_file_system_is_made_and_read(folder, run_ctl):
    with another_file_system(folder / "elsewhere") as place:
        (folder / "runs").symlink_to(place)
        given = rundir.read_given(folder / "run.yaml")
        run = rundir.create_run(given, folder / "runs", "uid", 1.5)
        assert rundir.load_run(folder / "runs" / "probe").identity == run.identity
        rundir.accept_run_file(run, given)
        for read in ports_of(run.directory).values():
            read()
        assert {path.name for path in place.iterdir()} == {"probe"}


def test_checkpoints_on_another_file_system_are_probed_and_marked_there(launched, folder):
    with another_file_system(folder / "elsewhere") as place:
        shutil.copytree(launched / "checkpoints", place, dirs_exist_ok=True)
        shutil.rmtree(launched / "checkpoints")
        (launched / "checkpoints").symlink_to(place)
        fence = Fence(launched / wire.LEDGER_DIR, epoch=1)
        store = CheckpointFiles(launched, run_uid="uid", fence=fence)
        assert store.probe().problem is None
        store.quarantine("main", 10, "a bit differs", attempt=1)
        (view,) = store.observe().checkpoints
        assert view.quarantined == "a bit differs"
        assert (place / "main" / f"10{wire.QUARANTINED_SUFFIX}").exists()


def test_linked_run_directory_is_the_run_and_a_copied_one_is_not(launched, folder, run_ctl):
    moved = folder / "disk" / "probe"
    moved.parent.mkdir()
    launched.rename(moved)
    launched.symlink_to(moved)
    assert rundir.load_run(launched).identity.run_uid == "uid"
    launched.unlink()
    shutil.copytree(moved, launched)
    code, _, err = run_ctl("ctl stop probe")
    assert code == Code.BAD_INPUT
    assert "is a copy of run probe" in err
    assert "--adopt-copy" in err


def test_mask_that_forbids_or_allows_all_makes_a_run_all_the_same(folder):
    given = rundir.read_given(folder / "run.yaml")
    for mask in (0o077, 0o000):
        os.umask(mask)
        run = rundir.create_run(given, folder / f"runs-{mask}", "uid", 1.5)
        assert rundir.load_run(run.directory).identity.run_uid == "uid"
        assert run.directory.stat().st_mode & 0o700 == 0o700
        assert run.directory.stat().st_mode & 0o077 & mask == 0


CLOSED = (
    ".", "identity.json", "launch.json", "run.yaml", "status.json", "summary.json", "ledger",
    "ledger/head", "ledger/00000001.jsonl", "controller.lock", "attempts", "attempts/1",
    "attempts/1/rank-0/lock", "checkpoints", "checkpoints/main", "intents", "plans",
)  # fmt: skip


def test_files_of_another_user_are_named_and_nothing_is_written(launched, folder, run_ctl):
    folder.chmod(0o755)
    (launched / "controller.lock").touch()
    (launched / "summary.json").write_text("{}")
    for command in (*READERS, "drill probe corrupt", "launch nosuch.yaml"):
        run_ctl(f"ctl {command}")  # all is imported, while it can be
    os.chdir(folder)
    for place in CLOSED:
        kept = launched / place
        mode = kept.stat().st_mode
        kept.chmod(0)
        try:
            with as_nobody():
                for command in (*READERS, "drill probe corrupt", "launch run.yaml --detach"):
                    code, out, err = run_ctl(f"ctl {command}")
                    where = (place, command, code, out[-400:], err[-400:])
                    assert code in set(Code), where
                    assert "Traceback" not in out + err, where
                    assert code == Code.DONE or out + err, where
                _, out, err = run_ctl("ctl log probe --verify")
        finally:
            kept.chmod(mode)
        if place in ("launch.json", "run.yaml", "ledger", "ledger/00000001.jsonl"):
            assert "Permission denied" in err, (place, out, err)
            assert "Next:" in err


def test_run_of_another_user_is_read_and_not_steered(launched, folder, run_ctl):
    folder.chmod(0o755)
    for path in (folder / "runs", *(folder / "runs").rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for command in READERS:
        run_ctl(f"ctl {command}")
    os.chdir(folder)
    before = sorted(launched.rglob("*"))
    with as_nobody():
        assert run_ctl("ctl status probe")[0] == Code.BLIND
        assert run_ctl("ctl log probe")[0] == Code.DONE
        for command in ("stop probe --no-wait", "resume probe", "report probe"):
            code, _, err = run_ctl(f"ctl {command}")
            assert code == Code.FAILED, (command, err)
            assert "Permission denied" in err, (command, err)
            assert "Next:" in err, (command, err)
    assert sorted(launched.rglob("*")) == before
