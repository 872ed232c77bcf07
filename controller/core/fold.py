"""Memory as a fold over ledger records: the live controller and a rebuild read the same ones."""

import json
from collections.abc import Mapping
from typing import Protocol

from contract.plan import Plan
from contract.wire import Restore
from controller.core.actions import (
    Action,
    Approve,
    CloseAttempt,
    CloseProposal,
    Complete,
    Decline,
    Evaluate,
    Halt,
    KillRanks,
    LaunchGang,
    Note,
    Propose,
    PublishControl,
    PublishPlan,
    RecordAdoption,
    RecordEnd,
    RecordIntent,
    Rest,
    key_of,
)
from controller.core.budget import delay_of
from controller.core.classify import Verdict, classify
from controller.core.decide import EFFECTS, NOTES
from controller.core.fold_plan import (
    amend_terms,
    fold_plan_record,
    fold_revision,
    forget_plan_wishes,
    take_ask,
)
from controller.core.lines import REFUSAL
from controller.core.memory import AttemptMemory, Incident, Memory, Model, Wanted, alter
from controller.core.policy import Policy
from controller.core.readings import Instant
from controller.core.recording import read_actions
from controller.core.snapshot import OwnerIntent

MAX_KEYS = 64
MAX_TRIES = 32
MAX_NOTES = 32
MAX_PLANNED = 256
MAX_NONCES = 4096


class Record(Protocol):
    """What the fold reads of a ledger record."""

    @property
    def seq(self) -> int:
        """Number in the ledger."""
        ...

    @property
    def epoch(self) -> int:
        """The controller that wrote it."""
        ...

    @property
    def kind(self) -> str:
        """One of run, policy, epoch, decision, outcome."""
        ...

    @property
    def at(self) -> Instant:
        """When it was written."""
        ...

    @property
    def body(self) -> Mapping[str, object]:
        """What it says."""
        ...


def fold(memory: Memory | None, record: Record) -> Memory:
    """Return the memory after `record`.

    Raises:
        ValueError: the first record is not the run's, or a body is not of its kind's form.
    """
    body = record.body
    if memory is None:
        if record.kind != "run":
            raise ValueError(f"a ledger begins with a run, not with {record.kind!r}")
        memory = Memory(policy=_read(Policy, body["policy"]), chain=[_read(Plan, body["plan"])])
    elif record.kind == "policy":
        memory = amend_terms(alter(memory, policy=_read(Policy, body["policy"])), memory.policy)
    elif record.kind == "epoch":
        memory = alter(memory, epoch_at=record.at)
    elif record.kind == "decision":
        memory = _fold_decision(memory, record)
    elif record.kind == "outcome":
        memory = _fold_outcome(memory, body)
    return alter(
        memory,
        seq=record.seq,
        epoch=record.epoch,
        last_now=record.at,
        clock_ref=_clock_ref(memory, record.at),
    )


def _read(model: type[Model], value: object) -> Model:
    return model.model_validate_json(json.dumps(value))


def _clock_ref(memory: Memory, at: Instant) -> Instant:
    known = memory.clock_ref
    return at if known is None or known.boot_id != at.boot_id else known


def _fold_decision(memory: Memory, record: Record) -> Memory:
    rule, reason = str(record.body["rule"]), str(record.body["reason"])
    if rule != NOTES:
        memory = alter(memory, last_decision=(rule, reason, record.at))
    for action in read_actions(record.body):
        if isinstance(action, EFFECTS):
            memory = _count_try(memory, action, record.at)
        memory = _fold_action(memory, action, record.at)
    return memory


def _count_try(memory: Memory, action: Action, at: Instant) -> Memory:
    key = key_of(memory.policy.run_uid, action)
    count = next((count for tried, count, _ in memory.tries if tried == key), 0)
    others = [entry for entry in memory.tries if entry[0] != key]
    return alter(memory, tries=[*others, (key, count + 1, at)][-MAX_TRIES:])


def _fold_action(memory: Memory, action: Action, at: Instant) -> Memory:
    match action:
        case PublishPlan() if action.proposal is not None:
            return fold_revision(memory, action, at)
        case PublishPlan():
            return _fold_plan(memory, action, at)
        case PublishControl():
            return _fold_control(memory, action, at)
        case LaunchGang() | CloseAttempt() | KillRanks():
            return _fold_gang(memory, action, at)
        case _:
            return _fold_record(memory, action, at)


