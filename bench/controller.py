"""How fast a killed rank is seen and replaced, and what the controller itself costs.

    python -m bench.controller [RUN_FILE ...] [--at-step N] [--watch SECONDS]

Launches each run file (default: the JAX-free sample, and the smallest run of the real trainer)
with `ctl launch --detach` in a directory of its own, watches the controller's memory and CPU time
while the gang trains, kills the last rank, and reads ledger and step log for the rest.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import wire
from controller.adapters.files import numbered
from controller.adapters.ledger import read_ledger
from controller.runtime.lease import read_lease

ROOT = Path(__file__).parent.parent
SAMPLES = [ROOT / "samples/minimal.yaml", ROOT / "samples/tiny.yaml"]
PATIENCE_S = 600.0
POLL_S = 0.02
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What the controller used while the gang trained."""

    rss_mb: float
    cpu_percent: float


@dataclass(frozen=True)
class Recovery:
    """Seconds from the kill on."""

    detected_s: float
    launched_s: float
    first_step_s: float


def main() -> int:
    """Print the figures and the conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_files", nargs="*", type=Path, default=SAMPLES)
    parser.add_argument("--at-step", type=int, default=60)
    parser.add_argument("--watch", type=float, default=10.0)
    options = parser.parse_args()
    for run_file in options.run_files:
        measure(run_file, options)
    return 0


def measure(run_file: Path, options: argparse.Namespace) -> None:
    """Launch, watch, kill, and print."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = launch(run_file, Path(folder))
        try:
            await_that(lambda: step_of(run_dir, 1) >= options.at_step, "the first steps")
            cost = watch(run_dir, options.watch)
            recovery = kill_last_rank(run_dir)
        finally:
            control(run_dir, "stop")
    show(run_file, cost, recovery)


def launch(run_file: Path, runs_dir: Path) -> Path:
    """Start the run and return its directory."""
    # The JAX-free trainer's pace; the real one does not know this variable.
    paced = {"MINIMAL_STEP_S": "0.06"} | os.environ
    command = ctl("launch", str(run_file), "--detach", runs_dir=runs_dir)
    subprocess.run(command, check=True, env=paced)
    (identity,) = runs_dir.glob(f"*/{wire.IDENTITY_FILE}")
    return identity.parent


def control(run_dir: Path, verb: str) -> None:
    """Ask for something, and wait until no controller lives."""
    subprocess.run(ctl(verb, run_dir.name, runs_dir=run_dir.parent), check=False)
    await_that(lambda: not read_lease(run_dir).is_held, "the controller to end")


def ctl(*words: str, runs_dir: Path) -> list[str]:
    """Return a command of the command line."""
    return [sys.executable, "-m", "controller.cli.main", *words, "--runs-dir", str(runs_dir)]


def watch(run_dir: Path, seconds: float) -> Cost:
    """Return what the controller uses over `seconds` of undisturbed training."""
    holder = read_lease(run_dir).holder
    assert holder is not None
    pid = holder.process.pid
    began, ticks = time.monotonic(), cpu_ticks(pid)
    time.sleep(seconds)
    spent_s = (cpu_ticks(pid) - ticks) / TICKS_PER_S
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Cost(
        rss_mb=pages * PAGE_BYTES / 1e6, cpu_percent=100 * spent_s / (time.monotonic() - began)
    )


def cpu_ticks(pid: int) -> int:
    """Return user and system time of a process, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def kill_last_rank(run_dir: Path) -> Recovery:
    """Kill a rank and return when it was seen, replaced, and training again."""
    rank_dirs = sorted((run_dir / wire.attempt_dir(1)).glob("rank-*"))
    claim = wire.Claim.model_validate_json((rank_dirs[-1] / wire.CLAIM_FILE).read_bytes())
    killed_s = time.time()
    os.kill(claim.process.pid, signal.SIGKILL)
    await_that(lambda: step_of(run_dir, 2) >= 0, "the first step of the next attempt")
    first = json.loads(log_of(run_dir, 2).read_text().partition("\n")[0])
    return Recovery(
        detected_s=wall_s_of(run_dir, ("close_attempt", "record_end"), killed_s) - killed_s,
        launched_s=wall_s_of(run_dir, ("launch_gang",), killed_s) - killed_s,
        first_step_s=first["wall_s"] - killed_s,
    )


def wall_s_of(run_dir: Path, verbs: tuple[str, ...], after_s: float) -> float:
    """Return when the first decision with one of `verbs` was recorded after an instant."""
    for record in read_ledger(run_dir / wire.LEDGER_DIR):
        actions: Any = record.body.get("actions", ())
        is_one = any(action["verb"] in verbs for action in actions)
        if is_one and record.at.wall_ms / 1000 > after_s:
            return record.at.wall_ms / 1000
    raise AssertionError(f"no decision with {verbs}")


def log_of(run_dir: Path, attempt: int) -> Path:
    """Return the step log of an attempt."""
    return run_dir / wire.attempt_dir(attempt) / wire.STEPS_FILE


def step_of(run_dir: Path, attempt: int) -> int:
    """Return the newest logged step of an attempt, -1 before the first."""
    if (
        attempt not in numbered(run_dir / wire.ATTEMPTS_DIR)
        or not log_of(run_dir, attempt).exists()
    ):
        return -1
    whole = log_of(run_dir, attempt).read_bytes().rpartition(b"\n")[0]
    return json.loads(whole.rpartition(b"\n")[2])["step"] if whole else -1


def await_that(predicate: Callable[[], bool], what: str) -> None:
    """Return once `predicate` holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s in vain for {what}"
        time.sleep(POLL_S)


def show(run_file: Path, cost: Cost, recovery: Recovery) -> None:
    """Print the figures beside their aims."""
    load = os.getloadavg()[0]
    print(f"controller of {run_file.name}, {os.cpu_count()} cores, load {load:.1f}")
    print(f"  memory {cost.rss_mb:.0f} MB (aim <= 120)")
    print(f"  CPU {cost.cpu_percent:.2f}% of a core (aim < 2)")
    print(f"  kill -> recorded {recovery.detected_s:.2f} s (aim < 2)")
    print(f"  kill -> next gang ordered {recovery.launched_s:.2f} s")
    print(f"  kill -> first new step {recovery.first_step_s:.2f} s (aim < 20)")


if __name__ == "__main__":
    sys.exit(main())
