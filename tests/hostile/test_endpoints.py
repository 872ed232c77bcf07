"""A rank's endpoint that hangs, drips, floods or lies: Unknown, with the reason, soon, cheaply."""

import gzip
import os
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from contract import metrics, wire
from contract.metrics import Sample, render_exposition
from contract.wire import Endpoint, Phase
from controller.adapters import scrape
from controller.adapters.scrape import ScrapedTelemetry
from controller.core.readings import Unknown
from controller.core.snapshot import GangView, RankTelemetry, RankView

PLAN = "a" * 64
OK = b"HTTP/1.0 200 OK\r\n\r\n"
TIMEOUT_S = 0.3
ATTEMPT = 3

Answer = Callable[[socket.socket, threading.Event], None]


def page(*changes: Sample, rank: int = 0, **identity: str) -> bytes:
    """Return what an honest rank serves, with some samples in the place of others."""
    who = {"run_uid": "u", "attempt": str(ATTEMPT), "rank": str(rank), "plan_sha": PLAN} | identity
    samples = [
        Sample(metrics.RANK_IDENTITY, 1.0, who),
        Sample(metrics.RANK_STEP, 17.0),
        Sample(metrics.RANK_PHASE, 1.0, {"phase": Phase.STEP.value}),
        Sample(metrics.RANK_PROGRESS_AGE, 0.25),
        Sample(metrics.RANK_PHASE_DEADLINE, 120.0),
        Sample(metrics.RANK_CONTROL_REFUSED, 0.0, {"reason": "plan_past"}),
    ]
    changed = {sample.metric for sample in changes}
    kept = [sample for sample in samples if sample.metric not in changed]
    return render_exposition([*kept, *changes]).encode()


def say(data: bytes) -> Answer:
    return lambda link, _: link.sendall(data)


def hang(link: socket.socket, over: threading.Event) -> None:
    over.wait(20)


def drip(whole: bytes) -> Answer:
    """Send a byte every now and then: each single read is quick."""

    def answer(link: socket.socket, over: threading.Event) -> None:
        for byte in whole:
            link.sendall(bytes([byte]))
            if over.wait(TIMEOUT_S / 4):
                return

    return answer


def flood(link: socket.socket, over: threading.Event) -> None:
    """Send a hundred megabytes, or as much as is taken."""
    link.sendall(OK)
    for _ in range(100):
        link.sendall(b"# " + b"x" * 2**20 + b"\n")


@contextmanager
def serving(place, rank: int, answer: Answer) -> Iterator[None]:
    """Let `answer` have each connection to the rank's endpoint."""
    over = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.02)
    talks: list[threading.Thread] = []

    def talk(link: socket.socket) -> None:
        with link:
            try:
                link.settimeout(10)
                link.recv(4096)
                answer(link, over)
            except OSError:
                return  # the reader had enough

    def accept() -> None:
        while not over.is_set():
            try:
                link, _ = server.accept()
            except TimeoutError:
                continue
            talks.append(threading.Thread(target=talk, args=(link,)))
            talks[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    publish(place, rank, server.getsockname()[1])
    try:
        yield
    finally:
        over.set()
        acceptor.join()
        for thread in talks:
            thread.join()
        server.close()


def publish(place, rank: int, port: int, host: str = "127.0.0.1") -> None:
    path = place / wire.rank_dir(ATTEMPT, rank) / wire.ENDPOINT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Endpoint(host=host, port=port).model_dump_json())


def gang(ranks: int) -> GangView:
    views = [
        RankView(rank=rank, claimed=True, alive=True, stopped=False, has_stacks=False, end=None)
        for rank in range(ranks)
    ]
    return GangView(attempt=ATTEMPT, closed=False, ranks=views, remains=[])


@pytest.fixture
def telemetry(tmp_path, monkeypatch):
    monkeypatch.setattr(scrape, "TIMEOUT_S", TIMEOUT_S)
    telemetry = ScrapedTelemetry(tmp_path, run_uid="u")
    yield telemetry
    telemetry.close()


def length(size: int, body: bytes = b"") -> bytes:
    return b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % size + body


BOMB = gzip.compress(b"# " + b"x" * 50_000_000)
HUGE = "9" * 400_000

