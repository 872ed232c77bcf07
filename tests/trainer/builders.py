"""A rank's surroundings in one process: a run directory, a config, a plan, a gang of threads."""

import hashlib
from fractions import Fraction
from pathlib import Path

from contract.config import (
    Checkpointing,
    Evaluation,
    Limits,
    Mesh,
    Optimizer,
    SourceFiles,
    TrainerConfig,
)
from contract.model import Execution, shape_of
from contract.plan import ContextStage, Line, Mixture, MixtureStage, Plan
from contract.schedule import format_fraction, retime, warm_up_and_decay
from contract.wire import (
    CONTROL_FILE,
    PLANS_DIR,
    RANK_PHASES,
    ControlDocument,
    Drain,
    LedgerHead,
    Restore,
    plan_file,
)
from tests.trainer.conftest import SMALL
from trainer.gang import Gang, LocalStore
from trainer.seat import Seat

UID = "uid-1"
HEAD = LedgerHead(seq=3, hash="3" * 64)
PEAKS = {"learning_rate": {"matrix": "0.01", "other": "0.01"}}


def a_seat(run_dir: Path, *, rank=0, ranks=1, attempt=1, restore=Restore.NONE) -> Seat:
    seat = Seat(
        run_dir=run_dir,
        run_uid=UID,
        epoch=2,
        attempt=attempt,
        rank=rank,
        ranks=ranks,
        coordinator="127.0.0.1:1",
        plan_sha="0" * 64,
        restore=restore,
        highest_step=0,
    )
    seat.rank_dir.mkdir(parents=True, exist_ok=True)
    return seat


def some_gang(ranks: int) -> list[Gang]:
    """Return every rank's view of one gang in this process."""
    store = LocalStore()
    return [Gang(rank, ranks, store) for rank in range(ranks)]


def write_sources(run_dir: Path) -> dict[str, SourceFiles]:
    sources = {}
    for name in ("code", "docs"):
        folder = run_dir / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        # Tokens of the small vocabulary of 32.
        text = bytes((n * n + len(name) * n // 7) % 32 for n in range(8_192))
        sha = hashlib.sha256(text).hexdigest()
        for part in ("train", "heldout"):
            (folder / f"{part}.txt").write_bytes(text)
        sources[name] = SourceFiles(
            train=f"data/{name}/train.txt",
            heldout=f"data/{name}/heldout.txt",
            train_tokens=len(text),
            heldout_tokens=len(text),
            train_sha256=sha,
            heldout_sha256=sha,
        )
    return sources


def a_config(run_dir: Path, **changes) -> TrainerConfig:
    config = TrainerConfig(
        run_uid=UID,
        run_name="small",
        model=shape_of("tiny", {**SMALL, "vocabulary": 32}),
        optimizer=Optimizer(),
        sources=write_sources(run_dir),
        mesh=Mesh(ranks=1, devices_per_rank=8, expert_axis=4),
        evaluation=Evaluation(every_steps=100, sequences=8, final_sequences=8),
        checkpointing=Checkpointing(every_steps=100, keep=2, permanent_every_steps=None),
        limits=Limits(
            deadlines_s=dict.fromkeys(RANK_PHASES, 120),
            step_factor=10,
            commit_s=60,
            heartbeat_s=60,
        ),
        peak_flops_per_device=1_000,
    )
    return config.model_copy(update=changes)


def a_plan(config: TrainerConfig, total_steps=20, context=((0, 16),), **changes) -> Plan:
    knots = warm_up_and_decay(2, total_steps, Fraction(1, 20))
    plan = Plan(
        format=1,
        run_uid=UID,
        kind="genesis",
        parent=None,
        effective=0,
        supersedes=None,
        author="tests",
        reason="tests",
        config_sha=config.config_sha,
        data_digest=config.data_digest,
        seed=1,
        tokens_per_step=256,
        total_steps=total_steps,
        peaks=PEAKS,
        anneals={"learning_rate": [(step, format_fraction(value)) for step, value in knots]},
        mixture=Mixture(
            block_tokens=256,
            unit_tokens=32,
            stages=[MixtureStage(start=0, from_percent=0, parts={"code": 5, "docs": 3})],
        ),
        context=a_context(context),
        execution=Execution(),
        lineage=[Line(name="main", fork_step=0, offset_blocks=0)],
    )
    return plan.model_copy(update=changes)


def a_context(stages) -> list[ContextStage]:
    return [
        ContextStage(start=s, from_percent=0, length=length, flops_per_token=7)
        for s, length in stages
    ]


def retimed(parent: Plan, *, effective: int, total_steps: int, **changes) -> Plan:
    """Return a horizon revision of `parent`."""
    knots = retime(parent.knots_of("learning_rate"), effective, total_steps)
    return parent.model_copy(
        update={
            "kind": "horizon",
            "parent": parent.sha,
            "effective": effective,
            "total_steps": total_steps,
            "anneals": {"learning_rate": [(step, format_fraction(v)) for step, v in knots]},
            **changes,
        }
    )


def publish(run_dir: Path, plan: Plan) -> Plan:
    (run_dir / PLANS_DIR).mkdir(exist_ok=True)
    (run_dir / plan_file(plan.sha)).write_bytes(plan.encode())
    return plan


def point_to(run_dir: Path, sha: str, *, seq=1, drain="", **changes) -> ControlDocument:
    document = ControlDocument(
        run_uid=UID,
        epoch=2,
        seq=seq,
        plan_sha=sha,
        drain=Drain(nonce="n", mode=drain) if drain else None,
        ledger_head=HEAD,
    ).model_copy(update=changes)
    write_control(run_dir, document.model_dump_json().encode())
    return document


def write_control(run_dir: Path, data: bytes) -> None:
    draft = run_dir / f".{CONTROL_FILE}"
    draft.write_bytes(data)
    draft.replace(run_dir / CONTROL_FILE)
