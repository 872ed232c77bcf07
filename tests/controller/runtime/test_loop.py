"""The loop: when it ends, how long it waits, what it survives."""

from dataclasses import dataclass, field

import pytest

from controller.core.actions import Decision, Rest
from controller.core.memory import Memory
from controller.core.readings import Instant
from controller.ports import Damaged, EpochLost, Unavailable
from controller.runtime.loop import (
    POLL_MS,
    SHORTEST_PAUSE_MS,
    UNWRITTEN_PAUSE_MS,
    Ending,
    StopRequest,
    run_controller,
)

NOW = Instant(wall_ms=0, mono_ms=0, boot_id="b")
GOING_ON = Memory.model_construct(halted=None, rest=None)


def decision(wake_in_ms: int = 10_000) -> Decision:
    return Decision(rule="", reason="", actions=[], wake_in_ms=wake_in_ms)


@dataclass
class Clock:
    waits: list[int] = field(default_factory=list)
    on_wait: object = None

    def now(self) -> Instant:
        return NOW

    def wait(self, timeout_ms: int) -> None:
        self.waits.append(timeout_ms)
        if callable(self.on_wait):
            self.on_wait()

    def wake(self) -> None:
        pass


@dataclass
class Heart:
    beats: int = 0

    def beat(self, now: Instant) -> None:
        self.beats += 1


class Script:
    """Passes that answer, in order, with what the test wrote down; the last answer stays."""

    def __init__(self, *answers: Decision | Exception | Memory) -> None:
        self.answers = list(answers)
        self.memory = GOING_ON

    def resume(self) -> None:
        pass

    def pass_once(self) -> Decision:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Memory):
            self.memory = answer
            return decision()
        return answer


def an_action() -> Rest:
    return Rest(reason="", nonce="", state="stopped")


def drive(
    script: Script, clock: Clock | None = None, after_pass=None
) -> tuple[Ending, Clock, Heart]:
    clock, heart = clock or Clock(), Heart()
    ending = run_controller(script, clock, heart, StopRequest(clock), after_pass)
    return ending, clock, heart


@pytest.mark.parametrize(
    ("memory", "ending"),
    [
        (Memory.model_construct(halted="why", rest=None), Ending.HALTED),
        (Memory.model_construct(halted=None, rest="completed"), Ending.COMPLETED),
        (Memory.model_construct(halted=None, rest="suspended"), Ending.SUSPENDED),
        (Memory.model_construct(halted=None, rest="stopped"), Ending.STOPPED),
    ],
)
def test_loop_ends_when_the_run_rests(memory, ending):
    assert drive(Script(decision(), memory))[0] is ending


def test_pass_that_acted_is_followed_by_another_before_the_loop_ends():
    resting = Memory.model_construct(halted=None, rest="suspended")
    script = Script(decision().model_copy(update={"actions": [an_action()]}), decision())
    script.memory = resting
    assert drive(script)[0] is Ending.SUSPENDED
    assert script.answers == []


def test_loop_beats_before_every_pass_and_shows_each_decision():
    seen: list[Decision] = []
    _, _, heart = drive(Script(decision(), decision(), EpochLost("x")), after_pass=seen.append)
    assert (heart.beats, len(seen)) == (3, 2)


def test_pause_is_what_was_decided_within_bounds():
    script = Script(decision(0), decision(120), decision(99_999), EpochLost("x"))
    assert drive(script)[1].waits == [SHORTEST_PAUSE_MS, 120, POLL_MS]


def test_lost_epoch_ends_the_controller(caplog):
    assert drive(Script(EpochLost("epoch 3 took over")))[0] is Ending.EPOCH_LOST
    assert "epoch 3 took over" in caplog.text


def test_pass_that_cannot_be_recorded_is_tried_again():
    script = Script(Unavailable("full"), Memory.model_construct(halted=None, rest="completed"))
    ending, clock, _ = drive(script)
    assert (ending, clock.waits) == (Ending.COMPLETED, [UNWRITTEN_PAUSE_MS])


def test_bug_ends_the_controller_with_its_trace_in_the_log(caplog):
    assert drive(Script(KeyError("bug")))[0] is Ending.FAILED
    assert "KeyError" in caplog.text


def test_run_whose_ledger_is_gone_ends_the_controller_in_words(caplog):
    assert drive(Script(Damaged("the ledger folder is missing")))[0] is Ending.FAILED
    assert "the ledger folder is missing" in caplog.text
    assert "Traceback" not in caplog.text


def test_stop_request_detaches_after_the_pass_that_runs():
    clock = Clock()
    stop = StopRequest(clock)
    clock.on_wait = stop.set
    script = Script(decision(), decision())
    assert run_controller(script, clock, Heart(), stop) is Ending.DETACHED
    assert len(script.answers) == 1
