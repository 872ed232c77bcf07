"""Step logs as they grow, and replays compared bit for bit."""

import json

import pytest

from contract import wire
from contract.plan import Plan
from contract.wire import Drops, StepRecord
from controller.adapters import steplog
from controller.adapters.steplog import StepLogs
from controller.core.readings import Instant
from controller.core.snapshot import GangView
from tests.contract.builders import a_horizon, a_plan

PLAN = a_plan()


def at(mono_ms: int) -> Instant:
    return Instant(wall_ms=0, mono_ms=mono_ms, boot_id="b")


def gang(attempt: int) -> GangView:
    return GangView(attempt=attempt, closed=False, ranks=[], remains=[])


def a_record(step: int, loss: float = 1.0, **changes: object) -> StepRecord:
    record = StepRecord(
        line="main",
        step=step,
        plan_sha=PLAN.sha,
        execution_sha=PLAN.execution_sha,
        code="c",
        lr={"matrix": "0x1p-9"},
        loss=(loss + step).hex(),
        grad_norm="0x1p0",
        tokens=1_024,
        assignments=0,
        drops=Drops(sender=0, receiver=0),
        step_s=0.1,
        data_wait_s=0.0,
        wall_s=1.0,
        tags=[],
    )
    return record.model_copy(update=changes)


@pytest.fixture
def run_dir(tmp_path):
    def write(attempt: int, *records: StepRecord, tail: str = "") -> None:
        folder = tmp_path / wire.attempt_dir(attempt)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / wire.STEPS_FILE).open("a") as file:
            file.writelines(record.model_dump_json() + "\n" for record in records)
            file.write(tail)

    tmp_path.joinpath(wire.PLANS_DIR).mkdir()
    write.path = tmp_path
    return write


def publish(run_dir, plan: Plan) -> None:
    (run_dir.path / wire.plan_file(plan.sha)).write_bytes(plan.encode())


def test_no_step_was_ever_logged(run_dir):
    logs = StepLogs(run_dir.path)
    assert logs.read(gang(1), "main", at(0)) is None
    run_dir(1)
    assert logs.read(gang(1), "main", at(0)) is None


def test_log_is_read_as_it_grows(run_dir):
    logs = StepLogs(run_dir.path)
    run_dir(1, a_record(0), a_record(1))
    view = logs.read(gang(1), "main", at(100))
    assert (view.completed_steps, view.highest_step, view.grown_age_ms) == (2, 2, 0)
    assert logs.read(gang(1), "main", at(900)).grown_age_ms == 800
    run_dir(1, a_record(2))
    view = logs.read(gang(1), "main", at(1_000))
    assert (view.completed_steps, view.grown_age_ms) == (3, 0)


def test_growth_is_aged_from_the_first_look_of_this_controller(run_dir):
    run_dir(1, a_record(0))
    assert StepLogs(run_dir.path).read(gang(1), "main", at(9_000)).grown_age_ms == 0


def test_torn_last_line_waits_for_its_rest(run_dir):
    logs = StepLogs(run_dir.path)
    text = a_record(1).model_dump_json()
    run_dir(1, a_record(0), tail=text[:50])
    assert logs.read(gang(1), "main", at(0)).completed_steps == 1
    run_dir(1, tail=text[50:] + "\n")
    assert logs.read(gang(1), "main", at(0)).completed_steps == 2


def test_line_that_is_no_record_is_passed_over(run_dir):
    logs = StepLogs(run_dir.path)
    run_dir(1, a_record(0), tail='{"step": 7\n[]\n\x00\n')
    run_dir(1, a_record(1))
    assert logs.read(gang(1), "main", at(0)).completed_steps == 2


def test_log_longer_than_a_chunk_is_read_whole(run_dir, monkeypatch):
    monkeypatch.setattr(steplog, "CHUNK_BYTES", 1_000)
    run_dir(1, *(a_record(step) for step in range(50)))
    assert StepLogs(run_dir.path).read(gang(1), "main", at(0)).completed_steps == 50


def test_new_attempt_has_its_own_steps_and_the_line_its_highest(run_dir):
    logs = StepLogs(run_dir.path)
    run_dir(1, *(a_record(step) for step in range(10)))
    run_dir(2)
    view = logs.read(gang(2), "main", at(0))
    assert (view.attempt, view.completed_steps, view.highest_step) == (2, None, 10)
    run_dir(2, a_record(5))
    view = logs.read(gang(2), "main", at(0))
    assert (view.completed_steps, view.highest_step) == (6, 10)
    assert logs.read(gang(2), "main-2", at(0)).highest_step == 0


