"""What a fleet must do."""

import pytest

from controller.core.snapshot import RankRef
from controller.ports import EpochLost, Refused
from tests.suites.stages import FakeFleetStage, RealFleetStage, an_order


@pytest.fixture(params=[FakeFleetStage, RealFleetStage], ids=["fake", "real"])
def stage(request, tmp_path):
    built = request.param(tmp_path)
    yield built
    built.close()


def launch(stage, attempt: int = 1):
    stage.fleet.launch(an_order(attempt), epoch=stage.epoch)
    return stage.await_gang(
        lambda gang: gang.attempt == attempt and all(view.claimed for view in gang.ranks)
    )


def end(stage, attempt: int = 1):
    """Close an attempt and kill all of it."""
    stage.fleet.close(attempt)
    stage.fleet.kill(attempt, [0, 1])
    return stage.await_gang(lambda gang: not any(view.alive for view in gang.ranks))


def test_fleet_that_never_launched_shows_none(stage):
    assert stage.fleet.observe() is None


def test_launched_gang_is_claimed_alive_and_open(stage):
    gang = launch(stage)
    assert (gang.attempt, gang.closed, gang.remains) == (1, False, [])
    assert [(view.rank, view.alive, view.stopped, view.end) for view in gang.ranks] == [
        (0, True, False, None),
        (1, True, False, None),
    ]


def test_launch_twice_equals_launch_once(stage):
    launch(stage)
    stage.kill_rank(1)
    before = stage.await_gang(lambda gang: not gang.ranks[1].alive).ranks[1]
    stage.fleet.launch(an_order(1), epoch=stage.epoch)
    # A rank that ended is not started again.
    assert stage.fleet.observe().ranks[1] == before


def test_killed_rank_has_an_end_with_128_and_the_signal(stage):
    launch(stage)
    stage.kill_rank(0)
    view = stage.await_gang(lambda gang: not gang.ranks[0].alive).ranks[0]
    assert view.claimed
    assert (view.end.code, view.end.step, view.end.detail) == (137, None, "")


def test_rank_that_leaves_is_known_by_its_code_and_its_own_words(stage):
    launch(stage)
    stage.let_rank_leave(1, 80, step=12, text="the loss is nan")
    end_of = stage.await_gang(lambda gang: gang.ranks[1].end).ranks[1].end
    assert (end_of.code, end_of.step, end_of.detail) == (80, 12, "the loss is nan")


def test_frozen_rank_is_alive_and_stopped_and_can_be_killed(stage):
    launch(stage)
    stage.freeze_rank(0)
    view = stage.await_gang(lambda gang: gang.ranks[0].stopped).ranks[0]
    assert view.alive
    stage.fleet.close(1)
    stage.fleet.kill(1, [0])
    view = stage.await_gang(lambda gang: not gang.ranks[0].alive).ranks[0]
    assert not view.stopped
    assert view.end.code == 137


def test_kill_twice_equals_kill_once(stage):
    launch(stage)
    gang = end(stage)
    stage.fleet.kill(1, [0, 1])
    assert stage.fleet.observe() == gang


def test_closed_attempt_starts_no_further_rank(stage):
    stage.fleet.launch(an_order(1), epoch=stage.epoch)
    stage.fleet.close(1)
    stage.fleet.close(1)
    stage.fleet.kill(1, [0, 1])
    gang = stage.await_gang(lambda gang: not any(view.alive for view in gang.ranks))
    stage.fleet.launch(an_order(1), epoch=stage.epoch)
    assert gang.closed
    again = stage.fleet.observe()
    assert not any(view.alive for view in again.ranks)
    assert [view.claimed for view in again.ranks] == [view.claimed for view in gang.ranks]


def test_attempt_closed_before_any_launch_is_shown_closed_and_empty(stage):
    stage.fleet.close(1)
    stage.fleet.launch(an_order(1), epoch=stage.epoch)
    gang = stage.fleet.observe()
    assert (gang.attempt, gang.closed) == (1, True)
    assert not any(view.claimed or view.alive for view in gang.ranks)


def test_rank_without_a_shim_has_an_unknown_end_never_a_good_one(stage):
    launch(stage)
    stage.kill_shim(1)
    assert stage.fleet.observe().ranks[1].alive
    stage.kill_rank(1)
    view = stage.await_gang(lambda gang: not gang.ranks[1].alive).ranks[1]
    assert (view.claimed, view.end) == (True, None)


def test_live_ranks_of_older_attempts_are_remains_until_killed(stage):
    launch(stage)
    stage.fleet.close(1)
    stage.fleet.kill(1, [0])
    # Nobody should do this; that it is seen is what the rules rest on.
    stage.fleet.close(2)
    gang = stage.await_gang(lambda gang: gang.attempt == 2)
    assert gang.remains == [RankRef(attempt=1, rank=1)]
    stage.fleet.kill(1, [1])
    assert stage.await_gang(lambda gang: not gang.remains).attempt == 2


def test_older_attempt_is_not_launched_again(stage):
    launch(stage)
    end(stage)
    launch(stage, 2)
    with pytest.raises(Refused):
        stage.fleet.launch(an_order(1), epoch=stage.epoch)


def test_next_controller_sees_the_same_gang(stage):
    before = launch(stage)
    stage.fleet = stage.take_over()
    assert stage.fleet.observe() == before


def test_former_controllers_acts_are_refused(stage):
    launch(stage)
    former, epoch = stage.fleet, stage.epoch
    stage.fleet = stage.take_over()
    with pytest.raises(EpochLost):
        former.launch(an_order(2), epoch=epoch)
    with pytest.raises(EpochLost):
        former.close(1)
    with pytest.raises(EpochLost):
        former.kill(1, [0, 1])
    gang = stage.fleet.observe()
    assert (gang.attempt, gang.closed) == (1, False)
    assert all(view.alive for view in gang.ranks)
