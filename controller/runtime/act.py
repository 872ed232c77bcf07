"""Carrying out one action through the ports."""

from contract.wire import ControlDocument
from controller.core.actions import (
    Action,
    CloseAttempt,
    KillRanks,
    LaunchGang,
    PublishControl,
    PublishPlan,
    QuarantineCheckpoint,
)
from controller.core.snapshot import ControlView, GangView, Snapshot
from controller.ports import LedgerRecord
from controller.runtime.observe import Ports


def execute(
    ports: Ports, action: Action, intent: LedgerRecord, snapshot: Snapshot, *, run_uid: str
) -> None:
    """Do what `action` says; doing it twice equals doing it once.

    `intent` is the record that holds the action.

    Raises:
        PortError: it could not be done, or not be known to be done.
    """
    match action:
        case LaunchGang():
            ports.fleet.launch(action, epoch=intent.epoch)
        case CloseAttempt():
            ports.fleet.close(action.attempt)
        case KillRanks():
            ports.fleet.kill(action.attempt, action.ranks)
        case PublishPlan():
            ports.publisher.publish_plan(action.plan)
        case PublishControl():
            number = control_number(intent, snapshot)
            document = ControlDocument(
                run_uid=run_uid,
                epoch=intent.epoch,
                seq=number,
                plan_sha=action.plan_sha,
                drain=action.drain,
                ledger_head=ports.ledger.head(),
            )
            ports.publisher.publish_control(document)
        case QuarantineCheckpoint():
            attempt = snapshot.gang.attempt if isinstance(snapshot.gang, GangView) else 0
            ports.checkpoints.quarantine(action.line, action.step, action.reason, attempt)
        case _:
            raise AssertionError(f"{action.verb} has no effect outside memory")


def control_number(intent: LedgerRecord, snapshot: Snapshot) -> int:
    """Return the document's number: ranks obey none below what they obeyed.

    The number of the intent's record grows with every document of this run. A document that
    someone else wrote under our epoch is topped.
    """
    there = snapshot.control
    if isinstance(there, ControlView) and there.epoch == intent.epoch:
        return max(intent.seq, there.seq + 1)
    return intent.seq
