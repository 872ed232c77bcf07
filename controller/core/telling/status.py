"""What people are told about a run: one mapping, written once a pass, shown by `ctl status`.

Keys are documented in docs/cli.md. What could not be read stands under `unknown` with its reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from contract.exits import PLANNED, describe_exit
from contract.wire import Phase
from controller.core.ancestry import list_restorable, list_usable
from controller.core.memory import AttemptMemory, Incident, Memory
from controller.core.readings import Unknown
from controller.core.rules import ended_ranks
from controller.core.snapshot import (
    CheckpointView,
    GangView,
    RankReading,
    RankTelemetry,
    RankView,
    Snapshot,
    StorageView,
    StoreView,
)
from controller.core.telling.figures import Figures
from controller.core.telling.status_plan import describe_plan_track

Status = dict[str, object]

FORMAT = 1
MS_PER_S = 1_000
RECENT_INCIDENTS = 5


def build_status(memory: Memory, snapshot: Snapshot, figures: Figures | None = None) -> Status:
    """Return the status of the run as JSON-able values."""
    state, reason = _describe_state(memory, snapshot)
    return {
        "format": FORMAT,
        "run": {"name": memory.policy.run_name, "uid": memory.policy.run_uid},
        "at": snapshot.now.wall_ms,
        "epoch": snapshot.epoch,
        "state": state,
        "reason": reason,
        "wanted": memory.wanted.state,
        **_describe_progress(memory, snapshot),
        "attempt": memory.attempt.number if memory.attempt else 0,
        "phase": _phase_of(snapshot),
        "figures": asdict(figures) if figures else None,
        "last_decision": _describe_decision(memory),
        "plan": {
            "sha": memory.plan.sha,
            "kind": memory.plan.kind,
            "line": memory.plan.line.name,
            "adopted": _is_adopted(memory, snapshot),
        },
        **describe_plan_track(memory, snapshot),
        "ranks": _describe_ranks(snapshot),
        "checkpoints": _describe_store(memory, snapshot.store),
        "storage": _describe_storage(snapshot.storage),
        "incidents": {
            "count": len(memory.incidents),
            "recent": [_describe_incident(it) for it in memory.incidents[-RECENT_INCIDENTS:]],
        },
        "notes": [
            {"subject": subject, "text": text, "at": at.wall_ms}
            for subject, text, at in memory.notes
            if text
        ],
        "unknown": _unknowns(snapshot),
    }


def _describe_state(memory: Memory, snapshot: Snapshot) -> tuple[str, str]:
    """Return one word and a sentence."""
    if memory.halted is not None:
        return "halted", memory.halted
    if memory.rest is not None:
        return memory.rest, REST_WORDS[memory.rest]
    if memory.attempt is None:
        return "waiting", "no attempt was launched yet"
    return _describe_attempt(memory, memory.attempt, snapshot)


def _describe_attempt(
    memory: Memory, attempt: AttemptMemory, snapshot: Snapshot
) -> tuple[str, str]:
    if attempt.ended:
        return _describe_ended(memory, attempt)
    is_leaving = _leaves_as_planned(snapshot, attempt)
    if is_leaving and memory.control_drain is None:
        return "finishing", f"the ranks of attempt {attempt.number} leave as planned"
    if (attempt.first_end_at is not None or attempt.closed) and not is_leaving:
        return "recovering", f"attempt {attempt.number} is ending"
    if (drain := memory.control_drain) is not None:
        return "draining", f"the gang was asked to checkpoint and leave ({drain.mode})"
    phase = _phase_of(snapshot)
    if phase in TRAINING:
        return "training", f"attempt {attempt.number} trains"
    where = f"is in phase {phase}" if phase else "does not say anything yet"
    return "starting", f"attempt {attempt.number} {where}"


def _describe_ended(memory: Memory, attempt: AttemptMemory) -> tuple[str, str]:
    """Describe the moments between the end of an attempt and what follows it."""
    if attempt.end_cause == "done":
        return "finishing", f"attempt {attempt.number} reached the horizon"
    if attempt.end_cause == "drained" and memory.wanted.state != "run":
        return "draining", f"attempt {attempt.number} left, as the owner wanted"
    state = "starting" if attempt.end_cause in PLANNED_CAUSES else "recovering"
    return state, f"attempt {attempt.number} ended; the next is not launched yet"


def _leaves_as_planned(snapshot: Snapshot, attempt: AttemptMemory) -> bool:
    """Return whether some ranks of the attempt ended, and all of these as they were asked to."""
    gang = snapshot.gang
    if not isinstance(gang, GangView) or gang.attempt != attempt.number:
        return False
    ended = ended_ranks(gang.ranks)
    return bool(ended) and all(view.end and view.end.code in PLANNED for view in ended)


def _describe_decision(memory: Memory) -> Status | None:
    if memory.last_decision is None:
        return None
    rule, reason, at = memory.last_decision
    return {"rule": rule, "reason": reason, "at": at.wall_ms}


REST_WORDS = {
    "completed": "the horizon is reached and the last checkpoint is verified",
    "suspended": "the owner suspended the run; ctl resume goes on",
    "stopped": "the owner stopped the run",
}
PLANNED_CAUSES = frozenset({"drained", "superseded"})
"""Ends that were asked for: what comes next is a start, not a recovery."""
TRAINING = frozenset({Phase.STEP, Phase.SAVE_BLOCK, Phase.EVAL})


def _describe_progress(memory: Memory, snapshot: Snapshot) -> Status:
    plan, step = memory.plan, _step_of(memory, snapshot)
    return {
        "step": step,
        "total_steps": plan.total_steps,
        "tokens": None if step is None else step * plan.tokens_per_step,
        "horizon_tokens": plan.total_steps * plan.tokens_per_step,
    }


def _step_of(memory: Memory, snapshot: Snapshot) -> int | None:
    """Return completed steps of the newest attempt, until it reports those that it starts from."""
    progress, attempt = snapshot.progress, memory.attempt
    if isinstance(progress, Unknown):
        return None
    # An attempt of an abandoned line says nothing about the new one.
    number = attempt.number if attempt and attempt.end_cause != "superseded" else None
    if progress and progress.attempt == number and progress.completed_steps is not None:
        return progress.completed_steps
    said = [it.value for it in snapshot.telemetry if isinstance(it.value, RankTelemetry)]
    reported = max((it.step for it in said if it.attempt == number), default=0)
    return reported or _first_step_of(memory, snapshot.store)


def _first_step_of(memory: Memory, store: StoreView | Unknown) -> int | None:
    """Return the step that the next gang restores: of the newest checkpoint, else of the fork."""
    if isinstance(store, Unknown):
        return None
    restorable = list_restorable(memory, store)
    return restorable[-1].step if restorable else memory.plan.line.fork_step


def _phase_of(snapshot: Snapshot) -> str | None:
    """Return the phase of the lowest rank that says it."""
    for reading in snapshot.telemetry:
        if isinstance(reading.value, RankTelemetry):
            return reading.value.phase.value
    return None


def _is_adopted(memory: Memory, snapshot: Snapshot) -> bool | None:
    held = {
        reading.value.plan_sha
        for reading in snapshot.telemetry
        if isinstance(reading.value, RankTelemetry)
    }
    return held == {memory.plan.sha} if held else None


def _describe_ranks(snapshot: Snapshot) -> list[Status]:
    if not isinstance(snapshot.gang, GangView):
        return []
    readings = {reading.rank: reading for reading in snapshot.telemetry}
    return [_describe_rank(rank, readings.get(rank.rank)) for rank in snapshot.gang.ranks]


def _describe_rank(view: RankView, reading: RankReading | None) -> Status:
    said = reading.value if reading and isinstance(reading.value, RankTelemetry) else None
    return {
        "rank": view.rank,
        "alive": view.alive,
        "stopped": view.stopped,
        "phase": said.phase.value if said else None,
        "step": said.step if said else None,
        "progress_age_s": said.progress_age_ms / MS_PER_S if said else None,
        "end": None if view.end is None else describe_exit(view.end.code),
        "detail": view.end.detail if view.end else "",
    }


def _describe_store(memory: Memory, store: StoreView | Unknown) -> Status | None:
    if isinstance(store, Unknown):
        return None
    usable = list_usable(memory.chain, store.checkpoints)
    return {
        "newest": _newest(usable),
        "newest_verified": _newest([it for it in usable if it.verified]),
        "count": len(usable),
        "quarantined": [
            {"line": it.line, "step": it.step, "reason": it.quarantined}
            for it in [*store.checkpoints, *store.set_aside]
            if it.quarantined is not None
        ],
    }


def _newest(checkpoints: Sequence[CheckpointView]) -> int | None:
    return max((it.step for it in checkpoints), default=None)


def _describe_storage(storage: StorageView | Unknown) -> Status | None:
    if isinstance(storage, Unknown):
        return None
    return {"problem": storage.problem, "free_bytes": storage.free_bytes}


def _describe_incident(incident: Incident) -> Status:
    return {
        "attempt": incident.attempt,
        "cause": incident.cause,
        "code": incident.code,
        "root_rank": incident.root_rank,
        "confidence": incident.confidence,
        "step": incident.step,
        "evidence": incident.evidence,
        "at": incident.at.wall_ms,
    }


def _unknowns(snapshot: Snapshot) -> Mapping[str, str]:
    """Return what could not be read, with the reason."""
    fields = {
        name: getattr(snapshot, name)
        for name in ("gang", "progress", "store", "storage", "intents", "control")
    }
    found = {name: it.unknown for name, it in fields.items() if isinstance(it, Unknown)}
    silent = [
        (reading.rank, reading.value.unknown)
        for reading in snapshot.telemetry
        if isinstance(reading.value, Unknown)
    ]
    return found | {f"telemetry of rank {rank}": why for rank, why in silent}
