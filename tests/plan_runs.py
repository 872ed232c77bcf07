"""Runs with a deadline in a few words: `a_dated_run().training(120, step_s=20).pass_until(...)`.

1,000 steps of 10 s; the window closes at step 250, the floor is 750; an evaluation a minute.
"""

from math import ceil

from controller.core.pace import PaceView
from controller.core.snapshot import GangView, ProgressView, Snapshot
from controller.core.terms import Terms
from controller.simulate.scenario import sim_plan, sim_policy
from tests.builders import WALL_MS, Run

STEPS = 1_000
STEP_S = 10
SLOW_STEP_S = 14
LAUNCHED_MS = WALL_MS + 1_000_000
EVERY_MS = 200_000
TERMS = Terms(
    mode="propose",
    deadline_wall_ms=LAUNCHED_MS + 12_000_000,
    window_percent=25,
    floor_percent=75,
    evaluate_every_ms=EVERY_MS,
    evaluations=3,
    settle_ms=300_000,
    min_clean_steps=5,
    cool_down_ms=600_000,
    lead_ms=2_000,
    launched_wall_ms=LAUNCHED_MS,
    devices=4,
    save_every_steps=10,
    source_tokens={"text": 10**9},
)


class DatedRun(Run):
    """A run that trains against a deadline; its pace is what the test says."""

    step = 0
    trained_s = 0.0
    step_s: float = STEP_S

    def training(self, steps: int, *, step_s: float | None = None) -> "DatedRun":
        """Train so many more steps, at another pace from now on if one is given."""
        self.step_s = self.step_s if step_s is None else step_s
        self.step += steps
        self.trained_s += steps * self.step_s
        self.after(round(steps * self.step_s * 1_000))
        return self.shown()

    def shown(self, **changes) -> "DatedRun":
        """Let the step log be what was trained."""
        since = self.memory.evaluated_step
        pace = PaceView(
            since_step=since,
            until_step=self.step,
            clean_steps=self.step - since,
            step_us=round(self.step_s * 1_000_000),
            error_us=round(self.step_s * 1_000),
            extra_us=0,
            trained_ms=round(self.trained_s * 1_000),
            first_wall_ms=LAUNCHED_MS,
            start_ms=20_000,
            changed_step=None,
            context_length=64,
            execution_sha="e" * 64,
            outages=[],
        )
        gang = self.seen["gang"]
        assert isinstance(gang, GangView)
        view = ProgressView(
            attempt=gang.attempt,
            completed_steps=self.step or None,
            grown_age_ms=100,
            highest_step=self.step,
            replay_mismatch_step=None,
            plan_sha=self.held_sha,
            loss_micronats=2_000_000,
            pace=pace if self.step else None,
        )
        self.seeing(progress=view.model_copy(update=changes))
        return self

    held_sha: str = ""

    def snapshot(self) -> Snapshot:
        """Return what is seen now, the log with the window that the memory asks for."""
        progress = self.seen["progress"]
        if isinstance(progress, ProgressView) and progress.pace is not None:
            kept = progress.model_dump(include={"plan_sha", "is_replaying", "grown_age_ms"})
            self.shown(**kept)
        return super().snapshot()

    def train_and_pass(self, steps: int, *, step_s: float | None = None) -> list[str]:
        """Train on in evaluation-sized pieces with passes between; return the rules that acted."""
        acted: list[str] = []
        end = self.step + steps
        while self.step < end:
            pace = self.step_s if step_s is None else step_s
            piece = min(end - self.step, ceil(EVERY_MS / 1_000 / pace))
            self.training(piece, step_s=step_s)
            acted += self.settle()
        return acted

    def settle(self) -> list[str]:
        """Pass until nothing more is done; return the rules that acted."""
        acted: list[str] = []
        for _ in range(12):
            decision = self.pass_once()
            if not decision.actions:
                return acted
            acted.append(decision.rule)
        raise AssertionError(f"the core goes on acting: {acted}")

    def adopting(self) -> "DatedRun":
        """Let the gang run the newest plan, and the control document name it."""
        self.held_sha = self.memory.plan.sha
        return self.pointed().shown()

    def pointed(self) -> "DatedRun":
        """Let the control document be the one that was published last."""
        control = self.seen["control"]
        self.seeing(control=control.model_copy(update={"plan_sha": self.memory.plan.sha}))
        return self


def a_dated_run(**terms) -> DatedRun:
    """Return a launched run whose terms are TERMS but for what is given."""
    policy = sim_policy(ranks=4, wake_ms=500).model_copy(
        update={"terms": TERMS.model_copy(update=terms)}
    )
    run = DatedRun(policy=policy, plan=sim_plan(STEPS))
    run.held_sha = run.plan.sha
    run.launched()
    run.shown()
    return run


def a_late_run(**terms) -> DatedRun:
    """Return a run that slowed down at step 100 and was found late three times."""
    run = a_dated_run(**terms)
    run.train_and_pass(60)
    rules = run.train_and_pass(45, step_s=SLOW_STEP_S)
    assert "propose" in rules, rules
    return run
