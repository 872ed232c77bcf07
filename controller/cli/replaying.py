"""`ctl log --replay`: every decision made again by this core, and what it decides otherwise."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.entries import describe_damage, describe_unreadable
from controller.cli.selecting import Selection
from controller.cli.wording import show_instant
from controller.core.chance import count_of
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.core.recording import FOREIGN
from controller.core.telling.differences import compare_decisions
from controller.core.telling.replay import Replayed, replay_one
from controller.ports import Damaged, LedgerRecord

MAX_SHOWN = 20
"""Decisions whose differences are shown; the rest is counted."""
PROGRESS_S = 3.0


@dataclass
class Version:
    """The decisions of one core, and how many of them this one makes otherwise."""

    core_version: str
    is_same: bool
    decisions: int = 0
    differ: int = 0


@dataclass(frozen=True)
class Difference:
    """One decision that this core makes otherwise."""

    record: LedgerRecord
    lines: list[str]


@dataclass
class Tally:
    """What the replay found so far; it holds no decision but those shown."""

    core_version: str
    versions: dict[str, Version] = field(default_factory=dict[str, Version])
    shown: list[Difference] = field(default_factory=list[Difference])

    def take(self, record: LedgerRecord, replayed: Replayed) -> Difference | None:
        """Count one decision; return how it differs if that is to be shown."""
        known = record.core_version
        version = self.versions.setdefault(known, Version(known, known == self.core_version))
        version.decisions += 1
        if replayed.is_equal:
            return None
        lines = compare_decisions(replayed)
        if not lines and not version.is_same:
            return None  # The same decision, written in another form.
        version.differ += 1
        if sum(it.differ for it in self.versions.values()) > MAX_SHOWN:
            return None
        found = Difference(record, lines or ["the same acts, written in another form"])
        self.shown.append(found)
        return found

    @property
    def code(self) -> Code:
        """The exit code: a difference of one and the same core is a defect."""
        if any(it.differ for it in self.versions.values() if it.is_same):
            return Code.FAILED
        return Code.DIFFERS if any(it.differ for it in self.versions.values()) else Code.DONE


def replay_ledger(directory: Path, selection: Selection, *, form: str) -> int:
    """Repeat the decisions between the bounds and say which differ; return the exit code.

    Raises:
        Damaged: a record has a form that this core cannot read.
    """
    scan, tally = deps.scan_ledger(directory), Tally(deps.core_version())
    version = ""
    for found in _find_differences(scan.records(), selection, tally):
        if form != "text":
            continue
        if found.record.core_version != version:
            version = found.record.core_version
            output.emit(f"decided by core {version}{_mark(tally.versions[version])}:")
        output.emit(_describe(found))
    if form == "json":
        output.emit_json(_dump(tally))
    else:
        output.emit("\n".join(_conclude(directory.name, tally)))
    if scan.damage is not None:
        output.tell(describe_damage(directory.name, len(scan.hashes), scan.damage))
        return Code.FAILED
    return tally.code


def _find_differences(
    records: Iterable[LedgerRecord], selection: Selection, tally: Tally
) -> Iterator[Difference]:
    """Yield the decisions that differ, as they come; one memory is all that is kept."""
    memory: Memory | None = None
    told_at, repeated = time.monotonic(), 0
    for record in records:
        try:
            if record.kind == "decision" and memory is not None and selection.takes(record):
                found = tally.take(record, replay_one(record, memory, tally.core_version))
                repeated += 1
                if found is not None:
                    yield found
            memory = fold(memory, record)
        except FOREIGN as error:
            where = f"record {record.seq}, of core {record.core_version}"
            raise Damaged(describe_unreadable(where, error)) from error
        if time.monotonic() - told_at > PROGRESS_S:
            told_at = time.monotonic()
            output.tell(f"record {record.seq:,}: {repeated:,} decisions repeated so far")


def _describe(found: Difference) -> str:
    record = found.record
    title = f"{record.seq:>5}  {show_instant(record.at.wall_ms)}  {record.body['rule']}"
    return "\n".join([title, *(f"         {line}" for line in found.lines)])


def _mark(version: Version) -> str:
    return " (this very core: a defect)" if version.is_same else ""


def _conclude(name: str, tally: Tally) -> Iterator[str]:
    decisions = sum(it.decisions for it in tally.versions.values())
    hidden = sum(it.differ for it in tally.versions.values()) - len(tally.shown)
    if hidden:
        yield f"and {count_of(hidden, 'decision')} more that differ"
    for version in tally.versions.values():
        who = "this core" if version.is_same else f"core {version.core_version}"
        same = version.decisions - version.differ
        kind = "bit for bit" if version.is_same else "decided the same now"
        yield f"{who}: {same:,} of {count_of(version.decisions, 'decision')} {kind}"
    yield f"{name}: {count_of(decisions, 'decision')} repeated by core {tally.core_version}"


def _dump(tally: Tally) -> dict[str, object]:
    return {
        "core_version": tally.core_version,
        "versions": [
            {
                "core_version": it.core_version,
                "is_same": it.is_same,
                "decisions": it.decisions,
                "differ": it.differ,
            }
            for it in tally.versions.values()
        ],
        "differences": [
            {
                "seq": it.record.seq,
                "at": it.record.at.wall_ms,
                "core_version": it.record.core_version,
                "rule": it.record.body["rule"],
                "lines": it.lines,
            }
            for it in tally.shown
        ],
    }
