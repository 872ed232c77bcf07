from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.data import Segment, cursors_at, epochs_at, locate, permute, segments_at
from contract.plan import MixtureStage
from tests.contract.builders import a_line, a_plan, change, plans, revisions

quick = settings(max_examples=40)


def consume(plan, first: int, last: int) -> Counter[str]:
    """Return the tokens per source of the steps from `first` to before `last`."""
    used: Counter[str] = Counter()
    for step in range(first, last):
        for segment in segments_at(plan, step):
            used[segment.source] += segment.length
    return used


@quick
@given(plans())
def test_cursors_are_the_sum_of_all_segments_before(plan):
    used: Counter[str] = Counter()
    for step in range(plan.total_steps):
        assert cursors_at(plan, step) == {source: used[source] for source in plan.sources}
        for segment in segments_at(plan, step):
            assert segment.position == used[segment.source]
            used[segment.source] += segment.length
    assert cursors_at(plan, plan.total_steps) == {s: used[s] for s in plan.sources}
    assert used.total() == plan.total_steps * plan.tokens_per_step


@quick
@given(plans(), st.data())
def test_segments_depend_on_plan_and_step_alone(plan, data):
    step = data.draw(st.integers(0, plan.total_steps - 1))
    direct = segments_at(plan, step)
    for other in range(plan.total_steps):
        segments_at(plan, other)
    assert segments_at(type(plan).model_validate_json(plan.encode()), step) == direct
    assert {segment.length for segment in direct} == {plan.context_at(step).length}


@quick
@given(plans())
def test_block_holds_exactly_its_parts_at_every_context_length(plan):
    align, unit = plan.align_steps, plan.mixture.unit_tokens
    for first in range(0, plan.total_steps - align + 1, align):
        parts = plan.mixture.stages[plan.mixture_index_at(first)].parts
        blocks = align * plan.tokens_per_step // plan.mixture.block_tokens
        expected = {source: count * blocks * unit for source, count in parts.items() if count}
        assert dict(consume(plan, first, first + align)) == expected


@quick
@given(plans())
def test_segment_never_crosses_a_unit(plan):
    unit = plan.mixture.unit_tokens
    for step in range(plan.total_steps):
        for segment in segments_at(plan, step):
            assert segment.position % unit + segment.length <= unit


@quick
@given(plans(), st.data())
def test_permuted_order_visits_every_unit_once_an_epoch(plan, data):
    units = data.draw(st.integers(1, 300))
    unit = plan.mixture.unit_tokens
    epoch = data.draw(st.sampled_from([0, 1, 7, 2**40]))
    offsets = {
        locate(
            Segment("code", (epoch * units + index) * unit, unit),
            source_tokens=units * unit + data.draw(st.integers(0, unit - 1)),
            unit_tokens=unit,
            seed=plan.seed,
        )
        for index in range(units)
    }
    assert offsets == {index * unit for index in range(units)}


@given(st.integers(1, 2_000), st.text(max_size=8))
@settings(max_examples=30)
def test_permutation_is_a_bijection(size, key):
    assert sorted(permute(index, size=size, key=key) for index in range(size)) == list(range(size))


def test_epochs_seeds_and_sources_have_orders_of_their_own():
    def order(source: str, epoch: int, seed: int) -> list[int]:
        return [
            locate(
                Segment(source, (epoch * 64 + index) * 8, 8),
                source_tokens=512,
                unit_tokens=8,
                seed=seed,
            )
            for index in range(64)
        ]

    orders = [order("code", 0, 0), order("code", 1, 0), order("code", 0, 1), order("docs", 0, 0)]
    assert len({tuple(o) for o in orders}) == 4
    assert order("code", 0, 0) != sorted(order("code", 0, 0))


@quick
@given(revisions())
def test_revision_shares_every_segment_of_the_past(drawn):
    parent, child = drawn
    for step in range(min(child.effective, parent.total_steps)):
        assert segments_at(parent, step) == segments_at(child, step)
    for source, tokens in cursors_at(parent, child.effective).items():
        assert cursors_at(child, child.effective).get(source, 0) == tokens


