"""Runs rehearsals in processes of their own, two at a time.

They are spawned, never forked; a Ctrl-C is the parent's alone, which ends them.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import cast

from controller.core.declared.spec import RunFile
from controller.ports import Unavailable
from controller.simulate.rehearsal.journey import rehearse
from controller.simulate.rehearsal.tale import Rehearsal

MOST_PROCESSES = 2


@dataclass(frozen=True)
class Job:
    """One run to be rehearsed."""

    run_file: RunFile
    seed: int


OnDay = Callable[[int, int], None]
"""Told the number of a job, and the day it came to."""
Word = tuple[int, int, Rehearsal | None]
"""Number of a job, the day it came to, and the whole once it is done."""


def rehearse_all(jobs: Sequence[Job], on_day: OnDay) -> list[Rehearsal]:
    """Return the rehearsals of all jobs, in their order.

    Raises:
        Unavailable: a process ended before its time.
    """
    count = min(MOST_PROCESSES, len(jobs), os.cpu_count() or 1)
    if count == 1:
        return [
            rehearse(job.run_file, job.seed, on_day=lambda day, number=number: on_day(number, day))
            for number, job in enumerate(jobs)
        ]
    done: dict[int, Rehearsal] = {}
    with _start(count) as helpers:
        waiting = list(enumerate(jobs))[::-1]
        for helper in helpers:
            helper.send(waiting.pop())
        while len(done) < len(jobs):
            for helper in wait(helpers):
                assert isinstance(helper, Connection)
                number, day, rehearsal = hear(helper)
                on_day(number, day)
                if rehearsal is not None:
                    done[number] = rehearsal
                    if waiting:
                        helper.send(waiting.pop())
    return [done[number] for number in range(len(jobs))]


def hear(helper: Connection) -> Word:
    """Return what a process says next.

    Raises:
        Unavailable: it ended.
    """
    try:
        return helper.recv()
    except EOFError as error:
        why = "a process that rehearsed ended before its time; its words stand above"
        raise Unavailable(why) from error


@contextlib.contextmanager
def _start(count: int) -> Generator[list[Connection]]:
    """Start so many processes, and end them however the block ends."""
    context = multiprocessing.get_context("spawn")
    helpers: list[Connection] = []
    processes: list[BaseProcess] = []
    try:
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(there,), daemon=True)
            process.start()
            there.close()
            processes.append(process)
            helpers.append(cast("Connection", here))
        yield helpers
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def serve(parent: Connection) -> None:
    """Rehearse what the parent sends, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            number, job = parent.recv()
            _rehearse_one(parent, number, job)


def _rehearse_one(parent: Connection, number: int, job: Job) -> None:
    def tell(day: int) -> None:
        word: Word = (number, day, None)
        parent.send(word)

    rehearsal = rehearse(job.run_file, job.seed, on_day=tell)
    last: Word = (number, 0, rehearsal)
    parent.send(last)
