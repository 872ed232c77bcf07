"""Closes a run at rest: gathers what it left and writes summary.json."""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from contract import wire
from contract.wire import EvalRecord, LedgerHead
from controller.adapters.checkpoints import CheckpointFiles
from controller.adapters.corpus import bigram_entropies
from controller.adapters.files import write_atomically
from controller.adapters.ledger import Fence, read_ledger, verify_ledger
from controller.adapters.ledger_format import Finding, read_content
from controller.adapters.records import read_evals, read_histories
from controller.adapters.rundir import text_of
from controller.core.declared.launched import LaunchedRun
from controller.core.fold import Record
from controller.core.memory import Memory
from controller.core.recording import read_actions
from controller.core.telling.account import make_account
from controller.core.telling.chronicle import read_chronicle
from controller.core.telling.summary import Entropies, Evidence, make_summary
from controller.ports import LedgerRecord, Unavailable

RESTS = frozenset({"rest", "halt", "complete"})
MS_PER_S = 1_000

log = logging.getLogger(__name__)


def write_summary(
    run: LaunchedRun, memory: Memory, peak_flops_per_second: float | None
) -> dict[str, object]:
    """Write summary.json and return its content.

    Raises:
        PortError: the ledger is damaged, or a file cannot be read or written.
    """
    records = read_ledger(run.directory / wire.LEDGER_DIR)
    evidence = gather_evidence(run, records, memory, peak_flops_per_second)
    summary = make_summary(evidence)
    data = json.dumps(summary, indent=2, ensure_ascii=False).encode() + b"\n"
    write_atomically(run.directory / wire.SUMMARY_FILE, data)
    return summary


def gather_evidence(
    run: LaunchedRun,
    records: Sequence[LedgerRecord],
    memory: Memory,
    peak_flops_per_second: float | None,
) -> Evidence:
    """Return all that summary and report are made from, up to the newest record or step.

    Raises:
        PortError: a file cannot be read.
    """
    histories = read_histories(run.directory)
    evals = read_evals(run.directory)
    ended_wall_s = records[-1].at.wall_ms / MS_PER_S
    return Evidence(
        memory=memory,
        histories=histories,
        evals=evals,
        entropies=measure_entropies(run, evals),
        account=make_account(
            histories, run.identity.created_wall_s, ended_wall_s, list(find_rests(records))
        ),
        ledger_findings=[it.text for it in find_all(run) if it.is_damage],
        peak_flops_per_second=peak_flops_per_second,
        chronicle=read_chronicle(records),
    )


def measure_entropies(run: LaunchedRun, evals: Sequence[EvalRecord]) -> dict[str, Entropies]:
    """Return what counting alone predicts of each source's held-out text.

    Of exactly the text that the last evaluation read, or of all of it where none was made. Without
    the text, of no source: what a run came to can be told all the same.
    """
    entropies: dict[str, Entropies] = {}
    try:
        texts = text_of(run)
    except Unavailable as error:
        log.warning("held-out losses are told without what counting predicts: %s", error)
        return {}
    for name, (train, heldout) in texts.items():
        read = [it.tokens for it in evals if it.source == name][-1:]
        # One byte more: the last target.
        text = heldout[: read[0] + 1] if read else heldout
        entropies[name] = Entropies(*bigram_entropies(train, text))
    return entropies


def find_all(run: LaunchedRun) -> Sequence[Finding]:
    """Return everything unusual about the ledger, seen by itself and from the checkpoints."""
    return verify_ledger(run.directory / wire.LEDGER_DIR, anchors_of(run))


def anchors_of(run: LaunchedRun) -> list[tuple[str, LedgerHead]]:
    """Return the ledger heads that the run's checkpoints hold, with their names."""
    # The fence is never asked: only manifests are read.
    fence = Fence(run.directory / wire.LEDGER_DIR, epoch=0)
    store = CheckpointFiles(run.directory, run_uid=run.identity.run_uid, fence=fence)
    return store.anchors()


def read_valid(run_dir: Path) -> tuple[Sequence[LedgerRecord], str | None]:
    """Return the records up to the first damage, and what the damage is, None where none is.

    Raises:
        PortError: the ledger is missing or cannot be read.
    """
    content = read_content(run_dir / wire.LEDGER_DIR)
    damage = next((it.text for it in content.findings if it.is_damage), None)
    return content.records, damage


def find_rests(records: Iterable[Record]) -> Iterator[tuple[float, float]]:
    """Yield (from, to) of every rest, in seconds of wall time: until the next controller began."""
    since: float | None = None
    for record in records:
        wall_s = record.at.wall_ms / MS_PER_S
        if record.kind == "epoch" and since is not None:
            yield since, wall_s
            since = None
        if record.kind == "decision" and RESTS & {it.verb for it in read_actions(record.body)}:
            since = wall_s
    if since is not None:
        yield since, float("inf")
