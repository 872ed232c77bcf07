"""The control document, read by rank 0 and obeyed by all ranks at one step."""

import pytest

from contract import metrics
from contract.model import Execution
from contract.wire import ControlError, ControlRefusal, plan_file
from tests.trainer.builders import (
    HEAD,
    UID,
    a_config,
    a_plan,
    a_seat,
    point_to,
    publish,
    retimed,
    some_gang,
    write_control,
)
from trainer.control import ACT_AFTER_STEPS, POLL_S, ControlFile, Helm, Message, read_message
from trainer.telemetry import Meter

RANKS = 3


class World:
    """All ranks of a gang stepping together in one thread."""

    def __init__(self, run_dir, plan, ahead=()):
        self.run_dir = run_dir
        self.asked = set()
        self.meters = [Meter() for _ in range(RANKS)]
        self.now_s = 0.0
        self.helms = []
        for gang, meter in zip(some_gang(RANKS), self.meters, strict=True):
            seat = a_seat(run_dir, rank=gang.rank, ranks=RANKS)
            rank = gang.rank
            helm = Helm(seat, gang, [plan], meter, lambda rank=rank: rank in self.asked, ahead)
            # The file is looked at five times a second of this world, one second a step.
            poll = helm._file.poll
            helm._file.poll = lambda *, again, poll=poll: poll(again=again, now_s=self.now_s)
            self.helms.append(helm)
        self.step = 0

    def advance(self, steps=1):
        """Step; return the orders of each step, which all ranks must agree on."""
        orders = []
        for _ in range(steps):
            self.now_s += 1
            # The last rank first: it may enter a step before rank 0 spoke.
            heard = [helm.take_orders(self.step) for helm in reversed(self.helms)]
            assert heard.count(heard[0]) == RANKS, heard
            # What the step carries: the maximum of all ranks' words.
            has_news = any(helm.has_news for helm in self.helms)
            for helm in self.helms:
                helm.hear(has_news=has_news)
            orders.append(heard[0])
            self.step += 1
        return orders

    def refusals(self, rank=0):
        meter = self.meters[rank]
        return {
            refusal
            for refusal in ControlRefusal
            if meter.value(metrics.RANK_CONTROL_REFUSED, reason=refusal)
        }


@pytest.fixture
def plan(tmp_path):
    return publish(tmp_path, a_plan(a_config(tmp_path)))


@pytest.fixture
def world(tmp_path, plan):
    return World(tmp_path, plan)


def revise(world, plan, **changes):
    settings = {"effective": 10, "total_steps": 16} | changes
    return publish(world.run_dir, retimed(plan, **settings))


def test_revision_is_adopted_by_all_ranks_at_its_effective_step(world, plan):
    child = revise(world, plan)
    point_to(world.run_dir, child.sha)
    orders = world.advance(12)
    assert [order.adopted for order in orders] == [None] * 10 + [child, None]
    assert {helm.plan.sha for helm in world.helms} == {child.sha}


def test_revision_shows_as_pending_until_adopted(world, plan):
    point_to(world.run_dir, revise(world, plan).sha)
    world.advance(ACT_AFTER_STEPS + 2)
    assert [meter.value(metrics.RANK_PLAN_PENDING) for meter in world.meters] == [1] * RANKS
    world.advance(6)
    assert [meter.value(metrics.RANK_PLAN_PENDING) for meter in world.meters] == [0] * RANKS


def test_chain_of_two_revisions_is_adopted_one_after_the_other(world, plan):
    first = revise(world, plan, effective=8)
    second = publish(world.run_dir, retimed(first, effective=12, total_steps=14))
    point_to(world.run_dir, second.sha)
    orders = world.advance(13)
    adopted = {n: order.adopted.sha for n, order in enumerate(orders) if order.adopted}
    assert adopted == {8: first.sha, 12: second.sha}


def adopted(orders):
    return [order.adopted for order in orders if order.adopted]


def pending(world):
    """Return what is pending, which all ranks must agree on."""
    (held,) = {helm.pending and helm.pending[-1].sha for helm in world.helms}
    shown = {meter.value(metrics.RANK_PLAN_PENDING) or 0 for meter in world.meters}
    assert shown == {held is not None}
    return held


def blind(world, rank, folder):
    """Let a rank look for plans where there are none."""
    folder.mkdir()
    world.helms[rank]._seat = a_seat(folder, rank=rank, ranks=RANKS)


def test_sibling_replaces_a_pending_revision(world, plan):
    missed = revise(world, plan)
    point_to(world.run_dir, missed.sha)
    world.advance(6)
    sibling = revise(world, plan, effective=12, total_steps=18, supersedes=missed.sha)
    point_to(world.run_dir, sibling.sha, seq=2)
    assert adopted(world.advance(9)) == [sibling]


