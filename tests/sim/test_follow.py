"""What a simulated gang makes of a revision: taken up, missed, refused, or left to a restart."""

from contract.plan import Plan
from contract.wire import ControlDocument, LedgerHead
from controller.core.proposal import Change, WantedStage
from controller.core.revise import revise
from controller.core.snapshot import GangView
from controller.simulate.chaos.campaign import new_random
from controller.simulate.chaos.life import Life
from controller.simulate.scenario import mixed_plan, sim_policy
from controller.simulate.world import World

STEPS = 60
STEP_MS = 10_000


def a_gang(steps=17.5):
    """Return a world whose gang did so many steps, and the ports of a controller at rest."""
    world = World(policy=sim_policy(), random=new_random(1))
    life = Life(world, mixed_plan(STEPS))
    life.run(100_000)
    begin_ms = world.gang.since_ms - world.gang.base * STEP_MS
    world.agenda.run_until(begin_ms + round(steps * STEP_MS))
    return world, world.ports()


def a_child(parent: Plan, effective: int, total: int = 50, **changes) -> Plan:
    change = Change(kind="horizon", total_steps=total)
    child = revise(parent, change, effective, author="owner", reason="", midtrain_steps=0)
    return child.model_copy(update=changes)


def publish(world, ports, plan, *, with_file=True):
    """Name a plan in the control document, and wait until the ranks read it."""
    if with_file:
        ports.publisher.publish_plan(plan)
    head = LedgerHead(seq=1, hash="0" * 64)
    seq = world.control.seq + 1
    document = ControlDocument(
        run_uid="sim",
        epoch=world.book.epoch,
        seq=seq,
        plan_sha=plan.sha,
        drain=None,
        ledger_head=head,
    )
    ports.publisher.publish_control(document)
    world.agenda.run_until(world.agenda.now_ms + 300)


def said(world, ports):
    """Return what rank 0 exports of plans: in force, pending, refused."""
    reading = ports.telemetry.read(ports.fleet.observe())[0].value
    return reading.plan_sha, reading.plan_pending, reading.control_refused


def go_to(world, step):
    """Let the gang go on to a step."""
    while (world.gang.completed() or 0) < step:
        world.agenda.run_until(world.agenda.now_ms + 1_000)


def test_revision_ahead_is_pending_and_then_governs_from_its_step_with_a_save_there():
    world, ports = a_gang()
    genesis = world.gang.plan
    child = a_child(genesis, 26)
    publish(world, ports, child)
    assert said(world, ports) == (genesis.sha, True, None)
    go_to(world, 35)
    assert said(world, ports) == (child.sha, False, None)
    world.gang.log_now()
    ran = [(s.first, s.end, s.plan_sha) for s in world.log.stretches]
    assert ran == [(0, 26, genesis.sha), (26, 35, child.sha)]
    assert [(c.step, c.plan_sha == child.sha) for c in world.shelf.checkpoints][-2:] == [
        (26, True),
        (30, True),
    ]
    go_to(world, 50)
    assert world.gang.completed() == child.total_steps


def test_revision_that_is_read_too_late_is_refused_and_its_sibling_taken_up():
    world, ports = a_gang()
    genesis = world.gang.plan
    missed = a_child(genesis, 18)
    publish(world, ports, missed)
    assert said(world, ports) == (genesis.sha, False, "plan_late")
    sibling = a_child(genesis, 24, supersedes=missed.sha)
    publish(world, ports, sibling)
    go_to(world, 25)
    assert said(world, ports) == (sibling.sha, False, None)


def test_boundary_that_is_not_unanimous_keeps_the_parent():
    world, ports = a_gang()
    genesis = world.gang.plan
    world.is_split = True
    publish(world, ports, a_child(genesis, 22))
    go_to(world, 24)
    assert said(world, ports) == (genesis.sha, False, "plan_late")


def test_plan_without_a_file_is_missing_until_the_file_is_there():
    world, ports = a_gang()
    genesis = world.gang.plan
    child = a_child(genesis, 24)
    publish(world, ports, child, with_file=False)
    assert said(world, ports) == (genesis.sha, False, "plan_missing")
    ports.publisher.publish_plan(child)
    world.agenda.run_until(world.agenda.now_ms + 300)
    assert said(world, ports) == (genesis.sha, True, None)


