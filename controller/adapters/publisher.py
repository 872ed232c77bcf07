"""Plans, the control document and the status, as files of the run."""

import json
from collections.abc import Mapping
from pathlib import Path

from contract import wire
from contract.canonical import encode_canonical
from contract.plan import Plan
from controller.adapters.files import Stamp, read_or_none, stamp_of, write_atomically
from controller.adapters.ledger import Fence
from controller.adapters.system import port_errors
from controller.core.snapshot import ControlView
from controller.ports import Damaged


class FilePublisher:
    """Writes for a running gang; a former controller's writes are refused."""

    def __init__(self, run_dir: Path, *, fence: Fence) -> None:
        self._run_dir = run_dir
        self._fence = fence
        self._seen: tuple[Stamp, ControlView] | None = None

    def read_control(self) -> ControlView | None:
        """Return the control document, None when there never was one.

        Raises:
            Damaged: garbage lies there.
            Unavailable: it cannot be read.
        """
        path = self._run_dir / wire.CONTROL_FILE
        with port_errors("cannot read the control document"):
            stamp = stamp_of(path)
            if self._seen is not None and self._seen[0] == stamp:
                return self._seen[1]
            data = read_or_none(path)
        if data is None:
            return None
        try:
            document = wire.ControlDocument.model_validate_json(data)
        except ValueError as error:
            raise Damaged(f"{wire.CONTROL_FILE} is not a control document") from error
        view = ControlView(
            epoch=document.epoch,
            seq=document.seq,
            plan_sha=document.plan_sha,
            drain=document.drain,
        )
        self._seen = (stamp, view)
        return view

    def publish_control(self, document: wire.ControlDocument) -> None:
        """Replace the control document atomically.

        Raises:
            EpochLost: another controller took over.
            Unavailable: the disk is full, or the directory cannot be written.
        """
        self._fence.check()
        data = encode_canonical(document.model_dump(mode="json"))
        write_atomically(self._run_dir / wire.CONTROL_FILE, data)

    def publish_plan(self, plan: Plan) -> None:
        """Write the plan's file; anything else under its name is replaced, the name is a hash.

        Raises:
            EpochLost: another controller took over.
            Unavailable: the disk is full, or the directory cannot be written.
        """
        self._fence.check()
        path = self._run_dir / wire.plan_file(plan.sha)
        with port_errors("cannot write the plan"):
            path.parent.mkdir(exist_ok=True)
            if read_or_none(path) == plan.encode():
                return
        write_atomically(path, plan.encode())


class StatusFile:
    """Where the one status write of a pass goes; equal ones are not written again."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / wire.STATUS_FILE
        self._written = b""

    def write(self, status: Mapping[str, object]) -> None:
        """Replace the status.

        Raises:
            Unavailable: the disk is full, or the directory cannot be written.
        """
        data = json.dumps(status, ensure_ascii=False).encode() + b"\n"
        if data == self._written:
            return
        # Not durable: the next pass writes it anew, and the ledger holds what counts.
        write_atomically(self._path, data, durable=False)
        self._written = data
