"""A run directory as `resume --from 20` left it: steps 30 and 40 of the first line abandoned."""

from pathlib import Path

from contract import wire
from contract.checkpoint import encode_sealed
from contract.plan import Plan
from controller.adapters import rundir
from controller.adapters.ledger import SegmentedLedger, next_epoch
from controller.core.actions import PublishPlan
from controller.core.declared.launched import LaunchedRun
from controller.core.declared.planning import make_genesis, make_policy
from controller.core.fold import fold
from controller.core.lines import line_plan
from tests.builders import an_instant
from tests.run_files import write_good
from tests.suites.manifests import a_manifest

UID = "u"


def make_forked_run(folder: Path) -> LaunchedRun:
    """Return a run with checkpoints main/10 to main/40, and main-2/30, of which it goes on."""
    run = rundir.create_run(rundir.read_given(write_good(folder)), folder / "runs", UID, 1.5)
    genesis = make_genesis(run.run_file, UID, run.facts.sources)
    policy = make_policy(run.run_file, UID)
    body = {"policy": policy.model_dump(mode="json"), "plan": genesis.model_dump(mode="json")}
    where = run.directory / wire.LEDGER_DIR
    ledger = SegmentedLedger(where, epoch=next_epoch(where), core_version="", spec_sha="")
    memory = fold(None, ledger.append("run", body, an_instant(0)))
    plan = line_plan(memory, "main", 20)
    action = PublishPlan(reason="open line main-2", nonce="w", plan=plan)
    decision = {
        "rule": "open_line",
        "reason": action.reason,
        "actions": [action.model_dump(mode="json")],
    }
    ledger.append("decision", decision, an_instant(1))
    ledger.close()
    for step in (10, 20, 30, 40):
        save(run.directory, "main", step, [genesis])
    save(run.directory, "main-2", 30, [genesis, plan])
    return run


def save(run_dir: Path, line: str, step: int, plans: list[Plan]) -> None:
    """Write a complete checkpoint."""
    place = run_dir / wire.checkpoint_dir(line, step)
    manifest = a_manifest(place, step=step, line=line, plans=plans, run_uid=UID)
    (place / wire.MANIFEST_FILE).write_bytes(encode_sealed(manifest))
