"""Reads /metrics of every rank, in parallel and under a deadline.

What answers there is not trusted: it may hang, drip, flood, or be another program by now. Whatever
it does costs bounded time and memory, and ends as Unknown with the reason.
"""

import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from contract import metrics, wire
from controller.adapters.fetch import FetchError, Limits, Unreachable, fetch
from controller.adapters.files import read_or_none
from controller.core.readings import Unknown
from controller.core.snapshot import GangView, RankReading, RankTelemetry

TIMEOUT_S = 1.0
"""Per try, answer included; the main thread of a rank serves nothing, so it is never busy."""
READ_WITHIN_S = 4.0
"""For all ranks together, should many hang: far below the 30 s of silence that end a controller."""
TRIES = 2
RETRY_AFTER_S = 0.05
MAX_BYTES = 250_000
"""A rank serves some 5 kB; more than this is not read. Parsing so much takes some 0.1 s."""
WORKERS = 32
MAX_REASON_CHARS = 200
"""Reasons are recorded; what a stranger answered does not belong there at any length."""
MAX_WHOLE = 2**53
"""Beyond it a float is no exact whole number."""
MAX_AGE_S = 1e9
"""Thirty years."""
SHA = re.compile(r"[0-9a-f]{64}")
WORD = re.compile(r"[a-z][a-z0-9_]{0,63}")

Labels = tuple[tuple[str, str], ...]


class ScrapeError(Exception):
    """No numbers of this rank; the text says why."""


@dataclass(frozen=True)
class Scrape:
    """The samples of one rank: name -> labels -> value."""

    samples: Mapping[str, Mapping[Labels, float]] = field(
        default_factory=dict[str, Mapping[Labels, float]]
    )

    def value(self, metric: metrics.Metric) -> float:
        """Return the single value of a metric without labels.

        Raises:
            ScrapeError: it is not served.
        """
        series = self.samples.get(metric.name)
        if not series:
            raise ScrapeError(f"{metric.name} is not served")
        return next(iter(series.values()))

    def total(self, metric: metrics.Metric) -> float:
        """Return the sum over all labels, 0 when it is not served."""
        return sum(self.samples.get(metric.name, {}).values())

    def labelled(self, metric: metrics.Metric) -> list[tuple[dict[str, str], float]]:
        """Return (labels, value) of every series of a metric."""
        return [
            (dict(labels), value) for labels, value in self.samples.get(metric.name, {}).items()
        ]


class ScrapedTelemetry:
    """Scrapes the ranks where their endpoint files say they serve."""

    def __init__(self, run_dir: Path, *, run_uid: str) -> None:
        self._run_dir = run_dir
        self._run_uid = run_uid
        self._pool = ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="scrape")
        self._silent: set[int] = set()
        """Ranks that were asked in vain the last time."""
        self._steps: dict[int, tuple[int, int]] = {}
        """Rank -> attempt and the highest step that it said."""
        self.scrapes: dict[int, Scrape] = {}
        """The newest answer of each rank of the newest attempt, for figures; never decided on."""

    def read(self, gang: GangView) -> list[RankReading]:
        """Return one reading per rank of the attempt; a silent rank is Unknown with the reason.

        Those that were silent the last time are asked last: they delay nobody who answers.
        """
        self.scrapes = {}
        ranks = [view.rank for view in gang.ranks]
        order = sorted(ranks, key=lambda rank: rank in self._silent)
        deadline = time.monotonic() + READ_WITHIN_S
        readings = self._pool.map(self._read_rank, repeat(gang.attempt), order, repeat(deadline))
        found = dict(zip(order, readings, strict=True))
        return [found[rank] for rank in ranks]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _read_rank(self, attempt: int, rank: int, deadline: float) -> RankReading:
        try:
            if time.monotonic() > deadline:
                raise ScrapeError(f"not asked: others took all of {READ_WITHIN_S:g} s")
            self._silent.add(rank)
            scrape = self._scrape(attempt, rank)
            value = telemetry_of(scrape, run_uid=self._run_uid, attempt=attempt, rank=rank)
            self._check_step(rank, attempt, value.step)
        except ScrapeError as error:
            return RankReading(rank=rank, value=Unknown(unknown=_shorten(str(error))))
        self._silent.discard(rank)
        self.scrapes[rank] = scrape
        return RankReading(rank=rank, value=value)

    def _check_step(self, rank: int, attempt: int, step: int) -> None:
        """Refuse steps that go back: within an attempt a rank only goes on."""
        known_attempt, known_step = self._steps.get(rank, (attempt, 0))
        if known_attempt == attempt and step < known_step:
            raise ScrapeError(f"its step went back from {known_step} to {step}")
        self._steps[rank] = (attempt, step)

    def _endpoint(self, attempt: int, rank: int) -> wire.Endpoint:
        path = self._run_dir / wire.rank_dir(attempt, rank) / wire.ENDPOINT_FILE
        try:
            data = read_or_none(path)
        except OSError as error:
            raise ScrapeError(f"{wire.ENDPOINT_FILE}: {error.strerror}") from error
        if data is None:
            raise ScrapeError("it does not serve yet")
        try:
            return wire.Endpoint.model_validate_json(data)
        except ValidationError as error:
            raise ScrapeError(f"{wire.ENDPOINT_FILE} is damaged") from error

    def _scrape(self, attempt: int, rank: int) -> Scrape:
        endpoint = self._endpoint(attempt, rank)
        retrying = Retrying(
            stop=stop_after_attempt(TRIES),
            wait=wait_fixed(RETRY_AFTER_S),
            retry=retry_if_exception_type(Unreachable),
            reraise=True,
        )
        limits = Limits(TIMEOUT_S, MAX_BYTES)
        try:
            data = retrying(fetch, endpoint.host, endpoint.port, "/metrics", limits)
        except FetchError as error:
            raise ScrapeError(f"{endpoint.host[:40]}:{endpoint.port}: {error}") from error
        return parse_exposition(data.decode(errors="replace"))


