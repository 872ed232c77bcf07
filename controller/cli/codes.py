"""Exit codes of `ctl`."""

from enum import IntEnum


class Code(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1
    """The run halted, or what was asked for did not work."""
    BAD_INPUT = 2
    """Arguments or a file of the owner's; nothing was started or written."""
    DIFFERS = 3
    """The run file differs from the accepted one in what may not change, the machine is slower than
    the run file's gate demands, the run is behind its plan, or two plans or decisions differ."""
    WAITS = 4
    """A proposal is open and waits for its owner's word."""
    BLIND = 5
    """Nobody steers the run, or its status cannot be read."""
    INTERRUPTED = 130
    """Ctrl-C: the command ended, the run did not."""
