"""What the rank tells the outside: its phases, its counters, and /metrics."""

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from contract import metrics
from contract.metrics import Metric, Sample, render_exposition
from contract.wire import (
    ENDPOINT_FILE,
    PHASES_FILE,
    RANK_PHASES,
    ControlRefusal,
    Endpoint,
    Phase,
    PhaseRecord,
)
from minimal.files import LineLog, write_atomic
from minimal.settings import Settings

STEP_TIMES_KEPT = 1_000
"""Enough for a p99; of a long attempt only the newest count."""


def read_boot_id() -> str:
    """Return the identity of this boot: monotonic seconds compare within one boot only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_start_mono_s() -> float:
    """Return when this process started, so that the interpreter's own start is accounted."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age_s


class Telemetry:
    """Written by the main thread; read by the metrics server and the watchdog."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._values: dict[tuple[Metric, tuple[str, ...]], float] = {}
        self._log = LineLog(settings.rank_dir / PHASES_FILE)
        self._boot_id = read_boot_id()
        self._started_s = self._entered_s = self._progress_s = read_start_mono_s()
        self._seconds: dict[Phase, float] = dict.fromkeys((*RANK_PHASES,), 0.0)
        self._step_times: deque[float] = deque(maxlen=STEP_TIMES_KEPT)
        self.phase = Phase.START
        self.step = 0
        self.plan_sha = settings.plan_sha
        self.is_plan_pending = False
        self.refusal: ControlRefusal | None = None
        self.commit_began_s: float | None = None
        self._record_phase()

    # Phases and progress.

    def enter(self, phase: Phase) -> None:
        """Begin `phase`; the seconds since the last change belong to the one before."""
        if phase is self.phase:
            return
        with self._lock:
            now = time.monotonic()
            self._seconds[self.phase] += now - self._entered_s
            self.phase, self._entered_s, self._progress_s = phase, now, now
        self._record_phase()

    @contextmanager
    def within(self, phase: Phase) -> Iterator[None]:
        """Be in `phase` for a while, then again in the one before."""
        before = self.phase
        self.enter(phase)
        yield
        self.enter(before)

    def _record_phase(self) -> None:
        record = PhaseRecord(
            phase=self.phase,
            step=self.step,
            wall_s=time.time(),
            mono_s=self._entered_s,
            boot_id=self._boot_id,
        )
        self._log.append(record.model_dump_json())

    def beat(self) -> None:
        """Note progress of the main thread."""
        self._progress_s = time.monotonic()

    def note_step(self, step: int, step_s: float) -> None:
        """Note that `step` steps are complete, the last one after `step_s` seconds."""
        self.step = step
        self._step_times.append(step_s)
        self.beat()

    @property
    def progress_age_s(self) -> float:
        """Seconds since the last progress."""
        return time.monotonic() - self._progress_s

    @property
    def deadline_s(self) -> float:
        """Age at which the watchdog ends the rank in the present phase."""
        limits = self._settings.config.limits
        floor = float(limits.deadlines_s[self.phase])
        if self.phase is not Phase.STEP or not self._step_times:
            return floor
        ordered = sorted(self._step_times)
        p99_s = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        return max(floor, limits.step_factor * p99_s)

    # Values.

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set one series; `labels` in the order of the metric's label names."""
        with self._lock:
            self._values[metric, labels] = value

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add to one series."""
        with self._lock:
            before = self._values.get((metric, labels), 0.0)
            self._values[metric, labels] = before + value

    @contextmanager
    def timed(self, metric: Metric, *labels: str) -> Iterator[None]:
        """Add the seconds of a block to a series."""
        began_s = time.monotonic()
        yield
        self.add(metric, time.monotonic() - began_s, *labels)

    def render(self) -> str:
        """Return the whole exposition of this rank."""
        with self._lock:
            now = time.monotonic()
            seconds = dict(self._seconds)
            seconds[self.phase] += now - self._entered_s
            samples = [
                Sample(metric, value, dict(zip(metric.labels, labels, strict=True)))
                for (metric, labels), value in self._values.items()
                if self._settings.rank == 0 or metric.producer != metrics.RANK_0
            ]
        samples += self._rank_samples(now)
        if self._settings.rank == 0:
            samples += [Sample(metrics.STEP, float(self.step))]
            samples += [
                Sample(metrics.PHASE_SECONDS, value, {"phase": phase})
                for phase, value in seconds.items()
            ]
        return render_exposition(samples)

    def _rank_samples(self, now: float) -> list[Sample]:
        began_s = self.commit_began_s
        identity = {
            "run_uid": self._settings.run_uid,
            "attempt": str(self._settings.attempt),
            "rank": str(self._settings.rank),
            "plan_sha": self.plan_sha,
        }
        return [
            Sample(metrics.RANK_IDENTITY, 1.0, identity),
            Sample(metrics.RANK_STEP, float(self.step)),
            *(
                Sample(metrics.RANK_PHASE, float(phase is self.phase), {"phase": phase})
                for phase in RANK_PHASES
            ),
            Sample(metrics.RANK_PROGRESS_AGE, self.progress_age_s),
            Sample(metrics.RANK_PHASE_DEADLINE, self.deadline_s),
            Sample(metrics.RANK_MEMORY, read_resident_bytes(), {"kind": "resident"}),
            Sample(metrics.RANK_COMMIT_AGE, 0.0 if began_s is None else now - began_s),
            *(
                Sample(
                    metrics.RANK_CONTROL_REFUSED, float(reason is self.refusal), {"reason": reason}
                )
                for reason in ControlRefusal
            ),
            Sample(metrics.RANK_PLAN_PENDING, float(self.is_plan_pending)),
        ]

    def refuse(self, reason: ControlRefusal, detail: str) -> None:
        """Show why the newest control document is not obeyed; say each reason once."""
        if reason is not self.refusal:
            sys.stderr.write(f"control document refused, {reason}: {detail}\n")
            sys.stderr.flush()
        self.refusal = reason

    def serve(self) -> None:
        """Serve /metrics on a port of the kernel's choice and publish it."""
        server = _Server(("127.0.0.1", 0), _Handler)
        server.telemetry = self
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        endpoint = Endpoint(host="127.0.0.1", port=server.server_address[1])
        write_atomic(self._settings.rank_dir / ENDPOINT_FILE, endpoint.model_dump_json().encode())


def read_resident_bytes() -> float:
    """Return this process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    telemetry: Telemetry


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]  the only one it meets

    def do_GET(self) -> None:
        body = self.server.telemetry.render().encode()
        with suppress(ConnectionError):
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        pass
