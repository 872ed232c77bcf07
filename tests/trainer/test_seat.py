import pytest

from contract.config import Mesh
from contract.wire import (
    CONFIG_FILE,
    ENV_ATTEMPT,
    ENV_COORDINATOR,
    ENV_EPOCH,
    ENV_HIGHEST_STEP,
    ENV_PLAN_SHA,
    ENV_RANK,
    ENV_RANKS,
    ENV_RESTORE,
    ENV_RUN_DIR,
    ENV_RUN_UID,
    Restore,
)
from tests.trainer.builders import UID, a_config, a_seat
from trainer.seat import SeatError, read_config, read_seat


@pytest.fixture
def environment(tmp_path):
    return {
        ENV_RUN_DIR: str(tmp_path),
        ENV_RUN_UID: UID,
        ENV_EPOCH: "2",
        ENV_ATTEMPT: "3",
        ENV_RANK: "1",
        ENV_RANKS: "2",
        ENV_COORDINATOR: "127.0.0.1:5000",
        ENV_PLAN_SHA: "a" * 64,
        ENV_RESTORE: "required",
        ENV_HIGHEST_STEP: "40",
    }


def test_seat_is_what_the_environment_says(environment, tmp_path):
    seat = read_seat(environment)
    assert (seat.rank, seat.ranks, seat.attempt, seat.highest_step) == (1, 2, 3, 40)
    assert seat.restore is Restore.REQUIRED
    assert not seat.is_first
    assert seat.rank_dir == tmp_path / "attempts" / "3" / "rank-1"


@pytest.mark.parametrize("position", range(10))
def test_each_missing_variable_is_named(environment, position):
    name = list(environment)[position]
    del environment[name]
    with pytest.raises(SeatError, match=f"{name} is not set"):
        read_seat(environment)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (ENV_RANK, "2", "must be below"),
        (ENV_RANKS, "-2", "whole number"),
        (ENV_EPOCH, "1.5", "whole number"),
        (ENV_ATTEMPT, "²", "whole number"),
        (ENV_RESTORE, "maybe", "none, required, verified"),
        (ENV_RUN_DIR, "runs/x", "absolute"),
    ],
)
def test_wrong_value_is_named_with_its_bound(environment, name, value, words):
    with pytest.raises(SeatError) as error:
        read_seat({**environment, name: value})
    assert name in str(error.value)
    assert words in str(error.value)


def write_config(seat, data):
    seat.attempt_dir.mkdir(parents=True, exist_ok=True)
    (seat.attempt_dir / CONFIG_FILE).write_bytes(data)


def test_config_is_read_back_whole(tmp_path):
    config, seat = a_config(tmp_path), a_seat(tmp_path)
    write_config(seat, config.encode())
    assert read_config(seat) == config


def test_config_missing_damaged_or_of_another_gang_is_refused(tmp_path):
    config, seat = a_config(tmp_path), a_seat(tmp_path)
    with pytest.raises(SeatError, match="No such file"):
        read_config(seat)
    write_config(seat, config.encode()[:-1])
    with pytest.raises(SeatError, match=CONFIG_FILE):
        read_config(seat)
    write_config(seat, config.model_copy(update={"run_uid": "other"}).encode())
    with pytest.raises(SeatError, match="run_uid is other"):
        read_config(seat)
    mesh = Mesh(ranks=4, devices_per_rank=2, expert_axis=4)
    write_config(seat, config.model_copy(update={"mesh": mesh}).encode())
    with pytest.raises(SeatError, match=r"mesh\.ranks is 4"):
        read_config(seat)
