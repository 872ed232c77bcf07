"""Writes the report of a run; a process of its own, so that no other one pays for the drawing.

python -m controller.report RUN_DIR [html|md|json] [SINCE] [TO]
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from contract import wire
from controller.adapters import finish, rundir
from controller.adapters.files import read_or_none, write_atomically
from controller.adapters.ledger_format import Scan, check_anchors
from controller.adapters.records import read_evals, read_histories
from controller.core.declared.launched import LaunchedRun
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.core.readings import Instant
from controller.core.recording import FOREIGN
from controller.core.telling.account import make_account
from controller.core.telling.chronicle import read_chronicle
from controller.core.telling.summary import Evidence
from controller.ports import Damaged, PortError, Refused, Unavailable
from controller.report.dossier import Declared, Dossier
from controller.report.numbers import make_facts
from controller.report.page import write_page, write_text
from controller.report.scene import known_until_s
from controller.report.trail import Trail

STDOUT = "-"
SNAPSHOT = "snapshot"
"""What a decision rested on: most of a ledger's bytes, and nothing that a report tells."""


class Kept(NamedTuple):
    """What a report needs of a record."""

    seq: int
    epoch: int
    kind: str
    at: Instant
    body: Mapping[str, object]


def gather(directory: Path, since: int = 0) -> Dossier:
    """Return what lies in a run's directory, up to the first damage of its ledger.

    Raises:
        PortError: it is no run, a file cannot be read, or the ledger is not that long.
    """
    run = rundir.read_run(directory)
    scan = Scan(directory / wire.LEDGER_DIR)
    memory: Memory | None = None
    trail = Trail()
    records: list[Kept] = []
    for record in scan.records():
        try:
            memory = fold(memory, record)
            trail.take(record)
        except FOREIGN as error:
            words = f"this release cannot read record {record.seq} ({type(error).__name__})"
            raise Damaged(f"{words}. Next: ctl log {directory.name} --verify") from error
        if record.kind != "outcome":
            body = {name: it for name, it in record.body.items() if name != SNAPSHOT}
            records.append(Kept(record.seq, record.epoch, record.kind, record.at, body))
    if memory is None:
        raise Unavailable(f"{directory} was never steered: there is nothing to report yet")
    if since > trail.seq:
        bound = f"the ledger ends at entry {trail.seq}"
        raise Refused(f"--since is {since}; {bound}. Next: ctl report {directory.name} -o md")
    rests = tuple(finish.find_rests(records))
    findings = [*scan.findings, *check_anchors(scan.hashes, finish.anchors_of(run))]
    damage = [it.text for it in findings if it.is_damage]
    declared = run.run_file.spec.record
    return Dossier(
        evidence=_gather_evidence(run, records, memory, rests, damage),
        trail=trail,
        declared=Declared(declared.hypothesis, declared.goals, declared.links),
        rests=rests,
        since=since,
    )


def _gather_evidence(
    run: LaunchedRun,
    records: Sequence[Kept],
    memory: Memory,
    rests: tuple[tuple[float, float], ...],
    damage: list[str],
) -> Evidence:
    histories, evals = read_histories(run.directory), read_evals(run.directory)
    created_s = run.identity.created_wall_s
    evidence = Evidence(
        memory=memory,
        histories=histories,
        evals=evals,
        entropies=finish.measure_entropies(run, evals),
        account=make_account((), created_s, created_s, ()),
        ledger_findings=damage,
        peak_flops_per_second=_find_peak(run),
        chronicle=read_chronicle(records),
    )
    # A living gang's log is ahead of the ledger: time is accounted for up to the newest of both.
    until_s = known_until_s(evidence)
    return replace(evidence, account=make_account(histories, created_s, until_s, rests))


def _find_peak(run: LaunchedRun) -> float | None:
    """Return the peak that the summary was made with, or else the declared one; None: neither."""
    fleet = run.run_file.spec.fleet
    declared = fleet.peak_flops_per_device
    found = read_peak(run.directory)
    return found if found or declared is None else float(declared * fleet.devices)


def read_peak(directory: Path) -> float | None:
    """Return the peak that the run's summary was made with; ranks said it while they lived."""
    try:
        summary = json.loads(read_or_none(directory / wire.SUMMARY_FILE) or b"{}")
    except ValueError:
        return None
    if not isinstance(summary, dict):
        return None
    peak = cast("dict[str, object]", summary).get("peak_flops_per_second")
    return float(peak) if isinstance(peak, int | float) else None


def render(dossier: Dossier, form: str) -> str:
    """Return the report in one of its forms."""
    match form:
        case "md":
            return write_text(dossier)
        case "json":
            return json.dumps(make_facts(dossier), indent=1, ensure_ascii=False) + "\n"
        case _:
            return write_page(dossier)


def main(arguments: list[str]) -> int:
    """Write the report of the directory named by `arguments`; return the exit code."""
    directory = Path(arguments[0])
    form, since, to = [*arguments[1:], *("html", "0", "")[len(arguments) - 1 :]]
    try:
        data = render(gather(directory, int(since)), form).encode()
        if to == STDOUT:
            sys.stdout.buffer.write(data)
        else:
            target = Path(to) if to else directory / wire.REPORT_FILE
            write_atomically(target, data, durable=False)
    except (PortError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
