"""What a rank is told: its environment and the attempt's config file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contract.config import ConfigError, TrainerConfig, read_config
from contract.exits import Exit
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
from minimal.ends import End

VOCABULARY = 256
"""Tokens are bytes."""


@dataclass(frozen=True)
class Settings:
    """One rank's place in its gang."""

    run_dir: Path
    run_uid: str
    epoch: int
    attempt: int
    rank: int
    ranks: int
    host: str
    port: int
    plan_sha: str
    restore: Restore
    highest_step: int
    config: TrainerConfig

    @property
    def attempt_dir(self) -> Path:
        """Where rank 0 logs steps and evaluations."""
        return self.run_dir / attempt_dir(self.attempt)

    @property
    def rank_dir(self) -> Path:
        """Where this rank's own files lie."""
        return self.run_dir / rank_dir(self.attempt, self.rank)


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings, or end with CONFIG and the name of what is missing or wrong."""
    host, separator, port = _text(environment, ENV_COORDINATOR).rpartition(":")
    if not separator or not port.isdigit():
        raise End(Exit.CONFIG, f"{ENV_COORDINATOR} is {host!r}; it must be host:port")
    run_dir = Path(_text(environment, ENV_RUN_DIR))
    attempt = _number(environment, ENV_ATTEMPT)
    settings = Settings(
        run_dir=run_dir,
        run_uid=_text(environment, ENV_RUN_UID),
        epoch=_number(environment, ENV_EPOCH),
        attempt=attempt,
        rank=_number(environment, ENV_RANK),
        ranks=_number(environment, ENV_RANKS),
        host=host,
        port=int(port),
        plan_sha=_text(environment, ENV_PLAN_SHA),
        restore=_restore(environment),
        highest_step=_number(environment, ENV_HIGHEST_STEP),
        config=_read_config(run_dir / attempt_dir(attempt) / CONFIG_FILE),
    )
    _check(settings)
    return settings


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise End(Exit.CONFIG, f"the environment variable {name} is not set")
    return value


def _number(environment: Mapping[str, str], name: str) -> int:
    value = _text(environment, name)
    if not (value.isascii() and value.isdigit()):
        raise End(Exit.CONFIG, f"{name} is {value!r}; it must be a number from 0")
    return int(value)


def _restore(environment: Mapping[str, str]) -> Restore:
    value = _text(environment, ENV_RESTORE)
    try:
        return Restore(value)
    except ValueError as error:
        allowed = ", ".join(Restore)
        raise End(Exit.CONFIG, f"{ENV_RESTORE} is {value!r}; it is one of {allowed}") from error


def _read_config(path: Path) -> TrainerConfig:
    try:
        return read_config(path.read_bytes())
    except OSError as error:
        raise End(Exit.CONFIG, f"{path}: {error.strerror}") from error
    except ConfigError as error:
        raise End(Exit.CONFIG, f"{path}: {error}") from error


def _check(settings: Settings) -> None:
    config = settings.config
    if not settings.run_dir.is_absolute():
        raise End(Exit.CONFIG, f"{ENV_RUN_DIR} is {settings.run_dir}; it must be absolute")
    if config.run_uid != settings.run_uid:
        raise End(Exit.CONFIG, f"config.run_uid is {config.run_uid}, not {settings.run_uid}")
    if config.mesh.ranks != settings.ranks or settings.rank >= settings.ranks:
        place = f"rank {settings.rank} of {settings.ranks}"
        raise End(Exit.CONFIG, f"{place} does not fit config.mesh.ranks {config.mesh.ranks}")
    if config.model.vocabulary != VOCABULARY:
        raise End(Exit.CONFIG, f"config.model.vocabulary is not {VOCABULARY}: tokens are bytes")
