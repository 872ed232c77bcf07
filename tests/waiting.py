"""Waiting for other processes and threads, always under a deadline."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

POLL_S = 0.02
"""Short against any deadline, long against one look at a file or a process."""


def wait_for(predicate: Callable[[], Answer], timeout_s: float, what: str) -> Answer:
    """Poll `predicate` until its answer is truthy, and return that answer.

    It is asked once more at the deadline, so a slow machine never fails for want of a last look.

    Raises:
        AssertionError: still falsy after `timeout_s` seconds; the message names `what`.
    """
    pause = threading.Event()
    deadline = time.monotonic() + timeout_s
    while True:
        is_last_look = time.monotonic() >= deadline
        if answer := predicate():
            return answer
        if is_last_look:
            raise AssertionError(
                f"waited {timeout_s} s in vain for {what}; last answer: {answer!r}"
            )
        pause.wait(POLL_S)
