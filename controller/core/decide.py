"""The decision: two tracks of ordered rules, in each of which the first with something to say wins.

Read this file first. The gang's track keeps it training; the plan's track forecasts, proposes and
re-plans, so that a gang that waits starves no forecast. Rules live in one file per policy and are
pure; each names the snapshot fields it rests on, and is silent where one of them is Unknown. A rule
whose acts were intended a moment ago is silent, too, until they had time to show: the rules after
it get their turn.
"""

from dataclasses import dataclass, field

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


@dataclass
class _Turn:
    """One walk through the rules, with the pace of what was intended before."""

    snapshot: Snapshot
    memory: Memory
    paced_ms: list[int] = field(default_factory=list[int])

    def ask(self, rules: tuple[Rule, ...]) -> tuple[str, Answer]:
        unknown = unknown_fields(self.snapshot)
        for rule in rules:
            if not unknown.isdisjoint(rule.needs):
                continue
            answer = rule.ask(self.snapshot, self.memory)
            if answer is None:
                continue
            waits = [wait for action in answer.actions if (wait := self.wait_of(action))]
            if not waits:
                return rule.name, answer
            self.paced_ms.append(max(waits))
        return "", Answer("nothing to do")

    def wait_of(self, action: Action) -> int:
        if not isinstance(action, EFFECTS):
            return 0
        key = key_of(self.memory.policy.run_uid, action)
        for tried, count, at in self.memory.tries:
            if tried == key:
                return remaining_ms(at, pace_ms(count), self.snapshot.now)
        return 0


def decide(
    snapshot: Snapshot,
    memory: Memory,
    rules: tuple[Rule, ...] = GANG,
    plan_rules: tuple[Rule, ...] = PLAN,
) -> Decision:
    """Return what to do now: the first answer of each track, and the notes that changed."""
    turn = _Turn(snapshot, memory)
    name, answer = turn.ask(rules)
    plan_name, plan = turn.ask(plan_rules)
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
        wake_in_ms=min([*wakes, *turn.paced_ms]),
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
