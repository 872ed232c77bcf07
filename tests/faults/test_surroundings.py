"""Disks, clocks, networks and documents that fail around a gang."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from contract.wire import (
    CHECKPOINTS_DIR,
    ENDPOINT_FILE,
    LEDGER_DIR,
    MANIFEST_FILE,
    QUARANTINED_SUFFIX,
    ControlDocument,
    Endpoint,
    LedgerHead,
    rank_dir,
)
from controller.adapters.checkpoints import CheckpointFiles
from controller.adapters.ledger import Fence
from tests.conformance import harness
from tests.faults.harness import RANKS, Sampler
from tests.waiting import wait_for

pytestmark = pytest.mark.faults

DISK_MB = 24


@dataclass(frozen=True)
class Disk:
    """A place for a run."""

    path: Path
    is_small: bool
    """False where this user may not mount one."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mount a small file system; it outlives the processes of `make`, which is asked for later."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"no small disk: {done.stderr.strip()}; tried on a blocked directory\n")
    yield Disk(path, is_small=not done.returncode)
    if not done.returncode:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> Path:
    """Leave no block free under `path`; return the file that takes them."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return ballast


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Let nobody write in the directory; root ignores modes and mounts, others set modes."""
    path.mkdir()
    if os.geteuid():
        path.chmod(0o555)
        yield
        path.chmod(0o755)
        return
    command = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"no read-only mount: {done.stderr.strip()}; tried the immutable flag\n")
        subprocess.run(["chattr", "+i", str(path)], check=True)
        yield
        subprocess.run(["chattr", "-i", str(path)], check=True)
        return
    yield
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def step_of(world) -> int:
    """Return the step that rank 0 tells: on a full disk its log does not grow."""
    (line,) = [one for one in exposition(world).splitlines() if one.startswith("moe_train_step ")]
    return int(float(line.split()[1]))


def exposition(world) -> str:
    path = world.path / rank_dir(1, 0) / ENDPOINT_FILE
    endpoint = Endpoint.model_validate_json(path.read_bytes())
    return httpx.get(f"http://{endpoint.host}:{endpoint.port}/metrics", timeout=5).text


def test_full_disk_degrades_the_status_and_nothing_else(disk, make):
    world = make(total_steps=300, place=disk.path)
    controller = world.control()
    world.await_verified(10)
    records = len(world.records())
    restore = fill(disk.path).unlink if disk.is_small else block(world)
    kept = [step for step in world.run.checkpoint_steps() if world.run.mark(step).exists()]
    assert world.await_note("storage")
    reached = step_of(world)
    wait_for(lambda: step_of(world) > reached + 3, 20, "training to go on")
    assert len(world.records()) > records, "the ledger takes records on a full disk"
    assert world.live_attempts() == [1]
    fence = Fence(world.path / LEDGER_DIR, 99)
    store = CheckpointFiles(world.path, run_uid=harness.RUN_UID, fence=fence)
    if disk.is_small:
        assert store.damage_of("main", kept[-1]) == []
    restore()
    assert controller.wait(60) == "completed"
    assert world.attempts() == [1]
    assert store.damage_of("main", 300) == []
    world.check_ledger()


def block(world):
    """Put a file where the checkpoint directory is; root ignores modes. Returns the undoing."""
    root = world.path / CHECKPOINTS_DIR
    aside = root.with_name("aside")
    root.rename(aside)
    root.touch()

    def undo() -> None:
        root.unlink()
        aside.rename(root)

    return undo


def test_checkpoint_directory_that_takes_no_file_is_found_before_the_launch(make):
    world = make()
    with read_only(world.path / CHECKPOINTS_DIR):
        assert world.control().wait() == "halted"
    assert world.attempts() == []
    assert "checkpoint" in world.memory().halted
    world.check_ledger()


def test_checkpoint_directory_that_stops_taking_files_degrades_the_status_only(make):
    world = make(total_steps=200)
    controller = world.control()
    world.await_verified(10)
    undo = block(world)
    world.await_note("storage")
    reached = world.run.steps(1)[-1].step
    world.await_step(1, reached + 3)
    assert world.live_attempts() == [1]
    undo()
    assert controller.wait() == "completed"
    assert world.attempts() == [1]
    assert world.run.mark(200).exists()


