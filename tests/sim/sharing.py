"""Lives shared by processes, with a line of progress; Ctrl-C tells what was reached so far."""

import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing import get_context

from controller.simulate.chaos.programme import Campaign, live_named

CHUNK = 4
TELL_EVERY_S = 2.0


def run_chaos(names: Sequence[str], workers: int) -> int:
    """Live the named lives; what was reached is told after Ctrl-C, too."""
    tally, begin_s = Campaign(), time.monotonic()
    # Spawned: what the tests imported, and their threads, are not copied into the workers.
    with get_context("spawn").Pool(min(workers, len(names)), ignore_interrupts) as pool:
        try:
            told_s = begin_s
            for outcome in pool.imap_unordered(live_named, names, CHUNK):
                tally.add(outcome)
                for what in outcome.violations[:1]:
                    sys.stderr.write(f"\n{outcome.name}: {what}\n")
                if time.monotonic() - told_s >= TELL_EVERY_S:
                    told_s = time.monotonic()
                    sys.stderr.write(f"\r{tell_progress(tally, len(names), told_s - begin_s)}")
        except KeyboardInterrupt:
            pool.terminate()
            sys.stderr.write(f"\ninterrupted after {tally.lives} of {len(names)} lives\n")
    spent_s = time.monotonic() - begin_s
    lines = [*tally.lines(), f"{spent_s:.0f} s, {tally.lives / spent_s:.1f} lives a second"]
    sys.stdout.write("\n".join(["", *lines, ""]))
    return 1 if tally.failed or tally.lives < len(names) else 0


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def tell_progress(tally: Campaign, count: int, spent_s: float) -> str:
    """Return how far it is, and how long it takes yet."""
    left_s = spent_s / tally.lives * (count - tally.lives)
    return (
        f"{tally.lives} of {count} lives, {len(tally.failed)} with a violation, "
        f"{left_s / 60:.1f} min left "
    )
