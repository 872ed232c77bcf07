"""Exit codes of a trainer rank, and what each allows."""

from enum import IntEnum

SIGNAL_BASE = 128
"""A rank ended by signal n is recorded as 128 + n, as containers report it."""


class Exit(IntEnum):
    """Why a rank ended; numbers above 128 are signals."""

    DONE = 0
    """The horizon is reached and the last checkpoint is verified."""
    ERROR = 1
    """An exception without a class of its own."""
    CONFIG = 2
    """Arguments, plan or mesh refused before the first collective."""
    DRAINED = 40
    """Asked to leave; a checkpoint is committed."""
    RESTART = 42
    """Asked to restart; a checkpoint is committed."""
    NON_FINITE = 80
    """The loss or the gradient norm is not finite."""
    REPLICA_MISMATCH = 81
    """Replicas hold different bits."""
    NO_CHECKPOINT = 82
    """A checkpoint was required and none could be restored."""
    STORAGE = 83
    """Saving failed for so long that going on would be reckless."""
    PLAN_MISMATCH = 84
    """The plan's past differs, or the checkpoint is not linked to it."""
    NO_RETRY = 93
    """Anything else that a restart cannot cure."""
    STALL = 124
    """The watchdog ended a rank that passed a phase deadline, after dumping its stacks."""
    ABORTED = 134
    """SIGABRT: the runtime lost a peer or the coordinator."""
    KILLED = 137
    SEGV = 139
    TERMINATED = 143
    PEER_LOST = 94
    """The rank saw a peer disappear and left at once: always a cascade."""


NEVER_RETRY = frozenset(
    {Exit.CONFIG, Exit.NO_CHECKPOINT, Exit.PLAN_MISMATCH, Exit.NO_RETRY},
)
"""A restart cannot cure these."""

PLANNED = frozenset({Exit.DONE, Exit.DRAINED, Exit.RESTART})
"""Ends that were asked for."""

CASCADE = frozenset({Exit.ABORTED, Exit.PEER_LOST})
"""Ends caused by the loss of another rank, unless they stand alone."""


def describe_exit(code: int) -> str:
    """Return the name of `code` in words for people: `137 KILLED`, `130 signal 2`."""
    try:
        return f"{code} {Exit(code).name}"
    except ValueError:
        pass
    if code > SIGNAL_BASE:
        return f"{code} signal {code - SIGNAL_BASE}"
    return str(code)
