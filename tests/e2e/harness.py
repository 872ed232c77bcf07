"""Drives the real `ctl` in a folder of its own, with the JAX-free trainer."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.waiting import wait_for

ROOT = Path(__file__).parent.parent.parent
TRAINER = ROOT / "samples" / "minimal_trainer.py"

RUN_FILE = """\
apiVersion: steersman.dev/v1alpha1
kind: TrainingRun
metadata: {{name: probe}}
spec:
  fleet: {{kind: local, processes: 2, devicesPerProcess: 1}}
  trainer: {{command: [python, {trainer}]}}
  model: {{preset: tiny}}
  data:
    sources:
      code: {{kind: files, paths: [text.txt], heldOutPercent: 20}}
      docs: {{kind: files, paths: [text.txt], heldOutPercent: 20}}
    blockTokens: 2_048
    mixture:
      - {{fromPercent: 0, parts: {{code: 20, docs: 12}}}}
      - {{fromPercent: 80, parts: {{code: 8, docs: 24}}}}
  budget: {{horizonTokens: {tokens}}}
  batch: {{tokensPerStep: 1_024}}
  schedule:
    warmupPercent: 5
    peakLearningRate: {{matrix: "0.5", other: "0.5"}}
    context: [{{fromPercent: 0, length: 64}}]
  evaluation: {{everySteps: 20, sequences: 2, finalSequences: 4}}
  checkpoints: {{everySteps: 10, keep: 3}}
  contingency: {{maxEpochs: 100}}
"""


class Ctl:
    """`ctl` in one folder."""

    def __init__(self, folder):
        self.folder = folder
        text = "".join(f"{n} words and {n * n} more, again and again.\n" for n in range(3_000))
        (folder / "text.txt").write_text(text)
        self.write_run_file()
        self.environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
        }
        self.pace(0.05)

    def pace(self, step_s):
        """Set how long a step takes at least, for gangs of controllers started from now on.

        0.2 where a command must arrive before the end: on a busy machine one takes seconds.
        """
        self.environment["MINIMAL_STEP_S"] = str(step_s)

    @property
    def run_dir(self):
        return self.folder / "runs" / "probe"

    def write_run_file(self, name="run.yaml", *, num_steps=60, **changes):
        text = RUN_FILE.format(trainer=TRAINER, tokens=num_steps * 1024)
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (self.folder / name).write_text(text)

    def command(self, *words):
        return [sys.executable, "-m", "controller.cli.main", *map(str, words)]

    def __call__(self, *words, code=0, timeout_s=60):
        """Run a command to its end and check its exit code; return data and talk together."""
        done = subprocess.run(
            self.command(*words), cwd=self.folder, env=self.environment, timeout=timeout_s,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def start(self, *words):
        """Start a command and return its process."""
        return subprocess.Popen(
            self.command(*words), cwd=self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def status(self):
        """Return `ctl status -o json`, without looking at its exit code."""
        done = subprocess.run(
            self.command("status", "probe", "-o", "json"), cwd=self.folder, env=self.environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return json.loads(done.stdout)

    def summary(self):
        return json.loads((self.run_dir / "summary.json").read_text())

    def steps(self, attempt):
        """Return the records of an attempt's step log."""
        path = self.run_dir / "attempts" / str(attempt) / "steps.jsonl"
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines()]

    def wait_for_step(self, step, *, attempt=1):
        wait_for(
            lambda: any(record["step"] >= step for record in self.steps(attempt)),
            30,
            f"step {step} of attempt {attempt}",
        )

    def controller_pid(self):
        return json.loads((self.run_dir / "controller.lock").read_text().strip())["process"]["pid"]

    def rank_pids(self, attempt=1):
        claims = sorted(self.run_dir.glob(f"attempts/{attempt}/rank-*/claim.json"))
        return [json.loads(path.read_text())["process"]["pid"] for path in claims]

    def end_everything(self):
        """Kill what still runs in this folder: controllers, shims and ranks name it."""
        for process in psutil.process_iter(["cmdline", "environ"]):
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.info["cmdline"] or [])
                place = (process.info["environ"] or {}).get("STEERSMAN_RUN_DIR", "")
                if str(self.folder) in words or place.startswith(str(self.folder)):
                    os.kill(process.pid, signal.SIGKILL)
