import json

import pytest

from contract.exits import Exit
from contract.wire import DETAIL_FILE, PHASES_FILE, RANK_PHASES, STACKS_FILE, Phase, PhaseRecord
from tests.waiting import wait_for
from trainer.ends import write_detail
from trainer.phases import PhaseClock, process_age_s
from trainer.watchdog import Watchdog

FAR_S = 1e9


def a_clock(tmp_path, **deadlines_s):
    limits = {phase: deadlines_s.get(phase, FAR_S) for phase in RANK_PHASES}
    return PhaseClock(tmp_path / PHASES_FILE, limits, step_factor=10)


def test_phase_seconds_sum_to_the_age_of_the_process(tmp_path):
    clock = a_clock(tmp_path)
    before_s = process_age_s()
    clock.enter(Phase.COMPILE)
    with clock.during(Phase.EVAL):
        pass
    total_s = sum(clock.seconds().values())
    # Ticks of the kernel's start time are 10 ms.
    assert before_s - 0.02 <= total_s <= process_age_s() + 0.02


def test_phases_are_recorded_once_a_change_with_their_step(tmp_path):
    clock = a_clock(tmp_path)
    clock.enter(Phase.STEP, 7)
    clock.enter(Phase.STEP, 8)
    with clock.during(Phase.SAVE_BLOCK):
        pass
    lines = (tmp_path / PHASES_FILE).read_text().splitlines()
    records = [PhaseRecord.model_validate_json(line) for line in lines]
    seen = [(record.phase, record.step) for record in records]
    assert seen == [(Phase.START, 0), (Phase.STEP, 7), (Phase.SAVE_BLOCK, 8), (Phase.STEP, 8)]
    assert [r.mono_s for r in records] == sorted(r.mono_s for r in records)


def test_step_deadline_follows_the_slowest_steps_above_its_floor(tmp_path):
    clock = a_clock(tmp_path, step=3)
    clock.enter(Phase.STEP)
    assert clock.deadline_s == 3
    for step in range(100):
        clock.advance(step, 0.1)
    assert clock.deadline_s == 3
    for step in range(100):
        clock.advance(step, 0.9)
    assert clock.deadline_s == pytest.approx(9)
    clock.enter(Phase.EVAL)
    assert clock.deadline_s == FAR_S


def test_progress_resets_the_age_but_not_the_phase_seconds(tmp_path):
    clock = a_clock(tmp_path)
    clock.enter(Phase.RESTORE)
    wait_for(lambda: clock.age_s > 0.3, 5, "some age")
    clock.advance()
    spent_s = clock.seconds()[Phase.RESTORE]
    # Read after the seconds: without the progress it would be the longer of the two.
    assert clock.age_s < spent_s


def test_watchdog_leaves_a_moving_rank_alone(tmp_path):
    ends = []
    watchdog = Watchdog(a_clock(tmp_path), tmp_path, end=lambda *a, **k: ends.append((a, k)))
    assert not watchdog.look()
    assert ends == []
    assert not (tmp_path / STACKS_FILE).exists()


def test_watchdog_ends_a_late_rank_after_its_stacks_are_on_disk(tmp_path):
    clock = a_clock(tmp_path, restore=0)
    clock.enter(Phase.RESTORE, 40)
    stacks_at_end = []

    def end(rank_dir, code, *, step, text):
        stacks_at_end.append((tmp_path / STACKS_FILE).read_text())
        write_detail(rank_dir, step=step, text=text)
        assert code is Exit.STALL

    watchdog = Watchdog(clock, tmp_path, end=end)
    watchdog.start()
    wait_for(lambda: stacks_at_end, 10, "the watchdog")
    # The main thread, blocked here, is in the dump with the line it waits at.
    assert "test_watchdog.py" in stacks_at_end[0]
    detail = json.loads(wait_for_file(tmp_path / DETAIL_FILE))
    assert detail["step"] == 40
    assert "no progress" in detail["text"]
    assert "restore" in detail["text"]


def wait_for_file(path):
    wait_for(path.exists, 10, path.name)
    return path.read_text()