def deafen(world, attempt: int) -> None:
    """Let the endpoints of all ranks point to a port where nobody answers."""
    for rank in range(RANKS):
        path = world.path / rank_dir(attempt, rank) / ENDPOINT_FILE
        wait_for(path.exists, 40, "an endpoint")
        draft = path.with_name("draft")
        draft.write_text(Endpoint(host="127.0.0.1", port=1).model_dump_json())
        draft.replace(path)


def test_unreachable_telemetry_destroys_nothing_and_hinders_nothing(make):
    world = make(total_steps=400)
    controller = world.control()
    world.await_verified(10)
    with Sampler(world):
        deafen(world, 1)
        world.await_note("telemetry")
        reached = world.run.steps(1)[-1].step
        world.await_step(1, reached + 20)
        assert list(world.actions("kill_ranks")) == []
        assert list(world.actions("close_attempt")) == []
        world.kill(1, 1)
        world.await_step(2, reached)
        deafen(world, 2)
        world.ask("stop", "stop-1")
        assert controller.wait() == "stopped"
    assert world.attempts() == [1, 2]
    memory = world.memory()
    assert [incident.root_rank for incident in memory.incidents] == [1]
    assert memory.planned_ends == 1
    world.check_ledger()


def test_jump_of_the_wall_clock_is_named_and_ends_nothing(make):
    world = make(total_steps=150)
    controller = world.control()
    world.await_step(1, 5)
    world.jump_clock(3_600_000)
    assert "3600" in world.await_note("clock")
    world.jump_clock(-3_600_000)
    assert controller.wait() == "completed"
    assert world.attempts() == [1]
    assert world.memory().incidents == []
    world.check_ledger()


def refusal(world) -> str:
    """Return why rank 0 refuses the control document, empty if it does not."""
    lines = exposition(world).splitlines()
    refused = [line for line in lines if "control_refused{" in line]
    raised = [line.partition('"')[2].partition('"')[0] for line in refused if line.endswith(" 1.0")]
    return raised[0] if raised else ""


def changed_past(world) -> bytes:
    """Publish a plan with another past, and return a control document that points to it."""
    plan = world.run.plan
    peaks = plan.peaks | {"learning_rate": {"matrix": "0.5", "other": "0.5"}}
    child = plan.model_copy(
        update={"parent": plan.sha, "kind": "horizon", "effective": 290, "peaks": peaks}
    )
    world.run.publish(child)
    return (
        ControlDocument(
            run_uid=harness.RUN_UID,
            epoch=1,
            seq=10_000,
            plan_sha=child.sha,
            drain=None,
            ledger_head=LedgerHead(seq=1, hash="0" * 64),
        )
        .model_dump_json()
        .encode()
    )


@pytest.mark.parametrize(
    ("kind", "reason"), [("garbage", "unreadable"), ("changed past", "plan_past")]
)
def test_false_pointer_is_refused_by_the_trainer_and_repaired_by_the_controller(make, kind, reason):
    world = make(total_steps=300)
    controller = world.control()
    world.await_step(1, 5)
    # Stopped, so that the trainer sees it before it is repaired.
    os.kill(controller.process.pid, 19)
    world.run.write_control(b"garbage" if kind == "garbage" else changed_past(world))
    wait_for(lambda: refusal(world) == reason, 20, f"the refusal {reason}; {world.words()}")
    reached = world.run.steps(1)[-1].step
    world.await_step(1, reached + 2)
    os.kill(controller.process.pid, 18)
    assert world.await_note("control")
    wait_for(lambda: refusal(world) == "", 20, "the refusal to end")
    assert controller.wait() == "completed"
    assert world.attempts() == [1]
    assert {record.plan_sha for record in world.run.steps(1)} == {world.run.plan.sha}
    world.check_ledger()


def test_damaged_newest_checkpoint_is_set_aside_and_the_older_one_used(make):
    world = make(total_steps=80, save_every=20)
    controller = world.control()
    world.await_verified(40)
    (world.run.checkpoint(40) / MANIFEST_FILE).unlink()
    world.kill(1, 0, 1)
    assert controller.wait() == "completed"
    assert world.attempts() == [1, 2]
    assert world.run.steps(2)[0].step == 20
    assert world.check_replay(2) >= 20
    assert list((world.path / CHECKPOINTS_DIR).rglob(f"*{QUARANTINED_SUFFIX}"))
    world.check_ledger()
