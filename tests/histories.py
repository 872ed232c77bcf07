"""Attempts as their files would tell them, second by second."""

from contract.wire import Drops, Phase, PhaseRecord, StepRecord
from controller.core.telling.history import AttemptHistory

BOOT = "boot"
SHA = "a" * 64


def step_record(step, wall_s, **changes):
    """Return one line of a step log; a second long unless said otherwise."""
    record = {
        "line": "main",
        "step": step,
        "plan_sha": SHA,
        "execution_sha": SHA,
        "code": "c",
        "lr": {"matrix": (0.25).hex(), "other": (0.25).hex()},
        "loss": (1.0 / (step + 1)).hex(),
        "grad_norm": (1.0).hex(),
        "tokens": 1024,
        "assignments": 100,
        "drops": Drops(sender=1, receiver=2),
        "step_s": 1.0,
        "data_wait_s": 0.125,
        "wall_s": float(wall_s),
        "tags": [],
    }
    return StepRecord(**(record | changes))


def phase_record(phase, wall_s):
    """Return one line of phases.jsonl."""
    return PhaseRecord(
        phase=Phase(phase), step=0, wall_s=float(wall_s), mono_s=float(wall_s), boot_id=BOOT
    )


def attempt(number, begun, steps, *, ended=None, **changes):
    """Return an attempt: 2 s of start, 3 of compile, a first step, then a step a second.

    `begun` is the second of its first phase; `steps` a range. It ends with its last step.
    """
    first = begun + 6
    records = [
        step_record(step, first + index, tags=["first"] if index == 0 else [], **changes)
        for index, step in enumerate(steps)
    ]
    return AttemptHistory(
        number=number,
        launched_wall_s=float(begun),
        ended_wall_s=float(first + max(0, len(records) - 1) if ended is None else ended),
        phases=[
            phase_record("start", begun),
            phase_record("compile", begun + 2),
            phase_record("first_step", begun + 5),
            phase_record("step", begun + 6),
        ],
        steps=records,
    )
