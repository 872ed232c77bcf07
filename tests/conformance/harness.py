"""A run directory by the contract's formats, and a gang of real processes in it."""

import hashlib
import os
import pydoc_data.topics
import signal
import socket
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from http.client import HTTPConnection
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from contract.checkpoint import Manifest, read_manifest
from contract.config import (
    Checkpointing,
    Evaluation,
    Limits,
    Mesh,
    Optimizer,
    SourceFiles,
    TrainerConfig,
)
from contract.model import PRESETS, Execution, flops_per_token
from contract.plan import ContextStage, Line, Mixture, MixtureStage, Plan
from contract.schedule import format_fraction, retime, warm_up_and_decay
from contract.wire import (
    ATTEMPTS_DIR,
    CONFIG_FILE,
    CONTROL_FILE,
    DETAIL_FILE,
    ENDPOINT_FILE,
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
    EVALS_FILE,
    MANIFEST_FILE,
    PHASES_FILE,
    PLANS_DIR,
    RANK_PHASES,
    STACKS_FILE,
    STDERR_FILE,
    STDOUT_FILE,
    STEPS_FILE,
    VERIFIED_SUFFIX,
    ControlDocument,
    Drain,
    EndDetail,
    Endpoint,
    EvalRecord,
    LedgerHead,
    Phase,
    PhaseRecord,
    Restore,
    StepRecord,
    attempt_dir,
    checkpoint_dir,
    plan_file,
    rank_dir,
)
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
ENV_TRAINER = "STEERSMAN_CONFORMANCE_TRAINER"
"""Command of a trainer to test instead of ours; set by `python -m tests.conformance`."""
ENV_START_S = "STEERSMAN_CONFORMANCE_START_S"
"""The longest that this trainer takes to its first step, in seconds; set likewise."""
ENV_STEP_S = "STEERSMAN_CONFORMANCE_STEP_S"
"""The longest that a step of it takes, a save or an evaluation included; set likewise."""
RUN_UID = "conformance"
TOKENS_PER_STEP = 1_024
LENGTH = 64
EMPTY_HEAD = LedgerHead(seq=7, hash="7" * 64)
PEAKS = {
    "learning_rate": {"matrix": "0.02", "other": "0.02"},
    "weight_decay": {"matrix": "0.1", "other": "0.0"},
}

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]
"""Metric name -> sorted labels -> value."""


@dataclass(frozen=True)
class TrainerKind:
    """A trainer under test: how to start a rank of it, and how patient to be."""

    name: str
    command: tuple[str, ...]
    start_s: float
    """Within this time after the launch the first step is logged."""
    step_s: float
    """Within this time a step is over, a save or an evaluation included."""
    lead_steps: int
    """Steps from now to a fork: time enough to publish a revision and for all ranks to read it."""
    deadline_s: int
    """Every phase deadline of the config."""
    environment: Mapping[str, str] = field(default_factory=dict)
    shape: Mapping[str, int] = field(default_factory=dict)
    """Overrides of the `tiny` model."""

    @property
    def patience_s(self) -> float:
        """For a short run from launch to end."""
        return self.start_s + 100 * self.step_s


