"""One rank of a gang, from its first second to its last: `python -m trainer.train`.

Read `train` for the run itself; `main` holds every way to end.
"""

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import jax

from contract.exits import Exit
from contract.metrics import OVERHEAD_SECONDS, Sample
from contract.wire import PHASES_FILE, Phase
from trainer.checkpoint import NO_LEDGER, VERIFIED, Moment
from trainer.compile_cache import storing_programs
from trainer.ends import End, leave
from trainer.gang import GangError, first_line
from trainer.mesh import local_rows, place_batch
from trainer.phases import PhaseClock
from trainer.report import Report, Timing, make_word, read_outputs
from trainer.seat import SeatError, read_config, read_seat
from trainer.start import Post, Rank, get_patience_s, get_ready, publish_plan
from trainer.step import make_scheduled
from trainer.store import list_places
from trainer.telemetry import Meter, begin_series, publish_endpoint, serve, watch_clock
from trainer.watchdog import Watchdog

LAST_SAVE_TRIES = 3
LAST_SAVE_PAUSE_S = 3.0
PART_S = 10.0


def train(rank: Rank) -> Exit:
    """Run steps until the horizon or a drain; return the code to leave with, or raise End."""
    settings = rank.post.config
    while rank.step < rank.plan.total_steps:
        mode = take_orders(rank)
        if mode is not None:
            return drain(rank, mode)
        if is_at_fork(rank):
            save(rank)
        run_step(rank)
        is_last = rank.step == rank.plan.total_steps
        if not is_last and rank.step % settings.checkpointing.every_steps == 0:
            save(rank)
        if not is_last and rank.step % settings.evaluation.every_steps == 0:
            evaluate(rank)
    return finish(rank)


def take_orders(rank: Rank) -> str | None:
    """Hear what the gang agreed on for this step; return the mode of a drain."""
    with rank.post.meter.overhead("control"):
        orders = rank.helm.take_orders(rank.step)
    if orders.adopted is not None:
        publish_plan(rank.post, orders.adopted, rank.code)
        rank.tags.add("plan")
    if orders.drain is None and rank.step == rank.restart_at:
        return "restart"
    return orders.drain


def is_at_fork(rank: Rank) -> bool:
    """Return whether the revision in force begins here and this step's state is not saved yet.

    Saved under the parent it is as good: that checkpoint may start the revision, too.
    """
    plan = rank.plan
    return plan.parent is not None and plan.effective == rank.step != rank.staged_step


def run_step(rank: Rank) -> None:
    """Run one step, read what it says, and record it."""
    plan, step, clock = rank.plan, rank.step, rank.post.clock
    length = plan.context_at(step).length
    sequences = plan.tokens_per_step // length
    prepare(rank, sequences, length)
    clock.enter(Phase.FIRST_STEP if "first" in rank.tags else Phase.STEP, step)
    rows = local_rows(rank.run.mesh, sequences)
    (tokens, targets), waited_s = rank.batches.take(plan, step, rows)
    values = plan.values_at(step)
    scheduled = make_scheduled(
        rank.run.mesh,
        values["learning_rate"],
        values.get("weight_decay", {}).get("matrix", 0.0),
        make_word(plan, has_news=rank.helm.has_news),
    )
    entry_s = time.perf_counter() - rank.completed_s
    with blaming_lost_peers(rank):
        rank.state, outputs = rank.run(
            rank.state,
            place_batch(rank.run.mesh, tokens, sequences),
            place_batch(rank.run.mesh, targets, sequences),
            scheduled,
        )
        read_ahead(rank)
        report = read_outputs(outputs)
    require_sound(rank, report)
    rank.helm.hear(has_news=report.has_news)
    now_s = time.perf_counter()
    timing = Timing(now_s - rank.completed_s, waited_s, entry_s, tuple(sorted(rank.tags)))
    rank.completed_s, rank.tags = now_s, set()
    rank.step, rank.last_loss = step + 1, report.loss.hex()
    with rank.post.meter.overhead("telemetry"):
        clock.advance(rank.step, timing.step_s)
        rank.reporter.record(plan, step, report, timing)


def prepare(rank: Rank, sequences: int, length: int) -> None:
    """Compile for a new context length, all ranks together, before the step that needs it."""
    if length in rank.prepared:
        return
    rank.prepared.add(length)
    patience_s = get_patience_s(rank.post.config, Phase.COMPILE)
    with rank.post.clock.during(Phase.COMPILE), storing_programs():
        rank.run.prepare(sequences, length)
        rank.gang.meet(f"compiled-{length}", patience_s)
    rank.tags.add("compile")


def read_ahead(rank: Rank) -> None:
    """Read the next step's rows while the devices compute this one."""
    plan, following = rank.plan, rank.step + 1
    if following < plan.total_steps:
        sequences = plan.tokens_per_step // plan.context_at(following).length
        rank.batches.fetch(plan, following, local_rows(rank.run.mesh, sequences))


