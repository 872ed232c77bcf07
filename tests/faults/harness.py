"""A run of the small trainer, and controllers of it as processes of their own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contract import wire
from contract.config import Checkpointing
from controller.adapters.files import numbered
from controller.adapters.intents import drop_intent
from controller.adapters.ledger import create_ledger, read_ledger, verify_ledger
from controller.adapters.system import Processes, is_locked
from controller.core.declared.planning import LOCAL_SKEW_MS
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.core.policy import Budget, Policy
from controller.core.snapshot import OwnerIntent
from controller.core.terms import Terms
from controller.ports import LedgerRecord
from tests.conformance import harness
from tests.conformance.trainers import MINIMAL
from tests.faults.controller_process import OFFSET_FILE, ORDER_FILE
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
"""For whatever the small trainer does."""
STEP_S = "0.02"
RANKS = 2


@dataclass
class Controller:
    """One controller process."""

    process: "subprocess.Popen[bytes]"
    log: Path
    patience_s: float

    def wait(self, timeout_s: float | None = None) -> str:
        """Return the ending it printed, once it ended."""
        limit_s = timeout_s or self.patience_s
        wait_for(lambda: self.process.poll() is not None, limit_s, f"the end of {self.words()}")
        out = self.process.stdout
        assert out is not None
        return out.read().decode().strip()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def words(self) -> str:
        """Return the end of its log, for a failed wait."""
        return f"controller {self.process.pid}: {self.log.read_text()[-1500:]}"


@dataclass
class World:
    """A run directory, its controllers, and what is seen there."""

    run: harness.Run
    logs: Path
    controllers: list[Controller] = field(default_factory=list)

    @property
    def patience_s(self) -> float:
        return max(PATIENCE_S, 1.5 * self.run.kind.start_s)

    @property
    def path(self) -> Path:
        return self.run.path

    def control(self, *, die: str | None = None, late: str | None = None) -> Controller:
        """Start a controller."""
        log = self.logs / f"controller-{len(self.controllers)}.log"
        options = [] if die is None else ["--die", die]
        options += [] if late is None else ["--late", late]
        with log.open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.controller_process", str(self.path), *options],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                start_new_session=True,
            )
        self.controllers.append(Controller(process, log, self.patience_s))
        return self.controllers[-1]

    def close(self) -> None:
        """Leave no process behind, stopped ones included."""
        for controller in self.controllers:
            controller.process.kill()
            controller.process.wait()
            assert controller.process.stdout is not None
            controller.process.stdout.close()
        self.controllers.clear()
        processes = Processes()
        for attempt in numbered(self.path / wire.ATTEMPTS_DIR):
            for rank in range(RANKS):
                claim = self.claim(attempt, rank)
                if claim is not None:
                    processes.kill(claim.process)
                wait_for(lambda: not self.is_alive(attempt, rank), 10, "a rank to go")  # noqa: B023  # called at once

    def replan(self, **changes: Any) -> None:
        """Change the genesis plan, before any controller began."""
        self.run.replace_plan(**changes)
        (self.path / wire.plan_file(self.run.plan.sha)).unlink()
        path = self.path / ORDER_FILE
        order = json.loads(path.read_text()) | {"plan": self.run.plan.model_dump(mode="json")}
        path.write_text(json.dumps(order))

    # What the trainer and the shims left.

    def claim(self, attempt: int, rank: int) -> wire.Claim | None:
        path = self.path / wire.rank_dir(attempt, rank) / wire.CLAIM_FILE
        if not path.exists() or not path.read_bytes():
            return None
        return wire.Claim.model_validate_json(path.read_bytes())

    def pid(self, attempt: int, rank: int) -> int:
        claim = wait_for(
            lambda: self.claim(attempt, rank), self.patience_s, f"{attempt}/{rank} to start"
        )
        return claim.process.pid

    def is_alive(self, attempt: int, rank: int) -> bool:
        return is_locked(self.path / wire.rank_dir(attempt, rank) / wire.RANK_LOCK_FILE)

    def live_attempts(self) -> list[int]:
        return [
            attempt
            for attempt in numbered(self.path / wire.ATTEMPTS_DIR)
            if any(self.is_alive(attempt, rank) for rank in range(RANKS))
        ]

    def attempts(self) -> list[int]:
        return numbered(self.path / wire.ATTEMPTS_DIR)

    def kill(self, attempt: int, *ranks: int) -> None:
        for rank in ranks:
            os.kill(self.pid(attempt, rank), signal.SIGKILL)

    def await_step(self, attempt: int, step: int) -> None:
        def reached() -> bool:
            steps = self.run.steps(attempt)
            return bool(steps) and steps[-1].step >= step

        wait_for(reached, self.patience_s, f"step {step} of attempt {attempt}; {self.words()}")

    def await_verified(self, step: int) -> None:
        wait_for(self.run.mark(step).exists, self.patience_s, f"checkpoint {step}; {self.words()}")

    def words(self) -> str:
        return self.controllers[-1].words() if self.controllers else "no controller"

    # What the controllers left.

    def records(self) -> list[LedgerRecord]:
        return read_ledger(self.path / wire.LEDGER_DIR)

    def actions(self, verb: str) -> Iterator[Mapping[str, Any]]:
        for record in self.records():
            for action in record.body.get("actions", ()):
                if action["verb"] == verb:
                    yield action

    def status(self) -> dict[str, Any]:
        path = self.path / wire.STATUS_FILE
        return json.loads(path.read_bytes()) if path.exists() else {}

    def memory(self) -> Memory:
        """Return what the next controller would remember."""
        memory: Memory | None = None
        for record in self.records():
            memory = fold(memory, record)
        assert memory is not None
        return memory

    def notes(self) -> dict[str, str]:
        """Return the newest note on each subject."""
        return {note["subject"]: note["reason"] for note in self.actions("note")}

    def await_note(self, subject: str) -> str:
        return wait_for(
            lambda: self.notes().get(subject),
            self.patience_s,
            f"a note on {subject}; {self.words()}",
        )

    def ask(self, verb: Any, nonce: str, **options: Any) -> None:
        wall_ms = time.time_ns() // 1_000_000
        intent = OwnerIntent(nonce=nonce, verb=verb, user="test", wall_ms=wall_ms, **options)
        drop_intent(self.path, intent)

    def jump_clock(self, offset_ms: int) -> None:
        (self.path / OFFSET_FILE).write_text(str(offset_ms))

    # What must hold in the end.

    def check_ledger(self) -> None:
        """The chain is whole, and every checkpoint's anchor is in it."""
        manifests = [self.run.manifest(step) for step in self.run.checkpoint_steps()]
        anchors = [(f"checkpoint {one.step}", one.ledger_head) for one in manifests]
        found = verify_ledger(self.path / wire.LEDGER_DIR, anchors)
        assert [finding for finding in found if finding.is_damage] == []

    def check_replay(self, attempts: int) -> int:
        """Replayed steps have the recorded bits; return how many there were."""
        losses: dict[int, str] = {}
        replayed = 0
        for attempt in range(1, attempts + 1):
            for record in self.run.steps(attempt):
                replayed += record.step in losses
                assert losses.setdefault(record.step, record.loss) == record.loss, record.step
        return replayed

    def surviving_steps(self) -> list[int]:
        """Return the steps whose result the last checkpoint contains, in order of training."""
        kept: list[int] = []
        for attempt in self.attempts():
            steps = [record.step for record in self.run.steps(attempt)]
            if steps:
                kept = [step for step in kept if step < steps[0]] + steps
        return kept


