"""How large the ledger of the model case is, and how long it takes to verify, read and replay.

python -m bench.ledger

The records are those of a rehearsal of samples/hero.yaml (704 ranks, 104 days); the ledger that
they are written through is the real one. A second ledger holds them again and again up to 10 MB.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from controller.adapters.ledger import (
    Judgement,
    SegmentedLedger,
    create_ledger,
    judge_ledger,
    next_epoch,
)
from controller.adapters.ledger_format import Scan
from controller.cli import deps
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.core.readings import Instant
from controller.core.telling.replay import replay_one
from controller.simulate.rehearsal.journey import rehearse

SAMPLE = Path("samples/hero.yaml")
SEED = 0
MB = 1_000_000
AIM_MB, AIM_S = 50, 5.0
LONG_MB = 10
"""Long enough for a pace, short enough to be written record by record."""


def list_lines() -> list[bytes]:
    """Return the ledger of one rehearsal, a record each."""
    lines: list[bytes] = []
    rehearse(deps.suppose_run(deps.read_given(SAMPLE)), SEED, on_line=lines.append)
    return lines


def write(folder: Path, lines: list[bytes], at_least_bytes: int = 0) -> None:
    """Write the records through the real ledger, again and again up to a size."""
    create_ledger(folder)
    ledger = SegmentedLedger(
        folder, epoch=next_epoch(folder), core_version=deps.core_version(), spec_sha="0" * 64
    )
    written = 0
    while not written or written < at_least_bytes:
        for line in lines:
            record = json.loads(line)
            ledger.append(record["kind"], record["body"], Instant.model_validate(record["at"]))
            written += len(line)
    ledger.close()


def time_call(act: Callable[[], object]) -> tuple[float, object]:
    """Return the seconds that it takes, and what it returns."""
    begin_s = time.perf_counter()
    found = act()
    return time.perf_counter() - begin_s, found


def rebuild(folder: Path, *, is_replaying: bool) -> int:
    """Fold the whole ledger, with each decision made again on the way; return how many differ."""
    memory: Memory | None = None
    differing, core = 0, deps.core_version()
    for record in Scan(folder).records():
        if is_replaying and record.kind == "decision" and memory is not None:
            differing += not replay_one(record, memory, core).is_equal
        memory = fold(memory, record)
    return differing


def tell(folder: Path, what: str) -> tuple[float, float]:
    """Print the size of a ledger and the time to verify it; return both, in MB and seconds."""
    verify_s, found = time_call(lambda: judge_ledger(folder))
    assert isinstance(found, Judgement)
    assert not found.findings, found.findings
    size_mb = found.num_bytes / MB
    print(
        f"  {what}: {found.num_records:,} records, {size_mb:.2f} MB; verified in {verify_s:.2f} s"
        f" ({size_mb / verify_s:.0f} MB/s)"
    )
    return size_mb, verify_s


def main() -> int:
    """Print the figures with their conditions; return 1 if an aim is missed."""
    print(f"ledger: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    lines = list_lines()
    with tempfile.TemporaryDirectory() as place:
        own, long = Path(place) / "own", Path(place) / "long"
        write(own, lines)
        size_mb, verify_s = tell(own, f"{SAMPLE} (aims: < {AIM_MB} MB, < {AIM_S:g} s)")
        fold_s, _ = time_call(lambda: rebuild(own, is_replaying=False))
        replay_s, differing = time_call(lambda: rebuild(own, is_replaying=True))
        print(
            f"  read and folded in {fold_s:.2f} s; replayed in {replay_s:.1f} s, {differing} differ"
        )
        write(long, lines, LONG_MB * MB)
        long_mb, long_s = tell(long, "again and again")
        print(f"  {AIM_MB} MB at that pace: {long_s * AIM_MB / long_mb:.2f} s")
    return 0 if size_mb < AIM_MB and verify_s < AIM_S and not differing else 1


if __name__ == "__main__":
    sys.exit(main())
