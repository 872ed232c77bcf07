"""What a run came to: the content of summary.json, with the keys documented in docs/cli.md."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from contract.plan import Plan
from contract.wire import EvalRecord, StepRecord
from controller.core.ancestry import last_steps
from controller.core.memory import Incident, Memory
from controller.core.notes import QUARANTINED
from controller.core.telling.account import Account
from controller.core.telling.chronicle import Chronicle
from controller.core.telling.figures import drops_percent, measure
from controller.core.telling.history import (
    AttemptHistory,
    find_replays,
    is_comparable,
    loss_difference,
)
from controller.core.telling.outcome import Course, describe_outcome
from controller.core.telling.status import REST_WORDS

EARLY_STEPS = 50
"""Steps at each end whose drops are reported."""
MS_PER_S = 1_000
ONE_QUARANTINED = re.compile(r"([^/\s]+)/(\d+) \((.*)\)", re.DOTALL)
NEXT_QUARANTINED = re.compile(r"(?<=\)), (?=[^/\s]+/\d+ \()")
"""Between two checkpoints of the note on them: a reason may hold commas and brackets itself."""


@dataclass(frozen=True)
class Entropies:
    """Cross-entropy of one source's held-out text under counts of its training text, in nats."""

    unigram: float
    bigram: float


@dataclass(frozen=True)
class Evidence:
    """All that a summary is made from."""

    memory: Memory
    histories: Sequence[AttemptHistory]
    evals: Sequence[EvalRecord]
    entropies: Mapping[str, Entropies]
    account: Account
    ledger_findings: Sequence[str]
    """Empty: the chain and its anchors hold."""
    peak_flops_per_second: float | None
    """Of all devices together."""
    chronicle: Chronicle

    @cached_property
    def course(self) -> Course:
        """What the outcome is judged from."""
        surviving = surviving_steps(self.histories, self.memory.plan)
        return Course(self.memory, self.chronicle, surviving, self.account.wall_s, self.histories)


def make_summary(evidence: Evidence) -> dict[str, object]:
    """Return the summary as JSON-able values; None where the run left nothing to tell."""
    memory, plan = evidence.memory, evidence.memory.plan
    course = evidence.course
    surviving = course.surviving
    return {
        "format": 1,
        "run": {"name": memory.policy.run_name, "uid": memory.policy.run_uid},
        "outcome": memory.rest or ("halted" if memory.halted else "unfinished"),
        "reason": REST_WORDS[memory.rest] if memory.rest else memory.halted or "",
        "steps": len(surviving),
        "total_steps": plan.total_steps,
        "tokens_trained": sum(record.tokens for record in surviving.values()),
        "attempts": len(evidence.histories),
        "planned_ends": memory.planned_ends,
        "incidents": [_describe(it, evidence.histories) for it in memory.incidents],
        "quarantined": list(_list_quarantined(memory)),
        **describe_outcome(course),
        **_describe_replays(evidence),
        **_describe_losses(evidence),
        "drops_percent": _describe_drops(list(surviving.values())),
        **_describe_speed(evidence, list(surviving.values())),
        "ledger_verified": not evidence.ledger_findings,
        "ledger_findings": list(evidence.ledger_findings),
        "phase_seconds": {
            phase.value: round(value, 3) for phase, value in evidence.account.seconds.items()
        },
        "unattributed_percent": round(evidence.account.unattributed_percent, 3),
        "wall_seconds": round(evidence.account.wall_s, 3),
    }


def _list_quarantined(memory: Memory) -> Iterator[dict[str, object]]:
    """Yield the damaged checkpoints, with their reasons, as they were last noted."""
    told = {subject: text for subject, text, _ in memory.notes}
    text = told.get("quarantine", "").removeprefix(QUARANTINED)
    for part in NEXT_QUARANTINED.split(text) if text else ():
        found = ONE_QUARANTINED.fullmatch(part)
        line, step, reason = found.groups() if found else (None, None, part)
        yield {"line": line, "step": None if step is None else int(step), "reason": reason}


def surviving_steps(histories: Iterable[AttemptHistory], plan: Plan) -> dict[int, StepRecord]:
    """Return step -> the newest record of it on the lineage of `plan`, in step order."""
    # A line owns the steps from its fork on, up to where the run left it.
    forks = {line.name: line.fork_step for line in plan.lineage}
    lasts = last_steps(plan)
    found: dict[int, StepRecord] = {}
    for history in histories:
        for record in history.steps:
            line = record.line
            if line in forks and forks[line] <= record.step < lasts[line]:
                found[record.step] = record
    return dict(sorted(found.items()))


def _describe_replays(evidence: Evidence) -> dict[str, object]:
    replays = list(find_replays(evidence.histories))
    chain = evidence.memory.chain
    shas = [plan.sha for plan in chain]
    compared = [it for it in replays if is_comparable(it, chain, shas)]
    return {
        "replayed_steps": len(replays),
        "left_steps": _count_left(evidence),
        "replay_compared_steps": len(compared),
        "replay_max_loss_difference": max(map(loss_difference, compared), default=None),
    }


