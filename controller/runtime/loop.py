"""Passes until the run rests; the outermost frame of a controller."""

import logging
import signal
from collections.abc import Callable
from enum import StrEnum
from types import FrameType
from typing import Protocol

from controller.core.actions import Decision
from controller.core.memory import Memory
from controller.core.readings import Instant
from controller.ports import Clock, Damaged, EpochLost, Unavailable

POLL_MS = 300
"""The longest pause: a dead rank is seen within it, and a pass costs a millisecond or two."""
SHORTEST_PAUSE_MS = 20
UNWRITTEN_PAUSE_MS = 1_000
"""After a pass that could not be recorded."""

log = logging.getLogger(__name__)


class Ending(StrEnum):
    """Why a controller ended; its gang may live on."""

    COMPLETED = "completed"
    SUSPENDED = "suspended"
    STOPPED = "stopped"
    HALTED = "halted"
    DETACHED = "detached"
    """It was asked to leave; the gang goes on, the next controller adopts it."""
    EPOCH_LOST = "epoch_lost"
    FAILED = "failed"


class Passes(Protocol):
    """What the loop drives: `runtime.reconcile.Reconciler`."""

    @property
    def memory(self) -> Memory:
        """What is remembered after the last pass."""
        ...

    def resume(self) -> object:
        """Rebuild the memory from the ledger."""
        ...

    def pass_once(self) -> Decision:
        """Observe, decide, act, write the status."""
        ...


class Heart(Protocol):
    """What says that this controller lives: `runtime.lease.Lease`."""

    def beat(self, now: Instant) -> None:
        """Say it now."""
        ...


class WakeableClock(Clock, Protocol):
    """A clock whose wait can be ended from a signal handler."""

    def wake(self) -> None:
        """End the wait that runs, or the next one."""
        ...


class StopRequest:
    """Asks the loop to end after the pass that runs; the gang goes on."""

    def __init__(self, clock: WakeableClock) -> None:
        self._clock = clock
        self.is_set = False

    def set(self) -> None:
        """Ask."""
        self.is_set = True
        self._clock.wake()

    def on_signals(self, *numbers: signal.Signals) -> None:
        """Ask when one of the signals arrives; to be called in the main thread."""

        def handle(number: int, frame: FrameType | None) -> None:
            del number, frame
            self.set()

        for number in numbers:
            signal.signal(number, handle)


def run_controller(
    passes: Passes,
    clock: Clock,
    heart: Heart,
    stop: StopRequest,
    after_pass: Callable[[Decision], None] | None = None,
) -> Ending:
    """Drive passes until the run rests, the owner detaches or another controller takes over.

    The memory must have been rebuilt already (`resume`). `after_pass` sees each decision: the
    live view. Never raises.
    """
    try:
        while not stop.is_set:
            decision = _pass(passes, clock, heart)
            if decision is None:
                clock.wait(UNWRITTEN_PAUSE_MS)
                continue
            if after_pass is not None:
                after_pass(decision)
            # A pass that acted is followed by another one: a wish may have woken a resting run.
            ending = ending_of(passes.memory)
            if ending is not None and not decision.actions:
                return ending
            clock.wait(max(SHORTEST_PAUSE_MS, min(decision.wake_in_ms, POLL_MS)))
    except EpochLost as error:
        log.error("this controller ends: %s", error)  # expected: no traceback
        return Ending.EPOCH_LOST
    except Damaged as error:
        log.error("this controller fails, the gang goes on without it: %s", error)
        return Ending.FAILED
    except Exception:  # the outermost frame: logged, and the gang goes on
        log.exception("this controller fails; the gang goes on without it")
        return Ending.FAILED
    return Ending.DETACHED


def _pass(passes: Passes, clock: Clock, heart: Heart) -> Decision | None:
    """Do one pass; None: it could not be recorded (a full disk), training goes on."""
    heart.beat(clock.now())
    try:
        return passes.pass_once()
    except Unavailable as error:
        log.warning("a pass could not be recorded: %s", error)
        return None


def ending_of(memory: Memory) -> Ending | None:
    """Return how the run rests, None while it wants a controller."""
    if memory.halted is not None:
        return Ending.HALTED
    if memory.rest is not None:
        return Ending(memory.rest)
    return None