def _fold_record(memory: Memory, action: Action, at: Instant) -> Memory:
    """Fold an action that takes effect by being recorded."""
    match action:
        case RecordIntent():
            return _fold_intent(memory, action)
        case RecordEnd():
            return _fold_end(memory, action, at)
        case Note():
            return _fold_note(memory, action, at)
        case Evaluate() | Propose() | Approve() | CloseProposal() | Decline() | RecordAdoption():
            return fold_plan_record(memory, action, at)
        case _:
            return _fold_rest(memory, action)


def _fold_rest(memory: Memory, action: Action) -> Memory:
    match action:
        case Halt():
            return alter(memory, halted=action.reason)
        case Complete():
            return alter(memory, rest="completed")
        case Rest():
            # A pause says nothing about lateness: what follows it needs its own row.
            return alter(memory, rest=action.state, late=0)
        case _:
            return memory


def _fold_intent(memory: Memory, action: RecordIntent) -> Memory:
    intent = action.intent
    nonces = [*memory.known_nonces, intent.nonce][-MAX_NONCES:]
    notes = [note for note in memory.notes if note[0] != REFUSAL]
    memory = alter(memory, known_nonces=nonces, notes=notes)
    match intent.verb:
        case "suspend" | "stop":
            state = "suspended" if intent.verb == "suspend" else "stopped"
            return alter(memory, wanted=Wanted(state=state, nonce=intent.nonce))
        case "resume":
            return _fold_resume(memory, intent.nonce)
        case "restart":
            return _fold_restart(memory, intent.nonce)
        case "resume_from":
            return _fold_resume_from(memory, intent)
        case "propose" | "approve" | "reject" | "amend":
            return take_ask(memory, intent)


def _fold_resume_from(memory: Memory, intent: OwnerIntent) -> Memory:
    if intent.step is None or intent.step < 0:
        return memory
    line = intent.line or memory.plan.line.name
    source = (line, intent.step, intent.nonce)
    return alter(memory, wanted=alter(memory.wanted, resume_from=source))


def _fold_resume(memory: Memory, nonce: str) -> Memory:
    """An operator's word: what was counted so far is forgiven."""
    return alter(
        memory,
        wanted=Wanted(state="run", nonce=nonce),
        halted=None,
        rest="completed" if memory.rest == "completed" else None,
        no_progress=[],
        window_from=len(memory.incidents),
        planned_at=[],
        not_before=None,
        delay_ms=0,
    )


def _fold_restart(memory: Memory, nonce: str) -> Memory:
    if memory.wanted.state != "run":
        return memory
    if memory.attempt is None or memory.attempt.ended:
        return alter(memory, not_before=None, delay_ms=0)
    return alter(memory, wanted=alter(memory.wanted, restart_nonce=nonce))


def _fold_plan(memory: Memory, action: PublishPlan, at: Instant) -> Memory:
    plan = action.plan
    if plan == memory.plan or plan in memory.chain:
        return memory
    memory = alter(memory, chain=[*memory.chain, plan])
    if plan.kind != "line":
        return memory
    # A new line is a new trajectory: nothing of the old one counts against it or as its own.
    memory = forget_plan_wishes(_fold_resume(memory, memory.wanted.nonce), at)
    attempt = memory.attempt
    return alter(
        memory,
        rest=None,
        highest_step=0,
        verified_step=None,
        restore_verified=False,
        attempt=alter(attempt, end_cause="superseded") if attempt else None,
    )


def _fold_control(memory: Memory, action: PublishControl, at: Instant) -> Memory:
    memory = alter(
        memory,
        control_plan_sha=action.plan_sha,
        control_drain=action.drain,
        control_nonce=action.nonce,
    )
    attempt = memory.attempt
    if attempt is None or attempt.ended or attempt.drain == action.drain:
        return memory
    drain_at = at if action.drain else None
    return alter(memory, attempt=alter(attempt, drain=action.drain, drain_at=drain_at))


def _fold_note(memory: Memory, action: Note, at: Instant) -> Memory:
    others = [note for note in memory.notes if note[0] != action.subject]
    if action.reason:
        others = [*others, (action.subject, action.reason, at)]
    memory = alter(memory, notes=others[-MAX_NOTES:])
    if action.subject == "clock":
        return alter(memory, clock_ref=at)
    wish = memory.wanted.resume_from
    if action.subject == REFUSAL and wish is not None and wish[2] == action.nonce:
        return alter(memory, wanted=alter(memory.wanted, resume_from=None))
    return memory


