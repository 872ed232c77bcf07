"""Rows as columns of runs: short where rows agree, and lossless."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.canonical import encode_canonical
from controller.core.columns import pack_rows, unpack_rows

LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x", "a.b"])
NAMES = st.sampled_from(["rank", "value", "end", "step"])
MEMBERS = st.recursive(LEAVES, lambda it: st.dictionaries(NAMES, it, max_size=3), max_leaves=6)
ROWS = st.lists(st.dictionaries(NAMES, MEMBERS, max_size=4), max_size=12)


@given(ROWS)
def test_rows_come_back_as_they_were(rows):
    packed = pack_rows(rows)
    assert encode_canonical(unpack_rows(packed)) == encode_canonical(rows)


def test_ranks_in_lock_step_take_a_run_for_each_member():
    rows = [{"rank": rank, "alive": True, "end": None} for rank in range(704)]
    assert pack_rows(rows) == {
        "rows": 704,
        "columns": {"alive": [[704, True]], "end": [[704, None]], "rank": [[704, 0, 1]]},
    }


def test_what_differs_stands_in_its_place():
    rows = [{"value": {"step": 7}}, {"value": {"unknown": "no answer"}}, {"value": {"step": 7}}]
    assert pack_rows(rows)["columns"] == {
        "value.step": [[1, 7], [1], [1, 7]],
        "value.unknown": [[1], [1, "no answer"], [1]],
    }


def test_equal_numbers_of_unequal_types_are_kept_apart():
    rows = [{"rank": 1}, {"rank": True}, {"rank": 0}, {"rank": False}]
    assert encode_canonical(unpack_rows(pack_rows(rows))) == encode_canonical(rows)


def test_rows_of_an_older_ledger_are_read_as_they_are():
    rows = [{"rank": 0}, {"rank": 1}]
    assert unpack_rows(rows) == rows


@pytest.mark.parametrize(
    "packed",
    [
        7,
        {"rows": 10**9, "columns": {}},
        {"rows": 2, "columns": {"rank": 7}},
        {"rows": 2, "columns": {"rank": [[]]}},
        {"rows": 2, "columns": {"rank": [["2", 0]]}},
        {"rows": 2, "columns": {"rank": [[-1, 0], [3, 0]]}},
        {"rows": 2, "columns": {"rank": [[10**9, 0]]}},
        {"rows": 2, "columns": {"rank": [[1, 0]]}},
        {"rows": 2, "columns": {"rank": [[2, 0, "1"]]}},
        {"rows": 2, "columns": {"rank": [[2, 0, 1, 1]]}},
        {"rows": 1, "columns": {"end": [[1, 7]], "end.code": [[1, 9]]}},
    ],
)
def test_what_nobody_packed_is_refused_in_words(packed):
    with pytest.raises(ValueError, match=r".+"):
        unpack_rows(packed)
