"""What being watched and being saved cost the real trainer, as shares of its step time.

    python -m bench.trainer [RUN_FILE] [--at-step N]

Launches the run file (default: samples/tiny.yaml) with `ctl launch --detach` in a directory of its
own, waits for the step, and divides rank 0's own counters by each other: ratios of one run.
"""

import argparse
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.controller import ROOT, await_that, control, launch, log_of, step_of
from contract import metrics, wire
from contract.metrics import Metric
from contract.wire import StepRecord


@dataclass(frozen=True)
class Counters:
    """Seconds that rank 0 counted, and the steps of its log."""

    overhead_s: dict[str, float]
    checkpoint_s: dict[str, float]
    steps: list[StepRecord]


def main() -> int:
    """Print the figures and the conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_file", nargs="?", type=Path, default=ROOT / "samples/tiny.yaml")
    parser.add_argument("--at-step", type=int, default=130)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run_dir = launch(options.run_file, Path(folder))
        try:
            await_that(lambda: step_of(run_dir, 1) >= options.at_step, "the last steps")
            counters = read_counters(run_dir)
        finally:
            control(run_dir, "stop")
    show(options.run_file, counters)
    return 0


def read_counters(run_dir: Path) -> Counters:
    """Return what rank 0 of the first attempt serves now."""
    rank_dir = run_dir / wire.rank_dir(1, 0)
    endpoint = wire.Endpoint.model_validate_json((rank_dir / wire.ENDPOINT_FILE).read_bytes())
    text = httpx.get(f"http://{endpoint.host}:{endpoint.port}/metrics", timeout=10).text
    whole = log_of(run_dir, 1).read_bytes().rpartition(b"\n")[0]
    return Counters(
        overhead_s=by_label(text, metrics.OVERHEAD_SECONDS),
        checkpoint_s=by_label(text, metrics.CHECKPOINT_SECONDS),
        steps=[StepRecord.model_validate_json(line) for line in whole.splitlines()],
    )


def by_label(text: str, metric: Metric) -> dict[str, float]:
    """Return the values of a family with one label, by that label."""
    (label,) = metric.labels
    return {
        sample.labels[label]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == metric.name
    }


def show(run_file: Path, counters: Counters) -> None:
    """Print the figures beside their aims."""
    steps = counters.steps
    clean_s = statistics.median(it.step_s for it in steps if not it.tags)
    saves = sum("save" in it.tags for it in steps)
    print(
        f"trainer of {run_file.name}, {len(steps)} steps, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print(f"  clean step {clean_s * 1000:.0f} ms (median)")
    total_s = sum(counters.overhead_s.values())
    parts = ", ".join(f"{part} {s:.3f} s" for part, s in sorted(counters.overhead_s.items()))
    share = 100 * total_s / len(steps) / clean_s
    print(f"  overhead of being watched {share:.2f}% of a step (aim < 1): {parts}")
    for stage, what in (("blocking", "save stall"), ("digest", "digest, part of it")):
        spent_s = counters.checkpoint_s.get(stage, 0.0) / max(saves, 1)
        print(f"  {what}: {spent_s / clean_s:.2f} clean steps for each of {saves} saves")


if __name__ == "__main__":
    sys.exit(main())
