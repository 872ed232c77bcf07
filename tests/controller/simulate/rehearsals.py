"""Small declared runs to rehearse: two racks that train, of two trays that do, one rank on each."""

import json
from dataclasses import dataclass

from controller.core.declared.run_file import parse_run_file
from controller.core.declared.spec import RunFile
from controller.core.declared.supposition import suppose
from controller.simulate.rehearsal.journey import rehearse
from controller.simulate.rehearsal.tale import Rehearsal

DAY_MS = 86_400_000
STEPS = 8_640
"""Of 20 s each at the declared pace: two days."""

RUN_FILE = """\
apiVersion: steersman.dev/v1alpha1
kind: TrainingRun
metadata: {{name: small}}
spec:
  fleet:
    kind: kubernetes
    racks: {racks}
    spareRacks: {spare_racks}
    traysPerRack: {trays}
    spareTraysPerRack: {spare_trays}
    processesPerTray: 1
    devicesPerProcess: 2
  trainer: {{command: [python, -c, pass]}}
  model: {{preset: tiny}}
  data:
    sources:
      web: {{kind: declared, tokens: 1_000_000_000}}
    blockTokens: 8_192
    mixture: [{{fromPercent: 0, parts: {{web: {parts}}}}}]
  budget: {{horizonTokens: {horizon}}}
  batch: {{tokensPerStep: 4_096}}
  schedule:
    peakLearningRate: {{matrix: "0.003", other: "0.003"}}
    context: [{context}]
  evaluation: {{everySteps: {evaluate}, sequences: 2, finalSequences: 4}}
  checkpoints: {{everySteps: 100, keep: 3}}
  faults:
    deadlines: {{start: 30m, rendezvous: 10m, restore: 90m, compile: 45m, step: 15m}}
    commit: 20m
    heartbeat: 16m
    margin: 1m
    cascade: 1m
    restarts: {restarts}
  {deadline}
  simulation:
    launchAt: "2026-01-01T00:00:00Z"
    throughput: [{throughput}]
    driftPermille: {drift}
    failures: {failures}
    repairSpreadPercent: {spread}
    restart: {{start: 1m, rendezvous: 1m, restore: 5m, compile: 2m, firstStep: 1m}}
    save: {{block: 4s, commit: 5m}}
    owner: {owner}
    detect: 10s
"""

ALL_KINDS = """{
      rank: {effect: rank, every: 10h},
      tray: {effect: tray, every: 10h, repair: 5h},
      rack: {effect: rack, every: 2d, repair: 12h},
      hang: {effect: hang, every: 15h},
      slow: {effect: slow, every: 15h, repair: 3h, percent: 30},
      storage: {effect: storage, every: 1d, repair: 2h},
      checkpoint: {effect: checkpoint, every: 12h},
      blind: {effect: blind, every: 12h, repair: 1h}}"""

LATE = """deadline: {at: "2026-01-02T21:00:00Z"}
  contingency:
    {mode: propose, windowPercent: 50, floorPercent: 60, evaluateEvery: 2h, evaluations: 2,
     settle: 3h, minCleanSteps: 20, coolDown: 6h}"""
"""Three hours less than the steps alone take."""


@dataclass(frozen=True)
class Small:
    """A run file by what the tests change in it."""

    racks: int = 3
    spare_racks: int = 1
    trays: int = 3
    spare_trays: int = 1
    horizon: int = STEPS * 4_096
    context: str = "{fromPercent: 0, length: 64}"
    parts: int = 128
    """Of the longest context in a block of 8,192 tokens."""
    evaluate: int = 3_000
    """Steps between evaluations."""
    deadline: str = ""
    throughput: str = "{fromDay: 0, tokensPerSecond: 205}"
    drift: int = 0
    failures: str = "{}"
    spread: int = 60
    restarts: str = "{window: 6h, inWindow: 30, withoutProgress: 30}"
    owner: str = "{approvesAfter: 1h, resumesAfter: 30m}"

    def parse(self) -> RunFile:
        return suppose(parse_run_file(RUN_FILE.format(**self.__dict__)), {}, "")


@dataclass
class Heard:
    """A rehearsal and the lines of its ledger."""

    told: Rehearsal
    lines: list[bytes]

    @property
    def records(self):
        """Every record, read from its line."""
        return [json.loads(line) for line in self.lines]

    def notes(self, subject: str) -> list[str]:
        """What was noted on a subject."""
        return [
            action["reason"]
            for record in self.records
            if record["kind"] == "decision"
            for action in record["body"]["actions"]
            if action["verb"] == "note" and action["subject"] == subject
        ]


def play(seed: int = 1, *, poll_ms=None, on_day=None, **changes) -> Heard:
    """Rehearse a small run."""
    lines: list[bytes] = []
    run_file = Small(**changes).parse()
    told = rehearse(run_file, seed, on_day=on_day, on_line=lines.append, poll_ms=poll_ms)
    return Heard(told, lines)
