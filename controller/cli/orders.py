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