def test_stranger_and_execution_are_refused():
    world, ports = a_gang()
    genesis = world.gang.plan
    stranger = mixed_plan(STEPS + 1)
    publish(world, ports, a_child(stranger, 24), with_file=True)
    assert said(world, ports)[2] == "plan_missing"
    ports.publisher.publish_plan(stranger)
    world.agenda.run_until(world.agenda.now_ms + 300)
    assert said(world, ports)[2] == "plan_chain"
    publish(world, ports, an_execution(genesis, 24))
    assert said(world, ports) == (genesis.sha, False, "plan_execution")


def an_execution(parent, effective):
    other = parent.execution.model_copy(update={"waves": 4})
    change = Change(kind="execution", execution=other)
    return revise(parent, change, effective, author="owner", reason="", midtrain_steps=0)


def test_execution_waits_for_its_step_and_the_gang_leaves_there_for_a_restart():
    world, ports = a_gang()
    genesis = world.gang.plan
    child = an_execution(genesis, 16)
    ports.publisher.publish_plan(child)
    gang = world.gang
    gang.kill(gang.ranks[0])
    world.agenda.run_until(world.agenda.now_ms + 10_000)
    order = gang.order.model_copy(update={"attempt": 2, "plan_sha": child.sha})
    ports.fleet.launch(order, epoch=2)
    world.agenda.run_until(world.agenda.now_ms + 60_000)
    assert world.gang.first == 10
    assert world.gang.plan_sha == genesis.sha
    world.agenda.run_until(world.agenda.now_ms + 60_000)
    assert {rank.end.code for rank in world.gang.ranks} == {42}
    assert (world.shelf.checkpoints[-1].step, world.shelf.checkpoints[-1].plan_sha) == (
        16,
        genesis.sha,
    )


def test_mixture_is_taken_up_like_a_horizon():
    world, ports = a_gang()
    stages = [WantedStage(from_percent=0, parts={"code": 30, "text": 2})]
    change = Change(kind="mixture", stages=stages)
    child = revise(world.gang.plan, change, 24, author="owner", reason="", midtrain_steps=0)
    publish(world, ports, child)
    go_to(world, 25)
    assert said(world, ports)[0] == child.sha


def test_change_of_pace_leaves_what_was_completed_and_counts_on_at_the_new_one():
    world, _ = a_gang(15.5)
    now_ms = world.agenda.now_ms
    world.change_pace(20_000)
    world.agenda.run_until(now_ms + 9_000)
    assert world.gang.completed() == 15
    world.agenda.run_until(now_ms + 11_000)
    assert world.gang.completed() == 16
    world.change_pace(1_000)
    world.agenda.run_until(world.agenda.now_ms + 10_000)
    assert world.gang.completed() == 26
    gang = world.gang
    gang.freeze(gang.ranks[0])
    world.change_pace(60_000)
    assert gang.completed() == 26


def a_pace(world, ports, since_step=0):
    gang = ports.fleet.observe()
    assert isinstance(gang, GangView)
    return ports.progress.read(gang, "main", ports.clock.now(), since_step).pace


def test_pace_tells_what_the_world_did():
    world, ports = a_gang(15.05)
    pace = a_pace(world, ports)
    assert (pace.until_step, pace.trained_ms, pace.clean_steps) == (15, 150_000, 10)
    assert abs(pace.step_us - 10_000_000) <= 30_000
    # Claims within 0.2 s, 22 s of phases, one step.
    assert 32_000 < pace.start_ms <= 32_200
    assert a_pace(world, ports, 12).clean_steps == 3
    world.change_pace(15_000)
    go_to(world, 36)
    pace = a_pace(world, ports)
    assert pace.changed_step == 15
    assert abs(pace.step_us - 15_000_000) <= 45_000
    assert pace.trained_ms == 15 * 10_000 + 21 * 15_000


def test_outage_is_the_time_from_the_last_new_step_to_the_next():
    world, ports = a_gang(15.5)
    a_pace(world, ports)
    gang = world.gang
    gang.kill(gang.ranks[0])
    world.agenda.run_until(world.agenda.now_ms + 100_000)
    ports.fleet.launch(gang.order.model_copy(update={"attempt": 2}), epoch=2)
    go_to(world, 17)
    (outage,) = a_pace(world, ports).outages
    assert outage.attempt == 1
    # 5 s into the step that died, 100 s of rest, 22 s of start, 5 replayed steps.
    assert 170_000 < outage.lost_ms < 180_000
    assert outage.trained_ms == 150_000
