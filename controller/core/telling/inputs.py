"""What a decision rested on, in words: what was seen, and what was remembered.

Ranks that say the same are said once, so that a gang of 704 is as short as what differs. Instants
are shown by whoever asks, who knows the reader's zone.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from contract.exits import describe_exit
from controller.core.ancestry import list_restorable
from controller.core.budget import is_within
from controller.core.chance import count_of
from controller.core.memory import AttemptMemory, Memory
from controller.core.pace import PaceView
from controller.core.readings import Unknown, show_seconds
from controller.core.replan import tell_chance
from controller.core.rules import unknown_fields
from controller.core.snapshot import (
    ControlView,
    GangView,
    OwnerIntent,
    ProgressView,
    RankTelemetry,
    RankView,
    Snapshot,
    StorageView,
    StoreView,
)

Show = Callable[[int], str]
"""An instant in milliseconds since 1970 as its reader sees it."""

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

SHA_CHARS = 12
MICRO = 1_000_000
US_PER_MS = 1_000
GIB = 1024**3
HOUR_MS = 3_600_000


class Input(NamedTuple):
    """One field of what was seen, or one thing of what was remembered."""

    name: str
    words: str
    is_unknown: bool = False


def describe_snapshot(snapshot: Snapshot, memory: Memory, show: Show) -> list[Input]:
    """Return every field in words, those that could not be read first."""
    fields = [name for name in Snapshot.model_fields if name not in ("now", "epoch")]
    unknown = [name for name in fields if name in unknown_fields(snapshot)]
    blind = [Input(name, _why(getattr(snapshot, name)), is_unknown=True) for name in unknown]
    words = {
        "gang": lambda: _describe_gang(snapshot.gang, show),
        "telemetry": lambda: _describe_telemetry(snapshot),
        "progress": lambda: _describe_progress(snapshot.progress),
        "store": lambda: _describe_store(snapshot.store, memory),
        "storage": lambda: _describe_storage(snapshot.storage),
        "intents": lambda: _describe_intents(snapshot.intents),
        "control": lambda: _describe_control(snapshot.control),
    }
    return [*blind, *(Input(name, words[name]()) for name in fields if name not in unknown)]


def _why(value: Unknown) -> str:
    return f"unknown: {value.unknown}"


# --- what was seen ---


def _describe_gang(gang: GangView | Unknown | None, show: Show) -> str:
    if not isinstance(gang, GangView):
        return "no attempt was ever started"
    parts = [f"attempt {gang.attempt}, {'closed' if gang.closed else 'open'} to further ranks"]
    for state, views in _group(gang.ranks, _state_of).items():
        ranks = show_ranks([view.rank for view in views])
        parts.append(f"{ranks} {state}{_describe_when(views, show)}{_quote(views)}")
    if gang.remains:
        left = [f"rank {ref.rank} of attempt {ref.attempt}" for ref in gang.remains]
        parts.append(f"still alive: {', '.join(left)}")
    return "; ".join(parts)


def _state_of(view: RankView) -> str:
    if not view.claimed:
        return "not started"
    if view.alive:
        return "stopped" if view.stopped else "alive"
    stacks = ", stacks dumped" if view.has_stacks else ""
    if view.end is None:
        return f"gone without a record{stacks}"
    return f"ended with {describe_exit(view.end.code)}{stacks}"


def _quote(views: Sequence[RankView]) -> str:
    """Return what the ranks said last: of many that say it differently, the first one."""
    said = [view.end.detail for view in views if view.end and not view.alive and view.end.detail]
    if not said:
        return ""
    return f" ({said[0]})" if len(set(said)) == 1 else f" (one of them: {said[0]})"


def _describe_when(views: Sequence[RankView], show: Show) -> str:
    ends = sorted(view.end.wall_ms for view in views if view.end is not None and not view.alive)
    if not ends:
        return ""
    first, last = show(ends[0]), show(ends[-1])
    return f" at {first}" if first == last else f" from {first} to {last}"


def _describe_telemetry(snapshot: Snapshot) -> str:
    if not snapshot.telemetry:
        return "nobody was asked"
    parts: list[str] = []
    for said, readings in _group(snapshot.telemetry, lambda it: _say(it.value)).items():
        ranks = show_ranks([it.rank for it in readings])
        values = [it.value for it in readings if isinstance(it.value, RankTelemetry)]
        whys = [it.value.unknown for it in readings if isinstance(it.value, Unknown)]
        parts.append(f"{ranks}: {said}{_describe_values(values)}{_pick(whys)}")
    return "; ".join(parts)


def _pick(whys: Sequence[str]) -> str:
    if not whys:
        return ""
    return f": {whys[0]}" if len(set(whys)) == 1 else f", one of them: {whys[0]}"


def _say(value: RankTelemetry | Unknown) -> str:
    if isinstance(value, Unknown):
        return "unknown"
    words = f"phase {value.phase.value} of attempt {value.attempt}"
    words += f", plan {value.plan_sha[:SHA_CHARS]}" if value.plan_sha else ""
    words += ", another plan is pending" if value.plan_pending else ""
    if value.control_refused is not None:
        words += f", refuses the control document: {value.control_refused}"
    if value.checkpoint_failures:
        words += f", {count_of(value.checkpoint_failures, 'failed save')}"
    return words


def _describe_values(values: Sequence[RankTelemetry]) -> str:
    if not values:
        return ""
    steps = show_span([it.step for it in values])
    ages = show_span([it.progress_age_ms for it in values])
    limits = show_span([it.deadline_ms for it in values])
    return f", step {steps}, progress {ages} ms ago (limit {limits} ms)"


def _describe_progress(progress: ProgressView | Unknown | None) -> str:
    if not isinstance(progress, ProgressView):
        return "no step was ever logged"
    done = progress.completed_steps
    parts = [
        f"attempt {progress.attempt}: {'no step' if done is None else f'step {done:,}'} completed,"
        # By this controller's own eyes: a later one knows nothing of the time before it.
        f" not seen to grow for {show_seconds(progress.grown_age_ms)} since this controller looks",
        f"highest step {progress.highest_step:,}",
    ]
    if progress.plan_sha is not None:
        parts.append(f"under plan {progress.plan_sha[:SHA_CHARS]}")
    if progress.is_replaying:
        parts.append("replays what was done before")
    if progress.replay_mismatch_step is not None:
        parts.append(f"the replayed loss of step {progress.replay_mismatch_step:,} differs")
    if progress.loss_micronats is not None:
        parts.append(f"mean loss of the newest steps {progress.loss_micronats / MICRO:.4f} nats")
    return "; ".join([*parts, *_describe_pace(progress.pace)])


def _describe_pace(pace: PaceView | None) -> Iterator[str]:
    if pace is None:
        return
    step, error = pace.step_us / MICRO, pace.error_us / MICRO
    window = f"from {pace.since_step:,} to {pace.until_step:,}"
    yield f"{count_of(pace.clean_steps, 'clean step')} {window}, {step:.3g} s a step"
    yield f"standard error {error:.2g} s"
    if pace.changed_step is not None:
        yield f"at this pace since step {pace.changed_step:,}"
    if pace.outages:
        lost_ms = sum(it.lost_ms for it in pace.outages)
        yield f"{count_of(len(pace.outages), 'outage')} cost {show_seconds(lost_ms)}"


def _describe_store(store: StoreView | Unknown, memory: Memory) -> str:
    if not isinstance(store, StoreView):
        return ""
    found = store.checkpoints
    if not found:
        gone = "; there was one once" if store.ever_complete else ""
        return f"no checkpoint{gone}"
    steps = show_span([it.step for it in found])
    parts = [f"{count_of(len(found), 'checkpoint')}, step {steps}"]
    usable = list_restorable(memory, store)
    newest = f"{usable[-1].line}/{usable[-1].step}" if usable else "none"
    parts.append(f"the newest that may be restored: {newest}")
    marked = [f"{it.line}/{it.step} ({it.quarantined})" for it in found if it.quarantined]
    unverified = [it.step for it in found if not it.verified and not it.quarantined]
    parts += [f"quarantined: {', '.join(marked)}"] if marked else []
    parts += [f"not verified: {_ranges(unverified)}"] if unverified else []
    return "; ".join(parts)


def _describe_storage(storage: StorageView | Unknown) -> str:
    if not isinstance(storage, StorageView):
        return ""
    probe = "the probe passed" if storage.problem is None else f"fails: {storage.problem}"
    return f"{probe}, {storage.free_bytes / GIB:.1f} GiB free"


def _describe_intents(intents: list[OwnerIntent] | Unknown) -> str:
    if isinstance(intents, Unknown) or not intents:
        return "none waits"
    return "; ".join(f"{it.user} asked to {it.verb} (wish {it.nonce})" for it in intents)


def _describe_control(control: ControlView | Unknown | None) -> str:
    if not isinstance(control, ControlView):
        return "never published"
    drain = "asks nothing" if control.drain is None else f"asks the gang to {control.drain.mode}"
    return f"of epoch {control.epoch}, names plan {control.plan_sha[:SHA_CHARS]}, {drain}"


# --- what was remembered ---


def describe_memory(memory: Memory, show: Show) -> list[Input]:
    """Return what the records before the decision had taught."""
    rows = [
        Input("attempt", _describe_attempt(memory, show)),
        Input("wanted", _describe_wanted(memory)),
        Input("budget", _describe_budget(memory)),
        Input("plan", _describe_plan(memory)),
        Input("evaluation", _describe_evaluation(memory, show)),
        Input("proposal", _describe_proposal(memory)),
    ]
    rows += [Input("halted", memory.halted)] if memory.halted is not None else []
    notes = [f"{subject}: {text}" for subject, text, _ in memory.notes if text]
    return [*rows, *(Input("note", text) for text in notes)]


def _describe_attempt(memory: Memory, show: Show) -> str:
    attempt = memory.attempt
    if attempt is None:
        return "none was launched yet"
    words = f"{attempt.number}, launched at {show(attempt.launched_at.wall_ms)}"
    return f"{words}, {_describe_life(attempt)}"


def _describe_life(attempt: AttemptMemory) -> str:
    if attempt.ended:
        return f"ended: {attempt.end_cause}"
    if attempt.closed:
        killed = f", ranks {_ranges(attempt.killed)} killed by the controller"
        return f"closed because of {attempt.close_cause}{killed if attempt.killed else ''}"
    if attempt.drain is not None:
        return f"asked to {attempt.drain.mode}"
    return "lives" if attempt.launched else "its launch is not known to be carried out"


def _describe_wanted(memory: Memory) -> str:
    wanted = memory.wanted
    words = f"{wanted.state}"
    words += f" (wish {wanted.nonce})" if wanted.nonce else " (the launch itself)"
    words += "; a restart was asked for" if wanted.restart_nonce else ""
    if wanted.resume_from is not None:
        line, step, _ = wanted.resume_from
        words += f"; a new line from {line}/{step}"
    return words


def _describe_budget(memory: Memory) -> str:
    budget, counted = memory.policy.budget, memory.incidents[memory.window_from :]
    last = counted[-1].at if counted else None
    recent = [it for it in counted if last and is_within(it.at, last, budget.window_ms)]
    words = (
        f"{len(recent)} of {budget.window_restarts} restarts within"
        f" {budget.window_ms / HOUR_MS:g} h; {len(memory.no_progress)} of"
        f" {budget.no_progress_incidents} incidents without a newer verified checkpoint"
    )
    if counted:
        newest = counted[-1]
        words += f"; the last: attempt {newest.attempt}, {newest.cause}: {newest.evidence}"
    return words + (f"; delay {show_seconds(memory.delay_ms)}" if memory.not_before else "")


def _describe_plan(memory: Memory) -> str:
    plan = memory.plan
    words = f"{plan.sha[:SHA_CHARS]} ({plan.kind}), {plan.total_steps:,} steps"
    words += f", number {len(memory.chain)} of the chain" if len(memory.chain) > 1 else ""
    if memory.revision is not None:
        words += f"; published, not yet adopted, from step {memory.revision.fork_step:,}"
    return words


def _describe_evaluation(memory: Memory, show: Show) -> str:
    evaluation, terms = memory.evaluation, memory.policy.terms
    if terms.deadline_wall_ms is None:
        return "no deadline is declared"
    if evaluation is None:
        return f"none stands; due at {show(terms.due_wall_ms or 0)}"
    at = show(evaluation.forecast.at_wall_ms)
    return (
        f"P(on time) {tell_chance(evaluation.forecast)} at step {evaluation.pace.until_step:,},"
        f" {at}; late {memory.late} of {terms.evaluations} in a row"
    )


def _describe_proposal(memory: Memory) -> str:
    proposal, approval = memory.proposal, memory.approval
    asked = [f"{it.user}: {it.verb}" for it in memory.asks]
    waiting = f"; not answered yet: {', '.join(asked)}" if asked else ""
    if proposal is None:
        return f"none is open{waiting}"
    consent = "not approved" if approval is None else f"approved by {approval.by}"
    what = proposal.change.describe()
    return f"{proposal.id} by {proposal.author}: {what}, {consent}{waiting}"


# --- many at once ---


def _group(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def show_ranks(ranks: Sequence[int]) -> str:
    """Return `rank 17`, or `703 ranks (0 to 16, 18 to 703)`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"{count_of(len(ranks), 'rank')} ({_ranges(ranks)})"


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in runs)


def show_span(numbers: Iterable[int]) -> str:
    """Return `144`, or `144 to 152`."""
    found = sorted(numbers)
    low, high = found[0], found[-1]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
