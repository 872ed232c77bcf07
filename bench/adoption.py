"""How long a revision takes from consent to the step that it governs, and what it costs there.

    python -m bench.adoption [RUN_FILE ...] [--at-step N]

Launches each run file (default: the JAX-free sample, and the smallest run of the real trainer)
with `ctl launch --detach`, proposes another mixture with `ctl replan`, approves it, and reads the
ledger and rank 0's step log for the rest.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.controller import SAMPLES, await_that, control, ctl, launch, log_of, step_of
from contract import wire
from contract.wire import StepRecord
from controller.adapters.ledger import read_ledger

NEAR_STEPS = 20
"""Untagged steps on each side of the fork that are compared."""
MS_PER_S = 1_000
STATUS_FILE = "status.json"


@dataclass(frozen=True)
class Adoption:
    """One revision on its way; instants are wall clocks in seconds."""

    proposed_s: float
    approved_s: float
    published_s: float
    recorded_s: float
    fork_step: int
    steps: Sequence[StepRecord]

    @property
    def clean_s(self) -> float:
        """Median of the untagged steps right before the fork."""
        before = [it.step_s for it in self.steps[: self.fork_step] if not it.tags]
        return statistics.median(before[-NEAR_STEPS:])

    @property
    def later_s(self) -> float:
        """Median of the untagged steps right after the fork."""
        after = [it.step_s for it in self.steps[self.fork_step + 1 :] if not it.tags]
        return statistics.median(after[:NEAR_STEPS])

    @property
    def saves_s(self) -> Sequence[float]:
        """Return the steps with ordinary saves."""
        return [
            it.step_s
            for it in self.steps
            if "save" in it.tags and "eval" not in it.tags and it.step != self.fork_step
        ]


def main() -> int:
    """Print the figures and the conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_files", nargs="*", type=Path, default=SAMPLES)
    parser.add_argument("--at-step", type=int, default=45)
    options = parser.parse_args()
    for run_file in options.run_files:
        with tempfile.TemporaryDirectory() as folder:
            run_dir = launch(run_file, Path(folder))
            try:
                await_that(lambda run=run_dir: step_of(run, 1) >= options.at_step, "steps")
                revise(run_dir, run_file)
                await_that(lambda run=run_dir: adopted_step(run) is not None, "the adoption")
                fork = adopted_step(run_dir)
                assert fork is not None
                last = fork + 2 * NEAR_STEPS
                await_that(lambda run=run_dir, end=last: step_of(run, 1) >= end, "steps after it")
                adoption = read_adoption(run_dir, fork)
            finally:
                control(run_dir, "stop")
        show(run_file, adoption)
    return 0


def revise(run_dir: Path, run_file: Path) -> None:
    """Propose the mixture with two sources' parts moved by one, and approve it."""
    spec: Any = yaml.safe_load(run_file.read_text())
    parts = dict(spec["spec"]["data"]["mixture"][0]["parts"])
    first, second = sorted(parts)
    parts |= {first: parts[first] - 1, second: parts[second] + 1}
    path = run_dir.parent / "mixture.yaml"
    path.write_text(yaml.safe_dump([{"fromPercent": 0, "parts": parts}]))
    say(run_dir, "--mixture", str(path))
    say(run_dir, "--approve", json.loads((run_dir / STATUS_FILE).read_text())["proposal"]["id"])


def say(run_dir: Path, *words: str) -> None:
    """Tell the controller, and return when it answered."""
    command = ctl("replan", run_dir.name, *words, runs_dir=run_dir.parent)
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


def adopted_step(run_dir: Path) -> int | None:
    """Return the fork of the adopted revision, None before."""
    status = json.loads((run_dir / STATUS_FILE).read_text())
    found = [it["fork_step"] for it in status["revisions"] if it["adopted_step"] is not None]
    return found[0] if found else None


def read_adoption(run_dir: Path, fork_step: int) -> Adoption:
    """Return the revision's way, from the ledger and the step log."""
    whole = log_of(run_dir, 1).read_bytes().rpartition(b"\n")[0]
    return Adoption(
        proposed_s=wall_s_of(run_dir, lambda act: act["verb"] == "propose"),
        approved_s=wall_s_of(run_dir, lambda act: act["verb"] == "approve"),
        published_s=wall_s_of(run_dir, lambda act: act.get("proposal") and "plan" in act),
        recorded_s=wall_s_of(run_dir, lambda act: act["verb"] == "record_adoption"),
        fork_step=fork_step,
        steps=[StepRecord.model_validate_json(line) for line in whole.splitlines()],
    )


def wall_s_of(run_dir: Path, is_it: Callable[[Any], object]) -> float:
    """Return when the first such action was recorded."""
    for record in read_ledger(run_dir / wire.LEDGER_DIR):
        actions: Any = record.body.get("actions", ())
        if any(is_it(action) for action in actions):
            return record.at.wall_ms / MS_PER_S
    raise AssertionError("no such decision")


def show(run_file: Path, found: Adoption) -> None:
    """Print the figures beside their aims."""
    clean_s = found.clean_s
    governs_s = next(it.wall_s - it.step_s for it in found.steps if it.step == found.fork_step)
    at_publishing = sum(it.wall_s <= found.published_s for it in found.steps)
    at_approval = sum(it.wall_s <= found.approved_s for it in found.steps)
    fork_s = next(it.step_s for it in found.steps if it.step == found.fork_step)
    print(
        f"adoption in {run_file.name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"clean step {1000 * clean_s:.0f} ms"
    )
    print(
        f"  approval -> first step under the revision: {found.fork_step - at_approval} steps, "
        f"{governs_s - found.approved_s:.2f} s (of which published after "
        f"{found.published_s - found.approved_s:.2f} s, at step {at_publishing})"
    )
    print(f"  proposal -> first step under the revision: {governs_s - found.proposed_s:.2f} s")
    print(f"  first step under it -> recorded: {found.recorded_s - governs_s:.2f} s")
    saves = found.saves_s
    usual = f"{statistics.median(saves) / clean_s:.2f}" if saves else "there are none"
    print(f"  the step with the forced save: {fork_s / clean_s:.2f} clean steps (others: {usual})")
    print(
        f"  {NEAR_STEPS} untagged steps after it: median {found.later_s / clean_s:.3f} of that of "
        f"{NEAR_STEPS} before it (aim: 1)"
    )


if __name__ == "__main__":
    sys.exit(main())
