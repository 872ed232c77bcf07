"""A rank of a training gang in plain Python, written against `contract` alone.

Run by the controller, once per rank, with the environment of `contract/wire.py`:

    python samples/minimal_trainer.py        python -m samples.minimal_trainer

A copy of this file with `minimal/` beside it is a trainer of its own, wherever it lies.
It learns a byte-bigram model of the run's text (`minimal/learner.py`) and does everything that a
trainer owes the controller. Its only knob is the environment variable MINIMAL_STEP_S: seconds
that each step takes at least, for a pace that does not depend on the machine.
"""

import math
import os
import signal
import sys
import threading
import time
import traceback
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

# First this file's folder: a copy runs the `minimal` beside it, whatever else is on the path.
# Last the one above: in a clone that is not installed, `contract` lies there.
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parent.parent))

from contract import metrics
from contract.checkpoint import Manifest
from contract.data import cursors_at, segments_at
from contract.exits import Exit
from contract.plan import Plan
from contract.wire import (
    ENV_ATTEMPT,
    ENV_RANK,
    ENV_RUN_DIR,
    EVALS_FILE,
    STEPS_FILE,
    ControlRefusal,
    Drops,
    EvalRecord,
    Phase,
    StepRecord,
    plan_file,
    rank_dir,
)
from minimal.control import LEAD_STEPS, Follower
from minimal.ends import End, leave
from minimal.files import LineLog
from minimal.gang import Gang, PeerLost, Word, join_gang
from minimal.learner import (
    Learner,
    count_pairs,
    digest_state,
    gradient_norm,
    to_binary32,
)
from minimal.plans import ChainError, read_chain
from minimal.restore import read_newest_chain, remove_stale_work, restore_state
from minimal.saver import Saver, Snapshot
from minimal.settings import Settings, read_settings
from minimal.telemetry import Telemetry
from minimal.texts import Texts, check_sources
from minimal.watchdog import start_watchdog

CODE = "minimal-1"
"""Replays are compared only between attempts of the same code: change it with the arithmetic."""
ENV_STEP_S = "MINIMAL_STEP_S"
"""Seconds that each step of the sample trainer takes at least; 0 where it is not set."""
PLAN_WAIT_SHARE = 0.75
"""Of the `start` deadline; then the newest checkpoint's own plans must do."""
PLAN_POLL_S = 0.05
FINAL_TRIES = 3
FINAL_PAUSE_S = 2.0
SAMPLE_OPERATIONS = 200_000


