import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from contract import metrics
from contract.metrics import REQUIRED_OF_EVERY_RANK, REQUIRED_OF_RANK_0, Sample
from contract.wire import ENDPOINT_FILE, Endpoint, Phase
from tests.trainer.builders import a_config, a_plan, a_seat, some_gang
from trainer.checkpoint import Saver
from trainer.phases import PhaseClock
from trainer.report import Report, Reporter, Timing, make_word
from trainer.start import Post, publish_plan
from trainer.telemetry import Meter, begin_series, publish_endpoint, serve, watch_clock


def scrape(port: int) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def a_report(**changes) -> Report:
    report = {
        "loss": 1.5,
        "grad_norm": 0.25,
        "is_finite": True,
        "lr": {"matrix": 0.5, "other": 0.125},
        "assignments": 512,
        "dropped_sender": 3,
        "dropped_receiver": 4,
        "router_entropy": 2.0,
        "router_bias_max": 0.1,
        "plan_words": (1, 1),
    }
    return Report(**(report | changes))


@pytest.fixture
def post(tmp_path):
    seat = a_seat(tmp_path)
    meter, clock = Meter(), PhaseClock(None, dict.fromkeys(Phase, 10.0))
    watch_clock(meter, clock, is_first=True)
    return Post(seat, a_config(tmp_path), clock, meter)


def test_meter_adds_counters_and_sets_gauges_per_label():
    meter = Meter()
    meter.add(metrics.TOKENS, 5, replay="true")
    meter.add(metrics.TOKENS, 5, replay="true")
    meter.add(metrics.TOKENS, 1, replay="false")
    meter.set(metrics.LOSS, 3)
    meter.set(metrics.LOSS, 2)
    assert meter.value(metrics.TOKENS, replay="true") == 10
    assert meter.value(metrics.TOKENS, replay="false") == 1
    assert meter.value(metrics.LOSS) == 2


def test_meter_asks_its_sources_at_every_scrape():
    meter, values = Meter(), [1.0]
    meter.watch(lambda: [Sample(metrics.RANK_COMMIT_AGE, values[0])])
    values[0] = 2.0
    assert [sample.value for sample in meter.samples()] == [2.0]


def test_meter_counts_seconds_of_being_watched():
    meter = Meter()
    with meter.overhead("control"):
        pass
    assert 0 < meter.value(metrics.OVERHEAD_SECONDS, part="control") < 1


def test_news_of_any_rank_is_the_last_bit_of_the_largest_word(post):
    plan, other = a_plan(post.config), a_plan(post.config, seed=2)
    quiet, loud = (make_word(plan, has_news=news) for news in (False, True))
    for words, one_plan, news in (
        ((quiet, quiet), True, False),
        ((quiet, loud), True, True),
        ((loud, loud), True, True),
        (tuple(sorted((quiet, make_word(other, has_news=False)))), False, False),
    ):
        report = a_report(plan_words=words)
        assert (report.has_one_plan, report.has_news) == (one_plan, news)
    assert quiet < 2**64


def test_page_serves_what_the_contract_requires_of_rank_0(post, tmp_path):
    plan = a_plan(post.config)
    begin_series(post.meter, post.seat)
    Saver(post.seat, post.config, some_gang(1)[0], post.meter, "code")
    publish_plan(post, plan, "code")
    post.meter.set(metrics.PEAK_FLOPS, 1, origin="declared")
    reporter = Reporter(post.seat, post.meter, "code")
    reporter.record(plan, 0, a_report(), Timing(0.1, 0.0, 0.01, ()))
    found = scrape(serve(post.meter))
    for metric in (*REQUIRED_OF_EVERY_RANK, *REQUIRED_OF_RANK_0):
        assert metric.name in found, metric.name
    assert found["moe_train_rank_phase"][(("phase", "start"),)] == 1
    assert found["moe_train_learning_rate"][(("group", "other"),)] == 0.125
    assert set(found["moe_train_checkpoint_failures_total"].values()) == {0}


def test_page_serves_what_the_contract_requires_of_every_rank_from_its_start(post):
    begin_series(post.meter, post.seat)
    found = scrape(serve(post.meter))
    for metric in REQUIRED_OF_EVERY_RANK:
        assert metric.name in found, metric.name
    labels = dict(next(iter(found["moe_train_rank_info"])))
    assert labels["run_uid"] == post.seat.run_uid
    assert labels["plan_sha"] == post.seat.plan_sha


def test_page_counts_replayed_tokens_apart(post):
    seat = post.seat.__class__(**{**post.seat.__dict__, "highest_step": 2})
    plan = a_plan(post.config)
    reporter = Reporter(seat, post.meter, "code")
    for step in range(5):
        reporter.record(plan, step, a_report(), Timing(0.1, 0.0, 0.0, ()))
    assert post.meter.value(metrics.TOKENS, replay="true") == 2 * plan.tokens_per_step
    assert post.meter.value(metrics.TOKENS, replay="false") == 3 * plan.tokens_per_step
    assert post.meter.value(metrics.FLOPS) == 5 * plan.tokens_per_step * 7
    assert post.meter.value(metrics.DROPPED, stage="sender") == 15


def test_identity_names_only_the_plan_in_force(post):
    first, second = a_plan(post.config), a_plan(post.config, seed=2)
    publish_plan(post, first, "code")
    publish_plan(post, second, "code")
    shown = [s.labels for s in post.meter.samples() if s.metric is metrics.RANK_IDENTITY]
    assert [labels["plan_sha"] for labels in shown] == [second.sha]


def test_other_paths_are_not_found_and_harm_nothing(post):
    port = serve(post.meter)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
    assert scrape(port)


def test_endpoint_file_names_the_page(post, tmp_path):
    port = serve(post.meter)
    publish_endpoint(tmp_path, port)
    endpoint = Endpoint.model_validate_json((tmp_path / ENDPOINT_FILE).read_bytes())
    assert (endpoint.host, endpoint.port) == ("127.0.0.1", port)


def test_step_log_keeps_exact_bits_and_survives_a_missing_folder(post, tmp_path):
    seat = a_seat(tmp_path, attempt=9)
    plan = a_plan(post.config)
    reporter = Reporter(seat, Meter(), "code")
    hidden = seat.attempt_dir.rename(tmp_path / "elsewhere")
    reporter.record(plan, 0, a_report(loss=0.1), Timing(0.1, 0.0, 0.0, ("first",)))
    hidden.rename(seat.attempt_dir)
    reporter.record(plan, 1, a_report(loss=0.2), Timing(0.1, 0.0, 0.0, ()))
    lines = (seat.attempt_dir / "steps.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert (0.1).hex() in lines[0]
    assert (0.2).hex() in lines[1]
