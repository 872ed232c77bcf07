"""The rank's numbers, and the page that serves them.

The main thread adds to counters and sets gauges; a scrape renders them in a thread of its own. The
seconds that the main thread spends on being watched are themselves counted.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from contract import metrics
from contract.metrics import Metric, Sample, render_exposition
from contract.wire import ENDPOINT_FILE, RANK_PHASES, ControlRefusal, Endpoint
from trainer.phases import PhaseClock
from trainer.seat import Seat

HOST = "127.0.0.1"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATH = "/metrics"
RESIDENT_FIELD = "VmRSS:"

Key = tuple[str, tuple[tuple[str, str], ...]]
Source = Callable[[], Iterable[Sample]]


class Meter:
    """Values of series, safe between threads; sources add what is computed at a scrape."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: dict[Key, Sample] = {}
        self._sources: list[Source] = []

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """Set one series."""
        with self._lock:
            self._samples[_key(metric, labels)] = Sample(metric, float(value), labels)

    def add(self, metric: Metric, amount: float, **labels: str) -> None:
        """Add to one series, which begins at 0."""
        key = _key(metric, labels)
        with self._lock:
            held = self._samples.get(key)
            value = (held.value if held else 0.0) + amount
            self._samples[key] = Sample(metric, value, labels)

    def clear(self, metric: Metric) -> None:
        """Drop every series of one metric, before its labels change."""
        with self._lock:
            kept = {key: s for key, s in self._samples.items() if s.metric is not metric}
            self._samples = kept

    def value(self, metric: Metric, **labels: str) -> float:
        """Return one series' value, 0 when it was never touched."""
        with self._lock:
            held = self._samples.get(_key(metric, labels))
            return held.value if held else 0.0

    def watch(self, source: Source) -> None:
        """Ask `source` for its samples at every scrape."""
        self._sources.append(source)

    def samples(self) -> list[Sample]:
        """Return all samples as of now."""
        with self._lock:
            held = list(self._samples.values())
        return held + [sample for source in self._sources for sample in source()]

    @contextmanager
    def overhead(self, part: str) -> Iterator[None]:
        """Count the seconds inside as spent on `part` of being watched."""
        start_s = time.perf_counter()
        try:
            yield
        finally:
            self.add(metrics.OVERHEAD_SECONDS, time.perf_counter() - start_s, part=part)


def watch_clock(meter: Meter, clock: PhaseClock, *, is_first: bool) -> None:
    """Serve the clock's readings: phase, ages and deadline; on rank 0 the seconds per phase."""

    def read() -> Iterator[Sample]:
        yield Sample(metrics.RANK_STEP, float(clock.step))
        yield Sample(metrics.RANK_PROGRESS_AGE, clock.age_s)
        yield Sample(metrics.RANK_PHASE_DEADLINE, clock.deadline_s)
        for phase in RANK_PHASES:
            yield Sample(metrics.RANK_PHASE, float(phase is clock.phase), {"phase": phase})
        yield Sample(metrics.RANK_MEMORY, float(read_resident_bytes()), {"kind": "resident"})

    def read_seconds() -> Iterator[Sample]:
        for phase, seconds in clock.seconds().items():
            yield Sample(metrics.PHASE_SECONDS, seconds, {"phase": phase})

    meter.watch(read)
    if is_first:
        meter.watch(read_seconds)


def begin_series(meter: Meter, seat: Seat) -> None:
    """Serve what is known before the first step: whose page it is, and counters at 0."""
    labels = {"run_uid": seat.run_uid, "attempt": str(seat.attempt), "rank": str(seat.rank)}
    meter.set(metrics.RANK_IDENTITY, 1, plan_sha=seat.plan_sha, **labels)
    meter.set(metrics.RANK_PLAN_PENDING, 0)
    for refusal in ControlRefusal:
        meter.set(metrics.RANK_CONTROL_REFUSED, 0, reason=refusal)
    if seat.is_first:
        for metric in (metrics.FLOPS, metrics.ASSIGNMENTS):
            meter.add(metric, 0)
        for replay in ("false", "true"):
            meter.add(metrics.TOKENS, 0, replay=replay)


def read_resident_bytes() -> int:
    """Return the memory of this process that is in RAM, 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith(RESIDENT_FIELD):
            return int(line.split()[1]) * 1024
    return 0


def serve(meter: Meter) -> int:
    """Serve /metrics on an ephemeral port of this machine; return the port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == PATH
            body = render_exposition(meter.samples()).encode() if found else b"see /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base's name
            """Say nothing: a scrape is no event."""

    server = ThreadingHTTPServer((HOST, 0), Page)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server.server_address[1]


def publish_endpoint(rank_dir: Path, port: int) -> None:
    """Say where this rank's page is; raises OSError."""
    path = rank_dir / ENDPOINT_FILE
    waiting = path.with_name(f".{path.name}")
    waiting.write_text(Endpoint(host=HOST, port=port).model_dump_json())
    waiting.replace(path)


def _key(metric: Metric, labels: dict[str, str]) -> Key:
    return metric.name, tuple(sorted(labels.items()))