class Trainer:
    """One rank from start to end; `run` is the order of things."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        self.settings = settings
        self.telemetry = telemetry
        self.pause = threading.Event()
        self.is_terminated = False
        self.texts = Texts(settings)
        self.learner = Learner(settings.config.optimizer)
        self.saver = Saver(settings, telemetry)
        self.step = 0
        self.staged_step = 0
        """The newest step whose state is saved or on its way; at the start, the one restored."""
        self.last_loss = ""
        self.rates: dict[str, float] = {}
        """Parameter group -> learning rate as the newest update received it."""
        self.min_step_s = float(os.environ.get(ENV_STEP_S, "0"))
        self.disturbances: list[str] = ["first", "compile"]
        self.completed_s = time.monotonic()

    def run(self) -> None:
        """Train from wherever the run stands to its horizon; raises End for any other end."""
        self.start()
        self.rendezvous()
        self.restore()
        self.compile()
        while self.step < self.follower.plan.total_steps:
            self.heed()
            self.train()
            self.telemetry.enter(Phase.STEP)
            if self.step < self.follower.plan.total_steps:
                self.evaluate_if_due()
                self.save_if_due()
        self.finish()

    # Before the first step.

    def start(self) -> None:
        """Take the plan and the text; anything that does not fit ends the rank here."""
        signal.signal(signal.SIGTERM, self.note_termination)
        chain = self.await_chain()
        plan, config = chain[-1], self.settings.config
        if plan.run_uid != config.run_uid:
            raise End(Exit.PLAN_MISMATCH, f"plan {plan.sha[:12]} is of run {plan.run_uid}")
        if plan.config_sha != config.config_sha:
            raise End(
                Exit.CONFIG, "config.model or config.optimizer is not what the plan was made for"
            )
        if plan.data_digest != config.data_digest:
            raise End(Exit.CONFIG, "config.sources are not the texts that the plan was made for")
        check_sources(self.settings, plan)
        self.texts.verify_readable()
        self.telemetry.plan_sha = plan.sha
        self.follower = Follower(self.settings, self.telemetry, chain)

    def note_termination(self, *_: object) -> None:
        """Remember SIGTERM; the gang heeds it before its next step."""
        self.is_terminated = True

    def await_chain(self) -> list[Plan]:
        """Return the plan of the environment with its ancestors, or the newest checkpoint's."""
        sha = self.settings.plan_sha
        path = self.settings.run_dir / plan_file(sha)
        limit_s = self.settings.config.limits.deadlines_s[Phase.START] * PLAN_WAIT_SHARE
        while not path.exists() and self.telemetry.progress_age_s < limit_s:
            self.pause.wait(PLAN_POLL_S)
        self.telemetry.beat()
        try:
            return read_chain(self.settings.run_dir, sha)
        except ChainError as error:
            chain = read_newest_chain(self.settings.run_dir)
            if error.refusal is not ControlRefusal.PLAN_MISSING or chain is None:
                raise End(Exit.PLAN_MISMATCH, str(error)) from error
            sys.stderr.write(f"{error}; running the newest checkpoint's plan instead\n")
            return chain

    def rendezvous(self) -> None:
        """Meet the other ranks."""
        self.telemetry.enter(Phase.RENDEZVOUS)
        self.gang: Gang = join_gang(self.settings, self.follower.plan.sha)
        if self.settings.rank == 0:
            remove_stale_work(self.settings)

    def restore(self) -> None:
        """Load the newest sound checkpoint, or start at step 0 where that is allowed."""
        self.telemetry.enter(Phase.RESTORE)
        manifest = restore_state(
            self.settings, self.telemetry, self.gang, self.follower.chain, self.learner
        )
        if manifest is not None:
            self.step, self.last_loss = manifest.step, manifest.last_loss
            self.staged_step = manifest.step
            if manifest.line == self.follower.plan.line.name:
                self.saver.saved_step = manifest.step
        self.telemetry.step = self.step
        self.follower.hold_execution(self.step)

    def compile(self) -> None:
        """There is nothing to compile; the peak is measured here, if it is not declared."""
        self.telemetry.enter(Phase.COMPILE)
        config = self.settings.config
        if self.settings.rank == 0:
            self.steps = LineLog(self.settings.attempt_dir / STEPS_FILE)
            self.evals = LineLog(self.settings.attempt_dir / EVALS_FILE)
            declared = config.peak_flops_per_device
            peak = float(declared) if declared else measure_flops_per_second()
            origin = "declared" if declared else "measured"
            self.telemetry.set(metrics.PEAK_FLOPS, peak * config.mesh.devices, origin)
            for replay in ("false", "true"):
                self.telemetry.add(metrics.TOKENS, 0.0, replay)
        self.telemetry.enter(Phase.FIRST_STEP)
        self.completed_s = time.monotonic()

    # Between steps.

    def heed(self) -> None:
        """Agree on what the controller asks for before the next step: a revision, or to leave."""
        with self.telemetry.timed(metrics.OVERHEAD_SECONDS, "control"):
            self.saver.check_age()
            news = self.follower.poll() if self.settings.rank == 0 else None
        mine = {
            "terminated": self.is_terminated,
            "pending": self.follower.pending_sha,
            "is_plan_missing": self.follower.is_plan_missing,
        }
        agreed = self.gang.vote(mine, lambda words: agree(words, news))
        if agreed["is_plan_missing"]:
            self.follower.ask_again()
        if agreed["news"] is not None:
            self.follower.obey(agreed["news"], self.step + LEAD_STEPS)
        if self.follower.drain_mode or agreed["terminated"]:
            self.drain(self.follower.drain_mode or "stop")
        if self.step == self.follower.restart_step:
            self.drain("restart")
        if self.follower.adopt(agreed["pending"], self.step):
            self.disturbances.append("plan")
        # Saved under the parent it is as good: that checkpoint may start the revision, too.
        plan = self.follower.plan
        if plan.parent is not None and plan.effective == self.step != self.staged_step:
            self.save()

    def drain(self, mode: str) -> NoReturn:
        """Save, unless this step is saved already, and leave with the code of `mode`."""
        self.telemetry.enter(Phase.DRAIN)
        word: Word = {"failure": "", "has_older": True}
        if self.settings.rank == 0:
            failure = self.saver.wait()
            if self.saver.saved_step != self.step:
                self.saver.begin(self.stage())
                failure = self.saver.wait()
            if self.saver.saved_step == self.step:
                failure = ""
            word = {"failure": failure, "has_older": self.saver.saved_step >= 0}
        verdict = self.gang.vote(word, lambda words: words[0])
        code = Exit.RESTART if mode == "restart" else Exit.DRAINED
        if not verdict["failure"]:
            raise End(code, f"asked to leave ({mode}); step {self.step} is saved")
        if not verdict["has_older"]:
            raise End(Exit.STORAGE, f"asked to leave ({mode}); not saved: {verdict['failure']}")
        raise End(code, f"asked to leave ({mode}) with an older checkpoint: {verdict['failure']}")

    # A step.

    def train(self) -> None:
        """Run one step of the plan and publish what came of it."""
        began_s = time.monotonic()
        plan, step = self.follower.plan, self.step
        values = plan.values_at(step)
        texts = self.read_batch(plan, step)
        data_wait_s = time.monotonic() - began_s
        partial = self.learner.gradient(count_pairs(texts))
        self.pause.wait(max(0.0, began_s + self.min_step_s - time.monotonic()))
        self.telemetry.add(metrics.RANK_PRECOLLECTIVE, time.monotonic() - began_s)
        tokens = plan.tokens_per_step
        mean = array("d", [value / tokens for value in self.gang.sum(partial)])
        loss, norm = to_binary32(mean[0]), to_binary32(gradient_norm(mean))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise End(Exit.NON_FINITE, f"loss {loss}, gradient norm {norm}")
        self.rates = values["learning_rate"]
        self.learner.update(mean, step, self.rates, values.get("weight_decay", {}))
        self.step += 1
        self.last_loss = loss.hex()
        now = time.monotonic()
        step_s, self.completed_s = now - self.completed_s, now
        self.telemetry.note_step(self.step, step_s)
        if self.settings.rank == 0:
            with self.telemetry.timed(metrics.OVERHEAD_SECONDS, "telemetry"):
                self.record(plan, step, loss, norm, (step_s, data_wait_s))
        self.disturbances = []

    def read_batch(self, plan: Plan, step: int) -> list[bytes]:
        """Return this rank's sequences of the step, in batch order."""
        segments = segments_at(plan, step)
        rank, ranks = self.settings.rank, self.settings.ranks
        mine = segments[rank * len(segments) // ranks : (rank + 1) * len(segments) // ranks]
        return [self.texts.read_segment(plan, segment) for segment in mine]

    def record(
        self, plan: Plan, step: int, loss: float, norm: float, seconds: tuple[float, float]
    ) -> None:
        """Log the step and move the counters. Rank 0 only."""
        rates = self.rates
        record = StepRecord(
            line=plan.line.name,
            step=step,
            plan_sha=plan.sha,
            execution_sha=plan.execution_sha,
            code=CODE,
            lr={group: rate.hex() for group, rate in rates.items()},
            loss=loss.hex(),
            grad_norm=norm.hex(),
            tokens=plan.tokens_per_step,
            assignments=0,  # a dense learner routes nothing, so nothing is dropped either
            drops=Drops(sender=0, receiver=0),
            step_s=seconds[0],
            data_wait_s=seconds[1],
            wall_s=time.time(),
            tags=self.disturbances,  # pyright: ignore[reportArgumentType]  checked by the model
        )
        self.steps.append(record.model_dump_json())
        telemetry, tokens = self.telemetry, float(plan.tokens_per_step)
        replay = "true" if step < self.settings.highest_step else "false"
        telemetry.add(metrics.TOKENS, tokens, replay)
        telemetry.add(metrics.FLOPS, tokens * plan.context_at(step).flops_per_token)
        telemetry.set(metrics.LOSS, loss)
        telemetry.set(metrics.GRAD_NORM, norm)
        telemetry.set(metrics.LAST_STEP_TIMESTAMP, record.wall_s)
        for group, rate in rates.items():
            telemetry.set(metrics.LEARNING_RATE, rate, group)
        config = self.settings.config
        mesh = f"{config.mesh.ranks}x{config.mesh.devices_per_rank}"
        telemetry.set(metrics.INFO, 1.0, plan.sha, config.config_sha, CODE, mesh)

    # Evaluation and checkpoints.

    def evaluate_if_due(self) -> None:
        """Measure the held-out loss at every `every_steps`."""
        options = self.settings.config.evaluation
        if self.step % options.every_steps == 0:
            self.evaluate(options.sequences)
            self.disturbances.append("eval")

    def evaluate(self, sequences: int) -> None:
        """Log the mean loss over up to `sequences` held-out sequences of each source."""
        plan, rank, ranks = self.follower.plan, self.settings.rank, self.settings.ranks
        length = plan.context_at(self.step - 1).length
        with self.telemetry.within(Phase.EVAL):
            for source in sorted(self.settings.config.sources):
                mine = self.texts.read_heldout(source, length, sequences)[rank::ranks]
                loss = self.learner.loss(count_pairs(mine))
                total = self.gang.sum(array("d", [loss, len(mine) * length]))
                self.telemetry.beat()
                if rank == 0:
                    self.record_evaluation(source, to_binary32(total[0] / total[1]), int(total[1]))

    def record_evaluation(self, source: str, loss: float, tokens: int) -> None:
        """Log one held-out loss. Rank 0 only."""
        record = EvalRecord(
            step=self.step, source=source, loss=loss.hex(), tokens=tokens, wall_s=time.time()
        )
        self.evals.append(record.model_dump_json())
        self.telemetry.set(metrics.EVAL_LOSS, loss, source)

    def save_if_due(self) -> None:
        """Begin a save at every `every_steps`; only staging, or the save before, holds us up."""
        if self.step % self.settings.config.checkpointing.every_steps == 0:
            self.save()

    def save(self) -> None:
        """Begin a save of this step on every rank; rank 0 writes it."""
        self.disturbances.append("save")
        self.staged_step = self.step
        with self.telemetry.within(Phase.SAVE_BLOCK):
            if self.settings.rank == 0:
                self.saver.begin(self.stage())

    def stage(self) -> Snapshot:
        """Return a copy of the state with its digests, taken before anything can touch it."""
        plan = self.follower.plan
        with self.telemetry.timed(metrics.CHECKPOINT_SECONDS, "stage"):
            state = self.learner.dump()
            manifest = Manifest(
                run_uid=self.settings.run_uid,
                attempt=self.settings.attempt,
                line=plan.line.name,
                step=self.step,
                plans=self.follower.chain,
                ledger_head=self.follower.ledger_head,
                cursors=cursors_at(plan, self.step),
                rng="none: the learner draws no random numbers",
                mesh={"ranks": self.settings.ranks},
                code=CODE,
                last_loss=self.last_loss,
                arrays=digest_state(state),
                files=[],
            )
        return Snapshot(manifest, state)

    def finish(self) -> None:
        """Evaluate and save at the horizon; the run is done once that checkpoint is verified."""
        self.evaluate(self.settings.config.evaluation.final_sequences)
        self.telemetry.enter(Phase.SAVE_BLOCK)
        failure = self.save_finally() if self.settings.rank == 0 else ""
        verdict = self.gang.vote({"failure": failure}, lambda words: words[0])
        if verdict["failure"]:
            raise End(Exit.STORAGE, f"the last checkpoint failed: {verdict['failure']}")

    def save_finally(self) -> str:
        """Save the horizon, trying again a few times; return why it failed, empty if it did not."""
        failure = self.saver.wait()
        for turn in range(FINAL_TRIES):
            if self.saver.saved_step == self.step:
                return ""
            self.pause.wait(FINAL_PAUSE_S if turn else 0.0)
            self.telemetry.beat()
            self.saver.begin(self.stage())
            failure = self.saver.wait()
        return "" if self.saver.saved_step == self.step else failure


def agree(words: list[Word], news: str | None) -> Word:
    """Return what the gang does, from what each rank said and what rank 0 read."""
    held = {word["pending"] for word in words}
    return {
        "news": news,
        "terminated": any(word["terminated"] for word in words),
        "pending": held.pop() if len(held) == 1 else "",
        "is_plan_missing": any(word["is_plan_missing"] for word in words),
    }


def measure_flops_per_second() -> float:
    """Return multiplications and additions per second of one core in this language."""
    began_s = time.perf_counter()
    total = 0.0
    for number in range(SAMPLE_OPERATIONS):
        total += number * 0.5
    return 2 * SAMPLE_OPERATIONS / (time.perf_counter() - began_s)


def guess_rank_dir(environment: Mapping[str, str]) -> Path | None:
    """Return where this rank's files lie even when the rest of the environment is wrong."""
    place: list[Any] = [environment.get(name, "") for name in (ENV_RUN_DIR, ENV_ATTEMPT, ENV_RANK)]
    run_dir, attempt, rank = place
    if not (attempt.isdigit() and rank.isdigit()):
        return None
    path = Path(run_dir) / rank_dir(int(attempt), int(rank))
    return path if path.is_dir() else None


def main() -> NoReturn:
    """Run this rank to its end; every end has a code of `contract/exits.py`."""
    telemetry = None
    place = guess_rank_dir(os.environ)
    try:
        settings = read_settings(os.environ)
        place = settings.rank_dir
        place.mkdir(parents=True, exist_ok=True)
        telemetry = Telemetry(settings)
        telemetry.serve()
        start_watchdog(settings, telemetry)
        Trainer(settings, telemetry).run()
        code, text = Exit.DONE, "the horizon is reached"
    except End as end:
        code, text = end.code, str(end)
    except PeerLost as lost:
        code, text = Exit.PEER_LOST, str(lost)
    except Exception as error:  # noqa: BLE001  the outermost frame: even a bug must leave a record
        traceback.print_exc()
        code, text = Exit.ERROR, f"{type(error).__name__}: {error}"
    leave(code, text, step=telemetry.step if telemetry else 0, rank_dir=place)


if __name__ == "__main__":
    main()
