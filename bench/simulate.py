"""How long the model case's 104 days take in virtual time, and what their ledger comes to.

python -m bench.simulate [--seed N]
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from controller.adapters.ledger_format import read_content, segment_path
from controller.core.declared.run_file import parse_run_file
from controller.core.declared.simulation import Pace
from controller.core.declared.spec import RunFile
from controller.core.declared.supposition import suppose
from controller.core.telling.replay import replay
from controller.simulate.book import CORE
from controller.simulate.rehearsal.journey import rehearse
from controller.simulate.rehearsal.tale import Rehearsal

HERO = Path(__file__).parent.parent / "samples/hero.yaml"
DAYS, DAY_MS = 104, 86_400_000
TOKENS_PER_SECOND = 2_260_000
"""A pace at which the model case needs some 104 days, failures included."""

Result = TypeVar("Result")


def slow_hero() -> RunFile:
    """Return the model case at an even pace; nobody shortens it."""
    run_file = suppose(parse_run_file(HERO.read_text()), {}, "edit it")
    spec = run_file.spec
    pace = Pace.model_validate({"fromDay": 0, "tokensPerSecond": TOKENS_PER_SECOND})
    update = {
        "simulation": spec.simulation.model_copy(update={"throughput": [pace]}),
        "contingency": spec.contingency.model_copy(update={"mode": "off"}),
    }
    return run_file.model_copy(update={"spec": spec.model_copy(update=update)})


def measure(call: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of a call and its CPU seconds."""
    begin_s = time.process_time()
    result = call()
    return result, time.process_time() - begin_s


def show(told: Rehearsal, cpu_s: float) -> None:
    """Print how long the days took, and how much was decided in them."""
    days = (told.ended_wall_ms - told.launched_wall_ms) / DAY_MS
    ended = sum(it.attempt is not None for it in told.incidents)
    print(
        f"  {days:.1f} days, {told.outcome}: {cpu_s:.1f} s of CPU time,"
        f" {cpu_s * DAYS / days:.1f} s for {DAYS} days (aim < 60)"
    )
    print(
        f"  {len(told.incidents)} failures, {ended} of them ended an attempt;"
        f" {len(told.forecasts)} forecasts, {told.passes} passes, {told.records} records"
    )


def verify(lines: list[bytes]) -> None:
    """Print the ledger's size, and how long the real reader and a replay take."""
    size_mb = sum(len(line) + 1 for line in lines) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        path = segment_path(Path(folder), 1)
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        content, cpu_s = measure(lambda: read_content(Path(folder)))
    assert len(content.records) == len(lines), "the ledger is not read whole"
    print(f"  ledger: {size_mb:.2f} MB (aim < 50), read and verified in {cpu_s:.2f} s (aim < 5)")
    found, replay_s = measure(lambda: replay(content.records, CORE))
    differ = sum(not it.is_equal for it in found)
    print(f"  {len(found)} decisions made again in {replay_s:.1f} s: {differ} differ")


def main() -> int:
    """Print the figures with their conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    load, lines = os.getloadavg()[0], list[bytes]()
    print(f"rehearsal of {HERO.name}, seed {seed}, one of {os.cpu_count()} cores, load {load:.1f}")
    told, cpu_s = measure(lambda: rehearse(slow_hero(), seed, on_line=lines.append))
    show(told, cpu_s)
    verify(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
