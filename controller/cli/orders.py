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
class SimulateOrder:
    """`ctl simulate`."""

    files: tuple[Path, ...]
    runs: int
    seed: int
    deadlines: tuple[str, ...]
    """Instants, or days after the launch such as `90d`."""
    picture: Path | None
    form: str


@dataclass(frozen=True)
class ReportOrder:
    """`ctl report`."""

    runs_dir: Path
    name: str
    form: str = "html"
    since: int | None = None
    """Only what later entries of the ledger tell."""
    to: str | None = None
    """A path, or `-` for stdout; None: where that form belongs."""


@dataclass(frozen=True)
class LogOrder:
    """`ctl log`: at most one of the modes is given."""

    runs_dir: Path
    name: str
    verify: bool = False
    explain: str | None = None
    """Number of a record, or `last`."""
    replay: bool = False
    follow: bool = False
    kind: str | None = None
    """Kinds, separated by commas."""
    rule: str | None = None
    verb: str | None = None
    since: str | None = None
    """An instant, a duration ago or the number of a record; so is `until`."""
    until: str | None = None
    last: int | None = None
    form: str = "text"

    @property
    def modes(self) -> list[str]:
        """The options given that exclude each other."""
        return self._given("verify", "explain", "replay", "follow")

    @property
    def filters(self) -> list[str]:
        """The options given that choose among records."""
        return self._given("kind", "rule", "verb", "since", "until", "last")

    def _given(self, *names: str) -> list[str]:
        return [f"--{it}" for it in names if getattr(self, it) not in (False, None)]


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
