"""Months of a run of the model case's size, in virtual time, told by a whole run file."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from contract.config import SourceFiles
from controller.core.actions import Action
from controller.core.declared.planning import make_genesis, make_policy
from controller.core.declared.run_file import parse_run_file
from controller.core.memory import Memory
from controller.core.recording import read_actions
from controller.simulate.agenda import FIRST_WALL_MS
from controller.simulate.chaos.campaign import new_random
from controller.simulate.chaos.life import Life
from controller.simulate.habitat import Pace
from controller.simulate.world import World

DAY_MS = 86_400_000
STEP_MS = 17_300
"""Of the model case at its usual pace: 78.1 days for all its steps."""
SAVE_EVERY = 200
WAKE_MS = 1_800_000
SOURCE_TOKENS = 10**13

RUN_FILE = """\
apiVersion: steersman.dev/v1alpha1
kind: TrainingRun
metadata:
  name: story
spec:
  fleet: {{kind: local, processes: 4, devicesPerProcess: 176, expertAxis: 16}}
  trainer: {{command: [python, -c, pass]}}
  model: {{preset: tiny, vocabulary: 256}}
  data:
    sources:
      web: {{kind: files, paths: [text.txt], heldOutPercent: 20}}
      code: {{kind: files, paths: [text.txt], heldOutPercent: 20}}
    blockTokens: 201_326_592
    mixture:
      - {{fromPercent: 0, parts: {{web: 32_768, code: 16_384}}}}
      - {{fromPercent: 80, parts: {{web: 16_384, code: 32_768}}}}
  budget: {{horizonTokens: 18_005_144_633_344, dataBudgetTokens: 18_750_000_000_000}}
  batch: {{tokensPerStep: 46_137_344}}
  schedule:
    warmupPercent: 1
    peakLearningRate: {{matrix: "0.003291", other: "0.000759"}}
    finalPercent: 5
    context: [{{fromPercent: 0, length: 4_096}}]
  evaluation: {{everySteps: 3_000, sequences: 2, finalSequences: 4}}
  checkpoints: {{everySteps: {save_every}, keep: 3}}
  deadline: {{at: "{deadline}", reserve: 5d}}
  contingency: {{{contingency}}}
"""


def instant_text(day: float) -> str:
    """Return the instant so many days after the launch, as a run file writes it."""
    launch = datetime.fromtimestamp(FIRST_WALL_MS / 1_000, UTC)
    return (launch + timedelta(days=day)).isoformat()


@dataclass
class Story:
    """One run under the rules as they are; days count from its launch."""

    life: Life

    @property
    def world(self) -> World:
        return self.life.world

    @property
    def memory(self) -> Memory:
        assert self.life.memory is not None
        return self.life.memory

    @property
    def day(self) -> float:
        return self.world.agenda.now_ms / DAY_MS

    def at(self, day: float, deed: Callable[[], object]) -> None:
        """Let something happen on a day to come."""
        delay_ms = round(day * DAY_MS) - self.world.agenda.now_ms
        self.world.agenda.after(delay_ms, deed)

    def slow_to(self, day: float, percent: int) -> None:
        """Let steps take so many percent of the usual time from a day on."""
        self.at(day, lambda: self.world.change_pace(STEP_MS * percent // 100))

    def kill(self, day: float) -> None:
        """Let a rank be killed on a day."""
        self.at(day, self._kill_now)

    def _kill_now(self) -> None:
        gang = self.world.gang
        assert gang is not None
        if gang.alive():
            gang.kill(gang.ranks[1])

    def run(self, until_day: float) -> None:
        """Live on."""
        self.life.run(round(until_day * DAY_MS))
        assert not self.world.violations

    def acts(self, verb: str) -> list[tuple[float, Action]]:
        """Return (day, action) of everything decided so far under a verb."""
        first = self.world.book.records[0].at.mono_ms
        return [
            ((record.at.mono_ms - first) / DAY_MS, action)
            for record in self.world.book.records
            if record.kind == "decision"
            for action in read_actions(record.body)
            if action.verb == verb
        ]

    @property
    def answer(self) -> str:
        """What the owner was answered last."""
        return self.memory.answers[-1].text


def a_story(deadline_day: float, contingency: str = "mode: auto") -> Story:
    """Return a run that is launched now, with everything not named at its default."""
    text = RUN_FILE.format(
        deadline=instant_text(deadline_day), contingency=contingency, save_every=SAVE_EVERY
    )
    run_file = parse_run_file(text)
    files = SourceFiles(
        train="data/x/train.txt",
        heldout="data/x/heldout.txt",
        train_tokens=SOURCE_TOKENS,
        heldout_tokens=20_000,
        train_sha256="1" * 64,
        heldout_sha256="2" * 64,
    )
    sources = {"web": files, "code": files}
    policy = make_policy(run_file, "story", sources, FIRST_WALL_MS)
    # Nobody looks three times a second for months: half an hour is enough to see a day pass.
    policy = policy.model_copy(update={"wake_ms": WAKE_MS})
    pace = Pace(step_ms=STEP_MS, save_every=SAVE_EVERY)
    world = World(policy=policy, random=new_random(1), pace=pace)
    return Story(Life(world, make_genesis(run_file, "story", sources)))
