"""Bugs planted on purpose: each checker must bark at its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from contract.wire import Restore
from controller.core import damage, ends, launching, stuck
from controller.core.actions import LaunchGang, QuarantineCheckpoint, RecordEnd
from controller.core.decide import GANG
from controller.core.memory import Memory
from controller.core.readings import Instant, Unknown
from controller.core.rules import Answer, Rule, alive_ranks, live_attempt, own_gang, rule
from controller.core.snapshot import GangView, RankTelemetry, Snapshot
from controller.ports import LedgerRecord
from controller.runtime.observe import Ports
from controller.simulate.chaos.reads import Wire
from controller.simulate.tap import Tap


def swap(name: str, broken: Rule) -> tuple[Rule, ...]:
    """Return the core's rules with one of them broken."""
    assert any(one.name == name for one in GANG)
    return tuple(broken if one.name == name else one for one in GANG)


# Ends the attempt at the first rank's end and launches over the others.


@rule("gang")
def end_at_first(snapshot: Snapshot, memory: Memory) -> Answer | None:
    gang = own_gang(snapshot, memory)
    if gang is None or not any(view.claimed and not view.alive for view in gang.ranks):
        return None
    end = ends.end_record(snapshot, memory, gang, "over")
    return Answer("over", [end], 0)


@rule("gang", "store", "storage")
def launch_at_once(snapshot: Snapshot, memory: Memory) -> Answer | None:
    if live_attempt(memory) is not None:
        return None
    order = launching.next_order(snapshot, memory)
    return Answer("go", [*launching.prepare(snapshot, memory, order), order])


NO_WAIT = tuple(
    {"record_end": end_at_first, "launch": launch_at_once}.get(one.name, one)
    for one in GANG
    if one.name != "kill_remains"
)


# Takes any checkpoint for progress, verified or not.


@rule("gang")
def count_unverified(snapshot: Snapshot, memory: Memory) -> Answer | None:
    answer = ends.record_end.ask(snapshot, memory)
    if answer is None or not answer.actions or isinstance(snapshot.store, Unknown):
        return answer
    newest = max((found.step for found in snapshot.store.checkpoints), default=None)
    [end] = answer.actions
    assert isinstance(end, RecordEnd)
    return replace(answer, actions=[end.model_copy(update={"verified_step": newest})])


UNVERIFIED_COUNTS = swap("record_end", count_unverified)


# Takes a fleet that cannot be read for a dead one.


@rule()
def bury_the_unseen(snapshot: Snapshot, memory: Memory) -> Answer | None:
    attempt = live_attempt(memory)
    if attempt is None or not isinstance(snapshot.gang, Unknown):
        return ends.record_end.ask(snapshot, memory) if attempt and not blind(snapshot) else None
    gang = GangView(attempt=attempt.number, closed=True, ranks=[], remains=[])
    return Answer("gone", [ends.end_record(snapshot, memory, gang, "gone")], 0)


def blind(snapshot: Snapshot) -> bool:
    return isinstance(snapshot.gang, Unknown)


UNKNOWN_IS_DEAD = swap("record_end", bury_the_unseen)


# Kills on what a rank says about itself alone.


@rule("gang")
def end_on_one_signal(snapshot: Snapshot, memory: Memory) -> Answer | None:
    gang = own_gang(snapshot, memory)
    late = [
        reading.rank
        for reading in snapshot.telemetry
        if isinstance(reading.value, RankTelemetry)
        and reading.value.progress_age_ms > reading.value.deadline_ms
    ]
    if gang is None or not late or not alive_ranks(gang.ranks):
        return None
    still = snapshot.model_copy(update={"progress": None})
    return stuck.end_stuck.ask(still, memory)


ONE_SIGNAL = swap("end_stuck", end_on_one_signal)


# Forgets that there were checkpoints.


@rule("gang", "store", "storage")
def launch_from_nothing(snapshot: Snapshot, memory: Memory) -> Answer | None:
    answer = launching.launch.ask(snapshot, memory)
    if answer is None:
        return None
    actions = [
        one.model_copy(update={"restore": Restore.NONE}) if isinstance(one, LaunchGang) else one
        for one in answer.actions
    ]
    return replace(answer, actions=actions)


