"""Stories of `tests.builders` written into a run's directory, as a controller leaves them."""

import json
from collections.abc import Iterable
from pathlib import Path

from contract import wire
from controller.adapters import rundir
from controller.adapters.ledger import SegmentedLedger, create_ledger, next_epoch
from controller.cli import deps
from controller.ports import LedgerRecord
from tests.run_files import write_good


def make_run(folder: Path, name: str = "probe") -> Path:
    """Return the directory of a run as its launch leaves it, in `folder`/runs, without records."""
    write_good(folder)
    given = rundir.read_given(folder / "run.yaml")
    directory = rundir.create_run(given, folder / "runs", "uid", 1.5).directory
    assert directory.name == name
    return directory


def write_records(
    directory: Path, records: Iterable[LedgerRecord], core_version: str | None = None
) -> None:
    """Append the records to the run's ledger as one more epoch, by this core or another one."""
    folder = directory / wire.LEDGER_DIR
    create_ledger(folder)
    ledger = SegmentedLedger(
        folder,
        epoch=next_epoch(folder),
        core_version=core_version or deps.core_version(),
        spec_sha="0" * 64,
    )
    for record in records:
        ledger.append(record.kind, json.loads(json.dumps(record.body)), record.at)
    ledger.close()
