"""Who this rank is: what the environment says, and the paths that follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from contract.config import TrainerConfig
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
    attempt_dir,
    rank_dir,
)


class SeatError(ValueError):
    """The environment or the config file does not say what a rank must know."""


@dataclass(frozen=True)
class Seat:
    """One rank of one attempt of one run."""

    run_dir: Path
    run_uid: str
    epoch: int
    attempt: int
    rank: int
    ranks: int
    coordinator: str
    plan_sha: str
    restore: Restore
    highest_step: int

    @property
    def attempt_dir(self) -> Path:
        """Where the attempt's step log and config lie."""
        return self.run_dir / attempt_dir(self.attempt)

    @property
    def rank_dir(self) -> Path:
        """Where this rank leaves its own files."""
        return self.run_dir / rank_dir(self.attempt, self.rank)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes for the gang."""
        return self.rank == 0


def read_seat(environment: Mapping[str, str]) -> Seat:
    """Return the seat that the environment describes.

    Raises:
        SeatError: a variable is missing or wrong; the message names it, its value and the bound.
    """
    seat = Seat(
        run_dir=Path(_text(environment, ENV_RUN_DIR)),
        run_uid=_text(environment, ENV_RUN_UID),
        epoch=_count(environment, ENV_EPOCH),
        attempt=_count(environment, ENV_ATTEMPT),
        rank=_count(environment, ENV_RANK),
        ranks=_count(environment, ENV_RANKS),
        coordinator=_text(environment, ENV_COORDINATOR),
        plan_sha=_text(environment, ENV_PLAN_SHA),
        restore=_restore(environment),
        highest_step=_count(environment, ENV_HIGHEST_STEP),
    )
    if not seat.run_dir.is_absolute():
        raise SeatError(f"{ENV_RUN_DIR} is {seat.run_dir}; it must be an absolute path")
    if not seat.rank < seat.ranks:
        raise SeatError(f"{ENV_RANK} is {seat.rank}; it must be below {ENV_RANKS} ({seat.ranks})")
    return seat


def read_config(seat: Seat) -> TrainerConfig:
    """Return the attempt's config.

    Raises:
        SeatError: the file is missing, is not a config, or is another run's or another gang's.
    """
    path = seat.attempt_dir / CONFIG_FILE
    try:
        config = TrainerConfig.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SeatError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SeatError(f"{path}: {where}: {first['msg']}") from error
    if config.run_uid != seat.run_uid:
        raise SeatError(f"{path}: run_uid is {config.run_uid}; {ENV_RUN_UID} is {seat.run_uid}")
    if config.mesh.ranks != seat.ranks:
        raise SeatError(f"{path}: mesh.ranks is {config.mesh.ranks}; {ENV_RANKS} is {seat.ranks}")
    return config


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SeatError(f"{name} is not set")
    return value


def _count(environment: Mapping[str, str], name: str) -> int:
    value = _text(environment, name)
    if not value.isascii() or not value.isdigit():
        raise SeatError(f"{name} is {value!r}; it must be a whole number, 0 or more")
    return int(value)


def _restore(environment: Mapping[str, str]) -> Restore:
    value = _text(environment, ENV_RESTORE)
    try:
        return Restore(value)
    except ValueError as error:
        names = ", ".join(Restore)
        raise SeatError(f"{ENV_RESTORE} is {value!r}; it must be one of {names}") from error
