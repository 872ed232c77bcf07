"""A revision taken up by a running gang, under fire: crashes, missed forks, damaged checkpoints.

After each, every step of the surviving line received what its plan's file says.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.config import Checkpointing
from contract.plan import Line, MixtureStage, Plan, check_child
from contract.wire import (
    ATTEMPTS_DIR,
    CHECKPOINTS_DIR,
    CONTROL_FILE,
    DATA_DIR,
    PLANS_DIR,
    QUARANTINED_SUFFIX,
    WORK_DIR,
    ControlRefusal,
    Restore,
    plan_file,
)
from tests.conformance.harness import Gang, Run, lengthen_past, retimed
from tests.conformance.surviving import check_survivors, list_attempts
from tests.conformance.test_restart import damage_array
from tests.conformance.trainers import every_trainer, quick_trainer, slow_trainer
from tests.waiting import wait_for

FAR = 40_000
"""Steps of a plan whose end no test waits for."""
KEEP_ALL = Checkpointing(every_steps=10, keep=100, permanent_every_steps=None)


def fork_ahead(gang: Gang) -> int:
    """Return a step to fork at that all ranks can follow and that is not one of the cadence.

    Half the lead is enough where no test has to act before the fork.
    """
    now = gang.run.steps(gang.attempt)[-1].step
    return max(now + gang.run.kind.lead_steps // 2, 20) // 10 * 10 + 14


def shorten(run: Run, effective: int, **changes: object) -> Plan:
    """Publish a revision that ends soon after its fork."""
    return run.publish(
        retimed(run.plan, effective=effective, total_steps=effective + 30, **changes)
    )


def adopt_ahead(run: Run, gang: Gang) -> Plan:
    """Publish and point to a revision; return it."""
    gang.await_step(2)
    revision = shorten(run, fork_ahead(gang))
    run.point_to(revision.sha)
    return revision


def kill(gang: Gang) -> None:
    gang.kill()
    gang.await_end()


def uncommit(run: Run, step: int, attempt: int = 1) -> None:
    """Leave what a kill leaves just before the rename that makes a checkpoint complete."""
    work = run.checkpoint(step).with_name(WORK_DIR)
    work.mkdir(exist_ok=True)
    run.mark(step).unlink(missing_ok=True)
    run.checkpoint(step).rename(work / f"a{attempt}-{step}")


def drop_after(run: Run, step: int) -> None:
    """Remove the checkpoints after `step`, as if the kill had come before them."""
    for later in run.checkpoint_steps():
        if later > step:
            shutil.rmtree(run.checkpoint(later))
            run.mark(later).unlink(missing_ok=True)


def resume(run: Run, launch: Callable[..., Gang], plan: Plan, attempt: int = 2) -> Gang:
    """Start the next attempt under `plan`."""
    run.plan = plan
    return launch(run, attempt, restore=Restore.REQUIRED)


# A crash around the fork.


@quick_trainer
def test_gang_killed_before_the_fork_adopts_by_its_restart(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(2)
    revision = shorten(run, fork_ahead(gang) + 100)
    run.point_to(revision.sha)
    gang.await_pending(rank=1)
    gang.await_verified(10)
    kill(gang)
    assert run.steps()[-1].step < revision.effective

    again = resume(run, launch, revision)
    assert again.await_end() == [0, 0], again.describe()
    check_survivors(run, revision)
    assert run.steps(2)[0].step < revision.effective
    assert "save" in run.steps(2)[revision.effective - run.steps(2)[0].step].tags


@quick_trainer
@pytest.mark.parametrize("is_committed", [False, True])
def test_gang_killed_at_the_fork_goes_on_with_the_same_series(
    kind, make_run, launch, is_committed: bool
):
    run = make_run(kind, total_steps=FAR, checkpointing=KEEP_ALL)
    gang = launch(run)
    revision = adopt_ahead(run, gang)
    fork = revision.effective
    gang.await_verified(fork)
    kill(gang)
    drop_after(run, fork)
    assert run.manifest(fork).plans == [revision_parent(run, revision), revision]
    if not is_committed:
        uncommit(run, fork)

    again = resume(run, launch, revision)
    assert again.await_end() == [0, 0], again.describe()
    check_survivors(run, revision)
    assert run.steps(2)[0].step == (fork if is_committed else fork - 4)
    assert fork in run.verified_steps()
    assert not list(run.checkpoint(fork).with_name(WORK_DIR).iterdir())


def revision_parent(run: Run, revision: Plan) -> Plan:
    assert run.plan.sha == revision.parent
    return run.plan


@quick_trainer
def test_gang_killed_after_the_fork_goes_on_with_the_same_series(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    revision = adopt_ahead(run, gang)
    gang.await_verified(revision.effective + 1)
    kill(gang)
    again = resume(run, launch, revision)
    assert again.await_end() == [0, 0], again.describe()
    check_survivors(run, revision)
    assert run.steps(2)[0].step > revision.effective


@slow_trainer
def test_gang_of_a_slow_trainer_killed_before_and_at_the_fork_goes_on_with_the_same_series(
    kind, make_run, launch
):
    run = make_run(kind, total_steps=FAR, checkpointing=KEEP_ALL)
    gang = launch(run)
    gang.await_step(2)
    revision = shorten(run, fork_ahead(gang) + 20)
    run.point_to(revision.sha)
    fork = revision.effective
    gang.await_pending(rank=1)
    gang.await_verified(10)
    kill(gang)
    assert run.steps()[-1].step < fork

    second = resume(run, launch, revision)
    second.await_verified(fork)
    kill(second)
    drop_after(run, fork)
    uncommit(run, fork, attempt=2)

    third = resume(run, launch, revision, attempt=3)
    assert third.await_end() == [0, 0], third.describe()
    check_survivors(run, revision)
    assert run.steps(3)[0].step == fork - 4
    assert fork in run.verified_steps()


@every_trainer
def test_damaged_fork_checkpoint_gives_way_to_the_older_one(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR, checkpointing=KEEP_ALL)
    gang = launch(run)
    revision = adopt_ahead(run, gang)
    fork = revision.effective
    gang.await_verified(fork)
    kill(gang)
    drop_after(run, fork)
    damage_array(run, fork)

    again = resume(run, launch, revision)
    assert again.await_end() == [0, 0], again.describe()
    check_survivors(run, revision)
    assert run.steps(2)[0].step == fork - 4
    assert fork in run.verified_steps()
    aside = run.checkpoint(fork).with_name(".quarantine")
    assert (aside / f"{fork}-a2{QUARANTINED_SUFFIX}").exists()


# What is saved at the fork.


@quick_trainer
def test_fork_at_a_step_that_was_just_saved_is_not_saved_again(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR, checkpointing=KEEP_ALL)
    gang = launch(run)
    gang.await_step(2)
    fork = fork_ahead(gang) // 10 * 10
    revision = run.publish(retimed(run.plan, effective=fork, total_steps=fork + 15))
    run.point_to(revision.sha)
    assert gang.await_end() == [0, 0], gang.describe()
    assert run.manifest(fork).plans == [run.plan]
    # Every third of these steps is one of the evaluations' cadence, too.
    assert set(run.steps()[fork].tags) - {"eval"} == {"plan", "save"}
    assert run.checkpoint_steps() == [*range(10, fork + 11, 10), fork + 15]
    assert run.verified_steps() == run.checkpoint_steps()
    assert gang.stderr(0).count("saving") == 0
    check_survivors(run, revision)


# Missed, superseded, refused.


@every_trainer
def test_missed_revision_leaves_all_at_the_parent_and_its_sibling_is_adopted(
    kind, make_run, launch
):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(2)
    fork = fork_ahead(gang) + kind.lead_steps // 2
    missed = retimed(run.plan, effective=fork, total_steps=FAR - 100)
    run.point_to(missed.sha)  # its file is late
    for rank in (0, 1):
        gang.await_refusal(ControlRefusal.PLAN_MISSING, rank)
    gang.await_step(missed.effective)
    run.publish(missed)
    for rank in (0, 1):
        gang.await_refusal(ControlRefusal.PLAN_LATE, rank)

    sibling = shorten(run, fork_ahead(gang), supersedes=missed.sha)
    run.point_to(sibling.sha)
    for rank in (0, 1):
        gang.await_refusal_end(rank)
    assert gang.await_end() == [0, 0], gang.describe()
    records = check_survivors(run, sibling)
    assert {r.plan_sha for r in records if r.step < sibling.effective} == {run.plan.sha}
    # One attempt throughout, and no step compiled anew for the revision.
    assert len(list_attempts(run)) == 1
    assert {record.step for record in records if "compile" in record.tags} <= {0}


def mirror(run: Run, place: Path) -> Path:
    """Make a folder where all of the run is seen but plans that are published from now on."""
    place.mkdir()
    for name in (ATTEMPTS_DIR, CHECKPOINTS_DIR, DATA_DIR, CONTROL_FILE):
        if name != CONTROL_FILE:
            (run.path / name).mkdir(exist_ok=True)
        (place / name).symlink_to(run.path / name)
    shutil.copytree(run.path / PLANS_DIR, place / PLANS_DIR)
    return place


@quick_trainer
def test_revision_that_one_rank_cannot_read_is_adopted_by_none(kind, make_run, launch, tmp_path):
    run = make_run(kind, total_steps=FAR)
    apart = mirror(run, tmp_path / "apart")
    gang = launch(run, places={1: apart})
    gang.await_step(2)
    fork = fork_ahead(gang) + 60
    missed = run.publish(retimed(run.plan, effective=fork, total_steps=FAR - 100))
    run.point_to(missed.sha)
    gang.await_pending(rank=0)
    gang.await_refusal(ControlRefusal.PLAN_MISSING, rank=1)
    gang.await_step(missed.effective)
    gang.await_refusal(ControlRefusal.PLAN_LATE, rank=0)

    sibling = shorten(run, fork_ahead(gang), supersedes=missed.sha)
    for plan in (missed, sibling):
        shutil.copy(run.path / plan_file(plan.sha), apart / plan_file(plan.sha))
    run.point_to(sibling.sha)
    assert gang.await_end() == [0, 0], gang.describe()
    records = check_survivors(run, sibling)
    assert {r.plan_sha for r in records if r.step < sibling.effective} == {run.plan.sha}


@quick_trainer
def test_plan_file_that_comes_after_its_pointer_is_adopted_in_time(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(2)
    fork = fork_ahead(gang) + 100
    revision = retimed(run.plan, effective=fork, total_steps=fork + 10)
    run.point_to(revision.sha)
    gang.await_refusal(ControlRefusal.PLAN_MISSING, rank=1)
    run.publish(revision)
    gang.await_pending(rank=1)
    assert gang.refusals(1) == set()
    assert gang.await_end() == [0, 0], gang.describe()
    check_survivors(run, revision)


@quick_trainer
def test_second_revision_waits_and_a_sibling_takes_the_pending_ones_place(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(2)
    fork = fork_ahead(gang) + 150
    first = run.publish(retimed(run.plan, effective=fork, total_steps=FAR - 100))
    run.point_to(first.sha)
    gang.await_pending(rank=1)
    second = run.publish(retimed(run.plan, effective=fork + 6, total_steps=FAR - 200))
    run.point_to(second.sha)
    for rank in (0, 1):
        gang.await_refusal(ControlRefusal.PLAN_CHAIN, rank)
        gang.await_pending(rank)

    sibling = shorten(run, fork + 10, supersedes=first.sha)
    run.point_to(sibling.sha)
    gang.await_refusal_end(rank=1)
    assert gang.run.steps()[-1].step < fork
    assert gang.await_end() == [0, 0], gang.describe()
    check_survivors(run, sibling)


@quick_trainer
def test_pending_revision_survives_a_second_one_that_is_refused(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(2)
    first = shorten(run, fork_ahead(gang) + 100)
    run.point_to(first.sha)
    for rank in (0, 1):
        gang.await_pending(rank)
    second = run.publish(retimed(run.plan, effective=first.effective + 6, total_steps=FAR - 200))
    run.point_to(second.sha)
    assert gang.await_end() == [0, 0], gang.describe()
    check_survivors(run, first)


# Restarts whose papers disagree.


@quick_trainer
def test_document_older_than_the_checkpoint_does_not_bring_the_parent_back(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    parent = run.plan
    gang = launch(run)
    revision = adopt_ahead(run, gang)
    gang.await_verified(revision.effective)
    kill(gang)
    run.seq = 0
    run.point_to(parent.sha)

    again = resume(run, launch, revision)
    again.await_step(revision.effective + 20)
    assert again.refusals(1) == set()
    assert again.await_end() == [0, 0], again.describe()
    check_survivors(run, revision)
    assert {record.plan_sha for record in run.steps(2)} == {revision.sha}


@quick_trainer
def test_parents_checkpoint_past_the_fork_is_not_started_from(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR, checkpointing=KEEP_ALL)
    gang = launch(run)
    gang.await_verified(30)
    kill(gang)
    newest = run.checkpoint_steps()[-1]
    # One step past the fork: trained alike under both plans, and still not the revision's.
    revision = shorten(run, newest - 1)
    run.point_to(revision.sha)

    again = resume(run, launch, revision)
    assert again.await_end() == [0, 0], again.describe()
    check_survivors(run, revision)
    assert run.steps(2)[0].step == newest - 10
    assert run.manifest(newest).plans[-1] == revision
    assert newest in run.verified_steps()


@quick_trainer
def test_new_line_from_before_the_fork_leaves_the_abandoned_future_alone(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR, checkpointing=KEEP_ALL)
    gang = launch(run)
    revision = adopt_ahead(run, gang)
    gang.await_verified(revision.effective + 1)
    kill(gang)
    abandoned = run.checkpoint_steps()
    leave_at = revision.effective - 14
    changes = {
        "kind": "line",
        "parent": revision.sha,
        "effective": leave_at,
        "lineage": [*revision.lineage, Line(name="b", fork_step=leave_at, offset_blocks=0)],
    }
    line = run.publish(revision.model_copy(update=changes))
    assert check_child(revision, line) == []
    run.point_to(line.sha)

    second = resume(run, launch, line)
    wait_for(
        lambda: set(run.verified_steps("b")) & set(abandoned),
        kind.patience_s,
        "a save on line b at a step that line main has saved, too",
    )
    kill(second)
    assert run.steps(2)[0].step == leave_at
    assert run.checkpoint_steps() == abandoned
    newest = run.checkpoint_steps("b")[-1]
    third = resume(run, launch, line, attempt=3)
    assert third.await_end() == [0, 0], third.describe()
    assert run.steps(3)[0].step == newest
    assert {record.line for record in (*run.steps(2), *run.steps(3))} == {"b"}
    check_survivors(run, line)
    # No data was skipped and the schedule is the same: so are the losses.
    losses = {record.step: record.loss for record in run.steps(1)}
    for record in run.steps(2):
        assert record.loss == losses.get(record.step, record.loss)


@every_trainer
def test_execution_changes_at_a_restart_and_a_fall_back_below_it_restarts_there(
    kind, make_run, launch
):
    run = make_run(kind, total_steps=FAR, checkpointing=KEEP_ALL)
    parent = run.plan
    gang = launch(run)
    gang.await_verified(20)
    kill(gang)
    fork = run.checkpoint_steps()[-1]
    execution = parent.execution.model_copy(update={"receiver_capacity_percent": 130})
    changes = {"kind": "execution", "parent": parent.sha, "effective": fork}
    revision = run.publish(parent.model_copy(update={**changes, "execution": execution}))
    run.point_to(revision.sha)
    second = resume(run, launch, revision)
    second.await_verified(fork + 10)
    kill(second)
    assert run.steps(2)[0].step == fork
    assert {record.execution_sha for record in run.steps(2)} == {revision.execution_sha}

    for step in run.checkpoint_steps():
        if step >= fork:
            damage_array(run, step)
    third = resume(run, launch, revision, attempt=3)
    assert third.await_end() == [42, 42], third.describe()
    replayed = run.steps(3)
    assert [record.step for record in replayed] == list(range(fork - 10, fork))
    assert {record.plan_sha for record in replayed} == {parent.sha}
    assert run.manifest(fork).plans == [parent]
    assert fork in run.verified_steps()

    last = resume(run, launch, revision, attempt=4)
    last.await_step(fork + 5)
    kill(last)
    assert run.steps(4)[0].step == fork
    check_survivors(run, revision)


# Each way to be refused.


def move_knots(plan: Plan, anneal: str, *knots: tuple[int, str]) -> Plan:
    """Return a revision with knots of one anneal put in place of those at or after the first."""
    revision = retimed(plan, effective=FAR // 2, total_steps=FAR - 100)
    old = revision.anneals[anneal]
    kept = [knot for knot in old if knot[0] < knots[0][0]]
    rest = [knot for knot in old if knot[0] > knots[-1][0]]
    return revision.model_copy(
        update={"anneals": {**revision.anneals, anneal: [*kept, *knots, *rest]}}
    )


def before_fork(plan: Plan, anneal: str) -> tuple[int, str]:
    """Return a knot just before the fork that changes nothing yet."""
    step = FAR // 2 - 1
    value = plan.fraction_at(anneal, step)
    return step, f"{value.numerator}/{value.denominator}"


def change_mixture(plan: Plan) -> Plan:
    revision = retimed(plan, effective=FAR // 2, total_steps=FAR - 100)
    stages = [MixtureStage(start=0, from_percent=0, parts={"code": 21, "docs": 11})]
    mixture = plan.mixture.model_copy(update={"stages": stages})
    return revision.model_copy(update={"mixture": mixture})


def change_context(plan: Plan) -> Plan:
    revision = retimed(plan, effective=FAR // 2, total_steps=FAR - 100)
    context = [plan.context[0].model_copy(update={"length": 32})]
    return revision.model_copy(update={"context": context})


def as_kind(plan: Plan, kind: str, **changes: object) -> Plan:
    common = {"kind": kind, "parent": plan.sha, "effective": FAR // 2}
    return plan.model_copy(update={**common, **changes})


def change_schedule_with_mixture(plan: Plan) -> Plan:
    old = plan.anneals["learning_rate"]
    knots = [*old[:-1], before_fork(plan, "learning_rate"), (FAR // 2, "1/4"), old[-1]]
    return as_kind(plan, "mixture", anneals={**plan.anneals, "learning_rate": knots})


PAST, CHAIN = ControlRefusal.PLAN_PAST, ControlRefusal.PLAN_CHAIN
FALSE_PLANS: dict[str, tuple[ControlRefusal, Callable[[Plan], Plan]]] = {
    "learning_rate changes before": (PAST, lambda plan: lengthen_past(plan, FAR // 2)),
    "weight_decay changes before": (PAST, lambda p: move_knots(p, "weight_decay", (9, "1/2"))),
    "mixture changes before": (PAST, change_mixture),
    "context changes before": (PAST, change_context),
    "learning_rate jumps at": (
        PAST,
        lambda plan: move_knots(
            plan, "learning_rate", before_fork(plan, "learning_rate"), (FAR // 2, "1/1")
        ),
    ),
    "weight_decay jumps at": (
        PAST,
        lambda plan: move_knots(
            plan, "weight_decay", before_fork(plan, "weight_decay"), (FAR // 2, "1/2")
        ),
    ),
    "learning_rate rises after": (
        PAST,
        lambda plan: move_knots(
            plan, "learning_rate", (FAR // 2 + 10, "1/20"), (FAR // 2 + 20, "1/4")
        ),
    ),
    "learning_rate ends at another fraction": (
        PAST,
        lambda plan: move_knots(plan, "learning_rate", (FAR - 101, "1/10")),
    ),
    "before the end of the warm-up": (
        PAST,
        lambda plan: retimed(plan, effective=2, total_steps=FAR - 100),
    ),
    "peaks changed": (
        PAST,
        lambda plan: as_kind(
            plan, "horizon", peaks={**plan.peaks, "weight_decay": {"matrix": "0.2", "other": "0"}}
        ),
    ),
    "seed changed": (PAST, lambda plan: as_kind(plan, "mixture", seed=2)),
    "config_sha changed": (PAST, lambda plan: as_kind(plan, "mixture", config_sha="1" * 64)),
    "anneals changed in a revision of kind mixture": (PAST, change_schedule_with_mixture),
}
"""What check_child says -> how a trainer refuses it, and a plan that violates exactly it."""


@every_trainer
def test_each_false_revision_is_refused_by_all_ranks_and_training_goes_on(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    plan = run.plan
    gang = launch(run)
    gang.await_step(3)
    for words, (refusal, falsify) in FALSE_PLANS.items():
        child = run.publish(falsify(plan))
        (problem,) = check_child(plan, child)
        assert words in problem
        point_and_await_refusal(run, gang, child, refusal, words)
    unpublished = plan.model_copy(update={"reason": "another genesis"})
    orphan = run.publish(retimed(unpublished, effective=FAR // 2, total_steps=FAR - 100))
    point_and_await_refusal(run, gang, orphan, CHAIN, str(orphan.parent)[:12])
    late = run.publish(retimed(plan, effective=4, total_steps=FAR - 100))
    gang.await_step(8)
    point_and_await_refusal(run, gang, late, ControlRefusal.PLAN_LATE, "effective at 4")
    execution = plan.execution.model_copy(update={"waves": 2})
    change = run.publish(as_kind(plan, "execution", execution=execution))
    point_and_await_refusal(run, gang, change, ControlRefusal.PLAN_EXECUTION, "kind execution")
    reached = gang.await_step(run.steps()[-1].step + 3)
    assert {record.plan_sha for record in reached} == {plan.sha}


def point_and_await_refusal(
    run: Run, gang: Gang, child: Plan, refusal: ControlRefusal, words: str
) -> None:
    """Point to a false plan until both ranks refuse it, then back."""
    run.point_to(child.sha)
    for rank in (0, 1):
        gang.await_refusal(refusal, rank)
        assert words in gang.stderr(rank), words
    run.point_to(run.plan.sha)
    for rank in (0, 1):
        gang.await_refusal_end(rank)
