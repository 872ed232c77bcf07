import pytest

from contract.config import (
    Checkpointing,
    ConfigError,
    Evaluation,
    Limits,
    Mesh,
    Optimizer,
    SourceFiles,
    TrainerConfig,
    config_sha,
    data_digest,
    read_config,
)
from contract.model import PRESETS
from contract.wire import RANK_PHASES

FILES = SourceFiles(
    train="data/a/train.txt",
    heldout="data/a/heldout.txt",
    train_tokens=10,
    heldout_tokens=5,
    train_sha256="1" * 64,
    heldout_sha256="2" * 64,
)
CONFIG = TrainerConfig(
    run_uid="u",
    run_name="n",
    model=PRESETS["tiny"],
    optimizer=Optimizer(),
    sources={"a": FILES},
    mesh=Mesh(ranks=2, devices_per_rank=4, expert_axis=4),
    evaluation=Evaluation(every_steps=5, sequences=1, final_sequences=2),
    checkpointing=Checkpointing(every_steps=5, keep=2, permanent_every_steps=None),
    limits=Limits(
        deadlines_s=dict.fromkeys(RANK_PHASES, 60), step_factor=5, commit_s=60, heartbeat_s=120
    ),
    peak_flops_per_device=None,
)


def test_config_round_trips():
    assert read_config(CONFIG.encode()) == CONFIG


def test_mesh_counts_devices_and_replicas():
    assert (CONFIG.mesh.devices, CONFIG.mesh.replicas) == (8, 2)


def test_trajectory_is_hashed_and_the_rest_is_not():
    moved = CONFIG.model_copy(update={"mesh": Mesh(ranks=1, devices_per_rank=4, expert_axis=4)})
    assert moved.config_sha == CONFIG.config_sha == config_sha(CONFIG.model, CONFIG.optimizer)
    other = CONFIG.model_copy(update={"optimizer": Optimizer(beta2="0.96")})
    assert other.config_sha != CONFIG.config_sha


def test_data_identity_is_the_texts_not_their_paths():
    renamed = FILES.model_copy(update={"train": "elsewhere.txt"})
    assert data_digest({"a": renamed}) == data_digest({"a": FILES}) == CONFIG.data_digest
    changed = FILES.model_copy(update={"heldout_sha256": "3" * 64})
    assert data_digest({"a": changed}) != data_digest({"a": FILES})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"keep":2', b'"keep":1'),
        (b'"every_steps":5', b'"every_steps":0'),
        (b'"run_name":"n"', b'"run_name":"../n"'),
        (b'"beta2":"0.95"', b'"beta2":"-1"'),
        (b'"name":"adamw"', b'"name":"sgd"'),
        (b'"train_sha256":"11', b'"train_sha256":"zz'),
        (b'"step_factor":5', b'"step_factor":5,"more":1'),
    ],
)
def test_config_of_another_form_is_refused(old, new):
    assert old in CONFIG.encode()
    member = old.split(b'"')[1].decode()
    with pytest.raises(ConfigError, match=f"{member}|more"):
        read_config(CONFIG.encode().replace(old, new))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff"])
def test_garbage_is_no_config(data):
    with pytest.raises(ConfigError):
        read_config(data)
