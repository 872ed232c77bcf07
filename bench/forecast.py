"""What a forecast, a step's record and a look at the pace cost.

python -m bench.forecast
"""

import os
import sys
import time
from collections.abc import Callable
from random import Random
from statistics import quantiles

from controller.core.forecast import Work, find_chance, forecast, learn_hazard
from controller.core.pace import LoggedStep, PaceBook, PaceView

ROUNDS = 400
WARM_ROUNDS = 20
STEPS, DONE = 390_251, 60_000
"""The run the design was made for, and what of it the fold reads here."""
ATTEMPT_STEPS = 3_000
STEP_S, SPREAD_S = 18.5, 0.4
PAUSE_S = 6_300.0
DEADLINE_MS = 95 * 86_400_000


def a_book() -> tuple[PaceBook, float]:
    """Return the fold of a run's first steps, and microseconds of CPU time a record."""
    book, random, wall_s = PaceBook(), Random(0), 0.0
    records: list[tuple[int, LoggedStep]] = []
    for step in range(DONE):
        step_s = random.gauss(STEP_S, SPREAD_S)
        wall_s += step_s + (PAUSE_S if step % ATTEMPT_STEPS == 0 else 0.0)
        record = LoggedStep("main", step, "e" * 64, "1", step_s, wall_s)
        records.append((step // ATTEMPT_STEPS, record))
    begin_ns = time.thread_time_ns()
    for attempt, record in records:
        book.take(record, attempt=attempt + 1, length=4_096)
    return book, (time.thread_time_ns() - begin_ns) / 1e3 / DONE


def show_times(name: str, call: Callable[[], object]) -> str:
    """Return p50 and p99 of the CPU time of a call, in words."""
    spent_ns: list[int] = []
    for _ in range(WARM_ROUNDS + ROUNDS):
        begin_ns = time.thread_time_ns()
        call()
        spent_ns.append(time.thread_time_ns() - begin_ns)
    found = quantiles(spent_ns[WARM_ROUNDS:], n=100)
    return f"{name}: p50 {found[49] / 1e6:.2f} ms, p99 {found[98] / 1e6:.2f} ms of CPU time"


def cast(pace: PaceView, *, is_whole: bool) -> object:
    """Make a forecast from the record to the last digit, or P(on time) alone."""
    work = [Work(STEPS - pace.until_step)]
    hazard = learn_hazard(pace, range(DONE), settle_ms=0, devices=704, save_interval_ms=3_600_000)
    if not is_whole:
        return find_chance(0, work, pace, hazard, DEADLINE_MS, total_steps=STEPS)
    return forecast(0, work, pace, hazard, DEADLINE_MS, step=DONE, total_steps=STEPS)


def main() -> int:
    """Print the figures with their conditions."""
    load = os.getloadavg()[0]
    print(f"forecast: {ROUNDS} calls each, {os.cpu_count()} cores, load {load:.1f}")
    book, record_us = a_book()
    pace = book.view()
    assert pace is not None
    print(f"  a step's record folded: {record_us:.1f} us of CPU time, mean of {DONE:,}")
    since = iter(range(DONE))
    # Another window each time: an equal one would come from the cache.
    print(f"  {show_times('a look at the pace', lambda: book.view(next(since)))}")
    print(f"  {show_times('a forecast (aim < 5 ms)', lambda: cast(pace, is_whole=True))}")
    print(f"  {show_times('P(on time) alone', lambda: cast(pace, is_whole=False))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
