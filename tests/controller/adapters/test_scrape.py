"""What ranks say about themselves, read from a real server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from contract import metrics, wire
from contract.metrics import Sample, render_exposition
from contract.wire import Endpoint, Phase
from controller.adapters import scrape
from controller.adapters.scrape import ScrapedTelemetry, ScrapeError, parse_exposition
from controller.core.readings import Unknown
from controller.core.snapshot import GangView, RankTelemetry, RankView

PLAN = "a" * 64


def samples(rank: int = 0, *, attempt: int = 3, run_uid: str = "u") -> list[Sample]:
    identity = {"run_uid": run_uid, "attempt": str(attempt), "rank": str(rank), "plan_sha": PLAN}
    phases = [
        Sample(metrics.RANK_PHASE, float(phase is Phase.STEP), {"phase": phase.value})
        for phase in (Phase.STEP, Phase.EVAL)
    ]
    return [
        Sample(metrics.RANK_IDENTITY, 1.0, identity),
        Sample(metrics.RANK_STEP, 17.0),
        *phases,
        Sample(metrics.RANK_PROGRESS_AGE, 0.2504),
        Sample(metrics.RANK_PHASE_DEADLINE, 120.0),
        Sample(metrics.RANK_CONTROL_REFUSED, 0.0, {"reason": "plan_past"}),
    ]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        code, body = self.server.answer
        if callable(body):
            body = body()
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def place(tmp_path):
    for rank in (0, 1):
        (tmp_path / wire.rank_dir(3, rank)).mkdir(parents=True)
    return tmp_path


@contextmanager
def serving(place, rank: int, body, code: int = 200) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if isinstance(body, list):
        body = render_exposition(body).encode()
    server.answer = (code, body)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    endpoint = Endpoint(host="127.0.0.1", port=server.server_port).model_dump_json()
    (place / wire.rank_dir(3, rank) / wire.ENDPOINT_FILE).write_text(endpoint)
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def read(place):
    telemetry = ScrapedTelemetry(place, run_uid="u")
    ranks = [
        RankView(rank=rank, claimed=True, alive=True, stopped=False, has_stacks=False, end=None)
        for rank in (0, 1)
    ]
    gang = GangView(attempt=3, closed=False, ranks=ranks, remains=[])

    def read_values() -> list[RankTelemetry | Unknown]:
        readings = telemetry.read(gang)
        assert [reading.rank for reading in readings] == [0, 1]
        return [reading.value for reading in readings]

    read_values.telemetry = telemetry
    yield read_values
    telemetry.close()


def test_rank_is_read_whole_and_a_silent_one_is_unknown(place, read):
    with serving(place, 0, samples()):
        first, second = read()
    assert first == RankTelemetry(
        attempt=3,
        step=17,
        phase=Phase.STEP,
        progress_age_ms=250,
        deadline_ms=120_000,
        plan_sha=PLAN,
        plan_pending=False,
        control_refused=None,
        checkpoint_failures=0,
        commit_age_ms=0,
    )
    assert second == Unknown(unknown="it does not serve yet")


def test_what_is_optional_is_read_where_it_is_served(place, read):
    more = [
        Sample(metrics.RANK_PLAN_PENDING, 1.0),
        Sample(metrics.RANK_COMMIT_AGE, 3.5),
        Sample(metrics.CHECKPOINT_FAILURES, 2.0, {"reason": "no_space"}),
        Sample(metrics.CHECKPOINT_FAILURES, 1.0, {"reason": "other"}),
        Sample(metrics.RANK_CONTROL_REFUSED, 1.0, {"reason": "plan_late"}),
    ]
    with serving(place, 0, samples()[:-1] + more):
        first = read()[0]
    assert (first.plan_pending, first.commit_age_ms, first.checkpoint_failures) == (True, 3_500, 3)
    assert first.control_refused == "plan_late"


@pytest.mark.parametrize(
    "foreign", [{"rank": 1}, {"attempt": 2}, {"run_uid": "v"}], ids=lambda value: next(iter(value))
)
def test_another_process_at_the_same_port_is_unknown(place, read, foreign):
    with serving(place, 0, samples(**foreign)):
        first = read()[0]
    assert isinstance(first, Unknown)
    assert "another process serves there" in first.unknown


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b"", 200, "no series of moe_train_rank_info is 1"),
        (b"\xff{{{", 200, "no exposition"),
        (b"ok", 503, "answers 503"),
        (b"# " + b"x" * scrape.MAX_BYTES, 200, "more than 250000 bytes"),
        (samples()[:1], 200, "moe_train_rank_step is not served"),
    ],
    ids=["empty", "garbage", "error", "endless", "incomplete"],
)
def test_answer_that_says_nothing_is_unknown_with_the_reason(place, read, body, code, reason):
    with serving(place, 0, body, code):
        first = read()[0]
    assert isinstance(first, Unknown)
    assert reason in first.unknown


def test_nobody_at_the_port_is_unknown(place, read):
    with serving(place, 0, samples()):
        pass
    assert isinstance(read()[0], Unknown)


def test_damaged_endpoint_file_is_unknown(place, read):
    (place / wire.rank_dir(3, 0) / wire.ENDPOINT_FILE).write_text("{}")
    assert read()[0] == Unknown(unknown="endpoint.json is damaged")


def test_rank_that_accepts_and_says_nothing_is_unknown_and_delays_nobody(place, read, monkeypatch):
    monkeypatch.setattr(scrape, "TIMEOUT_S", 0.2)
    frozen = threading.Event()

    def never() -> bytes:
        frozen.wait(20)
        return b""

    with serving(place, 0, never), serving(place, 1, samples(1)):
        first, second = read()
        frozen.set()
    assert isinstance(first, Unknown)
    assert "no whole answer within 0.2 s" in first.unknown
    assert isinstance(second, RankTelemetry)


def test_newest_numbers_stay_for_figures(place, read):
    with serving(place, 0, samples()):
        read()
    assert read.telemetry.scrapes[0].value(metrics.RANK_STEP) == 17
    read()
    assert read.telemetry.scrapes == {}


def test_numbers_that_are_none_are_refused():
    text = render_exposition([*samples()[:1], Sample(metrics.RANK_STEP, float("nan"))])
    with pytest.raises(ScrapeError):
        scrape.telemetry_of(parse_exposition(text), run_uid="u", attempt=3, rank=0)
