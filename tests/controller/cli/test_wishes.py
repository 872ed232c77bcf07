"""Whether a wish that somebody waits for may still be met, as the ledger tells it."""

from pathlib import Path

import pytest

from controller.cli import asking
from controller.cli.orders import Wish
from controller.cli.peek import Controller, View
from controller.core.lines import REFUSAL
from controller.core.snapshot import OwnerIntent
from tests.builders import a_run


def an_intent(verb="stop", nonce="mine", **details):
    return OwnerIntent(nonce=nonce, verb=verb, user="me", wall_ms=5, **details)


def heard(*intents):
    """Return the memory of a run that trains and heard these wishes, oldest first."""
    run = a_run().launched()
    for intent in intents:
        run.seeing(intents=[intent]).pass_once()
    return run.memory


@pytest.mark.parametrize(
    ("mine", "later", "is_withdrawn"),
    [
        ("stop", None, False),
        ("stop", "stop", False),
        ("stop", "resume", True),
        ("stop", "suspend", True),
        ("suspend", "resume", True),
        ("resume", "stop", True),
    ],
)
def test_wish_is_withdrawn_by_a_later_one_of_another_kind(mine, later, is_withdrawn):
    wishes = [an_intent(mine), *([an_intent(later, "later")] if later else [])]
    failure = asking.find_failure(Wish(mine), wishes[0], heard(*wishes), is_alive=True)
    assert ("withdrawn by a later one" in (failure or "")) is is_withdrawn


def test_wish_that_was_not_heard_yet_may_be_met():
    memory = heard(an_intent("suspend", "earlier"))
    assert asking.find_failure(Wish("stop"), an_intent(), memory, is_alive=True) is None


def test_new_line_waits_for_its_drain_whatever_was_wanted_before():
    mine = an_intent("resume_from", line="main", step=10)
    memory = heard(an_intent("stop", "earlier"))
    wanted = memory.wanted.model_copy(update={"resume_from": ("main", 10, "mine")})
    memory = memory.model_copy(update={"known_nonces": ["mine"], "wanted": wanted})
    wish = Wish("resume", from_step=10)
    assert asking.find_failure(wish, mine, memory, is_alive=True) is None
    other = wanted.model_copy(update={"resume_from": ("main", 20, "later")})
    memory = memory.model_copy(update={"wanted": other})
    assert "withdrawn" in (asking.find_failure(wish, mine, memory, is_alive=True) or "")


def test_resumed_run_that_halts_is_told_once_its_controller_ended():
    memory = heard(an_intent("resume")).model_copy(update={"halted": "the disk is gone"})
    wish, intent = Wish("resume"), an_intent("resume")
    assert asking.find_failure(wish, intent, memory, is_alive=True) is None
    failure = asking.find_failure(wish, intent, memory, is_alive=False)
    assert "halted: the disk is gone" in (failure or "")


@pytest.mark.parametrize(
    ("text", "at", "is_mine"),
    [
        ("cannot resume from main/10: gone", 5, True),
        ("cannot resume from main/10: gone", 4, False),
        ("cannot resume from main/100: gone", 5, False),
        ("cannot resume from main-2/10: gone", 5, False),
    ],
)
def test_only_the_refusal_of_this_very_line_counts(text, at, is_mine):
    status = {"state": "halted", "notes": [{"subject": REFUSAL, "text": text, "at": at}]}
    controller = Controller(is_alive=True, pid=1, epoch=1)
    view = View("probe", Path("probe"), status, controller, 0.0)
    intent = an_intent("resume_from", line="main", step=10)
    assert (asking.find_refusal(view, intent) == text) is is_mine
