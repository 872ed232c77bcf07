"""One controller process of a fault test: the real adapters, and where asked a sudden death.

    python -m tests.faults.controller_process RUN_DIR [--die PORT.METHOD:WHEN:COUNT]
                                                      [--late PORT.METHOD:SECONDS:COUNT]

WHEN is `before` or `after`; COUNT is the number of the call, from 1; a late call begins so many
SECONDS after it should. Nothing of this is known to the code under test: the ports are wrapped
from outside.
"""

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from contract.wire import LEDGER_DIR
from controller.adapters.checkpoints import CheckpointFiles
from controller.adapters.intents import IntentFiles
from controller.adapters.ledger import SegmentedLedger, next_epoch
from controller.adapters.local import GangOrder, LocalFleet
from controller.adapters.publisher import FilePublisher, StatusFile
from controller.adapters.scrape import ScrapedTelemetry
from controller.adapters.steplog import StepLogs
from controller.adapters.system import Processes, SystemClock
from controller.core.readings import Instant
from controller.core.telling.status import build_status
from controller.runtime.lease import Lease, LeaseHeld, acquire_lease
from controller.runtime.loop import StopRequest, run_controller
from controller.runtime.observe import Cadence, Ports
from controller.runtime.reconcile import Reconciler

ORDER_FILE = "order.json"
OFFSET_FILE = "clock-offset-ms"
STALE_AFTER_MS = 1_500
"""Three times the pause between beats; short, so that a takeover takes seconds in a test."""
HELD = 9


class JumpingClock(SystemClock):
    """The machine's clock with a wall offset that the test writes to a file."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__()
        self._offset_file = run_dir / OFFSET_FILE

    def now(self) -> Instant:
        """Return the instant as a machine whose wall clock jumped would show it."""
        now = super().now()
        if not self._offset_file.exists():
            return now
        offset_ms = int(self._offset_file.read_text() or 0)
        return now.model_copy(update={"wall_ms": now.wall_ms + offset_ms})


@dataclass
class Death:
    """SIGKILL to this very process around the COUNTth call of one method."""

    method: str
    when: str
    count: int

    @classmethod
    def parse(cls, text: str) -> "Death":
        method, when, count = text.split(":")
        return cls(method, when, int(count))

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        if name != self.method:
            return call

        def wrapped(*args: Any, **options: Any) -> Any:
            self.count -= 1
            if self.when == "before" and self.count == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = call(*args, **options)
            if self.when == "after" and self.count == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return wrapped


@dataclass
class Delay:
    """A pause before the COUNTth call of one method."""

    method: str
    seconds: str
    count: int

    @classmethod
    def parse(cls, text: str) -> "Delay":
        method, seconds, count = text.split(":")
        return cls(method, seconds, int(count))

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        if name != self.method:
            return call

        def wrapped(*args: Any, **options: Any) -> Any:
            self.count -= 1
            if self.count == 0:
                threading.Event().wait(float(self.seconds))
            return call(*args, **options)

        return wrapped


class Mortal:
    """A port, one method of which may be the last thing that the process calls, or come late."""

    def __init__(self, name: str, port: object, *troubles: Death | Delay) -> None:
        self._name, self._port, self._troubles = name, port, troubles

    def __getattr__(self, method: str) -> Any:
        value = getattr(self._port, method)
        if callable(value):
            for trouble in self._troubles:
                value = trouble.around(f"{self._name}.{method}", value)
        return value


def build_ports(run_dir: Path, order: dict[str, Any], lease: Lease) -> Ports:
    clock = JumpingClock(run_dir)
    ledger = SegmentedLedger(
        run_dir / LEDGER_DIR, epoch=lease.epoch, core_version="test", spec_sha="test"
    )
    uid = order["run_uid"]
    gang = GangOrder(
        run_uid=uid,
        ranks=order["ranks"],
        command=tuple(order["command"]),
        config=(run_dir / "config.json").read_bytes(),
        environment=order["environment"],
    )
    return Ports(
        clock=clock,
        fleet=LocalFleet(run_dir, gang, fence=ledger.fence),
        telemetry=ScrapedTelemetry(run_dir, run_uid=uid),
        progress=StepLogs(run_dir),
        checkpoints=CheckpointFiles(run_dir, run_uid=uid, fence=ledger.fence),
        publisher=FilePublisher(run_dir, fence=ledger.fence),
        intents=IntentFiles(run_dir),
        ledger=ledger,
        status=StatusFile(run_dir),
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--die", default="none:never:0")
    parser.add_argument("--late", default="none:0:0")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    run_dir = options.run_dir
    order = json.loads((run_dir / ORDER_FILE).read_text())
    clock = JumpingClock(run_dir)
    try:
        lease = acquire_lease(
            run_dir,
            Processes(),
            now=clock.now,
            next_epoch=lambda: next_epoch(run_dir / LEDGER_DIR),
            stale_after_ms=STALE_AFTER_MS,
        )
    except LeaseHeld as error:
        sys.stderr.write(f"{error}\n")
        return HELD
    ports = build_ports(run_dir, order, lease)
    stop = StopRequest(ports.clock)
    stop.on_signals(signal.SIGTERM)
    if ports.ledger.head().seq == 0:
        genesis = {"policy": order["policy"], "plan": order["plan"]}
        ports.ledger.append("run", genesis, clock.now())
    ports.ledger.append("epoch", {"takeover": lease.is_takeover}, clock.now())
    death, delay = Death.parse(options.die), Delay.parse(options.late)
    mortal = Ports(
        **{
            one.name: Mortal(one.name, getattr(ports, one.name), death, delay)
            for one in fields(Ports)
        }
    )
    cadence = Cadence(telemetry_ms=500, store_ms=500, probe_ms=1_000, probe_idle_ms=500)
    reconciler = Reconciler(mortal, build_status, cadence=cadence, status_every_ms=300)
    reconciler.resume()
    ending = run_controller(reconciler, ports.clock, lease, stop)
    sys.stdout.write(f"{ending}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
