"""The decision: two tracks of ordered rules, in each of which the first with something to say wins.

Read this file first. The gang's track keeps it training; the plan's track forecasts, proposes and
re-plans, so that a gang that waits starves no forecast. Rules live in one file per policy and are
pure; each names the snapshot fields it rests on, and is silent where one of them is Unknown. A rule
whose acts were intended a moment ago is silent, too, until they had time to show: the rules after
it get their turn.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from controller.core.actions import (
    Action,
    CloseAttempt,
    Decision,
    KillRanks,
    LaunchGang,
    PublishControl,
    PublishPlan,
    QuarantineCheckpoint,
    key_of,
)
from controller.core.adoption import (
    await_revision,
    materialise_execution,
    record_adoption,
    supersede_missed,
)
from controller.core.budget import spend_budget
from controller.core.damage import quarantine_damaged
from controller.core.ends import (
    close_ended,
    complete,
    end_late_start,
    kill_remains,
    kill_rest,
    record_end,
)
from controller.core.launching import finish_launch, launch, repair_control, wait_delay, watch
from controller.core.lines import open_line
from controller.core.memory import Memory
from controller.core.notes import new_notes
from controller.core.owner import (
    drain_gang,
    end_undrained,
    record_intents,
    rest,
    stay_at_rest,
    withdraw_drain,
)
from controller.core.replan import (
    answer_owner,
    approve_by_mode,
    end_proposal,
    evaluate,
    materialise,
    propose,
)
from controller.core.rules import Answer, Rule, remaining_ms, unknown_fields
from controller.core.snapshot import Snapshot
from controller.core.stuck import end_stuck

GANG: tuple[Rule, ...] = (
    # The owner first: a wish is recorded before anything else is done.
    record_intents,
    stay_at_rest,
    open_line,
    drain_gang,
    withdraw_drain,
    # An attempt that ends.
    record_end,
    kill_remains,
    close_ended,
    kill_rest,
    end_undrained,
    end_late_start,
    end_stuck,
    # An attempt that lives.
    finish_launch,
    repair_control,
    watch,
    # No attempt lives.
    complete,
    rest,
    spend_budget,
    quarantine_damaged,
    wait_delay,
    await_revision,
    launch,
)

PLAN: tuple[Rule, ...] = (
    # A revision that is out.
    record_adoption,
    supersede_missed,
    # A proposal that is open: it ends, the owner speaks, it is carried out.
    end_proposal,
    answer_owner,
    approve_by_mode,
    materialise,
    materialise_execution,
    # What leads to the next one.
    evaluate,
    propose,
)

EFFECTS = (
    LaunchGang, CloseAttempt, KillRanks, PublishPlan, PublishControl, QuarantineCheckpoint,
)  # fmt: skip
"""Actions that reach the world; the others take effect by being recorded."""

BOTH = "+"
"""Between the names of the two rules where both tracks act."""

NOTES = "notes"
"""Named as the rule where notes are all there is to record."""

PACE_MS = 1_000
MAX_PACE_MS = 300_000
"""Each try is a record of a few kB, and on a full disk the ledger has a reserve of 256 KiB."""


def pace_ms(tries: int) -> int:
    """Return how long an act has to show before it is intended again."""
    return min(PACE_MS * 2 ** min(tries - 1, 10), MAX_PACE_MS)


class Turn(NamedTuple):
    """One rule's turn in which it had something to say."""

    rule: Rule
    answer: Answer
    wait_ms: int
    """An act of the answer was intended a moment ago: so long it may still take to show."""


def walk(rules: Sequence[Rule], snapshot: Snapshot, memory: Memory) -> Iterator[Turn]:
    """Yield what the rules of one track say, in order, up to the first that need not wait.

    Rules that rest on an Unknown field are not asked.
    """
    unknown = unknown_fields(snapshot)
    for rule in rules:
        if not unknown.isdisjoint(rule.needs):
            continue
        answer = rule.ask(snapshot, memory)
        if answer is None:
            continue
        wait_ms = wait_of(answer, snapshot, memory)
        yield Turn(rule, answer, wait_ms)
        if not wait_ms:
            return


def wait_of(answer: Answer, snapshot: Snapshot, memory: Memory) -> int:
    """Return how long the answer's acts may take to show before they are intended again."""
    return max((_wait_of_act(it, snapshot, memory) for it in answer.actions), default=0)


def _wait_of_act(action: Action, snapshot: Snapshot, memory: Memory) -> int:
    if not isinstance(action, EFFECTS):
        return 0
    key = key_of(memory.policy.run_uid, action)
    for tried, count, at in memory.tries:
        if tried == key:
            return remaining_ms(at, pace_ms(count), snapshot.now)
    return 0


def _ask(
    rules: Sequence[Rule], snapshot: Snapshot, memory: Memory
) -> tuple[str, Answer, list[int]]:
    """Return who of a track has its say, what that is, and the waits on the way to it."""
    waits: list[int] = []
    for rule, answer, wait_ms in walk(rules, snapshot, memory):
        if not wait_ms:
            return rule.name, answer, waits
        waits.append(wait_ms)
    return "", Answer("nothing to do"), waits


def decide(
    snapshot: Snapshot,
    memory: Memory,
    rules: tuple[Rule, ...] = GANG,
    plan_rules: tuple[Rule, ...] = PLAN,
) -> Decision:
    """Return what to do now: the first answer of each track, and the notes that changed."""
    name, answer, waits = _ask(rules, snapshot, memory)
    plan_name, plan, plan_waits = _ask(plan_rules, snapshot, memory)
    notes = new_notes(snapshot, memory)
    wakes = [memory.policy.wake_ms if answer.wake_in_ms is None else answer.wake_in_ms]
    wakes += [] if plan.wake_in_ms is None else [plan.wake_in_ms]
    if plan.actions:
        name = f"{name}{BOTH}{plan_name}" if answer.actions else plan_name
        reason = f"{answer.reason}; {plan.reason}" if answer.actions else plan.reason
        answer = Answer(reason, [*answer.actions, *plan.actions])
    if notes and not answer.actions:
        name, answer = NOTES, Answer("; ".join(note.reason or note.subject for note in notes))
    return Decision(
        rule=name,
        reason=answer.reason,
        actions=[*notes, *answer.actions],
        wake_in_ms=min([*wakes, *waits, *plan_waits]),
    )


def confirm(
    name: str, action: Action, snapshot: Snapshot, memory: Memory, rules: tuple[Rule, ...] = GANG
) -> bool:
    """Return whether the rule `name` wants the same act of another snapshot, too."""
    run_uid = memory.policy.run_uid
    unknown = unknown_fields(snapshot)
    names = name.split(BOTH)
    asked = [rule for rule in rules if rule.name in names and unknown.isdisjoint(rule.needs)]
    answers = [rule.ask(snapshot, memory) for rule in asked]
    wanted = {key_of(run_uid, other) for answer in answers if answer for other in answer.actions}
    return key_of(run_uid, action) in wanted
