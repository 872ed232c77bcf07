"""Ranks that die or freeze."""

import pytest

from contract.wire import Restore

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("ranks", [[1], [0], [0, 1]], ids=["worker", "rank 0", "all"])
def test_killed_ranks_are_recovered_with_the_same_bits(make, ranks):
    world = make(total_steps=60)
    controller = world.control()
    world.await_verified(10)
    world.await_step(1, 17)
    world.kill(1, *ranks)
    assert controller.wait() == "completed"
    assert world.attempts() == [1, 2]
    assert world.check_replay(2) >= 5
    assert world.surviving_steps() == list(range(60))
    world.check_ledger()
