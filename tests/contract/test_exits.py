import signal

import pytest

from contract.exits import CASCADE, NEVER_RETRY, PLANNED, SIGNAL_BASE, Exit, describe_exit


def test_classes_of_ends_do_not_overlap():
    assert not NEVER_RETRY & PLANNED
    assert not NEVER_RETRY & CASCADE
    assert not PLANNED & CASCADE


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (Exit.ABORTED, signal.SIGABRT),
        (Exit.KILLED, signal.SIGKILL),
        (Exit.SEGV, signal.SIGSEGV),
        (Exit.TERMINATED, signal.SIGTERM),
    ],
)
def test_signals_are_recorded_above_128(code, number):
    assert code == SIGNAL_BASE + number


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "0 DONE"),
        (80, "80 NON_FINITE"),
        (137, "137 KILLED"),
        (130, "130 signal 2"),
        (7, "7"),
    ],
)
def test_end_is_described_for_people(code, words):
    assert describe_exit(code) == words


def test_codes_fit_an_exit_status():
    assert all(0 <= code <= 255 for code in Exit)
