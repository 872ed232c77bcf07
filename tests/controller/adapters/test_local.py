"""What only the local fleet has: files, ports, identities, holders of locks."""

import os
import socket
import sys

import pytest

from contract import wire
from controller.adapters import local
from controller.adapters.local import GangOrder, LocalFleet
from controller.adapters.system import Processes
from controller.ports import Unavailable
from tests.suites.stages import RANKS, RUN_UID, RealFleetStage, an_order
from tests.waiting import wait_for

SHOW = "import os; print({k: v for k, v in os.environ.items() if k.startswith('STEERSMAN_')})"
IMPORT = "import contract, os; print(os.getcwd())"
ORPHAN = """
import os, signal, subprocess, sys
lock = next(fd for fd in os.listdir('/proc/self/fd') if os.path.realpath(f'/proc/self/fd/{fd}').endswith('/lock'))
subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], pass_fds=[int(lock)])
print('left', flush=True)
os._exit(3)
"""  # noqa: E501  # a program on its own


@pytest.fixture
def stage(tmp_path):
    built = RealFleetStage(tmp_path)
    yield built
    built.close()


def with_command(stage, *command: str, environment: dict[str, str] | None = None) -> None:
    """Let the stage's ranks run another program."""
    order = GangOrder(RUN_UID, RANKS, command, b"{}", environment or {})
    stage.fleet = LocalFleet(stage.run_dir, order, fence=stage.fleet._fence)


def launched(stage):
    stage.fleet.launch(an_order(1), epoch=stage.epoch)
    return stage.await_gang(lambda gang: all(view.claimed for view in gang.ranks))


def over(stage):
    return stage.await_gang(
        lambda gang: all(view.claimed and not view.alive for view in gang.ranks)
    )


def stdout(stage, rank: int) -> str:
    path = stage.run_dir / wire.rank_dir(1, rank) / wire.STDOUT_FILE
    # The shim makes it: nothing was said before.
    return path.read_text() if path.exists() else ""


def test_rank_is_told_who_it_is_by_its_environment(stage):
    with_command(stage, sys.executable, "-c", SHOW, environment={"STEERSMAN_EXTRA": "x"})
    launched(stage)
    over(stage)
    order = an_order(1)
    for rank in range(RANKS):
        told = eval(stdout(stage, rank))
        coordinator = told.pop(wire.ENV_COORDINATOR)
        assert coordinator.startswith("127.0.0.1:")
        assert told == {
            wire.ENV_RUN_DIR: str(stage.run_dir),
            wire.ENV_RUN_UID: RUN_UID,
            wire.ENV_EPOCH: "1",
            wire.ENV_ATTEMPT: "1",
            wire.ENV_RANK: str(rank),
            wire.ENV_RANKS: str(RANKS),
            wire.ENV_PLAN_SHA: order.plan_sha,
            wire.ENV_RESTORE: "none",
            wire.ENV_HIGHEST_STEP: "0",
            "STEERSMAN_EXTRA": "x",
        }


def test_rank_finds_the_contract_wherever_it_is_started(stage, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with_command(stage, sys.executable, "-c", IMPORT)
    launched(stage)
    over(stage)
    assert stdout(stage, 0).strip() == str(stage.run_dir)


def test_config_is_written_before_any_rank_starts(stage):
    launched(stage)
    assert (stage.run_dir / wire.attempt_dir(1) / wire.CONFIG_FILE).read_bytes() == b"{}"


def test_repeated_launch_keeps_the_coordinator_and_the_processes(stage):
    launched(stage)
    path = stage.run_dir / wire.attempt_dir(1) / local.COORDINATOR_FILE
    before = (path.read_bytes(), [stage.claim(rank) for rank in range(RANKS)])
    stage.fleet = stage.take_over()
    launched(stage)
    assert (path.read_bytes(), [stage.claim(rank) for rank in range(RANKS)]) == before


def test_coordinator_port_that_is_taken_is_passed_over():
    first = local._free_port(7)
    assert local.FIRST_PORT <= first < local.FIRST_PORT + local.PORTS
    with socket.create_server((local.HOST, first)):
        assert local._free_port(7) != first


def test_launch_in_a_directory_that_takes_no_files_is_unavailable(stage):
    (stage.run_dir / wire.ATTEMPTS_DIR).touch()
    with pytest.raises(Unavailable, match="cannot launch attempt 1"):
        stage.fleet.launch(an_order(1), epoch=stage.epoch)


def test_child_that_a_rank_left_behind_is_found_by_its_lock_and_killed(stage, monkeypatch):
    monkeypatch.setattr(local, "FREED_S", 0.3)
    with_command(stage, sys.executable, "-c", ORPHAN)
    launched(stage)
    wait_for(lambda: "left" in stdout(stage, 0), 20, "the rank to leave a child")
    gang = stage.await_gang(lambda gang: gang.ranks[0].end)
    assert gang.ranks[0].alive
    assert gang.ranks[0].end.code == 3
    stage.fleet.close(1)
    stage.fleet.kill(1, [0, 1])
    over(stage)


def test_stopped_shim_is_killed_with_its_rank(stage, monkeypatch):
    monkeypatch.setattr(local, "FREED_S", 0.3)
    launched(stage)
    shim = stage.claim(0).shim
    os.kill(shim.pid, 19)
    stage.fleet.close(1)
    stage.fleet.kill(1, [0, 1])
    view = over(stage).ranks[0]
    assert view.end is None


def test_later_process_of_the_same_number_is_left_alone(stage):
    launched(stage)
    path = stage.run_dir / wire.rank_dir(1, 0) / wire.CLAIM_FILE
    claim = wire.Claim.model_validate_json(path.read_bytes())
    ours = Processes().identity_of(os.getpid())
    forged = ours.model_copy(update={"start_ticks": ours.start_ticks - 1})
    path.write_text(claim.model_copy(update={"process": forged}).model_dump_json())
    stage.fleet = stage.take_over()
    stage.fleet.close(1)
    stage.fleet.kill(1, [0, 1])  # this very process lives on; the lock tells the true rank
    over(stage)


def test_shims_leave_no_zombies_behind(stage):
    launched(stage)
    shims = [stage.claim(rank).shim for rank in range(RANKS)]
    stage.fleet.close(1)
    stage.fleet.kill(1, [0, 1])
    processes = Processes()

    def are_gone() -> bool:
        stage.fleet.observe()
        return all(processes.state_of(shim) is None for shim in shims)

    wait_for(are_gone, 20, "the shims to be reaped")


def test_stacks_count_only_when_something_was_dumped(stage):
    launched(stage)
    path = stage.run_dir / wire.rank_dir(1, 1) / wire.STACKS_FILE
    path.touch()
    assert not stage.fleet.observe().ranks[1].has_stacks
    path.write_text("Thread 0x1 (most recent call first):")
    assert stage.fleet.observe().ranks[1].has_stacks


def test_attempt_that_cannot_live_again_is_looked_at_no_more(stage, monkeypatch):
    launched(stage)
    for rank in range(RANKS):
        stage.kill_rank(rank)
    over(stage)
    stage.fleet.close(2)
    stage.fleet.observe()
    looked: list[str] = []
    real = local.is_locked

    def look(path):
        looked.append(str(path))
        return real(path)

    monkeypatch.setattr(local, "is_locked", look)
    stage.fleet.observe()
    assert looked
    assert not [path for path in looked if wire.attempt_dir(1) in path]
