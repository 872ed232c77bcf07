import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.reader import DataError, SourceReader, read_sequences, verify_digest

TEXT = bytes(range(256)) * 4


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "train.txt"
    path.write_bytes(TEXT)
    return path


def test_read_in_the_middle_returns_tokens_and_the_following_one(store):
    row = SourceReader(store).read(250, 8)
    assert row.dtype == np.int32
    assert row.tolist() == [250, 251, 252, 253, 254, 255, 0, 1, 2]


def test_read_at_the_end_wraps_to_the_first_token(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"abcdef")
    assert bytes(SourceReader(path).read(2, 4).astype(np.uint8)) == b"cdefa"
    assert bytes(SourceReader(path).read(1, 4).astype(np.uint8)) == b"bcdef"


@given(st.data())
def test_read_anywhere_equals_the_endless_text(tmp_path_factory, data):
    size = data.draw(st.integers(1, 50))
    text = data.draw(st.binary(min_size=size, max_size=size))
    length = data.draw(st.integers(1, size))
    offset = data.draw(st.integers(0, size - length))
    path = tmp_path_factory.mktemp("any") / "train.txt"
    path.write_bytes(text)
    row = SourceReader(path).read(offset, length)
    assert bytes(row.astype(np.uint8)) == (text + text)[offset : offset + length + 1]


def test_read_sequences_of_two_sources_keeps_batch_order(store, tmp_path):
    other = tmp_path / "other.txt"
    other.write_bytes(b"the quick brown fox")
    readers = {"code": SourceReader(store), "docs": SourceReader(other)}
    segments = [("docs", 4, 5), ("code", 0, 5), ("docs", 0, 5), ("code", 512, 5)]
    tokens, targets = read_sequences(readers, segments)
    assert tokens.shape == targets.shape == (4, 5)
    assert tokens.dtype == targets.dtype == np.int32
    assert bytes(tokens[0].astype(np.uint8)) == b"quick"
    assert bytes(targets[0].astype(np.uint8)) == b"uick "
    assert bytes(tokens[2].astype(np.uint8)) == b"the q"
    assert tokens[1].tolist() == tokens[3].tolist() == [0, 1, 2, 3, 4]
    assert np.array_equal(tokens[:, 1:], targets[:, :-1])


def test_read_after_the_store_is_gone_names_file_and_position(store):
    reader = SourceReader(store)
    store.unlink()
    with pytest.raises(DataError, match=r"train\.txt at token 16: cannot be read"):
        read_sequences({"code": reader}, [("code", 16, 4)])


def test_read_of_a_shortened_store_names_where_it_ends(store):
    reader = SourceReader(store)
    store.write_bytes(TEXT[:100])
    with pytest.raises(DataError, match=r"at token 100: ends early") as caught:
        reader.read(96, 8)
    assert (caught.value.path, caught.value.position) == (store, 100)


def test_open_of_missing_empty_or_changed_store_refuses(store, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.touch()
    with pytest.raises(DataError, match="is empty"):
        SourceReader(empty)
    with pytest.raises(DataError, match=r"gone\.txt: cannot be read"):
        SourceReader(tmp_path / "gone.txt")
    with pytest.raises(DataError, match=r"gone\.txt: cannot be read"):
        verify_digest(tmp_path / "gone.txt", "0" * 64)
    sha256 = hashlib.sha256(TEXT).hexdigest()
    assert SourceReader(store, sha256).num_tokens == len(TEXT)
    store.write_bytes(TEXT[:-1] + b"\0")
    with pytest.raises(DataError, match="changed since launch") as caught:
        SourceReader(store, sha256)
    assert str(store) in str(caught.value)