@contextmanager
def blaming_lost_peers(rank: Rank) -> Iterator[None]:
    """Tell a lost peer from an error of this rank's own, wherever the ranks compute together."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if rank.gang.ranks > 1 and not is_own_error(error):
            raise GangError(f"step {rank.step}: {first_line(error)}") from error
        raise


def is_own_error(error: Exception) -> bool:
    """Return whether a step failed for want of memory or by a bug, not by a lost peer."""
    text = str(error)
    return "RESOURCE_EXHAUSTED" in text or "INVALID_ARGUMENT" in text


def require_sound(rank: Rank, report: Report) -> None:
    """Raise End when the step is not finite, or the ranks ran it under different plans."""
    if not report.is_finite:
        text = f"loss {report.loss}, gradient norm {report.grad_norm} at step {rank.step}"
        raise End(Exit.NON_FINITE, f"not finite: {text}")
    if not report.has_one_plan:
        low, high = report.plan_words
        raise End(Exit.PLAN_MISMATCH, f"ranks ran plans {low:016x} and {high:016x}")


def save(rank: Rank, phase: Phase = Phase.SAVE_BLOCK) -> None:
    """Copy the state and let threads save it."""
    document = rank.helm.accepted
    head = document.ledger_head if document else NO_LEDGER
    moment = Moment(rank.helm.chain, rank.step, rank.last_loss, head)
    with rank.post.clock.during(phase), blaming_lost_peers(rank):
        rank.saver.begin(rank.state, moment, rank.post.clock.advance)
    rank.staged_step = rank.step
    rank.tags.add("save")


def evaluate(rank: Rank) -> None:
    """Measure the held-out loss."""
    clock = rank.post.clock
    with clock.during(Phase.EVAL), blaming_lost_peers(rank):
        rank.evaluator.evaluate(rank.run, rank.state, rank.plan, rank.step, clock.advance)
    rank.tags.add("eval")


def drain(rank: Rank, mode: str) -> Exit:
    """Save if this step is not saved yet, and leave as asked."""
    clock = rank.post.clock
    clock.enter(Phase.DRAIN)
    code = Exit.RESTART if mode == "restart" else Exit.DRAINED
    outcome = rank.saver.finish(clock.advance)
    if not rank.saver.holds(rank.plan, rank.step):
        save(rank, Phase.DRAIN)
        outcome = rank.saver.finish(clock.advance)
    rank.reporter.flush()
    if outcome == VERIFIED:
        return code
    if not list_places(rank.post.seat.run_dir, rank.plan.lineage):
        raise End(Exit.STORAGE, f"nothing is saved: {outcome}")
    raise End(code, f"the save at the drain failed, an older checkpoint stands: {outcome}")


def finish(rank: Rank) -> Exit:
    """Save and evaluate the last state; the run is done once it is verified."""
    clock = rank.post.clock
    save(rank)
    evaluate(rank)
    clock.enter(Phase.SAVE_BLOCK)
    outcome = rank.saver.finish(clock.advance)
    for _ in range(LAST_SAVE_TRIES - 1):
        if outcome == VERIFIED:
            break
        threading.Event().wait(LAST_SAVE_PAUSE_S)
        save(rank)
        outcome = rank.saver.finish(clock.advance)
    rank.reporter.flush()
    if outcome != VERIFIED:
        raise End(Exit.STORAGE, f"the last checkpoint cannot be saved: {outcome}")
    return Exit.DONE


class Bell:
    """Whether SIGTERM rang. JAX's own notifier would swallow it, so that one stays off."""

    def __init__(self) -> None:
        self.rang = False
        signal.signal(signal.SIGTERM, self._ring)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.rang = True


def set_up_logging() -> None:
    """Log our own course to stderr, and of the libraries what is at least a warning."""
    # By force: importing orbax has installed a handler already.
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
        force=True,
    )
    logging.getLogger("trainer").setLevel(logging.INFO)


def man_post() -> Post:
    """Return the rank's post, watched and serving; leaves with 2 when it is not told enough."""
    rank_dir = None
    try:
        seat = read_seat(os.environ)
        rank_dir = seat.rank_dir
        rank_dir.mkdir(parents=True, exist_ok=True)
        config = read_config(seat)
    except (SeatError, OSError) as error:
        leave(rank_dir, Exit.CONFIG, step=0, text=str(error))
    limits, meter = config.limits, Meter()
    clock = PhaseClock(rank_dir / PHASES_FILE, limits.deadlines_s, limits.step_factor)
    watch_clock(meter, clock, is_first=seat.is_first)
    begin_series(meter, seat)
    publish_endpoint(rank_dir, serve(meter))
    watchdog = Watchdog(clock, rank_dir)
    watchdog.start()
    meter.watch(lambda: [Sample(OVERHEAD_SECONDS, watchdog.spent_s, {"part": "watchdog"})])
    return Post(seat, config, clock, meter)


def main() -> NoReturn:
    """Run one rank to its end; leaves by os._exit in every case."""
    set_up_logging()
    bell = Bell()
    post = man_post()
    rank = None
    try:
        rank = get_ready(post, lambda: bell.rang)
        code, text = train(rank), ""
    except End as end:
        code, text = end.code, end.text
    except GangError as error:
        # A peer is gone: the coordination service is not to be waited for either.
        leave(post.seat.rank_dir, Exit.PEER_LOST, step=post.clock.step, text=str(error))
    except Exception as error:  # noqa: BLE001  the outermost frame: the rank must leave by os._exit
        traceback.print_exc()
        code, text = Exit.ERROR, f"{type(error).__name__}: {first_line(error)}"
    if rank is not None and code in AGREED:
        rank.peers.say_goodbye()
        rank.gang.part(PART_S)
    leave(post.seat.rank_dir, code, step=post.clock.step, text=text)


AGREED = (Exit.DONE, Exit.DRAINED, Exit.RESTART, Exit.NON_FINITE, Exit.STORAGE)
"""Ends that all ranks reach at the same step, so that none is cut short by another's leaving."""


if __name__ == "__main__":
    main()
