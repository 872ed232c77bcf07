"""Signals that end a command in the middle of work that must be undone."""

import contextlib
import signal
from collections.abc import Generator

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Generator[None]:
    """Let SIGTERM and SIGHUP end what runs inside as Ctrl-C does; main thread only."""
    before = {number: signal.signal(number, _interrupt) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def undisturbed() -> Generator[None]:
    """Hear no ending signal inside: what must be undone is undone whole; main thread only."""
    numbers = (signal.SIGINT, *ENDING)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
