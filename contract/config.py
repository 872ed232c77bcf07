"""What a trainer is told besides the plan: the attempt's config file.

The controller writes `attempts/N/config.json` before it starts the ranks. Members that decide
the trajectory are hashed into the plan (`config_sha`); the others may change between attempts.
"""

from typing import Annotated

from pydantic import Field, ValidationError

from contract.canonical import encode_canonical, hash_canonical
from contract.model import ModelShape
from contract.plan import DecimalText, Frozen, Name, Positive, Sha
from contract.wire import Phase


class ConfigError(ValueError):
    """A config file that no trainer can run; the message names the member."""


class SourceFiles(Frozen):
    """The stores of one source: bytes are tokens. Paths are relative to the run directory."""

    train: str
    heldout: str
    train_tokens: Positive
    heldout_tokens: Positive
    train_sha256: Sha
    heldout_sha256: Sha


class Optimizer(Frozen):
    """Adam with decoupled weight decay; reals are decimal strings."""

    name: Annotated[str, Field(pattern="^adamw$")] = "adamw"
    beta1: DecimalText = "0.9"
    beta2: DecimalText = "0.95"
    epsilon: DecimalText = "0.00000001"


class Mesh(Frozen):
    """Ranks are processes; the expert axis runs over consecutive devices."""

    ranks: Positive
    devices_per_rank: Positive
    expert_axis: Positive

    @property
    def devices(self) -> int:
        """All devices of the gang."""
        return self.ranks * self.devices_per_rank

    @property
    def replicas(self) -> int:
        """How many copies of the experts there are."""
        return self.devices // self.expert_axis


class Evaluation(Frozen):
    """Held-out loss every `every_steps` steps and at the horizon."""

    every_steps: Positive
    sequences: Positive
    """Held-out sequences per source in a regular evaluation."""
    final_sequences: Positive
    """Held-out sequences per source in the last one, at the horizon."""


class Checkpointing(Frozen):
    """When to save and what to keep."""

    every_steps: Positive
    keep: Annotated[int, Field(ge=2)]
    """Verified checkpoints that are kept at least, newest first."""
    permanent_every_steps: Positive | None


class Limits(Frozen):
    """After how long in one phase a rank's watchdog ends it, in seconds."""

    deadlines_s: dict[Phase, Positive]
    """Every rank phase; `step` is the floor of the step deadline."""
    step_factor: Positive
    """Step deadline = max(floor, factor x p99 of this attempt's step times)."""
    commit_s: Positive
    """Age at which an asynchronous commit counts as failed."""
    heartbeat_s: Positive
    """Coordination heartbeat timeout: above the longest step or save deadline plus dump time."""


class TrainerConfig(Frozen):
    """The attempt's config file, whole."""

    format: Annotated[int, Field(ge=1, le=1)] = 1
    run_uid: str
    run_name: Name
    model: ModelShape
    optimizer: Optimizer
    sources: dict[Name, SourceFiles]
    mesh: Mesh
    evaluation: Evaluation
    checkpointing: Checkpointing
    limits: Limits
    peak_flops_per_device: Positive | None
    """None: the trainer measures a GEMM rate at start and labels it so."""

    @property
    def config_sha(self) -> str:
        """Identity of what decides the trajectory besides plan and data."""
        return config_sha(self.model, self.optimizer)

    @property
    def data_digest(self) -> str:
        """Identity of the text."""
        return data_digest(self.sources)

    def encode(self) -> bytes:
        """Return the bytes of the config file."""
        return encode_canonical(self.model_dump(mode="json"))


def read_config(data: bytes) -> TrainerConfig:
    """Return the config in `data`.

    Raises:
        ConfigError: not a config file, or a member is missing, unknown or out of bounds.
    """
    try:
        return TrainerConfig.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "config"
        raise ConfigError(f"{where}: {first['msg']}") from error


def config_sha(model: ModelShape, optimizer: Optimizer) -> str:
    """Return the identity of what decides the trajectory besides plan and data."""
    return hash_canonical(
        {"model": model.model_dump(mode="json"), "optimizer": optimizer.model_dump(mode="json")}
    )


def data_digest(sources: dict[str, SourceFiles]) -> str:
    """Return the identity of the stores, whatever they are called on disk."""
    return hash_canonical(
        {name: [files.train_sha256, files.heldout_sha256] for name, files in sources.items()}
    )
