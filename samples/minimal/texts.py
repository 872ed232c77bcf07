"""The run's text: verified once, then read by offset."""

import hashlib

from contract.data import Segment, locate
from contract.exits import Exit
from contract.plan import Plan
from minimal.ends import End
from minimal.settings import Settings


class Texts:
    """The stores of every source, whole in memory: a few megabytes each."""

    def __init__(self, settings: Settings) -> None:
        self._run_dir = settings.run_dir
        self._sources = settings.config.sources
        self._loaded: dict[str, bytes] = {}

    def verify_readable(self) -> None:
        """Verify what can be opened now; what cannot is left until a step needs it.

        So an unreadable file ends the run at the step that needs it, with the step in its record,
        while a changed one never trains a single step.
        """
        for files in self._sources.values():
            for path, sha in (
                (files.train, files.train_sha256),
                (files.heldout, files.heldout_sha256),
            ):
                try:
                    self._load(path, sha)
                except OSError:
                    continue

    def _load(self, path: str, sha: str) -> bytes:
        if path not in self._loaded:
            data = (self._run_dir / path).read_bytes()
            if hashlib.sha256(data).hexdigest() != sha:
                raise End(Exit.CONFIG, f"{path} is not the file of the launch: its sha256 differs")
            self._loaded[path] = data
        return self._loaded[path]

    def _need(self, path: str, sha: str) -> bytes:
        try:
            return self._load(path, sha)
        except OSError as error:
            raise End(Exit.ERROR, f"{path}: {error.strerror}") from error

    def read_segment(self, plan: Plan, segment: Segment) -> bytes:
        """Return the segment's tokens and the one that follows, which is the last target."""
        files = self._sources[segment.source]
        data = self._need(files.train, files.train_sha256)
        offset = locate(
            segment,
            source_tokens=files.train_tokens,
            unit_tokens=plan.mixture.unit_tokens,
            seed=plan.seed,
        )
        return _read_around(data, offset, segment.length)

    def read_heldout(self, source: str, length: int, sequences: int) -> list[bytes]:
        """Return up to `sequences` held-out sequences, spread evenly over the whole text."""
        files = self._sources[source]
        data = self._need(files.heldout, files.heldout_sha256)
        whole = max(1, (len(data) - 1) // length)
        count = min(sequences, whole)
        offsets = (index * whole // count * length for index in range(count))
        return [_read_around(data, offset, length) for offset in offsets]


def _read_around(data: bytes, offset: int, length: int) -> bytes:
    text = data[offset : offset + length + 1]
    return text if len(text) == length + 1 else text + data[:1]


def check_sources(settings: Settings, plan: Plan) -> None:
    """End with CONFIG unless every source of the plan is declared and holds a unit."""
    for source in plan.sources:
        files = settings.config.sources.get(source)
        if files is None:
            raise End(Exit.CONFIG, f"the plan mixes source {source}, which the config lacks")
        if files.train_tokens < plan.mixture.unit_tokens:
            raise End(Exit.CONFIG, f"{files.train} is shorter than {plan.mixture.unit_tokens}")