class Run:
    """A run directory with a genesis plan of `total_steps` steps, published and pointed to."""

    def __init__(self, path: Path, kind: TrainerKind, **options: object) -> None:
        self.path = path
        self.kind = kind
        total_steps = options.pop("total_steps", 40)
        assert isinstance(total_steps, int)
        self.sources = _write_sources(path)
        self.config = _a_config(kind, self.sources).model_copy(update=options)
        self.plan = self.publish(_a_plan(self.config, total_steps))
        self.seq = 0

    # What the controller would write.

    def publish(self, plan: Plan) -> Plan:
        """Write the plan's file."""
        folder = self.path / PLANS_DIR
        folder.mkdir(exist_ok=True)
        (self.path / plan_file(plan.sha)).write_bytes(plan.encode())
        return plan

    def replace_plan(self, **changes: object) -> Plan:
        """Publish another genesis plan; for changes before the first launch."""
        self.plan = self.publish(self.plan.model_copy(update=changes))
        return self.plan

    def point_to(self, sha: str, *, drain: str = "", **changes: object) -> ControlDocument:
        """Publish the next control document."""
        self.seq += 1
        document = ControlDocument(
            run_uid=RUN_UID,
            epoch=1,
            seq=self.seq,
            plan_sha=sha,
            drain=Drain(nonce=str(self.seq), mode=drain) if drain else None,
            ledger_head=EMPTY_HEAD,
        ).model_copy(update=changes)
        self.write_control(document.model_dump_json().encode())
        return document

    def write_control(self, data: bytes) -> None:
        """Replace the control document by any bytes."""
        draft = self.path / f".{CONTROL_FILE}"
        draft.write_bytes(data)
        draft.replace(self.path / CONTROL_FILE)

    def launch(
        self,
        attempt: int = 1,
        *,
        restore: Restore = Restore.NONE,
        environment: Mapping[str, str] | None = None,
        places: Mapping[int, Path] | None = None,
    ) -> "Gang":
        """Start every rank of an attempt; `places`: ranks that see the run's files elsewhere."""
        port = _find_port()
        folder = self.path / attempt_dir(attempt)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG_FILE).write_bytes(self.config.encode())
        ranks = self.config.mesh.ranks
        return Gang(
            self,
            attempt,
            [
                self._start_rank(
                    attempt,
                    rank,
                    {
                        ENV_COORDINATOR: f"127.0.0.1:{port}",
                        ENV_RESTORE: restore,
                        ENV_RUN_DIR: str((places or {}).get(rank, self.path)),
                        **(environment or {}),
                    },
                )
                for rank in range(ranks)
            ],
        )

    def _start_rank(
        self, attempt: int, rank: int, environment: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        folder = self.path / rank_dir(attempt, rank)
        folder.mkdir(parents=True, exist_ok=True)
        ours = {
            ENV_RUN_UID: RUN_UID,
            ENV_EPOCH: "1",
            ENV_ATTEMPT: str(attempt),
            ENV_RANK: str(rank),
            ENV_RANKS: str(self.config.mesh.ranks),
            ENV_PLAN_SHA: self.plan.sha,
            ENV_HIGHEST_STEP: str(self.highest_step(attempt)),
            # This contract first, and what the trainer needs besides stays within reach.
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }
        with (folder / STDOUT_FILE).open("wb") as out, (folder / STDERR_FILE).open("wb") as err:
            return subprocess.Popen(
                self.kind.command,
                # An empty value stands for a variable that is missing.
                env={
                    name: value
                    for name, value in (
                        os.environ | self.kind.environment | ours | dict(environment)
                    ).items()
                    if value
                },
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    # What the trainer wrote.

    def highest_step(self, before_attempt: int) -> int:
        """Return the most steps that any attempt before this one completed."""
        attempts = [
            int(path.name)
            for path in (self.path / ATTEMPTS_DIR).iterdir()
            if int(path.name) < before_attempt
        ]
        return max((r.step + 1 for n in attempts for r in self.steps(n)), default=0)

    def steps(self, attempt: int = 1) -> list[StepRecord]:
        """Return the step log of an attempt."""
        lines = _read_lines(self.path / attempt_dir(attempt) / STEPS_FILE)
        return [StepRecord.model_validate_json(line) for line in lines]

    def evals(self, attempt: int = 1) -> list[EvalRecord]:
        """Return the evaluations of an attempt."""
        lines = _read_lines(self.path / attempt_dir(attempt) / EVALS_FILE)
        return [EvalRecord.model_validate_json(line) for line in lines]

    def checkpoint(self, step: int, line: str = "main") -> Path:
        """Return the directory of a checkpoint."""
        return self.path / checkpoint_dir(line, step)

    def mark(self, step: int, suffix: str = VERIFIED_SUFFIX, line: str = "main") -> Path:
        """Return the path of a checkpoint's mark."""
        return self.checkpoint(step, line).with_name(f"{step}{suffix}")

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of a checkpoint."""
        return read_manifest((self.checkpoint(step) / MANIFEST_FILE).read_bytes())

    def checkpoint_steps(self, line: str = "main") -> list[int]:
        """Return the steps of the complete checkpoints."""
        folder = self.checkpoint(0, line).parent
        if not folder.is_dir():
            return []
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())

    def verified_steps(self, line: str = "main") -> list[int]:
        """Return the steps of the complete checkpoints with a verified mark."""
        return [s for s in self.checkpoint_steps(line) if self.mark(s, line=line).exists()]


class Gang:
    """The processes of one attempt."""

    def __init__(
        self, run: Run, attempt: int, processes: "Sequence[subprocess.Popen[bytes]]"
    ) -> None:
        self.run = run
        self.attempt = attempt
        self.processes = processes

    def kill(self, *ranks: int) -> None:
        """SIGKILL some ranks, all without arguments."""
        for rank in ranks or range(len(self.processes)):
            self.processes[rank].kill()

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to one rank."""
        self.processes[rank].send_signal(number)

    def close(self) -> None:
        """Leave no process behind, a stopped one included."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def await_end(self, timeout_s: float | None = None) -> list[int]:
        """Return the exit codes of all ranks; a signal n as 128 + n."""
        try:
            wait_for(
                lambda: all(process.poll() is not None for process in self.processes),
                timeout_s or self.run.kind.patience_s,
                "the end of all ranks",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.describe()}") from None
        codes = [process.returncode for process in self.processes]
        return [code if code >= 0 else 128 - code for code in codes]

    def await_step(self, step: int) -> list[StepRecord]:
        """Wait until `step` is in the log; return the log."""
        timeout_s = self.run.kind.start_s + step * self.run.kind.step_s
        return wait_for(
            lambda: self._steps_from(step), timeout_s, f"step {step}; {self.describe()}"
        )

    def _steps_from(self, step: int) -> list[StepRecord]:
        steps = self.run.steps(self.attempt)
        if steps and steps[-1].step >= step:
            return steps
        ended = [process.poll() for process in self.processes]
        assert ended == [None] * len(ended), f"ended before step {step}: {self.describe()}"
        return []

    def await_verified(self, step: int) -> None:
        """Wait until a checkpoint at or after `step` is complete and verified."""
        wait_for(
            lambda: any(found >= step for found in self.run.verified_steps()),
            self.run.kind.patience_s,
            f"a verified checkpoint from {step} on; {self.describe()}",
        )

    def describe(self) -> str:
        """Return exit codes and last words of all ranks, for a failed wait."""
        return "; ".join(
            f"rank {rank}: {process.poll()} {self.stderr(rank)[-500:]!r}"
            for rank, process in enumerate(self.processes)
        )

    def file(self, rank: int, name: str) -> Path:
        """Return one of a rank's own files."""
        return self.run.path / rank_dir(self.attempt, rank) / name

    def stderr(self, rank: int) -> str:
        """Return what a rank said on stderr."""
        return self.file(rank, STDERR_FILE).read_text(errors="replace")

    def stacks(self, rank: int) -> str:
        """Return the stack dump of a rank, empty without one."""
        path = self.file(rank, STACKS_FILE)
        return path.read_text() if path.exists() else ""

    def detail(self, rank: int) -> EndDetail:
        """Return a rank's own words about its end."""
        return EndDetail.model_validate_json(self.file(rank, DETAIL_FILE).read_bytes())

    def phases(self, rank: int) -> list[PhaseRecord]:
        """Return the phases a rank went through."""
        lines = _read_lines(self.file(rank, PHASES_FILE))
        return [PhaseRecord.model_validate_json(line) for line in lines]

    def metrics(self, rank: int) -> Samples:
        """Scrape a rank."""
        path = self.file(rank, ENDPOINT_FILE)
        wait_for(path.exists, self.run.kind.start_s, f"the endpoint of rank {rank}")
        endpoint = Endpoint.model_validate_json(path.read_bytes())
        # Not httpx: each of its clients builds a TLS context, which costs more than the scrape.
        connection = HTTPConnection(endpoint.host, endpoint.port, timeout=30)
        with closing(connection):
            connection.request("GET", "/metrics")
            reply = connection.getresponse()
            assert reply.status == 200
            text = reply.read().decode()
        found: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    def await_exit(self, rank: int) -> None:
        """Wait until one rank is gone."""
        process = self.processes[rank]
        wait_for(
            lambda: process.poll() is not None, self.run.kind.patience_s, f"the end of rank {rank}"
        )

    def await_pending(self, rank: int) -> None:
        """Wait until a rank holds a revision that is not effective yet."""
        wait_for(
            lambda: self.metrics(rank)["moe_train_rank_plan_pending"][()] == 1,
            self.run.kind.patience_s,
            f"a pending revision on rank {rank}",
        )

    def await_refusal_end(self, rank: int = 0) -> None:
        """Wait until a rank obeys the control document again."""
        wait_for(
            lambda: not self.refusals(rank),
            self.run.kind.patience_s,
            "the end of all refusals",
        )

    def await_refusal(self, reason: str, rank: int = 0) -> None:
        """Wait until a rank shows that it refuses the control document for `reason`."""
        wait_for(
            lambda: self.refusals(rank) == {reason},
            self.run.kind.patience_s,
            f"the refusal {reason}; shown: {self.refusals(rank)}",
        )

    def refusals(self, rank: int = 0) -> set[str]:
        """Return the reasons for which a rank refuses the control document."""
        series = self.metrics(rank)["moe_train_rank_control_refused"]
        return {labels[0][1] for labels, value in series.items() if value}


def retimed(parent: Plan, *, effective: int, total_steps: int, **changes: object) -> Plan:
    """Return a horizon revision: every anneal linear from the fork to the same end."""
    anneals = {
        name: [
            (step, format_fraction(value))
            for step, value in retime(parent.knots_of(name), effective, total_steps)
        ]
        for name in parent.anneals
    }
    return parent.model_copy(
        update={
            "kind": "horizon",
            "parent": parent.sha,
            "effective": effective,
            "total_steps": total_steps,
            "anneals": anneals,
            **changes,
        }
    )


def lengthen_past(parent: Plan, effective: int) -> Plan:
    """Return a revision whose past differs from its parent's: the warm-up peaks lower."""
    knots = list(
        retimed(parent, effective=effective, total_steps=parent.total_steps - 4).anneals[
            "learning_rate"
        ]
    )
    knots[1] = (knots[1][0], "9/10")
    revision = retimed(parent, effective=effective, total_steps=parent.total_steps - 4)
    return revision.model_copy(update={"anneals": {**revision.anneals, "learning_rate": knots}})


def _read_lines(path: Path) -> list[str]:
    """Return the whole lines of a file that may still grow."""
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _write_sources(path: Path) -> dict[str, SourceFiles]:
    """Write two small sources of real text: code and prose of the Python installation."""
    texts = {
        "code": Path(textwrap.__file__).read_bytes() + Path(subprocess.__file__).read_bytes(),
        "docs": "\n".join(pydoc_data.topics.topics.values()).encode(),
    }
    sources: dict[str, SourceFiles] = {}
    for name, text in texts.items():
        (path / "data" / name).mkdir(parents=True)
        half = len(text) * 3 // 4
        parts = {"train": text[:half], "heldout": text[half:]}
        for part, data in parts.items():
            (path / f"data/{name}/{part}.txt").write_bytes(data)
        sources[name] = SourceFiles(
            train=f"data/{name}/train.txt",
            heldout=f"data/{name}/heldout.txt",
            train_tokens=len(parts["train"]),
            heldout_tokens=len(parts["heldout"]),
            train_sha256=hashlib.sha256(parts["train"]).hexdigest(),
            heldout_sha256=hashlib.sha256(parts["heldout"]).hexdigest(),
        )
    return sources


def _a_config(kind: TrainerKind, sources: dict[str, SourceFiles]) -> TrainerConfig:
    return TrainerConfig(
        run_uid=RUN_UID,
        run_name="conformance",
        model=PRESETS["tiny"].model_copy(update=dict(kind.shape)),
        optimizer=Optimizer(),
        sources=sources,
        mesh=Mesh(ranks=2, devices_per_rank=2, expert_axis=4),
        evaluation=Evaluation(every_steps=15, sequences=8, final_sequences=16),
        checkpointing=Checkpointing(every_steps=10, keep=2, permanent_every_steps=None),
        limits=Limits(
            deadlines_s=dict.fromkeys(RANK_PHASES, kind.deadline_s),
            step_factor=5,
            commit_s=kind.deadline_s,
            heartbeat_s=2 * kind.deadline_s,
        ),
        peak_flops_per_device=1_000_000_000,
    )


def _a_plan(config: TrainerConfig, total_steps: int) -> Plan:
    knots = warm_up_and_decay(4, total_steps, Fraction(1, 20))
    written = [(step, format_fraction(value)) for step, value in knots]
    flat = [(0, "1/1"), (total_steps - 1, "1/1")]
    return Plan(
        format=1,
        run_uid=RUN_UID,
        kind="genesis",
        parent=None,
        effective=0,
        supersedes=None,
        author="tests",
        reason="conformance",
        config_sha=config.config_sha,
        data_digest=config.data_digest,
        seed=1,
        tokens_per_step=TOKENS_PER_STEP,
        total_steps=total_steps,
        peaks=PEAKS,
        anneals={"learning_rate": written, "weight_decay": flat},
        mixture=Mixture(
            block_tokens=2 * TOKENS_PER_STEP,
            unit_tokens=LENGTH,
            stages=[MixtureStage(start=0, from_percent=0, parts={"code": 20, "docs": 12})],
        ),
        context=[
            ContextStage(
                from_percent=0,
                start=0,
                length=LENGTH,
                flops_per_token=flops_per_token(config.model, LENGTH),
            )
        ],
        execution=Execution(),
        lineage=[Line(name="main", fork_step=0, offset_blocks=0)],
    )


def await_phase(gang: Gang, rank: int, phase: Phase) -> None:
    """Wait until a rank has entered `phase`."""
    wait_for(
        lambda: any(record.phase is phase for record in gang.phases(rank)),
        gang.run.kind.patience_s,
        f"phase {phase} of rank {rank}",
    )
