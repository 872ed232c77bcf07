"""What the step logs of all attempts say about the line that survived, worked out anew.

Learning rates come from the plan's file by arithmetic of this file's own, not by the contract's.
"""

import json
import struct
from fractions import Fraction
from itertools import pairwise

from contract.plan import Plan
from contract.wire import StepRecord, plan_file
from tests.conformance.harness import Run


def list_attempts(run: Run) -> list[list[StepRecord]]:
    """Return the step logs of all attempts that logged a step, oldest first."""
    logs = (run.steps(attempt) for attempt in range(1, 10))
    return [log for log in logs if log]


def surviving_steps(run: Run) -> list[StepRecord]:
    """Return the records that no later attempt replaced: it starts over from its first step."""
    kept: list[StepRecord] = []
    for log in list_attempts(run):
        kept = [record for record in kept if record.step < log[0].step] + log
    return kept


def rates_from_file(run: Run, plan: Plan, step: int) -> dict[str, str]:
    """Return the learning rates of a step, in hexadecimal, from the plan's file."""
    document = json.loads((run.path / plan_file(plan.sha)).read_bytes())
    knots = [(at, Fraction(text)) for at, text in document["anneals"]["learning_rate"]]
    peaks = document["peaks"]["learning_rate"]
    fraction = next(
        (high * (step - left) + low * (right - step)) / (right - left)
        for (left, low), (right, high) in pairwise(knots)
        if left <= step <= right
    )
    return {group: nearest_binary32(Fraction(peak) * fraction) for group, peak in peaks.items()}


def nearest_binary32(exact: Fraction) -> str:
    """Return the nearest binary32 number, half to even: the best of three neighbours."""
    (middle,) = struct.unpack("<I", struct.pack("<f", float(exact)))
    near = {
        bits: struct.unpack("<f", struct.pack("<I", bits))[0]
        for bits in (middle - 1, middle, middle + 1)
        if bits >= 0
    }
    best = min(near, key=lambda bits: (abs(Fraction(near[bits]) - exact), bits & 1))
    return near[best].hex()


def check_survivors(run: Run, plan: Plan) -> list[StepRecord]:
    """Check the whole surviving line against its newest plan; return its records.

    Every step received the plan's learning rates; before the fork all attempts had the same loss,
    and beyond it those that ran the same plan on the same line.
    """
    records = surviving_steps(run)
    steps = [record.step for record in records]
    assert steps == list(range(len(records))), f"steps.jsonl of all attempts: {steps} survive"
    for record in records:
        wanted = rates_from_file(run, plan, record.step)
        assert record.lr == wanted, tell(record, "`lr`", record.lr, f"{wanted}, by plan.values_at")
    for record in records:
        if record.step >= plan.effective:
            text = tell(record, "`plan_sha`", record.plan_sha, f"{plan.sha}, in force by then")
            assert record.plan_sha == plan.sha, text
    losses: dict[tuple[str, int], str] = {}
    for record in (record for log in list_attempts(run) for record in log):
        # The step of the fork is the child's: under another execution its loss may differ.
        held = "before the fork" if record.step < plan.effective else record.plan_sha
        first = losses.setdefault((held, record.step), record.loss)
        text = tell(record, "`loss`", record.loss, f"{first}: same plan, line and step, same bits")
        assert record.loss == first, text
    return records


def tell(record: StepRecord, field: str, seen: object, wanted: str) -> str:
    """Return what is wrong with a record of `steps.jsonl`."""
    return f"steps.jsonl, step {record.step}: {field} is {seen}; it must be {wanted}"
