import pytest

from contract import wire
from controller.adapters.records import StepTail, read_evals, read_histories, read_lines
from tests.histories import phase_record, step_record


def write_lines(path, records, *, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("".join(record.model_dump_json() + "\n" for record in records)[:-1] + end)


def steps_file(run_dir, attempt):
    return run_dir / wire.attempt_dir(attempt) / wire.STEPS_FILE


def test_tail_reads_on_as_the_log_grows_and_keeps_the_newest(tmp_path):
    tail = StepTail(tmp_path, keep=3)
    assert tail.read(1) == ()
    write_lines(steps_file(tmp_path, 1), [step_record(n, n) for n in range(5)])
    assert [record.step for record in tail.read(1)] == [2, 3, 4]
    assert [record.step for record in tail.read(1)] == [2, 3, 4]
    write_lines(steps_file(tmp_path, 1), [step_record(5, 5)])
    assert [record.step for record in tail.read(1)] == [3, 4, 5]
    write_lines(steps_file(tmp_path, 2), [step_record(4, 9)])
    assert [record.step for record in tail.read(2)] == [4]


def test_torn_last_line_waits_for_its_end(tmp_path):
    tail = StepTail(tmp_path, keep=3)
    path = steps_file(tmp_path, 1)
    write_lines(path, [step_record(0, 0), step_record(1, 1)], end="")
    assert [record.step for record in tail.read(1)] == [0]
    with path.open("a") as file:
        file.write("\n")
    assert [record.step for record in tail.read(1)] == [0, 1]


@pytest.mark.parametrize("garbage", ["", "{}\n", "not json\n", '{"step": 1'])
def test_foreign_lines_are_left_out(tmp_path, garbage):
    path = tmp_path / "steps.jsonl"
    write_lines(path, [step_record(0, 0)])
    with path.open("a") as file:
        file.write(garbage)
    assert [it.step for it in read_lines(path, wire.StepRecord)] == [0]


def test_history_ends_with_its_last_rank_or_its_last_word(tmp_path):
    for attempt in (1, 2):
        rank = tmp_path / wire.rank_dir(attempt, 0)
        write_lines(rank / wire.PHASES_FILE, [phase_record("start", 10), phase_record("step", 12)])
        write_lines(steps_file(tmp_path, attempt), [step_record(0, 13)])
    ends = ((0, 15.0), (1, 16.5))
    for rank, wall_s in ends:
        directory = tmp_path / wire.rank_dir(1, rank)
        directory.mkdir(exist_ok=True)
        record = wire.ExitRecord(code=0, signal=None, wall_s=wall_s)
        (directory / wire.EXIT_FILE).write_text(record.model_dump_json().ljust(256))
    first, second = read_histories(tmp_path)
    assert (first.launched_wall_s, first.ended_wall_s) == (10.0, 16.5)
    assert second.ended_wall_s == 13.0
    assert [record.phase for record in first.phases] == ["start", "step"]
    assert read_evals(tmp_path) == []


def test_history_knows_the_processes_that_were_claimed(tmp_path):
    for rank, pid in ((0, 70), (1, 71), (10, 80)):
        process = wire.ProcessIdentity(pid=pid, start_ticks=1, boot_id="b")
        claim = wire.Claim(
            attempt=1, rank=rank, epoch=1, shim=process, process=process, wall_s=9.0 + rank
        )
        directory = tmp_path / wire.rank_dir(1, rank)
        directory.mkdir(parents=True)
        (directory / wire.CLAIM_FILE).write_text(claim.model_dump_json())
    torn = tmp_path / wire.rank_dir(1, 2)
    torn.mkdir()
    (torn / wire.CLAIM_FILE).write_text("{")
    [history] = read_histories(tmp_path)
    assert history.pids == {0: 70, 1: 71, 10: 80}
    assert history.launched_wall_s == 9.0
