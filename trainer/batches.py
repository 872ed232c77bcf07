"""The tokens of a step, read by each rank for its own devices.

Files are verified when the rank starts. One that cannot be opened then is left until a step needs
it, so that a run does not stop for a source that its plan no longer uses.
"""

import logging
import time
from pathlib import Path

import numpy as np

from contract.config import TrainerConfig
from contract.data import locate, segments_at
from contract.exits import Exit
from contract.plan import Plan
from trainer.data.reader import DataError, SourceReader, read_sequences
from trainer.ends import End

LOG = logging.getLogger(__name__)

Rows = tuple[np.ndarray, np.ndarray]
"""tokens and targets, int32[rows, length]."""


class Sources:
    """The stores of all sources, opened and verified once each."""

    def __init__(self, run_dir: Path, config: TrainerConfig) -> None:
        self._run_dir = run_dir
        self._files = {
            path: sha
            for files in config.sources.values()
            for path, sha in (
                (files.train, files.train_sha256),
                (files.heldout, files.heldout_sha256),
            )
        }
        self._open: dict[str, SourceReader] = {}

    def verify(self) -> None:
        """Open what can be opened; raises End (2) naming a file that changed since launch."""
        for path in self._files:
            try:
                self.open(path)
            except DataError as error:
                if not isinstance(error.__cause__, OSError):
                    raise End(Exit.CONFIG, self.describe(error)) from error
                LOG.warning("%s: left until a step needs it", self.describe(error))

    def open(self, path: str) -> SourceReader:
        """Return the reader of a file, opened and verified now if it was not; raises DataError."""
        if path not in self._open:
            self._open[path] = SourceReader(self._run_dir / path, self._files[path])
        return self._open[path]

    def describe(self, error: DataError) -> str:
        """Return the error in words, with the file as the config names it."""
        return str(error).replace(f"{self._run_dir}/", "")


class Batches:
    """This rank's rows of every step, the next step's read while this one computes."""

    def __init__(self, config: TrainerConfig, sources: Sources) -> None:
        self._config = config
        self._sources = sources
        self._ahead: tuple[tuple[str, int], Rows | DataError] | None = None

    def take(self, plan: Plan, step: int, rows: slice) -> tuple[Rows, float]:
        """Return the rows of `step` and the seconds waited for them.

        Raises:
            End: a file cannot be read; the text names it.
        """
        start_s = time.perf_counter()
        if self._ahead is None or self._ahead[0] != (plan.sha, step):
            self.fetch(plan, step, rows)
        assert self._ahead is not None
        batch = self._ahead[1]
        if isinstance(batch, DataError):
            raise End(Exit.ERROR, self._sources.describe(batch)) from batch
        return batch, time.perf_counter() - start_s

    def fetch(self, plan: Plan, step: int, rows: slice) -> None:
        """Read the rows of `step` ahead; an error is kept until the step asks for them."""
        batch: Rows | DataError
        try:
            batch = self._read(plan, step, rows)
        except DataError as error:
            batch = error
        self._ahead = ((plan.sha, step), batch)

    def _read(self, plan: Plan, step: int, rows: slice) -> Rows:
        segments = segments_at(plan, step)[rows]
        places = [
            (
                segment.source,
                locate(
                    segment,
                    source_tokens=self._config.sources[segment.source].train_tokens,
                    unit_tokens=plan.mixture.unit_tokens,
                    seed=plan.seed,
                ),
                segment.length,
            )
            for segment in segments
        ]
        names = {segment.source for segment in segments}
        readers = {name: self._sources.open(self._config.sources[name].train) for name in names}
        return read_sequences(readers, places)

    def count_heldout(self, source: str, length: int) -> int:
        """Return how many whole sequences the held-out text of `source` has."""
        return self._config.sources[source].heldout_tokens // length

    def read_heldout(self, source: str, first: int, length: int, rows: slice) -> Rows:
        """Return the held-out sequences first + rows of `source`; raises End naming the file.

        After the last one comes the first: a short text is read more than once.
        """
        held = self.count_heldout(source, length)
        numbers = range(first + rows.start, first + rows.stop)
        places = [(source, number % held * length, length) for number in numbers]
        try:
            reader = self._sources.open(self._config.sources[source].heldout)
            return read_sequences({source: reader}, places)
        except DataError as error:
            raise End(Exit.ERROR, self._sources.describe(error)) from error
