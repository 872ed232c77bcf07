"""What simulated trainers live among: time, files, weather."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from contract.plan import Plan, chain_of
from contract.wire import ControlDocument, Phase
from controller.core.memory import Memory
from controller.core.policy import Policy
from controller.simulate.agenda import Agenda
from controller.simulate.shelf import Shelf
from controller.simulate.steps import SimLog


@dataclass(frozen=True)
class Pace:
    """How long simulated trainers take, in milliseconds."""

    claim_ms: int = 200
    phases_ms: tuple[tuple[Phase, int], ...] = (
        (Phase.START, 2_000),
        (Phase.RENDEZVOUS, 2_000),
        (Phase.RESTORE, 3_000),
        (Phase.COMPILE, 10_000),
        (Phase.FIRST_STEP, 5_000),
    )
    step_ms: int = 10_000
    save_every: int = 10
    block_ms: int = 0
    """How long the gang stands still for a save."""
    commit_ms: int = 4_000
    verify_ms: int = 3_000
    cascade_ms: tuple[int, int] = (200, 8_000)
    """How long peers take to notice a lost rank."""


@dataclass
class Habitat:
    """The state that trainers, ports, faults and checkers share."""

    policy: Policy
    random: Random
    pace: Pace = field(default_factory=Pace)
    agenda: Agenda = field(default_factory=Agenda)
    shelf: Shelf = field(default_factory=Shelf)
    log: SimLog = field(default_factory=SimLog)
    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    control: ControlDocument | None = None
    is_garbage: bool = False
    """The control document cannot be parsed."""
    obeyed: tuple[int, int] = (0, 0)
    """Highest (epoch, seq) that a trainer obeyed."""
    is_deaf: bool = False
    """Ranks do not get to read the control document."""
    is_split: bool = False
    """Some rank cannot read a plan's file, so that no boundary is unanimous."""
    disk_full: bool = False
    poison: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    """Step -> (exit code, words) with which a rank ends there, each time."""
    highest: dict[str, int] = field(default_factory=dict[str, int])
    """Line -> most steps ever completed on it."""
    on_phase: list[Callable[[str], None]] = field(default_factory=list[Callable[[str], None]])
    """Told of every phase that a gang enters, and of every moment of a revision."""
    violations: list[str] = field(default_factory=list[str])

    def chain(self, sha: str) -> list[Plan]:
        """Return the plans from the genesis plan to `sha`."""
        return chain_of(self.plans, sha)

    def has_nothing_left(self, memory: Memory) -> bool:
        """Return whether there were checkpoints, and none is left that the plan may start from."""
        # Memory's own chain: a plan that is decided may not be written yet.
        return self.shelf.ever_complete and not self.shelf.has_intact(memory.chain)

    def enter(self, phase: Phase) -> None:
        """Tell of the phase that a gang enters."""
        self.tell(phase.value)

    def tell(self, moment: str) -> None:
        """Tell of a phase, or of a moment in the life of a revision."""
        for listen in self.on_phase:
            listen(moment)

    def violate(self, what: str) -> None:
        """Record that something happened that must never happen."""
        self.violations.append(f"at {self.agenda.now_ms} ms: {what}")

    def says(self, epoch: int) -> ControlDocument | None:
        """Return the control document if a trainer of `epoch` may obey it."""
        document = self.control
        if document is None or self.is_garbage or document.run_uid != self.policy.run_uid:
            return None
        return document if document.order >= self.obeyed and document.epoch >= epoch else None
