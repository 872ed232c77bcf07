"""Reads the step logs as they grow, and compares replayed steps bit for bit."""

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from contract import wire
from contract.plan import Plan, PlanError, read_plan
from controller.adapters.files import numbered, read_or_none
from controller.adapters.system import port_errors
from controller.core.readings import Instant
from controller.core.snapshot import GangView, ProgressView

KEPT_STEPS = 20_000
"""Recorded losses kept for comparison, some 10 MB; a replay goes back to a checkpoint only."""
CHUNK_BYTES = 4 * 1024 * 1024


@dataclass
class Replay:
    """What the comparison of replayed steps found so far, over all attempts."""

    replayed_steps: int = 0
    """Steps that were computed again."""
    compared_steps: int = 0
    """Of those, with line, plan past, execution and code equal: their bits must agree."""
    max_loss_difference: float = 0.0
    mismatch_step: int | None = None


@dataclass(frozen=True)
class _Loss:
    """What one computation of a step gave, and under which conditions."""

    plan_sha: str
    execution_sha: str
    code: str
    loss: str


@dataclass
class _Log:
    """How far one attempt's log was read."""

    offset: int = 0
    completed_steps: int | None = None
    highest: dict[str, int] = field(default_factory=dict[str, int])
    """Line -> most completed steps."""


class StepLogs:
    """The step logs of all attempts; each read goes on where the last one ended."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._logs: dict[int, _Log] = {}
        self._losses: OrderedDict[tuple[str, int], _Loss] = OrderedDict()
        self._plans: dict[str, Plan | None] = {}
        self._grown: tuple[int, int | None, Instant] | None = None
        self.replay = Replay()

    def read(self, gang: GangView, line: str, now: Instant) -> ProgressView | None:
        """Return the progress of the newest attempt, None when no step was ever logged.

        Raises:
            Unavailable: a log cannot be read.
        """
        with port_errors("cannot read the step logs"):
            for attempt in numbered(self._run_dir / wire.ATTEMPTS_DIR):
                if attempt not in self._logs or attempt >= gang.attempt - 1:
                    self._advance(attempt)
        completed = self._logs.setdefault(gang.attempt, _Log()).completed_steps
        if self._grown is None or self._grown[:2] != (gang.attempt, completed):
            self._grown = (gang.attempt, completed, now)
        if all(log.completed_steps is None for log in self._logs.values()):
            return None
        return ProgressView(
            attempt=gang.attempt,
            completed_steps=completed,
            grown_age_ms=max(0, now.mono_ms - self._grown[2].mono_ms),
            highest_step=max(log.highest.get(line, 0) for log in self._logs.values()),
            replay_mismatch_step=self.replay.mismatch_step,
        )

    def _path(self, attempt: int) -> Path:
        return self._run_dir / wire.attempt_dir(attempt) / wire.STEPS_FILE

    def _advance(self, attempt: int) -> None:
        """Read what was appended to one log; a last line without its end waits for the rest."""
        log = self._logs.setdefault(attempt, _Log())
        path = self._path(attempt)
        if not path.exists() or path.stat().st_size <= log.offset:
            return
        with path.open("rb") as file:
            file.seek(log.offset)
            while chunk := file.read(CHUNK_BYTES):
                whole, newline, _ = chunk.rpartition(b"\n")
                if not newline:
                    return
                self._take_lines(log, whole.split(b"\n"))
                log.offset += len(whole) + 1
                file.seek(log.offset)

    def _take_lines(self, log: _Log, lines: Iterable[bytes]) -> None:
        for text in lines:
            try:
                # Not the strict model: a long run's log is read whole at each start.
                record = cast("dict[str, str | int]", json.loads(text))
                line, step = str(record["line"]), int(record["step"])
                loss = _Loss(
                    plan_sha=str(record["plan_sha"]),
                    execution_sha=str(record["execution_sha"]),
                    code=str(record["code"]),
                    loss=str(record["loss"]),
                )
                value = float.fromhex(loss.loss)
            except (ValueError, KeyError, TypeError):
                # Torn by a full disk; the trainer writes the record again.
                continue
            log.completed_steps = step + 1
            log.highest[line] = max(log.highest.get(line, 0), step + 1)
            self._compare(line, step, loss, value)

    def _compare(self, line: str, step: int, loss: _Loss, value: float) -> None:
        recorded = self._losses.get((line, step))
        if recorded is not None:
            self.replay.replayed_steps += 1
            if self._must_agree(recorded, loss, step):
                self._count(recorded, loss, step, value)
        self._losses[line, step] = loss
        while len(self._losses) > KEPT_STEPS:
            self._losses.popitem(last=False)

    def _count(self, recorded: _Loss, loss: _Loss, step: int, value: float) -> None:
        replay = self.replay
        replay.compared_steps += 1
        difference = abs(float.fromhex(recorded.loss) - value)
        replay.max_loss_difference = max(replay.max_loss_difference, difference)
        if recorded.loss != loss.loss and replay.mismatch_step is None:
            replay.mismatch_step = step

    def _must_agree(self, recorded: _Loss, loss: _Loss, step: int) -> bool:
        if (recorded.execution_sha, recorded.code) != (loss.execution_sha, loss.code):
            return False
        return (
            recorded.plan_sha == loss.plan_sha
            or self._governs_equally(recorded.plan_sha, loss.plan_sha, step)
            or self._governs_equally(loss.plan_sha, recorded.plan_sha, step)
        )

    def _governs_equally(self, ancestor: str, descendant: str, step: int) -> bool:
        """Return whether every revision from `ancestor` to `descendant` begins after `step`."""
        sha = descendant
        while sha != ancestor:
            plan = self._plan(sha)
            if plan is None or plan.parent is None or step >= plan.effective:
                return False
            sha = plan.parent
        return True

    def _plan(self, sha: str) -> Plan | None:
        if sha not in self._plans:
            data = read_or_none(self._run_dir / wire.plan_file(sha))
            try:
                self._plans[sha] = None if data is None else read_plan(data, sha=sha)
            except PlanError:
                self._plans[sha] = None
        return self._plans[sha]