def _shorten(text: str) -> str:
    plain = "".join(char if char.isprintable() else "?" for char in text)
    return plain if len(plain) <= MAX_REASON_CHARS else f"{plain[:MAX_REASON_CHARS]}..."


def parse_exposition(text: str) -> Scrape:
    """Return the samples in a Prometheus text exposition.

    Raises:
        ScrapeError: it is not one.
    """
    samples: dict[str, dict[Labels, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                samples.setdefault(sample.name, {})[labels] = sample.value
    except (ValueError, IndexError, KeyError) as error:
        raise ScrapeError(f"it serves no exposition: {error}") from error
    return Scrape(samples)


def telemetry_of(scrape: Scrape, *, run_uid: str, attempt: int, rank: int) -> RankTelemetry:
    """Return what the rank says, once it is certain that it is this rank of this attempt.

    Raises:
        ScrapeError: another run, attempt or rank serves there, or something required is missing.
    """
    identity = _labels_of_one(scrape, metrics.RANK_IDENTITY)
    wanted = {"run_uid": run_uid, "attempt": str(attempt), "rank": str(rank)}
    if any(identity[name] != value for name, value in wanted.items()):
        raise ScrapeError(f"another process serves there: {identity}")
    refused = _labels_of_one(scrape, metrics.RANK_CONTROL_REFUSED, required=False)
    return RankTelemetry(
        attempt=attempt,
        step=_whole(metrics.RANK_STEP, scrape.value(metrics.RANK_STEP)),
        phase=_phase(_labels_of_one(scrape, metrics.RANK_PHASE)["phase"]),
        progress_age_ms=_ms(metrics.RANK_PROGRESS_AGE, scrape.value(metrics.RANK_PROGRESS_AGE)),
        deadline_ms=_ms(metrics.RANK_PHASE_DEADLINE, scrape.value(metrics.RANK_PHASE_DEADLINE)),
        plan_sha=_matching(SHA, "plan_sha", identity["plan_sha"]),
        plan_pending=scrape.total(metrics.RANK_PLAN_PENDING) > 0,
        control_refused=_matching(WORD, "reason", refused["reason"]) if refused else None,
        checkpoint_failures=_total(scrape, metrics.CHECKPOINT_FAILURES),
        commit_age_ms=_ms(metrics.RANK_COMMIT_AGE, scrape.total(metrics.RANK_COMMIT_AGE)),
        memory_bytes=_total(scrape, metrics.RANK_MEMORY) or None,
    )


def _whole(metric: metrics.Metric, value: float) -> int:
    if not (0 <= value <= MAX_WHOLE and value == int(value)):
        raise ScrapeError(f"{metric.name} is {value}; it must be a whole number from 0 to 2^53")
    return int(value)


def _total(scrape: Scrape, metric: metrics.Metric) -> int:
    return _whole(metric, scrape.total(metric))


def _ms(metric: metrics.Metric, seconds: float) -> int:
    if not 0 <= seconds <= MAX_AGE_S:
        raise ScrapeError(f"{metric.name} is {seconds}; it must be seconds, from 0 to 10^9")
    return round(seconds * 1000)


def _phase(name: str) -> wire.Phase:
    try:
        return wire.Phase(name)
    except ValueError as error:
        raise ScrapeError(
            f"{metrics.RANK_PHASE.name} says {name[:80]!r}, which is no phase"
        ) from error


def _matching(form: re.Pattern[str], label: str, text: str) -> str:
    if form.fullmatch(text) is None:
        raise ScrapeError(f"the label {label} is {text[:80]!r}, which is no {label}")
    return text


def _labels_of_one(
    scrape: Scrape, metric: metrics.Metric, *, required: bool = True
) -> dict[str, str]:
    """Return the labels of the series whose value is 1; empty when none is and none must be."""
    raised = [labels for labels, value in scrape.labelled(metric) if value == 1]
    if raised:
        missing = set(metric.labels) - set(raised[0])
        if missing:
            raise ScrapeError(f"{metric.name} lacks the labels {_listed(missing)}")
        return raised[0]
    if required:
        raise ScrapeError(f"no series of {metric.name} is 1")
    return {}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