class Sampler:
    """Looks at the locks all the time: never two gangs at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.crowds: list[list[int]] = []
        self.looks = 0

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.looks > 0
        assert self.crowds == []

    def _look(self) -> None:
        while not self._stop.wait(0.01):
            self.looks += 1
            live = self._world.live_attempts()
            if len(live) > 1:
                self.crowds.append(live)


def make_world(path: Path, *, total_steps: int = 60, **options: Any) -> World:
    """Return a run that no controller has begun.

    Options: `kind` of trainer, `place` (where the run's directory is made), `step_s`, `deadline_s`
    of every phase, `environment`, `command`, `budget` (members of Budget), `run` (members of the
    trainer's config), `save_every` so many steps, `cascade_ms`, `margin_ms`, `terms`.
    """
    base = options.pop("kind", MINIMAL)
    deadline_s = options.pop("deadline_s", base.deadline_s)
    saving = Checkpointing(
        every_steps=options.pop("save_every", 10), keep=2, permanent_every_steps=None
    )
    run_options = {"total_steps": total_steps, "checkpointing": saving, **options.pop("run", {})}
    kind = replace(
        base,
        command=options.pop("command", base.command),
        deadline_s=deadline_s,
        environment={
            **base.environment,
            "MINIMAL_STEP_S": options.pop("step_s", STEP_S),
            **options.pop("environment", {}),
        },
    )
    run = harness.Run(options.pop("place", path) / "run", kind, **run_options)
    budget = Budget(**{"delay_ms": 50, "max_delay_ms": 400, **options.pop("budget", {})})
    policy = Policy(
        run_uid=harness.RUN_UID,
        run_name="faults",
        ranks=RANKS,
        deadlines_ms={
            phase: limit * 1000 for phase, limit in run.config.limits.deadlines_s.items()
        },
        margin_ms=options.pop("margin_ms", 2_000),
        cascade_ms=options.pop("cascade_ms", 2_000),
        clock_skew_ms=LOCAL_SKEW_MS,
        start_ms=10_000,
        heartbeat_ms=run.config.limits.heartbeat_s * 1000,
        budget=budget,
        terms=Terms(
            launched_wall_ms=time.time_ns() // 1_000_000,
            source_tokens={name: it.train_tokens for name, it in run.config.sources.items()},
            **options.pop("terms", {}),
        ),
        wake_ms=200,
    )
    assert not options, options
    order = {
        "run_uid": harness.RUN_UID,
        "ranks": RANKS,
        "command": list(kind.command),
        "environment": dict(kind.environment),
        "policy": policy.model_dump(mode="json"),
        "plan": run.plan.model_dump(mode="json"),
    }
    (run.path / ORDER_FILE).write_text(json.dumps(order))
    (run.path / "config.json").write_bytes(run.config.encode())
    (run.path / wire.plan_file(run.plan.sha)).unlink()
    create_ledger(run.path / wire.LEDGER_DIR)
    return World(run, logs=path)
