"""Step logs in columns look like the records that they were read from."""

import os

import pytest

from contract.wire import StepRecord
from controller.adapters.steptable import StepTable, read_steps
from controller.ports import Unavailable
from tests.histories import step_record

RECORDS = [
    step_record(0, 10.5, tags=["first", "compile"]),
    step_record(1, 11.25, lr={"other": (0.1).hex()}, loss=(2.5).hex()),
    step_record(2, 12.125, line="second", plan_sha="b" * 64, loss="nan", assignments=0),
]


def members_of(record):
    members = {name: getattr(record, name) for name in StepRecord.model_fields}
    return members | {"tags": list(record.tags)}


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(f"{it.model_dump_json()}\n" for it in RECORDS))
    return path


def test_rows_have_the_members_of_the_records(log):
    table = read_steps(log)
    assert [members_of(it) for it in table] == [members_of(it) for it in RECORDS]


def test_table_is_a_sequence():
    table = StepTable(RECORDS)
    assert len(table) == 3
    assert (table[-1].step, table[0].step) == (2, 0)
    assert [it.step for it in table[1:]] == [1, 2]
    assert [it.step for it in reversed(table)] == [2, 1, 0]
    with pytest.raises(IndexError):
        table[3]
    assert not StepTable()


def test_torn_and_foreign_lines_are_left_out(log):
    whole = log.read_bytes()
    log.write_bytes(b'{"line": "x"}\n\xff\n' + whole + whole[: len(whole) // 5])
    assert [it.step for it in read_steps(log)] == [0, 1, 2]


def test_pipe_in_the_place_of_a_log_is_told_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "steps.jsonl")
    with pytest.raises(Unavailable, match="no regular file"):
        read_steps(tmp_path / "steps.jsonl")


def test_number_that_cannot_be_is_no_step(log):
    lines = [it.model_dump_json() for it in RECORDS]
    lines[0] = lines[0].replace('"tokens":1024', f'"tokens":{10**30}')
    lines[2] = lines[2].replace('"loss":"nan"', '"loss":"0x1p99999"')
    log.write_text("\n".join(lines) + "\n")
    assert [members_of(it) for it in read_steps(log)] == [members_of(RECORDS[1])]


def test_log_that_is_not_there_has_no_steps(tmp_path):
    assert len(read_steps(tmp_path / "none")) == 0


def test_step_weighs_little(tmp_path):
    table = StepTable(step_record(step, step) for step in range(1000))
    columns = [*table.integers.values(), *table.floats.values(), *table.rates]
    columns += [*table.sides, table.losses, table.norms, table.setting]
    assert sum(it.itemsize * len(it) for it in columns) == 1000 * 104
