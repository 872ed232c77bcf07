"""Reads the step logs as they grow, and compares replayed steps bit for bit."""

import json
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import cast

from contract import wire
from contract.plan import Plan, PlanError, read_plan
from controller.adapters.files import numbered, read_or_none
from controller.adapters.system import port_errors
from controller.core.pace import LoggedStep, PaceBook
from controller.core.readings import Instant
from controller.core.snapshot import GangView, ProgressView

KEPT_STEPS = 20_000
"""Recorded losses kept for comparison, some 10 MB; a replay goes back to a checkpoint only."""
RECENT_LOSSES = 50
MICRO = 1_000_000
MS_PER_S = 1_000
MAX_STEP = 10**8
MAX_SECONDS = 10**11
"""Beyond these a line of a log is no step, whoever wrote it; NaN is beyond any bound."""
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
    plan_sha: str | None = None
    """Of the newest step."""
    losses: deque[float] = field(default_factory=lambda: deque[float](maxlen=RECENT_LOSSES))


class StepLogs:
    """The step logs of all attempts; each read goes on where the last one ended."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._logs: dict[int, _Log] = {}
        self._losses: OrderedDict[tuple[str, int], _Loss] = OrderedDict()
        self._plans: dict[str, Plan | None] = {}
        self._grown: tuple[int, int | None, Instant] | None = None
        self._book = PaceBook()
        self.replay = Replay()

    def read(
        self, gang: GangView, line: str, now: Instant, since_step: int = 0
    ) -> ProgressView | None:
        """Return the progress of the newest attempt, None when no step was ever logged.

        Raises:
            Unavailable: a log cannot be read.
        """
        with port_errors("cannot read the step logs"):
            for attempt in numbered(self._run_dir / wire.ATTEMPTS_DIR):
                if attempt not in self._logs or attempt >= gang.attempt - 1:
                    self._advance(attempt)
        newest = self._logs.setdefault(gang.attempt, _Log())
        completed = newest.completed_steps
        if self._grown is None or self._grown[:2] != (gang.attempt, completed):
            self._grown = (gang.attempt, completed, now)
        if all(log.completed_steps is None for log in self._logs.values()):
            return None
        highest = max(log.highest.get(line, 0) for log in self._logs.values())
        return ProgressView(
            attempt=gang.attempt,
            completed_steps=completed,
            grown_age_ms=max(0, now.mono_ms - self._grown[2].mono_ms),
            highest_step=highest,
            replay_mismatch_step=self.replay.mismatch_step,
            plan_sha=newest.plan_sha,
            is_replaying=completed is not None and completed < highest,
            loss_micronats=_mean_micronats(newest.losses),
            pace=self._book.view(since_step),
        )

    def _path(self, attempt: int) -> Path:
        return self._run_dir / wire.attempt_dir(attempt) / wire.STEPS_FILE

    def _advance(self, attempt: int) -> None:
        """Read what was appended to one log; a last line without its end waits for the rest."""
        log = self._logs.setdefault(attempt, _Log())
        path = self._path(attempt)
        # Files only: to open a pipe is to wait for its other end.
        if not path.is_file() or path.stat().st_size <= log.offset:
            return
        if log.offset == 0:
            self._note_launch(attempt)
        with path.open("rb") as file:
            file.seek(log.offset)
            while chunk := file.read(CHUNK_BYTES):
                whole, newline, _ = chunk.rpartition(b"\n")
                if not newline:
                    return
                self._take_lines(attempt, whole.split(b"\n"))
                log.offset += len(whole) + 1
                file.seek(log.offset)

    def _note_launch(self, attempt: int) -> None:
        """Tell the pace when the attempt was launched, by the claim of its first rank."""
        data = read_or_none(self._run_dir / wire.rank_dir(attempt, 0) / wire.CLAIM_FILE)
        try:
            claim = wire.Claim.model_validate_json(data or b"")
        except ValueError:
            return
        self._book.launch(attempt, round(claim.wall_s * MS_PER_S))

    def _take_lines(self, attempt: int, lines: Iterable[bytes]) -> None:
        log = self._logs[attempt]
        for text in lines:
            found = _read_step(text)
            if found is None:
                # Torn by a full disk, and then the trainer writes the record again; or not a step.
                continue
            logged, loss, value = found
            line, step = logged.line, logged.step
            self._book.take(logged, attempt=attempt, length=self._length_at(loss.plan_sha, step))
            log.plan_sha = loss.plan_sha
            log.losses.append(value)
            log.completed_steps = step + 1
            log.highest[line] = max(log.highest.get(line, 0), step + 1)
            self._compare(line, step, loss, value)

    def _length_at(self, plan_sha: str, step: int) -> int:
        """Return the context length in force, 0 where the plan is not there."""
        plan = self._plan(plan_sha)
        return plan.context_at(step).length if plan is not None else 0

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


def _mean_micronats(losses: Sequence[float]) -> int | None:
    """Return the mean in millionths of a nat, None without losses or with one not finite."""
    total = sum(losses)
    return round(MICRO * total / len(losses)) if losses and isfinite(total) else None


def _read_step(text: bytes) -> tuple[LoggedStep, _Loss, float] | None:
    """Return one line of a step log with its loss, None where it is no step that can have been."""
    try:
        # Not the strict model: a long run's log is read whole at each start.
        record = cast("dict[str, str | int | float]", json.loads(text))
        logged = LoggedStep(
            line=str(record["line"]),
            step=int(record["step"]),
            execution_sha=str(record["execution_sha"]),
            code=str(record["code"]),
            step_s=float(record["step_s"]),
            wall_s=float(record["wall_s"]),
            tags=tuple(map(str, cast("dict[str, list[str]]", record)["tags"])),
        )
        loss = _Loss(
            plan_sha=str(record["plan_sha"]),
            execution_sha=logged.execution_sha,
            code=logged.code,
            loss=str(record["loss"]),
        )
        value = float.fromhex(loss.loss)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    is_possible = (
        0 <= logged.step <= MAX_STEP
        and 0 <= logged.step_s <= MAX_SECONDS
        and 0 <= logged.wall_s <= MAX_SECONDS
    )
    return (logged, loss, value) if is_possible else None
