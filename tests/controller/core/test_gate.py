import pytest

from contract.wire import Drops
from controller.core.gate import Evidence, Peak, describe_json, judge
from tests.histories import step_record


def evidence(times, *, tags=(), peak=None, **changes):
    """Steps of 1,024 tokens that took `times` seconds; `tags` are (step, tag)."""
    records = [
        step_record(step, step, step_s=s, tags=[tag for at, tag in tags if at == step], **changes)
        for step, s in enumerate(times)
    ]
    return Evidence(records, 1_000, peak, {1: 7, 0: 9}, "VmHWM", 4.0)


def test_speed_is_the_median_of_the_steps_after_the_first_two():
    report = judge(evidence([60.0, 9.0, 0.5, 0.25, 1.0]), None)
    assert (report.tokens_per_second, report.step_s) == (2048.0, 0.5)
    assert (report.steps, report.measured_steps) == (5, 3)


def test_p90_is_the_time_that_nine_in_ten_steps_keep():
    report = judge(evidence([9.0, 9.0, *(step / 10 for step in range(1, 11))]), None)
    assert report.p90_step_s == 0.9


def test_disturbed_steps_are_left_out_unless_all_are():
    some = judge(evidence([1.0, 1.0, 0.5, 4.0, 4.0], tags=[(3, "save"), (4, "eval")]), None)
    assert (some.measured_steps, some.step_s) == (1, 0.5)
    every = judge(evidence([1.0, 1.0, 0.5, 1.5], tags=[(2, "save"), (3, "save")]), None)
    assert (every.measured_steps, every.step_s) == (2, 1.0)


@pytest.mark.parametrize(
    ("minimum", "verdict"), [(None, "undeclared"), (1024, "passed"), (1025, "failed")]
)
def test_verdict_compares_the_median_with_what_is_declared(minimum, verdict):
    assert judge(evidence([1.0] * 4), minimum).verdict == verdict


def test_drops_are_told_by_side_over_all_steps():
    report = judge(evidence([1.0] * 4, drops=Drops(sender=3, receiver=5)), None)
    assert (report.sender_drops_percent, report.receiver_drops_percent) == (3.0, 5.0)
    dense = judge(evidence([1.0] * 4, assignments=0), None)
    assert dense.sender_drops_percent is None


def test_mfu_is_told_with_the_origin_of_its_peak():
    # 1,024 tokens/s of 1,000 FLOPs each against 10,240,000 FLOP/s.
    report = judge(evidence([1.0] * 4, peak=Peak(10_240_000.0, "measured")), None)
    assert report.mfu_percent == 10.0
    told = describe_json("probe", report)
    assert (told["peak_origin"], told["peak_flops_per_second"]) == ("measured", 10_240_000.0)


def test_mfu_beyond_the_peak_or_without_one_is_not_told():
    assert judge(evidence([1.0] * 4, peak=Peak(1_000.0, "declared")), None).mfu_percent is None
    assert judge(evidence([1.0] * 4), None).mfu_percent is None


def test_json_lists_memory_by_rank_and_losses_in_nats():
    told = describe_json("probe", judge(evidence([1.0] * 4), 7))
    assert told["memory_bytes"] == [9, 7]
    assert (told["first_loss"], told["last_loss"]) == (1.0, 0.25)
    assert told["min_tokens_per_second"] == 7