def _fold_gang(
    memory: Memory, action: LaunchGang | CloseAttempt | KillRanks, at: Instant
) -> Memory:
    attempt = memory.attempt
    if isinstance(action, LaunchGang):
        if attempt is not None and attempt.number >= action.attempt:
            return memory
        begun = AttemptMemory(number=action.attempt, launched_at=at, order=action)
        return alter(
            memory,
            attempt=begun,
            not_before=None,
            delay_ms=0,
            highest_step=max(memory.highest_step, action.highest_step),
            had_checkpoint=memory.had_checkpoint or action.restore is not Restore.NONE,
        )
    if attempt is None or attempt.number != action.attempt:
        return memory
    if isinstance(action, KillRanks):
        killed = sorted({*attempt.killed, *action.ranks})
        return alter(memory, attempt=alter(attempt, killed=killed, kill_at=at))
    return memory if attempt.closed else alter(memory, attempt=_close(attempt, action, at))


def _close(attempt: AttemptMemory, action: CloseAttempt, at: Instant) -> AttemptMemory:
    return alter(
        attempt,
        closed=True,
        closed_at=at,
        close_cause=action.cause,
        suspects=action.suspects,
        first_end_at=at if action.cause == "end" else None,
    )


def _fold_end(memory: Memory, action: RecordEnd, at: Instant) -> Memory:
    attempt = memory.attempt
    if attempt is None or attempt.number != action.attempt or attempt.ended:
        return memory
    verdict = classify(memory, action)
    ended = alter(attempt, ended=True, ended_at=at, end_cause=verdict.cause, closed=True)
    memory = alter(
        memory,
        attempt=ended,
        wanted=alter(memory.wanted, restart_nonce=None),
        highest_step=max(memory.highest_step, action.completed_steps or 0),
        restore_verified=verdict.cause == "non_finite",
        had_checkpoint=memory.had_checkpoint or action.verified_step is not None,
    )
    if verdict.is_planned:
        planned_at = [*memory.planned_at, at][-MAX_PLANNED:]
        return alter(memory, planned_ends=memory.planned_ends + 1, planned_at=planned_at)
    return _charge(memory, incident_of(action, verdict, at))


def incident_of(end: RecordEnd, verdict: Verdict, at: Instant) -> Incident:
    """Return the verdict as an incident."""
    return Incident(
        attempt=end.attempt,
        cause=verdict.cause,
        code=verdict.code,
        root_rank=verdict.root_rank,
        confidence=verdict.confidence,
        evidence=verdict.evidence,
        step=verdict.step,
        fingerprint=verdict.fingerprint,
        verified_step=end.verified_step,
        progress_known=end.progress_known,
        at=at,
        ended_wall_ms=verdict.ended_wall_ms,
    )


def _charge(memory: Memory, incident: Incident) -> Memory:
    """Charge an incident to the window, and to what counts since progress if that is readable."""
    no_progress, verified = memory.no_progress, memory.verified_step
    if incident.progress_known:
        step = incident.verified_step
        has_progressed = step is not None and (verified is None or step > verified)
        no_progress = [*([] if has_progressed else no_progress), incident]
        verified = step if has_progressed else verified
    key = f"{memory.policy.run_uid}/{incident.attempt}"
    delay_ms = delay_of(memory.policy, len(no_progress), key)
    at = incident.at
    begin = alter(at, wall_ms=at.wall_ms + delay_ms, mono_ms=at.mono_ms + delay_ms)
    return alter(
        memory,
        incidents=[*memory.incidents, incident],
        no_progress=no_progress,
        verified_step=verified,
        not_before=begin,
        delay_ms=delay_ms,
    )


def _fold_outcome(memory: Memory, body: Mapping[str, object]) -> Memory:
    """Remember what is known to have been carried out; a failure leaves the intent pending."""
    key = str(body["key"])
    if not body["ok"]:
        return memory
    memory = alter(memory, done_keys=[*memory.done_keys, key][-MAX_KEYS:])
    attempt = memory.attempt
    if attempt and attempt.order and key_of(memory.policy.run_uid, attempt.order) == key:
        return alter(memory, attempt=alter(attempt, launched=True))
    return memory
