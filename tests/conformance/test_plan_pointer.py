"""The control document: what is refused, what is adopted, and that training goes on."""

from contract.plan import MixtureStage
from contract.wire import ControlRefusal, Drain, Phase, plan_file
from tests.conformance.harness import lengthen_past, retimed
from tests.conformance.trainers import every_trainer, quick_trainer

FAR = 40_000
"""Steps of a plan whose end no test waits for."""


@every_trainer
def test_garbage_and_false_plans_are_refused_and_training_goes_on_until_a_drain(
    kind, make_run, launch
):
    run = make_run(kind, total_steps=FAR)
    plan = run.plan
    gang = launch(run)
    step = gang.await_step(3)[-1].step

    def refuse(reason: ControlRefusal, data: bytes) -> None:
        run.write_control(data)
        gang.await_refusal(reason)

    def point_at(sha: str, **changes: object) -> bytes:
        return run.point_to(sha, **changes).model_dump_json().encode()

    refuse(ControlRefusal.UNREADABLE, b"\x00not a document\xff")
    refuse(ControlRefusal.FOREIGN_RUN, point_at(plan.sha, run_uid="another"))
    refuse(ControlRefusal.STALE, point_at(plan.sha, epoch=0))
    refuse(ControlRefusal.PLAN_MISSING, point_at("f" * 64))

    broken = retimed(plan, effective=FAR // 2, total_steps=FAR - 100)
    run.publish(broken)
    (run.path / plan_file(broken.sha)).write_bytes(broken.encode()[:-2] + b" }")
    refuse(ControlRefusal.PLAN_INVALID, point_at(broken.sha))

    stranger = run.publish(plan.model_copy(update={"reason": "another genesis"}))
    refuse(ControlRefusal.PLAN_CHAIN, point_at(stranger.sha))
    changed = run.publish(lengthen_past(plan, FAR // 2))
    refuse(ControlRefusal.PLAN_PAST, point_at(changed.sha))
    late = run.publish(retimed(plan, effective=5, total_steps=FAR - 200))
    gang.await_step(8)
    refuse(ControlRefusal.PLAN_LATE, point_at(late.sha))

    run.point_to(plan.sha)
    gang.await_refusal_end()
    reached = gang.await_step(gang.run.steps()[-1].step + 3)
    assert reached[-1].step > step
    assert {record.plan_sha for record in reached} == {plan.sha}
    for reason in ("unreadable", "plan_past", "plan_late"):
        assert gang.stderr(0).count(reason) >= 1, reason

    run.point_to("f" * 64, drain="suspend")  # obeyed even beside a plan that is refused
    assert gang.await_end() == [40, 40], gang.describe()
    assert run.mark(run.steps()[-1].step + 1).exists()


@every_trainer
def test_valid_revision_is_adopted_live_at_its_step_by_all_ranks(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    effective = (gang.await_step(2)[-1].step + kind.lead_steps) // 2 * 2
    horizon = effective + 16
    revision = run.publish(retimed(run.plan, effective=effective, total_steps=horizon))
    run.point_to(revision.sha)
    gang.await_pending(rank=1)
    assert gang.await_end() == [0, 0], gang.describe()

    steps = run.steps()
    assert [record.step for record in steps] == list(range(horizon))
    for record in steps:
        held = run.plan if record.step < effective else revision
        assert record.plan_sha == held.sha, record.step
        rates = revision.values_at(record.step)["learning_rate"]
        assert record.lr == {group: rate.hex() for group, rate in rates.items()}
    assert "plan" in steps[effective].tags
    assert run.manifest(horizon).plans == [run.plan, revision]
    final = float.fromhex(steps[-1].lr["matrix"])
    peak = run.plan.values_at(3)["learning_rate"]["matrix"]
    assert abs(final / peak - 1 / 20) < 1e-6


@quick_trainer
def test_moved_mixture_feeds_the_new_parts_after_the_fork(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    effective = (gang.await_step(2)[-1].step + kind.lead_steps) // 2 * 2
    revision = retimed(run.plan, effective=effective, total_steps=effective + 10)
    stages = [
        *run.plan.mixture.stages,
        MixtureStage(start=effective, from_percent=50, parts={"docs": 32}),
    ]
    mixture = run.plan.mixture.model_copy(update={"stages": stages})
    revision = run.publish(revision.model_copy(update={"mixture": mixture}))
    run.point_to(revision.sha)
    assert gang.await_end() == [0, 0], gang.describe()
    # Of the last ten steps all tokens are docs; 2,048 tokens a block of two steps before.
    blocks = effective // 2
    cursors = run.manifest(effective + 10).cursors
    assert cursors == {"code": blocks * 20 * 64, "docs": blocks * 12 * 64 + 10 * 1_024}


@quick_trainer
def test_execution_revision_waits_for_a_restart(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(2)
    execution = run.plan.execution.model_copy(update={"waves": 2})
    revision = run.publish(
        run.plan.model_copy(
            update={
                "kind": "execution",
                "parent": run.plan.sha,
                "effective": FAR // 2,
                "execution": execution,
            }
        )
    )
    run.point_to(revision.sha)
    gang.await_refusal(ControlRefusal.PLAN_EXECUTION)


@quick_trainer
def test_older_document_cannot_take_a_newer_ones_place(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(1)
    run.seq = 9
    newer = run.point_to(run.plan.sha)
    gang.await_step(run.steps()[-1].step + 40)  # read by now
    older = newer.model_copy(update={"seq": 3, "drain": Drain(nonce="old", mode="stop")})
    run.write_control(older.model_dump_json().encode())
    gang.await_refusal(ControlRefusal.STALE)


@quick_trainer
def test_start_without_the_plans_file_runs_the_checkpoints_own_plan(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_verified(10)
    gang.kill()
    gang.await_end()
    deadlines = {**run.config.limits.deadlines_s, Phase.START: 8}
    run.config = run.config.model_copy(
        update={"limits": run.config.limits.model_copy(update={"deadlines_s": deadlines})}
    )
    again = launch(run, 2, environment={"STEERSMAN_PLAN_SHA": "e" * 64})
    assert again.await_step(12)[0].step >= 10
    assert {record.plan_sha for record in run.steps(2)} == {run.plan.sha}