SITUATIONS: dict[str, tuple[Answer, str]] = {
    "hangs": (hang, "no whole answer within 0.3 s"),
    "drips its head": (drip(OK + page()), "no whole answer within 0.3 s"),
    "drips its body": (
        lambda link, over: (link.sendall(OK), drip(page())(link, over))[-1],
        "no whole answer within 0.3 s",
    ),
    "sends a head without end": (
        lambda link, _: link.sendall(b"HTTP/1.0 200 OK\r\n" + b"X: y\r\n" * 100_000),
        "it speaks no HTTP",
    ),
    "sends 100 MB": (flood, "answers more than 250000 bytes"),
    "announces 100 MB": (say(length(100_000_000)), "answers more than 250000 bytes"),
    "announces no length": (
        say(b"HTTP/1.0 200 OK\r\nContent-Length: -5\r\n\r\n"),
        "announces a length of '-5'",
    ),
    "closes early": (say(length(5000, page())), "of 5000 bytes"),
    "closes at once": (say(b""), "closed the connection without an answer"),
    "sends a gzip bomb": (
        say(b"HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + BOMB),
        "packed form",
    ),
    "sends chunks": (
        say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        "packed form",
    ),
    "redirects": (
        say(b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:1/metrics\r\n\r\n"),
        "answers 302",
    ),
    "is a web server of another kind": (say(OK + b"<html>hello</html>"), "no exposition"),
    "speaks another protocol": (say(b"SSH-2.0-OpenSSH_9.2\r\n"), "it speaks no HTTP"),
    "sends noise": (say(os.urandom(2_000)), "it speaks no HTTP"),
    "sends noise behind a head": (say(OK + b"\xff\x00\x1b[2J" * 999), "no exposition"),
    "is of another run": (say(OK + page(run_uid="v")), "another process serves there"),
    "is of another attempt": (say(OK + page(attempt="2")), "another process serves there"),
    "is another rank": (say(OK + page(rank=1)), "another process serves there"),
    "names itself at length": (say(OK + page(run_uid="v" * 99_999)), "another process"),
    "says a plan that is none": (say(OK + page(plan_sha="\x1b[2Jxx")), "no plan_sha"),
    "says no number": (say(OK + page(Sample(metrics.RANK_STEP, float("nan")))), "rank_step is nan"),
    "says a negative step": (say(OK + page(Sample(metrics.RANK_STEP, -3.0))), "rank_step is -3"),
    "says half a step": (say(OK + page(Sample(metrics.RANK_STEP, 2.5))), "rank_step is 2.5"),
    "says 1e308 steps": (say(OK + page(Sample(metrics.RANK_STEP, 1e308))), "rank_step is 1e+308"),
    "says an endless age": (
        say(OK + page(Sample(metrics.RANK_PROGRESS_AGE, float("inf")))),
        "progress_age_seconds is inf",
    ),
    "says an age of an age": (
        say(OK + page(Sample(metrics.RANK_PROGRESS_AGE, 1e308))),
        "progress_age_seconds is 1e+308",
    ),
    "says a negative deadline": (
        say(OK + page(Sample(metrics.RANK_PHASE_DEADLINE, -1.0))),
        "phase_deadline_seconds is -1.0",
    ),
    "says a number without end": (
        say(OK + f"moe_train_rank_step {HUGE[:200_000]}\n".encode()),
        "no series",
    ),
    "says no phase": (
        say(OK + page(Sample(metrics.RANK_PHASE, 1.0, {"phase": "lunch"}))),
        "'lunch', which is no phase",
    ),
    "refuses at length": (
        say(OK + page(Sample(metrics.RANK_CONTROL_REFUSED, 1.0, {"reason": "x" * 9_999}))),
        "no reason",
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_endpoint_that_misbehaves_is_unknown_in_bounded_time_and_space(
    tmp_path, telemetry, situation
):
    answer, words = SITUATIONS[situation]
    with serving(tmp_path, 0, answer), serving(tmp_path, 1, say(OK + page(rank=1))):
        tracemalloc.start()
        try:
            first, second = telemetry.read(gang(2))
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert isinstance(first.value, Unknown), first
    assert words in first.value.unknown
    assert len(first.value.unknown) < 300
    assert first.value.unknown.isprintable()
    assert 0 not in telemetry.scrapes
    assert isinstance(second.value, RankTelemetry), second
    assert peak_bytes < 30_000_000


def test_step_that_goes_back_within_an_attempt_is_refused(tmp_path, telemetry):
    steps = iter([17.0, 12.0, 18.0])

    def answer(link: socket.socket, _: threading.Event) -> None:
        link.sendall(OK + page(Sample(metrics.RANK_STEP, next(steps))))

    with serving(tmp_path, 0, answer):
        first, second, third = (telemetry.read(gang(1))[0].value for _ in range(3))
    assert isinstance(first, RankTelemetry)
    assert second == Unknown(unknown="its step went back from 17 to 12")
    assert isinstance(third, RankTelemetry)


@pytest.mark.parametrize(
    ("host", "words"),
    [("metrics.example.com", "it must be an IP address"), ("x" * 9_999, "IP address"), ("", "IP")],
)
def test_endpoint_file_that_names_a_host_is_not_looked_up(tmp_path, telemetry, host, words):
    publish(tmp_path, 0, 80, host)
    (reading,) = telemetry.read(gang(1))
    assert isinstance(reading.value, Unknown)
    assert words in reading.value.unknown
    assert len(reading.value.unknown) < 300


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_endpoint_of_localhost_needs_no_hosts_file(tmp_path, telemetry, host):
    with serving(tmp_path, 0, say(OK + page())):
        path = tmp_path / wire.rank_dir(ATTEMPT, 0) / wire.ENDPOINT_FILE
        port = Endpoint.model_validate_json(path.read_bytes()).port
        publish(tmp_path, 0, port, host)
        (reading,) = telemetry.read(gang(1))
    # The server listens on the IPv4 side alone.
    assert isinstance(reading.value, RankTelemetry if host == "localhost" else Unknown)


@pytest.mark.parametrize("kind", ["directory", "loop", "pipe", "dangling", "text"])
def test_endpoint_file_that_is_none_is_unknown(tmp_path, telemetry, kind):
    path = tmp_path / wire.rank_dir(ATTEMPT, 0) / wire.ENDPOINT_FILE
    path.parent.mkdir(parents=True)
    make = {
        "directory": path.mkdir,
        "loop": lambda: path.symlink_to(path),
        "pipe": lambda: os.mkfifo(path),
        "dangling": lambda: path.symlink_to("nowhere"),
        "text": lambda: path.write_bytes(b"\xff\x00{"),
    }
    make[kind]()
    (reading,) = telemetry.read(gang(1))
    assert isinstance(reading.value, Unknown)
    assert "endpoint.json" in reading.value.unknown or kind == "dangling"


def test_ranks_that_hang_delay_no_rank_that_answers(tmp_path, telemetry, monkeypatch):
    """More hang than there are workers, and for longer than a whole reading may take."""
    monkeypatch.setattr(scrape, "READ_WITHIN_S", TIMEOUT_S)
    ranks = scrape.WORKERS * 3
    with ExitStack() as stack:
        stack.enter_context(serving(tmp_path, 0, hang))
        path = tmp_path / wire.rank_dir(ATTEMPT, 0) / wire.ENDPOINT_FILE
        port = Endpoint.model_validate_json(path.read_bytes()).port
        for rank in range(1, ranks - 1):
            publish(tmp_path, rank, port)
        stack.enter_context(serving(tmp_path, ranks - 1, say(OK + page(rank=ranks - 1))))
        readings = [telemetry.read(gang(ranks)) for _ in range(5)]
    assert [it.rank for it in readings[-1]] == list(range(ranks))
    said = [[isinstance(it.value, RankTelemetry) for it in reading] for reading in readings]
    assert said[-2] == said[-1] == [False] * (ranks - 1) + [True]
    why = [it.value.unknown for it in readings[0] if isinstance(it.value, Unknown)]
    assert any("not asked" in text for text in why)


def test_proxies_of_the_environment_are_not_asked(tmp_path, telemetry, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(tmp_path, 0, say(OK + page())):
        (reading,) = telemetry.read(gang(1))
    assert isinstance(reading.value, RankTelemetry)
