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

    def __init__(self, run_dir, plan):
        self.run_dir = run_dir
        self.asked = set()
        self.meters = [Meter() for _ in range(RANKS)]
        self.now_s = 0.0
        self.helms = []
        for gang, meter in zip(some_gang(RANKS), self.meters, strict=True):
            seat = a_seat(run_dir, rank=gang.rank, ranks=RANKS)
            rank = gang.rank
            helm = Helm(seat, gang, [plan], meter, lambda rank=rank: rank in self.asked)
            # The file is looked at five times a second of this world, one second a step.
            poll = helm._file.poll
            helm._file.poll = lambda poll=poll: poll(now_s=self.now_s)
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


def test_sibling_replaces_a_pending_revision(world, plan):
    point_to(world.run_dir, revise(world, plan).sha)
    world.advance(6)
    sibling = revise(world, plan, effective=12, total_steps=18)
    point_to(world.run_dir, sibling.sha, seq=2)
    orders = world.advance(9)
    assert [order.adopted for order in orders if order.adopted] == [sibling]


def test_one_rank_without_the_plan_file_keeps_all_at_the_parent(world, plan, tmp_path):
    child = revise(world, plan)
    blind = tmp_path / "elsewhere"
    blind.mkdir()
    world.helms[2]._seat = a_seat(blind, rank=2, ranks=RANKS)
    point_to(world.run_dir, child.sha)
    world.advance(14)
    assert {helm.plan.sha for helm in world.helms} == {plan.sha}
    for rank in range(RANKS):
        assert world.refusals(rank) == {ControlRefusal.PLAN_MISSING}


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
