"""All that a report is made from, whatever its form."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.core.telling.summary import Evidence
from controller.report.trail import Trail


@dataclass(frozen=True)
class Declared:
    """What the owner wanted to have said before the launch."""

    hypothesis: str = ""
    goals: Sequence[str] = ()
    links: Sequence[str] = ()


@dataclass(frozen=True)
class Dossier:
    """A run as a report tells it."""

    evidence: Evidence
    trail: Trail = field(default_factory=Trail)
    declared: Declared | None = None
    """None: the run file could not be read."""
    rests: Sequence[tuple[float, float]] = ()
    """(from, to) in seconds of wall time in which no gang was wanted."""
    since: int = 0
    """Only what later entries of the ledger tell; 0: everything."""

    @property
    def is_part(self) -> bool:
        """Whether something may have been left out on purpose."""
        return self.since > 0

    def is_new(self, seq: int | None) -> bool:
        """Return whether what an entry tells belongs into this report."""
        return not self.is_part or (seq is not None and seq > self.since)