def _count_left(evidence: Evidence) -> int:
    """Return the steps trained on lines that the run left, or beyond where it left one."""
    surviving = evidence.course.surviving
    ran = {(record.line, record.step) for it in evidence.histories for record in it.steps}
    return sum(step not in surviving or surviving[step].line != line for line, step in ran)


def _describe(incident: Incident, histories: Sequence[AttemptHistory]) -> dict[str, object]:
    seconds, tokens = cost_of(incident.attempt, histories)
    ended_ms = incident.ended_wall_ms
    detection_ms = None if ended_ms is None else incident.at.wall_ms - ended_ms
    return {
        "attempt": incident.attempt,
        "cause": incident.cause,
        "code": incident.code,
        "root_rank": incident.root_rank,
        "confidence": incident.confidence,
        "step": incident.step,
        "evidence": incident.evidence,
        "detection_seconds": None if detection_ms is None else detection_ms / MS_PER_S,
        "cost_seconds": None if seconds is None else round(seconds, 3),
        "cost_tokens": tokens,
    }


def cost_of(attempt: int, histories: Sequence[AttemptHistory]) -> tuple[float | None, int]:
    """Return (seconds, tokens) that the end of `attempt` cost.

    Seconds: from its last step to the first step that goes beyond it; None while none does.
    Tokens: those of the steps trained again until then.
    """
    before = [it for it in histories if it.number <= attempt]
    later = [it for it in histories if it.number > attempt]
    # The newest of each: a log grows at its end, and a long run has a million steps.
    lasts = [history.steps[-1] for history in before if history.steps]
    if not lasts:
        return _time_to_first_step(before, later), 0
    last = max(lasts, key=lambda record: record.wall_s)
    tokens = 0
    for record in (record for history in later for record in history.steps):
        if record.line == last.line and record.step > last.step:
            return record.wall_s - last.wall_s - record.step_s, tokens
        tokens += record.tokens if record.line == last.line else 0
    return None, tokens


def _time_to_first_step(
    before: Sequence[AttemptHistory], later: Sequence[AttemptHistory]
) -> float | None:
    first = next((history.steps[0] for history in later if history.steps), None)
    if first is None or not before:
        return None
    return first.wall_s - before[-1].launched_wall_s


def _describe_losses(evidence: Evidence) -> dict[str, object]:
    plan = evidence.memory.plan
    weights = plan.mixture.stages[-1].parts
    by_source: dict[str, dict[str, float | None]] = {}
    for source in plan.sources:
        entropies = evidence.entropies.get(source)
        by_source[source] = {
            "validation_loss": _last_loss(evidence.evals, source, "model"),
            "no_routed_experts_loss": _last_loss(evidence.evals, source, "no_routed_experts"),
            "unigram_entropy": entropies.unigram if entropies else None,
            "bigram_entropy": entropies.bigram if entropies else None,
        }
    names = ("validation_loss", "no_routed_experts_loss", "unigram_entropy", "bigram_entropy")
    totals = {name: _weigh(by_source, name, weights) for name in names}
    return {**totals, "by_source": by_source}


def _last_loss(evals: Sequence[EvalRecord], source: str, variant: str) -> float | None:
    found = [it for it in evals if it.source == source and it.variant == variant]
    if not found:
        return None
    return float.fromhex(max(found, key=lambda it: (it.step, it.wall_s)).loss)


def _weigh(
    by_source: Mapping[str, Mapping[str, float | None]], name: str, weights: Mapping[str, int]
) -> float | None:
    """Return the mean over sources, weighted as the last mixture stage is."""
    total = 0.0
    for source, parts in weights.items():
        value = by_source[source][name]
        if value is None:
            return None
        total += value * parts
    return total / sum(weights.values())


def _describe_drops(records: Sequence[StepRecord]) -> dict[str, object]:
    early, late = records[:EARLY_STEPS], records[-EARLY_STEPS:]
    return {
        "early_sender": _side(early, "sender"),
        "early_receiver": _side(early, "receiver"),
        "late_sender": _side(late, "sender"),
        "late_receiver": _side(late, "receiver"),
        "late": drops_percent(late),
    }


def _side(records: Sequence[StepRecord], side: str) -> float | None:
    total = sum(record.assignments for record in records)
    return 100 * sum(getattr(it.drops, side) for it in records) / total if total else None


def _describe_speed(evidence: Evidence, records: Sequence[StepRecord]) -> dict[str, object]:
    figures = measure(records, evidence.memory.plan, evidence.peak_flops_per_second)
    return {
        "final_loss": figures.loss if figures else None,
        "tokens_per_second": figures.tokens_per_second if figures else None,
        "mfu_percent": figures.mfu_percent if figures else None,
        "peak_flops_per_second": evidence.peak_flops_per_second,
    }