def test_second_revision_is_refused_until_the_first_is_adopted(world, plan):
    first = revise(world, plan)
    point_to(world.run_dir, first.sha)
    world.advance(6)
    second = revise(world, plan, effective=12, total_steps=18)
    point_to(world.run_dir, second.sha, seq=2)
    assert adopted(world.advance(9)) == [first]
    for rank in range(RANKS):
        assert world.refusals(rank) == {ControlRefusal.PLAN_CHAIN}


def test_sibling_of_a_missed_revision_is_adopted(world, plan, tmp_path):
    missed = revise(world, plan)
    blind(world, 2, tmp_path / "elsewhere")
    point_to(world.run_dir, missed.sha)
    assert adopted(world.advance(6)) == []
    for rank in range(RANKS):
        assert world.refusals(rank) == {ControlRefusal.PLAN_MISSING}
    world.helms[2]._seat = a_seat(world.run_dir, rank=2, ranks=RANKS)
    # The file is there for all now, and too late.
    assert adopted(world.advance(8)) == []
    assert {helm.plan.sha for helm in world.helms} == {plan.sha}
    assert world.refusals() == {ControlRefusal.PLAN_LATE}
    sibling = revise(world, plan, effective=18, total_steps=20, supersedes=missed.sha)
    point_to(world.run_dir, sibling.sha, seq=2)
    assert adopted(world.advance(5)) == [sibling]
    assert world.refusals() == set()


def test_plan_file_that_comes_after_its_pointer_is_found(world, plan):
    child = retimed(plan, effective=14, total_steps=16)
    point_to(world.run_dir, child.sha)
    world.advance(6)
    assert world.refusals(1) == {ControlRefusal.PLAN_MISSING}
    publish(world.run_dir, child)
    assert adopted(world.advance(9)) == [child]
    assert world.refusals(1) == set()
    # Messages and votes of all these tries but the last are gone from the store.
    assert len(world.helms[0]._gang.store.entries("votes")) <= RANKS


def test_sibling_that_one_rank_cannot_read_ends_what_was_pending(world, plan, tmp_path):
    first = revise(world, plan)
    point_to(world.run_dir, first.sha)
    world.advance(6)
    assert pending(world) == first.sha
    blind(world, 2, tmp_path / "elsewhere")
    sibling = revise(world, plan, effective=14, total_steps=18, supersedes=first.sha)
    point_to(world.run_dir, sibling.sha, seq=2)
    assert adopted(world.advance(8)) == []
    assert pending(world) is None


def test_plan_that_no_rank_can_read_leaves_what_is_pending(world, plan):
    first = revise(world, plan)
    point_to(world.run_dir, first.sha)
    world.advance(5)
    point_to(world.run_dir, "f" * 64, seq=2)
    assert adopted(world.advance(7)) == [first]


def test_document_that_names_the_plan_in_force_ends_what_is_pending(world, plan):
    first = revise(world, plan, effective=15, total_steps=20)
    second = publish(world.run_dir, retimed(first, effective=16, total_steps=18))
    point_to(world.run_dir, second.sha)
    world.advance(5)
    assert pending(world) == second.sha
    point_to(world.run_dir, first.sha, seq=2)
    world.advance(4)
    assert pending(world) == first.sha
    point_to(world.run_dir, plan.sha, seq=3)
    assert adopted(world.advance(9)) == []
    assert pending(world) is None


def test_sibling_that_comes_as_the_pending_revision_begins_is_refused(world, plan):
    first = revise(world, plan)
    point_to(world.run_dir, first.sha)
    world.advance(8)
    sibling = revise(world, plan, effective=14, total_steps=18, supersedes=first.sha)
    # Read at step 8, voted on at 9, counted at 11: first governs from 10 on.
    point_to(world.run_dir, sibling.sha, seq=2)
    assert adopted(world.advance(9)) == [first]
    assert world.refusals(1) == {ControlRefusal.PLAN_CHAIN}


def test_revision_that_a_restart_will_take_up_is_not_refused(tmp_path, plan):
    change = {"kind": "execution", "parent": plan.sha, "effective": 8}
    child = publish(tmp_path, plan.model_copy(update={**change, "execution": Execution(waves=2)}))
    world = World(tmp_path, plan, ahead=[child])
    point_to(tmp_path, child.sha)
    assert adopted(world.advance(9)) == []
    assert world.refusals() == set()
    assert pending(world) is None


def test_missing_parent_is_a_broken_chain(world, plan):
    parent = retimed(plan, effective=10, total_steps=16)
    child = publish(world.run_dir, retimed(parent, effective=12, total_steps=14))
    point_to(world.run_dir, child.sha)
    world.advance(5)
    assert world.refusals(1) == {ControlRefusal.PLAN_CHAIN}


def lower_the_peak(child):
    knots = [(0, "1/2"), (1, "9/10"), *child.anneals["learning_rate"][2:]]
    return child.model_copy(update={"anneals": {"learning_rate": knots}})


