"""What people should see beside what is done: notes by subject, recorded when they change."""

from collections.abc import Callable, Iterator

from controller.core.actions import Note
from controller.core.ancestry import list_usable
from controller.core.lines import REFUSAL
from controller.core.memory import Memory
from controller.core.readings import Unknown, offset_change_ms
from controller.core.rules import ended_ranks, has_passed, live_attempt
from controller.core.snapshot import ControlView, GangView, RankTelemetry, Snapshot

CLOCK_JUMP_MS = 60_000

MIN_LINGER_MS = 60_000
"""What comes and goes each second is told twice a minute at most."""
LINGER_MS = {"control": 600_000, "clock": 86_400_000, REFUSAL: 600_000}
"""These are over in a moment, and people should still hear of them."""

QUARANTINED = "quarantined: "
"""How the note on checkpoints that are set aside begins."""

KEEP = "\0"
"""Said by a note's function that cannot tell: what was noted stays."""

Say = Callable[[Snapshot, Memory], str]


def new_notes(snapshot: Snapshot, memory: Memory) -> list[Note]:
    """Return the notes whose text changed; an empty text removes the subject."""
    return list(_changes(snapshot, memory))


def _changes(snapshot: Snapshot, memory: Memory) -> Iterator[Note]:
    noted = {subject: (text, at) for subject, text, at in memory.notes}
    for subject, say in SUBJECTS.items():
        text = say(snapshot, memory)
        told, at = noted.get(subject, ("", snapshot.now))
        if text in (KEEP, told):
            continue
        if text or has_passed(at, LINGER_MS.get(subject, MIN_LINGER_MS), snapshot.now):
            yield Note(reason=text, nonce=str(memory.seq), subject=subject)


def say_clock(snapshot: Snapshot, memory: Memory) -> str:
    """The wall clock jumped against the monotonic one; deadlines never rest on it."""
    if memory.clock_ref is None:
        return KEEP
    change = offset_change_ms(memory.clock_ref, snapshot.now)
    if isinstance(change, Unknown) or abs(change) <= CLOCK_JUMP_MS:
        return ""
    return f"the wall clock jumped by {round(change / 1000):+d} s against the monotonic clock"


def say_control(snapshot: Snapshot, memory: Memory) -> str:
    """The control document is damaged, foreign, or refused by the ranks."""
    attempt = live_attempt(memory)
    if attempt is None or attempt.order is None:
        return ""
    refused = sorted(
        {
            value.control_refused
            for value in _values(snapshot, attempt.number)
            if value.control_refused is not None
        }
    )
    view = snapshot.control
    if isinstance(view, Unknown):
        return f"control.json cannot be used: {view.unknown}"
    if refused:
        return f"ranks refuse the control document: {', '.join(refused)}"
    if isinstance(view, ControlView) and view.plan_sha not in (
        memory.plan.sha,
        memory.control_plan_sha,
    ):
        return "control.json was replaced by one that this controller did not write"
    return KEEP if not _values(snapshot, attempt.number) else ""


def say_fleet(snapshot: Snapshot, memory: Memory) -> str:
    """A gang that was launched is not to be seen: an old view, or its directory is gone."""
    attempt, gang = live_attempt(memory), snapshot.gang
    if attempt is None or not attempt.launched:
        return ""
    if isinstance(gang, Unknown):
        return KEEP
    if gang is not None and gang.attempt == attempt.number:
        return ""
    if not has_passed(attempt.launched_at, memory.policy.start_ms, snapshot.now):
        return KEEP
    return f"attempt {attempt.number} was launched and is not to be seen; nothing rests on that"


def say_telemetry(snapshot: Snapshot, memory: Memory) -> str:
    """No rank can be asked, although the gang had its time to start."""
    attempt = live_attempt(memory)
    # Ranks that leave stop answering first: their end is told, not their silence.
    if attempt is None or attempt.closed or _has_ends(snapshot, attempt.number):
        return ""
    if not snapshot.telemetry:
        return KEEP
    if any(not isinstance(reading.value, Unknown) for reading in snapshot.telemetry):
        return ""
    if not has_passed(attempt.launched_at, memory.policy.start_ms, snapshot.now):
        return KEEP
    return "no rank answers; nothing that would destroy rests on it"


def say_storage(snapshot: Snapshot, memory: Memory) -> str:
    """The checkpoint directory fails its probe, or saves failed."""
    if isinstance(snapshot.storage, Unknown):
        return KEEP
    if snapshot.storage.problem is not None:
        return f"the checkpoint directory cannot be used: {snapshot.storage.problem}"
    attempt = live_attempt(memory)
    values = _values(snapshot, attempt.number) if attempt else []
    if attempt is not None and not values:
        return KEEP
    failures = max((value.checkpoint_failures for value in values), default=0)
    return say_failures(snapshot, memory, failures) if failures else ""


def say_failures(snapshot: Snapshot, memory: Memory, failures: int) -> str:
    """Saves failed; told differently once a newer checkpoint came after all."""
    if isinstance(snapshot.store, Unknown):
        return KEEP
    steps = [found.step for found in list_usable(memory.chain, snapshot.store.checkpoints)]
    failed = f"{failures} saves of this attempt failed"
    healed = f"saving works again after {failures} failures"
    told = next((text for subject, text, _ in memory.notes if subject == "storage"), "")
    text = f"{failed}; the newest checkpoint is of step {max(steps, default=None)}"
    if told.startswith(healed):
        return KEEP
    return healed if told.startswith(failed) and told != text else text


def say_quarantine(snapshot: Snapshot, _: Memory) -> str:
    """Checkpoints that are set aside."""
    if isinstance(snapshot.store, Unknown):
        return KEEP
    marked = [
        f"{found.line}/{found.step} ({found.quarantined})"
        for found in [*snapshot.store.checkpoints, *snapshot.store.set_aside]
        if found.quarantined is not None
    ]
    return f"{QUARANTINED}{', '.join(marked)}" if marked else ""


def say_replay(snapshot: Snapshot, _: Memory) -> str:
    """A replayed step did not give the same loss bits."""
    progress = snapshot.progress
    if progress is None or isinstance(progress, Unknown):
        return KEEP
    if progress.replay_mismatch_step is None:
        return KEEP
    return f"the replayed loss of step {progress.replay_mismatch_step} differs"


def say_refusal(_: Snapshot, __: Memory) -> str:
    """The answer to a refused new line, which its rule noted, is over after a while."""
    return ""


SUBJECTS: dict[str, Say] = {
    "clock": say_clock,
    "control": say_control,
    "fleet": say_fleet,
    "telemetry": say_telemetry,
    "storage": say_storage,
    "quarantine": say_quarantine,
    "replay": say_replay,
    REFUSAL: say_refusal,
}


def _values(snapshot: Snapshot, attempt: int) -> list[RankTelemetry]:
    return [
        reading.value
        for reading in snapshot.telemetry
        if not isinstance(reading.value, Unknown) and reading.value.attempt == attempt
    ]


def _has_ends(snapshot: Snapshot, attempt: int) -> bool:
    gang = snapshot.gang
    if not isinstance(gang, GangView) or gang.attempt != attempt:
        return False
    return bool(ended_ranks(gang.ranks))