@quick
@given(plans(), st.integers(1, 5), st.data())
def test_line_skip_advances_by_the_parts_of_the_stage_at_the_fork(plan, blocks, data):
    fork = data.draw(st.integers(0, plan.total_steps - 1))
    line = a_line(plan, "b", fork, blocks)
    parts = plan.mixture.stages[plan.mixture_index_at(fork)].parts
    for step in range(plan.total_steps):
        before = segments_at(plan, step)
        after = segments_at(line, step)
        for old, new in zip(before, after, strict=True):
            skip = parts.get(old.source, 0) * blocks * plan.mixture.unit_tokens
            assert new.source == old.source
            assert new.position - old.position == (skip if step >= fork else 0)


def test_skip_of_a_line_that_was_left_before_its_fork_does_not_count():
    plan = a_plan()
    second = a_line(plan, "b", 100, 4)
    third = a_line(second, "c", 50, 0)
    for step in (0, 49, 50, 99, 100, 399):
        assert segments_at(third, step) == segments_at(plan, step), step
        assert cursors_at(third, step) == cursors_at(plan, step)
    assert segments_at(second, 100) != segments_at(plan, 100)


def test_positions_beyond_32_bits_are_exact():
    block = 201_326_592  # 49,152 sequences of 4,096 tokens
    step_tokens = 11_264 * 4_096
    total = 390_240
    plan = a_plan(
        tokens_per_step=step_tokens,
        total_steps=total,
        anneals={
            "learning_rate": [(0, "1/1"), (total - 1, "1/20")],
            "weight_decay": [(0, "1/1"), (total - 1, "1/20")],
        },
        mixture=a_plan().mixture.model_copy(
            update={
                "block_tokens": block,
                "unit_tokens": 4_096,
                "stages": [
                    MixtureStage(start=0, from_percent=0, parts={"code": 20_000, "docs": 29_152})
                ],
            }
        ),
        context=[change_context(a_plan().context[0])],
    )
    assert plan.align_steps == 48
    cursors = cursors_at(plan, 389_952)  # 48 x 8,124 steps: whole blocks
    blocks = 389_952 * step_tokens // block
    assert cursors == {"code": blocks * 20_000 * 4_096, "docs": blocks * 29_152 * 4_096}
    assert sum(cursors.values()) == 389_952 * step_tokens > 2**43
    source_tokens = 3 * 2**40
    offset = locate(
        Segment("code", cursors["code"], 4_096),
        source_tokens=source_tokens,
        unit_tokens=4_096,
        seed=1,
    )
    assert 0 <= offset <= source_tokens - 4_096
    assert offset % 4_096 == 0


def change_context(stage):
    return stage.model_copy(update={"length": 4_096})


def test_store_shorter_than_a_unit_is_an_error():
    with pytest.raises(ValueError, match="one unit of the longest context is 128"):
        locate(Segment("code", 0, 64), source_tokens=127, unit_tokens=128, seed=0)


def test_step_outside_the_plan_is_an_error():
    with pytest.raises(ValueError, match="outside the plan"):
        segments_at(a_plan(), 400)


def test_epochs_count_from_one_over_whole_units():
    cursors = {"code": 0, "docs": 1_023, "web": 1_024}
    tokens = {"code": 1_100, "docs": 1_100, "web": 1_100}  # 8 units of 128, the rest is unused
    assert epochs_at(cursors, tokens, 128) == {"code": 1, "docs": 1, "web": 2}


def test_blocks_spread_their_sources_evenly():
    segments = [*segments_at(a_plan(), 0), *segments_at(a_plan(), 1)]
    longest, run, previous = 0, 0, ""
    for segment in segments[::2]:  # two sequences a unit
        run = run + 1 if segment.source == previous else 1
        longest, previous = max(longest, run), segment.source
    assert longest <= 2  # 10 and 6 units of 16


def test_change_returns_a_plan_of_the_same_kind():
    assert change(a_plan(), seed=3).seed == 3
