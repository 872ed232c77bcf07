"""Takes a run's ledger over as a fixture: `python -m tools.record_ledger SOURCE FOLDER [--again]`.

Names of machines and of people are replaced, so the chain of hashes is made anew by the ledger that
wrote it; all else is as it was decided. What this core does not repeat bit for bit is refused,
unless `--again` is given: then the decisions are made anew of the recorded inputs, for a core that
uses other words. One that would act otherwise needs another run. SOURCE is a run's directory, or a
fixture. Exit codes: 0 recorded, 1 refused, 2 bad input.
"""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import cast

from contract import wire
from controller.adapters.ledger import SPARE_FILE, SegmentedLedger, create_ledger, read_ledger
from controller.adapters.ledger_format import NUL, segment_path
from controller.cli import output
from controller.cli.deps import core_version
from controller.core.actions import key_of
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.core.recording import read_actions
from controller.core.telling.replay import replay_one
from controller.ports import LedgerRecord

STAND_INS = {"host": "a-host", "user": "owner"}
"""Member of a record -> what stands there in the fixture."""
AGAIN = "--again"
SHORTEST = 3
"""Shorter names are part of words by chance."""


def main(arguments: Sequence[str]) -> int:
    paths = [Path(it) for it in arguments if it != AGAIN]
    if len(paths) != len(("SOURCE", "FOLDER")):
        output.tell(f"usage: python -m tools.record_ledger SOURCE FOLDER [{AGAIN}]")
        return 2
    source, target = paths
    inside = source / wire.LEDGER_DIR
    records = read_ledger(inside if inside.is_dir() else source)
    refusal = find_left_names(records)
    records = [it.model_copy(update={"body": hide_names(it.body)}) for it in records]
    if AGAIN in arguments:
        records = list(decide_again(records))
    refusal = refusal or find_changed(records)
    if refusal is not None:
        output.tell(f"nothing is recorded: {refusal}")
        return 1
    write(target, records)
    output.emit(f"{target}: {len(records)} records of core {records[-1].core_version}")
    return 0


def find_left_names(records: Sequence[LedgerRecord]) -> str | None:
    """Return which names stand in other members, too, where they cannot be replaced safely."""
    names = {name for record in records for name in find_names(record.body)}
    hidden = repr([hide_names(record.body) for record in records])
    left = [name for name in names if len(name) >= SHORTEST and name in hidden]
    return f"names stand in other places, too: {', '.join(left)}" if left else None


def find_names(value: object) -> Iterator[str]:
    """Yield what stands where the name of a machine or of a person does."""
    if isinstance(value, dict):
        for name, member in cast("dict[str, object]", value).items():
            if name in STAND_INS and isinstance(member, str):
                yield member
            yield from find_names(member)
    elif isinstance(value, list):
        for member in cast("list[object]", value):
            yield from find_names(member)


def hide_names(value: object) -> object:
    """Return the value with a stand-in for each such name."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {
            name: STAND_INS[name] if name in STAND_INS and isinstance(it, str) else hide_names(it)
            for name, it in members.items()
        }
    if isinstance(value, list):
        return [hide_names(member) for member in cast("list[object]", value)]
    return value


def decide_again(records: Iterable[LedgerRecord]) -> Iterator[LedgerRecord]:
    """Yield the records with their decisions as this core makes them of the same inputs."""
    memory: Memory | None = None
    version = core_version()
    for record in records:
        body = record.body
        if memory is not None and record.kind == "decision":
            body = json.loads(replay_one(record, memory, version).repeated)
        made = record.model_copy(update={"body": body, "core_version": version})
        memory = fold(memory, made)
        yield made


def find_changed(records: Iterable[LedgerRecord]) -> str | None:
    """Return which decision this core does not make bit for bit, or which outcome has no act."""
    memory: Memory | None = None
    keys: set[str] = set()
    for record in records:
        if memory is not None and record.kind == "decision":
            if not replay_one(record, memory, record.core_version).is_equal:
                return f"decision {record.seq} is not repeated bit for bit; {AGAIN} makes it anew"
            uid = memory.policy.run_uid
            keys |= {key_of(uid, action) for action in read_actions(record.body)}
        if record.kind == "outcome" and record.body["key"] not in keys:
            return f"record {record.seq} tells of an act that this core does not decide"
        memory = fold(memory, record)
    return None


def write(target: Path, records: Sequence[LedgerRecord]) -> None:
    """Write the records through a ledger of their epochs, and leave nothing preallocated."""
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    create_ledger(target)
    for epoch, group in groupby(records, key=lambda record: record.epoch):
        own = list(group)
        ledger = SegmentedLedger(
            target, epoch=epoch, core_version=own[0].core_version, spec_sha=own[0].spec_sha
        )
        for record in own:
            ledger.append(record.kind, record.body, record.at)
        ledger.close()
        path = segment_path(target, epoch)
        path.write_bytes(path.read_bytes().rstrip(NUL))
    (target / SPARE_FILE).unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
