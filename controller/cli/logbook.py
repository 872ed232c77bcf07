"""`ctl log`: every decision of a run in words, and whether the record is whole."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.peek import look
from controller.ports import LedgerRecord


def show_log(runs_dir: Path, name: str, *, verify: bool, form: str) -> int:
    """Print the ledger, or what is wrong with it; return the exit code.

    Raises:
        PortError: no such run, or its ledger is missing.
    """
    if form not in FORMS:
        bound = f"it must be one of {', '.join(FORMS)}"
        output.tell(f"--output is {form}; {bound}. Next: ctl log {name} -o json")
        return Code.BAD_INPUT
    run = deps.read_run(runs_dir, name)
    if (origin := look(run.directory).copy_of) is not None:
        output.tell(f"{run.directory} is a copy of the run launched in {origin}")
    if verify:
        return _verify(name, *deps.verify_ledger(run))
    records, damage = deps.read_valid(run.directory)
    if form == "json":
        output.emit_json([record.model_dump(mode="json") for record in records])
    else:
        for record in records:
            output.emit(describe_record(record))
    if damage is None:
        return Code.DONE
    output.tell(
        f"the ledger is damaged; what follows these {len(records)} records cannot be trusted:"
        f" {damage}. Next: ctl log {name} --verify"
    )
    return Code.FAILED


FORMS = ("text", "json")


def _verify(name: str, num_records: int, findings: Sequence[tuple[str, str, bool]]) -> int:
    for kind, text, is_damage in findings:
        output.emit(f"{'DAMAGE' if is_damage else 'note'}  {kind}: {text}")
    if any(is_damage for _, _, is_damage in findings):
        return Code.FAILED
    missing = sum(kind == "unanchored" for kind, _, _ in findings)
    anchors = f"; {missing} checkpoints hold no anchor" if missing else ""
    output.emit(f"{name}: {num_records} records; chain and anchors in checkpoints hold{anchors}")
    return Code.DONE


def describe_record(record: LedgerRecord) -> str:
    """Return one record in a line."""
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(record.at.wall_ms / 1000))
    return f"{record.seq:>5}  {when}  {record.kind:<8}  {_describe_body(record)}"


def _describe_body(record: LedgerRecord) -> str:
    body = record.body
    match record.kind:
        case "run":
            plan = cast("dict[str, object]", body["plan"])
            return f"launched: {plan['total_steps']} steps of {plan['tokens_per_step']} tokens"
        case "policy":
            changed = cast("list[str]", body["changed"])
            return f"changed by the run file: {', '.join(changed)}"
        case "epoch":
            how = "took over as" if body["takeover"] else "is"
            return f"controller {body['pid']} on {body['host']} {how} epoch {record.epoch}"
        case "decision":
            actions = cast("list[dict[str, object]]", body["actions"])
            verbs = ", ".join(str(action["verb"]) for action in actions)
            return f"{body['rule']}: {body['reason']} [{verbs}]"
        case "outcome":
            verb = str(body["key"]).split("/")[2]
            return f"{verb}: {'done' if body['ok'] else body['error']}"
        case kind:
            return kind
