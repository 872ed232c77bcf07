"""A run file as handed in, and a run as its launch left it: plain data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from contract.config import SourceFiles
from contract.plan import Frozen, Name
from contract.wire import Identity
from controller.core.declared.run_file import advise
from controller.core.declared.spec import RunFile


class LaunchFacts(Frozen):
    """What the launch found out besides the run file; fixed for the life of the run."""

    format: Literal[1] = 1
    run_file: str
    """Where the run file lay: relative paths in it start there."""
    sources: dict[Name, SourceFiles]


@dataclass(frozen=True)
class GivenFile:
    """A run file as the owner handed it in, checked in itself."""

    path: Path
    text: str
    run_file: RunFile

    @property
    def advice(self) -> str:
        """The sentence that ends each message about it."""
        return advise(str(self.path))


@dataclass(frozen=True)
class LaunchedRun:
    """A run directory as its launch left it."""

    directory: Path
    identity: Identity
    run_file: RunFile
    facts: LaunchFacts
    text: bytes
    """The accepted run file, byte for byte."""

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.identity.name
