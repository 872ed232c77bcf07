"""The simulated checkpoint store."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from contract.plan import Plan, is_admissible
from contract.wire import Restore
from controller.core.snapshot import CheckpointView, StoreView

Damage = Literal["manifest", "data"]

KEEP = 5
"""Verified checkpoints that retention leaves."""


@dataclass
class SimCheckpoint:
    """One complete checkpoint, and what is truly the matter with it."""

    line: str
    step: int
    plan_sha: str
    attempt: int
    verified: bool = False
    quarantined: str | None = None
    damage: Damage | None = None

    def view(self) -> CheckpointView:
        """Return it as the controller's store shows it: damaged data does not show."""
        readable = self.damage != "manifest"
        sha = f"{self.attempt:032x}{self.step:032x}"
        return CheckpointView(
            line=self.line,
            step=self.step,
            plan_sha=self.plan_sha if readable else None,
            manifest_sha256=sha if readable else None,
            verified=self.verified and readable,
            quarantined=self.quarantined,
        )


@dataclass
class Shelf:
    """Every checkpoint of the run."""

    checkpoints: list[SimCheckpoint] = field(default_factory=list[SimCheckpoint])
    ever_complete: bool = False
    ever_verified: bool = False
    reads_back: bool = True
    """False: nothing can be verified, not even by restoring it."""
    keep: int = KEEP

    def view(self) -> StoreView:
        """Return what the controller sees."""
        ordered = sorted(self.checkpoints, key=lambda one: (one.line, one.step))
        return StoreView(
            checkpoints=[one.view() for one in ordered], ever_complete=self.ever_complete
        )

    def find(self, line: str, step: int) -> SimCheckpoint | None:
        """Return the checkpoint at a place, None if there is none."""
        return next((c for c in self.checkpoints if (c.line, c.step) == (line, step)), None)

    def add(self, made: SimCheckpoint) -> None:
        """Put a complete checkpoint in its place; a quarantined one there is moved aside."""
        there = self.find(made.line, made.step)
        if there is not None and there.quarantined is None:
            return
        if there is not None:
            self.checkpoints.remove(there)
        self.checkpoints.append(made)
        self.ever_complete = True

    def verify(self, made: SimCheckpoint) -> None:
        """Mark it as read back, unless it no longer lies there or is damaged; then retain."""
        is_sound = made in self.checkpoints and not made.damage and not made.quarantined
        if not is_sound or not self.reads_back:
            return
        made.verified = True
        self.ever_verified = True
        verified = [c for c in self.checkpoints if c.verified and not c.quarantined]
        for old in sorted(verified, key=lambda one: one.step)[: -self.keep]:
            self.checkpoints.remove(old)

    def choose(self, chain: Sequence[Plan], restore: Restore) -> SimCheckpoint | None:
        """Return what a starting gang restores, marking what it finds damaged on the way."""
        candidates = sorted(self._of_ancestry(chain), key=lambda one: -one.step)
        for found in candidates:
            if restore == Restore.VERIFIED and not found.verified:
                continue
            if found.damage is None:
                self.verify(found)
                return found
            found.quarantined = f"{found.damage} does not match its digest"
        return None

    def has_intact(self, chain: Sequence[Plan]) -> bool:
        """Return whether anything is left that the plan may start from."""
        return any(found.damage is None for found in self._of_ancestry(chain))

    def _of_ancestry(self, chain: Sequence[Plan]) -> list[SimCheckpoint]:
        lineage = chain[-1].lineage
        ends = [line.fork_step for line in lineage[1:]] + [chain[-1].total_steps]
        limits = {line.name: end for line, end in zip(lineage, ends, strict=True)}
        return [
            found
            for found in self.checkpoints
            if found.step <= limits.get(found.line, -1)
            and found.quarantined is None
            and (found.damage == "manifest" or is_admissible(chain, found.plan_sha, found.step))
        ]