@pytest.mark.parametrize(
    ("refusal", "change"),
    [
        (ControlRefusal.PLAN_LATE, lambda child: retimed_at(child, 2)),
        (ControlRefusal.PLAN_PAST, lower_the_peak),
        (ControlRefusal.PLAN_CHAIN, lambda child: child.model_copy(update={"parent": "9" * 64})),
        (
            ControlRefusal.PLAN_EXECUTION,
            lambda child: child.model_copy(
                update={"kind": "execution", "execution": Execution(waves=2), "total_steps": 20}
            ),
        ),
    ],
)
def test_bad_revision_is_refused_by_all_and_training_goes_on(world, plan, refusal, change):
    child = retimed(plan, effective=10, total_steps=16)
    child = change(child)
    if refusal is ControlRefusal.PLAN_EXECUTION:
        child = child.model_copy(update={"anneals": plan.anneals})
    if refusal is ControlRefusal.PLAN_CHAIN:
        other = publish(world.run_dir, plan.model_copy(update={"seed": 5}))
        child = child.model_copy(update={"parent": other.sha})
    publish(world.run_dir, child)
    point_to(world.run_dir, child.sha)
    orders = world.advance(14)
    assert [order.adopted for order in orders] == [None] * 14
    for rank in range(RANKS):
        assert world.refusals(rank) == {refusal}


def retimed_at(child, effective):
    return child.model_copy(update={"effective": effective})


def test_damaged_plan_file_is_refused(world, plan):
    child = revise(world, plan)
    path = world.run_dir / plan_file(child.sha)
    path.write_bytes(path.read_bytes()[:-1])
    point_to(world.run_dir, child.sha)
    world.advance(5)
    assert world.refusals() == {ControlRefusal.PLAN_INVALID}


def test_garbage_is_refused_until_a_valid_document_comes(world, plan):
    point_to(world.run_dir, plan.sha, seq=5)
    world.advance(5)
    assert world.helms[1].accepted.ledger_head == HEAD
    write_control(world.run_dir, b'{"format":1')
    world.advance(2)
    assert world.refusals() == {ControlRefusal.UNREADABLE}
    point_to(world.run_dir, plan.sha, seq=5)
    world.advance(1)
    assert world.refusals() == set()


@pytest.mark.parametrize(
    ("refusal", "changes"),
    [
        (ControlRefusal.FOREIGN_RUN, {"run_uid": "another"}),
        (ControlRefusal.STALE, {"seq": 4}),
        (ControlRefusal.STALE, {"epoch": 1, "seq": 99}),
    ],
)
def test_foreign_or_older_document_is_refused(world, plan, refusal, changes):
    point_to(world.run_dir, plan.sha, seq=5)
    world.advance(5)
    point_to(world.run_dir, plan.sha, drain="stop", **{"seq": 6, **changes})
    orders = world.advance(5)
    assert all(order.drain is None for order in orders)
    assert world.refusals() == {refusal}


@pytest.mark.parametrize("mode", ["stop", "suspend", "restart"])
def test_drain_is_obeyed_by_all_at_one_step(world, plan, mode):
    world.advance(4)
    point_to(world.run_dir, plan.sha, drain=mode)
    orders = world.advance(ACT_AFTER_STEPS + 1)
    assert [order.drain for order in orders] == [None] * ACT_AFTER_STEPS + [mode]


def test_sigterm_on_one_rank_drains_all_at_one_step(world):
    world.advance(2)
    world.asked.add(2)
    orders = world.advance(ACT_AFTER_STEPS + 1)
    assert [order.drain for order in orders] == [None] * ACT_AFTER_STEPS + ["stop"]


def test_unchanged_file_is_read_once_and_a_young_one_waits(tmp_path, plan):
    file = ControlFile(a_seat(tmp_path))
    assert file.poll(now_s=0) is None
    document = point_to(tmp_path, plan.sha)
    assert file.poll(now_s=POLL_S / 2) is None
    assert file.poll(now_s=1) == document
    assert file.poll(now_s=2) is None


def test_document_of_an_older_controller_is_never_obeyed(tmp_path, plan):
    file = ControlFile(a_seat(tmp_path))
    point_to(tmp_path, plan.sha, epoch=1)
    with pytest.raises(ControlError, match="launched by epoch 2"):
        file.poll(now_s=0)


def test_steps_without_news_ask_the_store_nothing(world, plan):
    questions = []
    for helm in world.helms:
        entries = helm._gang.store.entries
        helm._gang.store.entries = lambda prefix, entries=entries: (
            questions.append(prefix) or entries(prefix)
        )
    world.advance(5)
    assert questions == []
    point_to(world.run_dir, plan.sha, drain="stop")
    world.advance(ACT_AFTER_STEPS + 1)
    assert questions
    asked = len(questions)
    world.advance(5)
    assert len(questions) == asked


def test_message_survives_its_text(tmp_path, plan):
    document = point_to(tmp_path, plan.sha, drain="suspend")
    assert document.run_uid == UID
    for message in (Message(12, document), Message(3, None)):
        assert read_message(message.encode()) == message
