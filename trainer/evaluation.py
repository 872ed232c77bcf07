"""Held-out loss, source by source, on sequences that no step trains on."""

import time
from collections.abc import Callable

import jax

from contract import metrics
from contract.config import TrainerConfig
from contract.plan import Plan
from contract.wire import EVALS_FILE, EvalRecord
from trainer.batches import Batches
from trainer.compile_cache import storing_programs
from trainer.files import LineWriter
from trainer.mesh import local_rows, place_batch
from trainer.seat import Seat
from trainer.step import Step, TrainState
from trainer.telemetry import Meter

MODEL = "model"
NO_ROUTED_EXPERTS = "no_routed_experts"


class Evaluator:
    """Runs the same held-out sequences each time, in batches of the step's own shape."""

    def __init__(self, seat: Seat, config: TrainerConfig, batches: Batches, meter: Meter) -> None:
        self._seat = seat
        self._config = config
        self._batches = batches
        self._meter = meter
        self._log = LineWriter(seat.attempt_dir / EVALS_FILE)

    def evaluate(
        self, run: Step, state: TrainState, plan: Plan, step: int, advance: Callable[[], None]
    ) -> None:
        """Evaluate every source after `step` completed steps; at the horizon also without experts.

        `advance` is called after each batch. Raises End naming a file that cannot be read.
        """
        length, sequences = _batch_shape(plan, step)
        with storing_programs():
            run.prepare_evaluation(sequences, length)
        settings = self._config.evaluation
        is_last = step == plan.total_steps
        wanted = settings.final_sequences if is_last else settings.sequences
        for source in sorted(self._config.sources):
            # A text shorter than one sequence says nothing.
            if not self._batches.count_heldout(source, length):
                continue
            batches = self._read(run, plan, step, source, wanted)
            for variant in (MODEL, NO_ROUTED_EXPERTS) if is_last else (MODEL,):
                losses = []
                for tokens, targets in batches:
                    use_routed = variant == MODEL
                    losses.append(run.evaluate(state, tokens, targets, use_routed=use_routed))
                    advance()
                self._record(plan, step, source, variant, losses)

    def _read(
        self, run: Step, plan: Plan, step: int, source: str, wanted: int
    ) -> list[tuple[jax.Array, jax.Array]]:
        length, sequences = _batch_shape(plan, step)
        held = self._batches.count_heldout(source, length)
        # Whole batches of one shape: one compilation, and each device has its rows.
        count = max(1, min(-(-wanted // sequences), held // sequences))
        rows = local_rows(run.mesh, sequences)
        batches = []
        for number in range(count):
            read = self._batches.read_heldout(source, number * sequences, length, rows)
            tokens, targets = (place_batch(run.mesh, part, sequences) for part in read)
            batches.append((tokens, targets))
        return batches

    def _record(
        self, plan: Plan, step: int, source: str, variant: str, losses: list[float]
    ) -> None:
        if not self._seat.is_first:
            return
        length, sequences = _batch_shape(plan, step)
        loss = sum(losses) / len(losses)
        record = EvalRecord.model_validate(
            {
                "step": step,
                "source": source,
                "loss": loss.hex(),
                "tokens": len(losses) * sequences * length,
                "variant": variant,
                "wall_s": time.time(),
            }
        )
        self._log.write(record.model_dump_json())
        if variant == MODEL:
            self._meter.set(metrics.EVAL_LOSS, loss, set=source)


def _batch_shape(plan: Plan, step: int) -> tuple[int, int]:
    """Return the context length and the sequences of a step at, or just before, `step`."""
    length = plan.context_at(min(step, plan.total_steps - 1)).length
    return length, plan.tokens_per_step // length
