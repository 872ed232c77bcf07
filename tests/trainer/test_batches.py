"""Which bytes a rank reads for a step, and what happens when it cannot."""

import numpy as np
import pytest

from contract.data import locate, segments_at
from contract.exits import Exit
from tests.trainer.builders import a_config, a_plan
from trainer.batches import Batches, Sources
from trainer.ends import End


@pytest.fixture
def config(tmp_path):
    return a_config(tmp_path)


@pytest.fixture
def sources(tmp_path, config):
    sources = Sources(tmp_path, config)
    sources.verify()
    return sources


def test_rows_of_all_ranks_are_the_segments_of_the_plan_in_order(tmp_path, config, sources):
    plan = a_plan(config)
    batches = Batches(config, sources)
    (tokens, targets), _ = batches.take(plan, 3, slice(0, 16))
    lower, upper = (Batches(config, sources).take(plan, 3, rows)[0] for rows in halves(16))
    assert np.array_equal(tokens, np.concatenate([lower[0], upper[0]]))
    for row, segment in enumerate(segments_at(plan, 3)):
        offset = locate(segment, source_tokens=8_192, unit_tokens=32, seed=plan.seed)
        text = (tmp_path / config.sources[segment.source].train).read_bytes()
        assert bytes(tokens[row].tolist()) == text[offset : offset + 16]
        assert bytes(targets[row].tolist()) == (text * 2)[offset + 1 : offset + 17]


def halves(count):
    return slice(0, count // 2), slice(count // 2, count)


def test_rows_read_ahead_under_another_plan_are_read_anew(config, sources):
    old, new = a_plan(config), a_plan(config, seed=2)
    batches = Batches(config, sources)
    batches.fetch(old, 3, slice(0, 16))
    ahead = batches.take(new, 3, slice(0, 16))[0]
    fresh = Batches(config, sources).take(new, 3, slice(0, 16))[0]
    assert np.array_equal(ahead[0], fresh[0])
    assert not np.array_equal(ahead[0], Batches(config, sources).take(old, 3, slice(0, 16))[0][0])


def test_error_of_reading_ahead_waits_for_the_step(tmp_path, config, sources):
    batches = Batches(config, sources)
    (tmp_path / "data/code/train.txt").unlink()
    batches.fetch(a_plan(config), 1, slice(0, 16))
    with pytest.raises(End) as end:
        batches.take(a_plan(config), 1, slice(0, 16))
    assert end.value.code is Exit.ERROR
    assert end.value.text.startswith("data/code/train.txt")


def test_file_missing_at_start_is_left_until_needed_and_then_verified(tmp_path, config):
    path = tmp_path / "data/code/train.txt"
    text = path.read_bytes()
    path.unlink()
    sources = Sources(tmp_path, config)
    sources.verify()
    path.write_bytes(text[:-1] + b"x")
    with pytest.raises(End, match="changed since launch"):
        Batches(config, sources).take(a_plan(config), 0, slice(0, 16))


def test_changed_file_is_refused_at_start_by_name(tmp_path, config):
    (tmp_path / "data/docs/heldout.txt").write_bytes(b"other")
    with pytest.raises(End, match=r"data/docs/heldout\.txt") as end:
        Sources(tmp_path, config).verify()
    assert end.value.code is Exit.CONFIG


def test_short_heldout_text_is_read_again_from_its_start(config, sources):
    batches = Batches(config, sources)
    held = batches.count_heldout("docs", 16)
    assert held == 512
    tokens, _ = batches.read_heldout("docs", held - 1, 16, slice(0, 2))
    first, _ = batches.read_heldout("docs", 0, 16, slice(0, 1))
    assert np.array_equal(tokens[1], first[0])
