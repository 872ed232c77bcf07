"""How long simple commands take to start: `ctl --help` and `ctl status`.

    python -m bench.startup

Wall time of whole processes, alternating, so that a busy machine disturbs both alike.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 15
AIM_S = 0.5
ROOT = Path(__file__).parent.parent


def main() -> int:
    """Print median and slowest start, and the conditions."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "runs", "probe")
        run.mkdir(parents=True)
        (run / "identity.json").write_text("{}")
        status = {"state": "completed", "reason": "done", "step": 1, "total_steps": 1, "tokens": 1}
        (run / "status.json").write_text(json.dumps(status))
        commands = {"ctl --help": ["--help"], "ctl status": ["status"], "python": None}
        times = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, words in commands.items():
                times[name].append(measure_s(words, folder))
    load = os.getloadavg()[0]
    print(f"start of a command, {ROUNDS} rounds, {os.cpu_count()} cores, load {load:.1f}")
    for name, values in times.items():
        aim = "" if name == "python" else f" (aim < {AIM_S} s)"
        print(f"  {name}: median {statistics.median(values):.3f} s, max {max(values):.3f} s{aim}")
    return 0


def measure_s(words: list[str] | None, folder: str) -> float:
    """Return the seconds one process takes; None is an interpreter that does nothing."""
    arguments = ["-c", "pass"] if words is None else ["-m", "controller.cli.main", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True
    )
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
