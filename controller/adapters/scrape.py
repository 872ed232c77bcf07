"""Reads /metrics of every rank, in parallel and under a deadline."""

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import repeat
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from contract import metrics, wire
from controller.adapters.files import read_or_none
from controller.core.readings import Unknown
from controller.core.snapshot import GangView, RankReading, RankTelemetry

TIMEOUT_S = 1.0
"""Per try, answer included; the main thread of a rank serves nothing, so it is never busy."""
TRIES = 2
RETRY_AFTER_S = 0.05
MAX_BYTES = 1_000_000
"""A rank serves some 5 kB; more than this is not read."""
WORKERS = 16

# httpx logs every request at INFO; the log of a long run would hold nothing else.
logging.getLogger("httpx").setLevel(logging.WARNING)

Labels = tuple[tuple[str, str], ...]


class ScrapeError(Exception):
    """No numbers of this rank; the text says why."""


class Unreachable(ScrapeError):
    """Nobody answered; perhaps a moment later."""


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
        self._client = httpx.Client(timeout=TIMEOUT_S, trust_env=False)
        self._pool = ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="scrape")
        self.scrapes: dict[int, Scrape] = {}
        """The newest answer of each rank of the newest attempt, for figures; never decided on."""

    def read(self, gang: GangView) -> list[RankReading]:
        """Return one reading per rank of the attempt; a silent rank is Unknown with the reason."""
        self.scrapes = {}
        ranks = [view.rank for view in gang.ranks]
        return list(self._pool.map(self._read_rank, repeat(gang.attempt), ranks))

    def close(self) -> None:
        """End threads and connections."""
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def _read_rank(self, attempt: int, rank: int) -> RankReading:
        try:
            scrape = self._scrape(self._endpoint(attempt, rank))
            value = telemetry_of(scrape, run_uid=self._run_uid, attempt=attempt, rank=rank)
        except ScrapeError as error:
            return RankReading(rank=rank, value=Unknown(unknown=str(error)))
        self.scrapes[rank] = scrape
        return RankReading(rank=rank, value=value)

    def _endpoint(self, attempt: int, rank: int) -> str:
        path = self._run_dir / wire.rank_dir(attempt, rank) / wire.ENDPOINT_FILE
        data = read_or_none(path)
        if data is None:
            raise ScrapeError("it does not serve yet")
        try:
            endpoint = wire.Endpoint.model_validate_json(data)
        except ValidationError as error:
            raise ScrapeError(f"{wire.ENDPOINT_FILE} is damaged") from error
        return f"http://{endpoint.host}:{endpoint.port}/metrics"

    def _scrape(self, url: str) -> Scrape:
        retrying = Retrying(
            stop=stop_after_attempt(TRIES),
            wait=wait_fixed(RETRY_AFTER_S),
            retry=retry_if_exception_type(Unreachable),
            reraise=True,
        )
        return parse_exposition(retrying(self._fetch, url))

    def _fetch(self, url: str) -> str:
        try:
            with self._client.stream("GET", url) as response:
                if response.status_code != HTTPStatus.OK:
                    raise ScrapeError(f"{url} answers {response.status_code}")
                return _read_bounded(response)
        except httpx.ConnectError as error:
            raise Unreachable(f"{url}: {error}") from error
        except httpx.HTTPError as error:
            # No second try: a frozen rank would cost the pass twice the timeout.
            raise ScrapeError(f"{url}: {type(error).__name__} after {TIMEOUT_S} s") from error


def _read_bounded(response: httpx.Response) -> str:
    data = b""
    for chunk in response.iter_bytes():
        data += chunk
        if len(data) > MAX_BYTES:
            raise ScrapeError(f"answers more than {MAX_BYTES} bytes")
    return data.decode(errors="replace")


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
        raise ScrapeError(f"not an exposition: {error}") from error
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
    try:
        return RankTelemetry(
            attempt=attempt,
            step=int(scrape.value(metrics.RANK_STEP)),
            phase=wire.Phase(_labels_of_one(scrape, metrics.RANK_PHASE)["phase"]),
            progress_age_ms=_ms(scrape.value(metrics.RANK_PROGRESS_AGE)),
            deadline_ms=_ms(scrape.value(metrics.RANK_PHASE_DEADLINE)),
            plan_sha=identity["plan_sha"],
            plan_pending=scrape.total(metrics.RANK_PLAN_PENDING) > 0,
            control_refused=refused.get("reason"),
            checkpoint_failures=int(scrape.total(metrics.CHECKPOINT_FAILURES)),
            commit_age_ms=_ms(scrape.total(metrics.RANK_COMMIT_AGE)),
            memory_bytes=int(scrape.total(metrics.RANK_MEMORY)) or None,
        )
    except (ValueError, OverflowError) as error:
        raise ScrapeError(f"unreadable numbers: {error}") from error


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


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