FROM_NOTHING = swap("launch", launch_from_nothing)


# Has no budget.


@rule()
def spend_without_end(_: Snapshot, memory: Memory) -> Answer | None:
    return None


NO_BUDGET = swap("spend_budget", spend_without_end)


# Marks good checkpoints, too.


@rule("gang", "store")
def quarantine_newest(snapshot: Snapshot, memory: Memory) -> Answer | None:
    if live_attempt(memory) is not None or isinstance(snapshot.store, Unknown):
        return None
    fit = [found for found in snapshot.store.checkpoints if found.quarantined is None]
    if not fit:
        return damage.quarantine_damaged.ask(snapshot, memory)
    newest = fit[-1]
    mark = QuarantineCheckpoint(
        reason="newest", nonce=str(memory.seq), line=newest.line, step=newest.step
    )
    return Answer("mark", [mark])


MARKS_GOOD_ONES = swap("quarantine_damaged", quarantine_newest)


# Never launches again.


@rule()
def wait_for_ever(_: Snapshot, memory: Memory) -> Answer | None:
    if memory.attempt is not None and memory.attempt.ended and memory.incidents:
        return Answer("wait", [], 60_000)
    return None


NEVER_AGAIN = swap("wait_delay", wait_for_ever)


# Counts attempts backwards.


@rule("gang", "store", "storage")
def launch_lower(snapshot: Snapshot, memory: Memory) -> Answer | None:
    answer = launching.launch.ask(snapshot, memory)
    if answer is None or memory.attempt is None:
        return answer
    actions = [
        one.model_copy(update={"attempt": 0}) if isinstance(one, LaunchGang) else one
        for one in answer.actions
    ]
    return replace(answer, actions=actions)


COUNTS_BACK = swap("launch", launch_lower)


def moody_rules() -> tuple[Rule, ...]:
    """Return rules of which one rests on more than it is given."""
    moods = iter(range(10**6))

    @rule("gang", "store", "storage")
    def launch_by_mood(snapshot: Snapshot, memory: Memory) -> Answer | None:
        answer = launching.launch.ask(snapshot, memory)
        return answer and replace(answer, reason=f"mood {next(moods)}")

    return swap("launch", launch_by_mood)


@dataclass
class SilentLedger:
    """A ledger that does not keep what is decided: acts come without an intent."""

    ledger: object

    def append(self, kind: str, body: Mapping[str, object], at: Instant) -> LedgerRecord:
        if kind != "decision" or "close_attempt" not in str(body):
            return self.ledger.append(kind, body, at)
        real = self.ledger.append("outcome", {"key": "-", "ok": False, "error": ""}, at)
        return real.model_copy(update={"kind": kind, "body": body})

    def __getattr__(self, name: str) -> object:
        return getattr(self.ledger, name)


def act_unannounced(ports: Ports) -> Ports:
    return replace(ports, ledger=SilentLedger(ports.ledger))


@dataclass
class StaleLedger:
    """A ledger whose newest records are not read back: memory is rebuilt too old."""

    ledger: object

    def records(self) -> list[LedgerRecord]:
        records = list(self.ledger.records())
        return records[:-4] if len(records) > 8 else records

    def __getattr__(self, name: str) -> object:
        return getattr(self.ledger, name)


def remember_too_little(ports: Ports) -> Ports:
    return replace(ports, ledger=StaleLedger(ports.ledger))


@dataclass
class DeafLedger:
    """A ledger that does not notice that another controller took over."""

    ledger: object

    def append(self, kind: str, body: Mapping[str, object], at: Instant) -> LedgerRecord:
        inner = inner_of(self.ledger)
        inner.epoch = max(inner.epoch, inner.book.epoch)
        return inner.append(kind, body, at)

    def __getattr__(self, name: str) -> object:
        return getattr(self.ledger, name)


def inner_of(port: object) -> object:
    """Return the simulated port behind the tap and the wire."""
    while isinstance(port, Tap | Wire):
        port = port.port
    return port


def ignore_epochs(ports: Ports) -> Ports:
    """Take the fences off: a later controller is not noticed."""
    for port in (ports.fleet, ports.publisher, ports.checkpoints):
        inner_of(port).epoch = 10**9
    return replace(ports, ledger=DeafLedger(ports.ledger))
