import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.wire import ACCOUNT_PHASES, Phase
from controller.core.telling.account import make_account
from controller.core.telling.history import AttemptHistory
from tests.histories import attempt, phase_record, step_record


def test_one_attempt_is_split_into_its_phases():
    account = make_account([attempt(1, 102, range(11))], 100.0, 118.0, [])
    seconds = account.seconds
    assert seconds[Phase.SCHEDULE] == 2.0
    assert seconds[Phase.START] == 2.0
    assert seconds[Phase.COMPILE] == 3.0
    assert seconds[Phase.FIRST_STEP] == 1.0
    assert seconds[Phase.DATA_WAIT] == pytest.approx(10 * 0.125)
    assert seconds[Phase.PRODUCTIVE] == pytest.approx(10 - 10 * 0.125)
    assert account.wall_s == 18.0
    assert account.unattributed_percent == 0.0


def test_steps_of_an_earlier_attempt_count_as_replay():
    histories = [attempt(1, 100, range(10)), attempt(2, 120, range(5, 20))]
    seconds = make_account(histories, 100.0, 140.0, []).seconds
    # Steps 6 to 9: step 5 is the second attempt's first step, in a phase of its own.
    assert seconds[Phase.REPLAY] == pytest.approx(4 * 0.875)
    assert seconds[Phase.SCHEDULE] == pytest.approx(5.0)


def test_silence_before_the_end_is_a_stall():
    seconds = make_account([attempt(1, 100, range(5), ended=130)], 100.0, 130.0, []).seconds
    assert seconds[Phase.STALL] == 20.0


def test_rest_between_attempts_is_halted_time():
    histories = [attempt(1, 100, range(5)), attempt(2, 210, range(5, 10))]
    seconds = make_account(histories, 100.0, 220.0, [(112.0, 205.0)]).seconds
    assert seconds[Phase.HALTED] == 93.0
    assert seconds[Phase.SCHEDULE] == pytest.approx(7.0)


def test_open_rest_lasts_to_the_end():
    seconds = make_account([attempt(1, 100, range(5))], 100.0, 120.0, [(111.0, float("inf"))])
    assert seconds.seconds[Phase.HALTED] == 9.0


def test_attempt_without_any_record_is_scheduling():
    silent = AttemptHistory(1, 101.0, 105.0, phases=[], steps=[])
    seconds = make_account([silent], 100.0, 110.0, []).seconds
    assert seconds[Phase.SCHEDULE] == 10.0


@given(
    begun=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    lengths=st.lists(st.integers(0, 30), min_size=4, max_size=4),
    tail=st.integers(0, 50),
)
def test_phases_sum_to_wall_time_whatever_happened(begun, lengths, tail):
    histories, clock, step = [], 0, 0
    for number, pause in enumerate(begun, 1):
        length = lengths[number - 1]
        history = attempt(number, clock + pause, range(step, step + length))
        histories.append(history)
        clock, step = int(history.ended_wall_s), max(0, step + length - 3)
    account = make_account(histories, 0.0, float(clock + tail), [])
    assert set(account.seconds) == set(ACCOUNT_PHASES)
    assert all(value >= 0 for value in account.seconds.values())
    assert account.wall_s == pytest.approx(clock + tail)
    assert account.unattributed_percent < 1e-6


def test_steps_longer_than_their_phase_never_exceed_it():
    history = AttemptHistory(
        1, 0.0, 10.0, [phase_record("step", 0)], [step_record(0, 9, step_s=50.0, data_wait_s=40.0)]
    )
    seconds = make_account([history], 0.0, 10.0, []).seconds
    assert sum(seconds.values()) == pytest.approx(10.0)
    assert seconds[Phase.PRODUCTIVE] >= 0
