"""Simulate lives under faults and say what was reached: `make sim`, `make chaos`."""

import argparse
import sys
import time

from controller.simulate.chaos.campaign import DAY_MS, campaign, live_quietly
from controller.simulate.chaos.pairs import Blow
from controller.simulate.chaos.programme import list_names, read_name
from tests.sim.sharing import run_chaos

QUIET_DAYS = 30
QUIET_KILLS = 20


def main() -> int:
    """Run the campaign; 1 when a life went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed, or the campaign's")
    parser.add_argument("--count", "--n", type=int, default=200, help="how many lives")
    parser.add_argument("--chaos", action="store_true", help="every fault in every phase, pairs")
    parser.add_argument("--life", default="", help="one life of the campaign, by its name")
    parser.add_argument("--workers", type=int, default=2, help="processes that share the campaign")
    options = parser.parse_args()
    if options.count < 1 or options.seed < 0 or options.workers < 1:
        parser.error("--count and --workers must be at least 1, and --seed at least 0")
    if options.life and not is_name(options.life):
        parser.error(
            f"--life is {options.life}; it must be a seed, SEED/FAULT/PHASE or"
            " SEED/FAULT/PHASE/FAULT, with the names of docs/chaos.md"
        )
    if options.life:
        return run_chaos([options.life], 1)
    if options.chaos:
        return run_chaos(list_names(options.seed, options.count), options.workers)
    return run_seeds(options.seed, options.count)


def is_name(name: str) -> bool:
    """Return whether a life of the campaign has this name."""
    try:
        told = read_name(name)
    except ValueError:
        return False
    return (told.seed if isinstance(told, Blow) else told) >= 0


def run_seeds(seed: int, count: int) -> int:
    """Live by chance, and then a quiet month."""
    begin_s = time.perf_counter()
    tally = campaign(seed, count)
    spent_s = time.perf_counter() - begin_s
    lines = [*tally.lines(), f"{tally.lives / spent_s:.1f} lives a second"]
    begin_s = time.process_time()
    quiet = live_quietly(QUIET_DAYS, kills=QUIET_KILLS)
    days = quiet.world.agenda.now_ms / DAY_MS
    spent_s = time.process_time() - begin_s
    lines.append(
        f"{days / spent_s:.0f} simulated days a second of CPU time with {QUIET_KILLS} killed "
        f"ranks in {days:.0f} days and a pass each hour"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
