"""Series over tokens: buckets, gaps and what nothing says."""

from dataclasses import replace

import pytest

from contract.wire import Drops
from controller.report.series import MAX_BUCKETS, set_series
from tests.chronicles import FORK, SHORTER, SLOW_FROM, a_shortened_run, told
from tests.histories import attempt, step_record


@pytest.fixture
def evidence():
    return told(a_shortened_run()).evidence


def with_steps(evidence, steps):
    """Return the evidence of one attempt with these steps."""
    history = attempt(1, 1_700_000_000, [])
    records = [step_record(step, 1_700_000_000 + step) for step in steps]
    return replace(evidence, histories=[replace(history, steps=records)])


def test_series_are_medians_over_tokens_of_the_surviving_line(evidence):
    scene = set_series(evidence)
    assert scene.bucket_steps == 2
    assert len(scene.buckets) == SHORTER // 2
    assert [it.tokens for it in scene.buckets[:2]] == [2 * 1024, 4 * 1024]
    assert scene.buckets[0].tokens_per_second == 1024.0
    assert scene.buckets[SLOW_FROM].tokens_per_second == 512.0
    assert scene.buckets[5].loss == pytest.approx((1 / 11 + 1 / 12) / 2)
    assert (scene.buckets[3].sender_percent, scene.buckets[3].receiver_percent) == (1.0, 2.0)
    assert (scene.starts, scene.forks) == ([30 * 1024], [FORK * 1024])


def test_steps_that_were_not_logged_are_a_gap_and_no_zero(evidence):
    scene = set_series(with_steps(evidence, [*range(10), *range(20, 30)]))
    assert [it is None for it in scene.buckets] == [False] * 10 + [True] * 10 + [False] * 10


def test_mfu_needs_the_peak_and_never_exceeds_it(evidence):
    assert not set_series(evidence).has_peak
    assert set_series(evidence).buckets[3].mfu_percent is None
    known = set_series(replace(evidence, peak_flops_per_second=10_240.0))
    assert known.buckets[3].mfu_percent == pytest.approx(10.0)
    beyond = set_series(replace(evidence, peak_flops_per_second=1.0))
    assert beyond.buckets[3].mfu_percent is None


def test_losses_that_are_no_numbers_are_left_out(evidence):
    records = [step_record(0, 1.0, loss="nan"), step_record(1, 2.0, loss="inf")]
    history = replace(attempt(1, 0, []), steps=records)
    scene = set_series(replace(evidence, histories=[history]))
    assert [it.loss for it in scene.buckets] == [None, None]


def test_model_without_routing_has_no_drops(evidence):
    records = [step_record(0, 1.0, assignments=0, drops=Drops(sender=0, receiver=0))]
    history = replace(attempt(1, 0, []), steps=records)
    [bucket] = set_series(replace(evidence, histories=[history])).buckets
    assert (bucket.sender_percent, bucket.receiver_percent) == (None, None)


def test_many_steps_are_few_buckets(evidence):
    scene = set_series(with_steps(evidence, range(SHORTER)))
    assert len(scene.buckets) <= MAX_BUCKETS


def test_run_without_steps_has_no_bucket(evidence):
    assert set_series(with_steps(evidence, [])).buckets == []
