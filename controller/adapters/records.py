"""What attempts left in their files, for account and summary; read when a run rests."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from contract import wire
from contract.plan import Frozen
from contract.wire import EvalRecord, ExitRecord, PhaseRecord, StepRecord
from controller.adapters.files import numbered, read_or_none
from controller.adapters.steptable import read_steps
from controller.core.telling.history import AttemptHistory

Record = TypeVar("Record", bound=Frozen)

MAX_TAIL_BYTES = 256 * 1024
"""Some 300 steps."""


def read_lines(path: Path, kind: type[Record]) -> list[Record]:
    """Return the records of a log of JSON lines; a torn or foreign line is left out."""
    return parse_lines(read_or_none(path) or b"", kind)


def parse_lines(data: bytes, kind: type[Record]) -> list[Record]:
    """Return the records in `data`; a torn or foreign line is left out."""
    records: list[Record] = []
    for line in data.splitlines():
        try:
            records.append(kind.model_validate_json(line))
        except ValidationError:
            continue
    return records


def read_histories(run_dir: Path) -> list[AttemptHistory]:
    """Return the attempts of a run, oldest first."""
    return [_read_history(run_dir, n) for n in numbered(run_dir / wire.ATTEMPTS_DIR)]


def _read_history(run_dir: Path, attempt: int) -> AttemptHistory:
    directory = run_dir / wire.attempt_dir(attempt)
    phases = read_lines(run_dir / wire.rank_dir(attempt, 0) / wire.PHASES_FILE, PhaseRecord)
    steps = read_steps(directory / wire.STEPS_FILE)
    paths = sorted(directory.glob(f"rank-*/{wire.CLAIM_FILE}"))
    claims = [_wall_s(path) for path in paths]
    claimed = [claim for claim in map(_read_claim, paths) if claim is not None]
    begun = min(claims, default=phases[0].wall_s if phases else 0.0)
    ends = [record.wall_s for record in _read_ends(directory)]
    last = max([begun, *(it.wall_s for it in phases[-1:]), *(it.wall_s for it in steps[-1:])])
    return AttemptHistory(
        number=attempt,
        launched_wall_s=begun,
        ended_wall_s=max(ends, default=last),
        phases=phases,
        steps=steps,
        pids={claim.rank: claim.process.pid for claim in claimed},
    )


def _wall_s(claim: Path) -> float:
    found = _read_claim(claim)
    return claim.stat().st_mtime if found is None else found.wall_s


def _read_claim(claim: Path) -> wire.Claim | None:
    try:
        return wire.Claim.model_validate_json(read_or_none(claim) or b"")
    except ValidationError:
        return None  # torn by the machine's end


def _read_ends(directory: Path) -> Iterator[ExitRecord]:
    for path in directory.glob(f"rank-*/{wire.EXIT_FILE}"):
        data = read_or_none(path)
        try:
            yield ExitRecord.model_validate_json((data or b"").strip())
        except ValidationError:
            continue  # it has not ended, or left no record


def read_evals(run_dir: Path) -> list[EvalRecord]:
    """Return every evaluation of every attempt, oldest attempt first."""
    return [
        record
        for attempt in numbered(run_dir / wire.ATTEMPTS_DIR)
        for record in read_lines(run_dir / wire.attempt_dir(attempt) / wire.EVALS_FILE, EvalRecord)
    ]


class StepTail:
    """The newest lines of the newest attempt's step log, read on as it grows."""

    def __init__(self, run_dir: Path, keep: int) -> None:
        self._run_dir = run_dir
        self._records: deque[StepRecord] = deque(maxlen=keep)
        self._attempt = 0
        self._offset = 0

    def read(self, attempt: int) -> Sequence[StepRecord]:
        """Return at most `keep` records of `attempt`, newest last; none while unreadable."""
        if attempt != self._attempt:
            self._attempt, self._offset = attempt, 0
            self._records.clear()
        path = self._run_dir / wire.attempt_dir(attempt) / wire.STEPS_FILE
        if not path.is_file():
            return ()
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                # A log that was long before we came: its newest lines are enough.
                self._offset = max(self._offset, size - MAX_TAIL_BYTES)
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return ()
        if newline:
            self._offset += len(whole) + 1
            self._records.extend(parse_lines(whole, StepRecord))
        return tuple(self._records)
