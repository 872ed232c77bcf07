import threading
import time

import pytest

from tests.waiting import wait_for


def test_wait_for_returns_the_first_truthy_answer():
    answers = iter([None, 0, "", "ready", "later"])
    assert wait_for(lambda: next(answers), 10, "an answer") == "ready"


def test_wait_for_sees_what_another_thread_does():
    event = threading.Event()
    timer = threading.Timer(0.05, event.set)
    timer.start()
    assert wait_for(event.is_set, 10, "the timer")
    timer.join()


def test_wait_for_in_vain_names_what_it_waited_for():
    with pytest.raises(AssertionError, match=r"0\.05 s in vain for a miracle; last answer: 0"):
        wait_for(lambda: 0, 0.05, "a miracle")


def test_wait_for_asks_once_more_at_the_deadline(monkeypatch):
    moments = iter([0.0, 0.0, 5.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    answers = iter([False, True])
    assert wait_for(lambda: next(answers), 1.0, "a slow machine")
