"""What a command was asked for, parsed: plain data between the verbs and their procedures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class LaunchOrder:
    """`ctl launch`."""

    file: Path
    runs_dir: Path
    dry_run: bool
    detach: bool
    drill: Path | None


@dataclass(frozen=True)
class Wish:
    """`ctl suspend`, `ctl resume`, `ctl stop`."""

    verb: Literal["suspend", "resume", "stop"]
    from_step: int | None = None
    wait: bool = True
    adopt_copy: bool = False
    """This directory, a copy, is the run from now on."""


@dataclass(frozen=True)
class DrillOrder:
    """`ctl drill`."""

    runs_dir: Path
    name: str
    kind: str | None
    rank: str | None
    at_step: int
    file: Path | None
    step_s: str | None = None
    """Of `pace`: seconds a step, as a decimal string."""


@dataclass(frozen=True)
class GateOrder:
    """`ctl gate`."""

    file: Path
    runs_dir: Path
    steps: int
    form: str


@dataclass(frozen=True)
class ReplanOrder:
    """`ctl replan`: at most one of the wishes is given."""

    runs_dir: Path
    name: str
    horizon: int | None = None
    """Percent of the original horizon."""
    mixture: str | None = None
    """A file, or `@NAME` of a declared alternative."""
    execution: Path | None = None
    approve: str | None = None
    """Id of a proposal; so is `reject`."""
    reject: str | None = None
    diff: bool = False
    wait: bool = True
    form: str = "table"

    @property
    def wishes(self) -> list[str]:
        """The options given that exclude each other."""
        options = ("horizon", "mixture", "execution", "approve", "reject")
        given = [f"--{name}" for name in options if getattr(self, name) is not None]
        return [*given, *(["--diff"] if self.diff else [])]