def test_last_lines_of_the_former_attempt_are_not_missed(run_dir):
    logs = StepLogs(run_dir.path)
    run_dir(1, a_record(0))
    logs.read(gang(1), "main", at(0))
    run_dir(1, a_record(1))
    run_dir(2)
    assert logs.read(gang(2), "main", at(0)).highest_step == 2


def test_replay_with_the_same_bits_agrees(run_dir):
    run_dir(1, *(a_record(step) for step in range(10)))
    run_dir(2, *(a_record(step) for step in range(5, 12)))
    logs = StepLogs(run_dir.path)
    assert logs.read(gang(2), "main", at(0)).replay_mismatch_step is None
    replay = logs.replay
    assert (replay.replayed_steps, replay.compared_steps, replay.max_loss_difference) == (5, 5, 0.0)


def test_replay_that_differs_in_one_bit_is_named_by_its_first_step(run_dir):
    run_dir(1, *(a_record(step) for step in range(10)))
    other = (7 + 1.0 + 2**-20).hex()
    run_dir(2, a_record(6), a_record(7, loss=0.0).model_copy(update={"loss": other}), a_record(8))
    logs = StepLogs(run_dir.path)
    assert logs.read(gang(2), "main", at(0)).replay_mismatch_step == 7
    assert logs.replay.max_loss_difference == 2**-20


@pytest.mark.parametrize("other", [{"code": "d"}, {"execution_sha": "e" * 64}, {"line": "main-2"}])
def test_replay_under_other_conditions_is_not_compared(run_dir, other):
    run_dir(1, a_record(4))
    run_dir(2, a_record(4, loss=9.0, **other))
    logs = StepLogs(run_dir.path)
    assert logs.read(gang(2), "main", at(0)).replay_mismatch_step is None
    assert logs.replay.compared_steps == 0


@pytest.mark.parametrize(("step", "is_compared"), [(299, True), (300, False)])
def test_replay_under_a_revision_is_compared_in_their_common_past(run_dir, step, is_compared):
    child = a_horizon(PLAN, 300, 360)
    publish(run_dir, PLAN)
    publish(run_dir, child)
    run_dir(1, a_record(step))
    run_dir(2, a_record(step, loss=9.0, plan_sha=child.sha))
    logs = StepLogs(run_dir.path)
    mismatch = logs.read(gang(2), "main", at(0)).replay_mismatch_step
    assert mismatch == (step if is_compared else None)


def test_replay_under_an_unknown_plan_is_not_compared(run_dir):
    run_dir(1, a_record(4))
    run_dir(2, a_record(4, loss=9.0, plan_sha="f" * 64))
    logs = StepLogs(run_dir.path)
    assert logs.read(gang(2), "main", at(0)).replay_mismatch_step is None


def test_only_so_many_losses_are_kept(run_dir, monkeypatch):
    monkeypatch.setattr(steplog, "KEPT_STEPS", 3)
    run_dir(1, *(a_record(step) for step in range(10)))
    run_dir(2, *(a_record(step, loss=9.0) for step in range(2, 4)))
    logs = StepLogs(run_dir.path)
    assert logs.read(gang(2), "main", at(0)).replay_mismatch_step is None


def test_loss_that_is_no_number_is_no_record(run_dir):
    text = json.loads(a_record(1).model_dump_json()) | {"loss": "nope"}
    run_dir(1, a_record(0), tail=json.dumps(text) + "\n")
    assert StepLogs(run_dir.path).read(gang(1), "main", at(0)).completed_steps == 1


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("step_s", "NaN"),
        ("step_s", "Infinity"),
        ("step_s", "1e30"),
        ("wall_s", "Infinity"),
        ("wall_s", "-1"),
        ("step", "-3"),
        ("step", "1000000000"),
        ("step", "1e400"),
        ("loss", '"0x1p99999"'),
        ("tags", "7"),
    ],
)
def test_line_that_no_step_can_have_left_is_passed_over(run_dir, member, value):
    line = json.loads(a_record(1).model_dump_json()) | {member: "MARK"}
    run_dir(1, a_record(0), tail=json.dumps(line).replace('"MARK"', value) + "\n")
    run_dir(1, a_record(1))
    view = StepLogs(run_dir.path).read(gang(1), "main", at(0))
    assert view.completed_steps == 2
    assert view.pace.until_step == 2
