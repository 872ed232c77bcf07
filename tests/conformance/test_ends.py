"""How a gang leaves: asked to, refused at the start, or because something went wrong."""

import signal

import pytest

from contract.wire import (
    ENV_ATTEMPT,
    ENV_COORDINATOR,
    ENV_EPOCH,
    ENV_HIGHEST_STEP,
    ENV_PLAN_SHA,
    ENV_RANK,
    ENV_RANKS,
    ENV_RESTORE,
    ENV_RUN_DIR,
    ENV_RUN_UID,
    Phase,
    attempt_dir,
)
from tests.conformance.harness import PEAKS
from tests.conformance.trainers import every_trainer, quick_trainer

FAR = 40_000
CASCADE = {94, 134}
"""A rank that lost its peer says so, or its runtime aborts."""


@quick_trainer
def test_drain_saves_the_agreed_step_and_ends_40(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(12)
    run.point_to(run.plan.sha, drain="suspend")
    assert gang.await_end() == [40, 40], gang.describe()
    saved = run.checkpoint_steps()[-1]
    assert saved == run.steps()[-1].step + 1
    assert run.mark(saved).exists()
    assert all(gang.phases(rank)[-1].phase is Phase.DRAIN for rank in range(2))


@quick_trainer
@pytest.mark.parametrize(("mode", "code"), [("stop", 40), ("suspend", 40), ("restart", 42)])
def test_each_drain_mode_has_its_code(kind, make_run, launch, mode, code):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(3)
    run.point_to(run.plan.sha, drain=mode)
    assert gang.await_end() == [code, code], gang.describe()
    # A quick gang may pass a save of the cadence before it hears of the drain.
    assert run.checkpoint_steps()[-1] == run.steps()[-1].step + 1


@every_trainer
def test_sigterm_on_one_rank_drains_all(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(3)
    gang.signal(1, signal.SIGTERM)
    assert gang.await_end() == [40, 40], gang.describe()
    assert run.mark(run.steps()[-1].step + 1).exists()


@quick_trainer
def test_drained_gang_goes_on_where_it_left(kind, make_run, launch):
    run = make_run(kind, total_steps=30)
    gang = launch(run)
    gang.await_step(12)
    gang.signal(0, signal.SIGTERM)
    gang.await_end()
    first = run.steps()
    again = launch(run, 2)
    assert again.await_end() == [0, 0], again.describe()
    steps = [record.step for record in (*first, *run.steps(2))]
    assert steps == list(range(30))


@quick_trainer
def test_lost_peer_ends_the_others_at_once(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(3)
    gang.kill(1)
    codes = gang.await_end()
    assert codes[1] == 137
    assert codes[0] in CASCADE


@quick_trainer
def test_lost_rank_0_ends_the_others_at_once(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_step(3)
    gang.kill(0)
    codes = gang.await_end()
    assert codes[0] == 137
    assert codes[1] in CASCADE


@quick_trainer
def test_frozen_peer_is_found_by_the_watchdog_of_the_others(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    deadlines = {**run.config.limits.deadlines_s, Phase.STEP: 4}
    run.config = run.config.model_copy(
        update={"limits": run.config.limits.model_copy(update={"deadlines_s": deadlines})}
    )
    gang = launch(run)
    gang.await_step(3)
    gang.signal(1, signal.SIGSTOP)
    gang.await_exit(0)
    assert gang.processes[0].returncode == 124, gang.describe()
    assert "Thread" in gang.stacks(0)
    assert "step" in gang.detail(0).text
    assert gang.stacks(1) == ""


@quick_trainer
def test_rank_that_never_comes_is_found_in_rendezvous(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    deadlines = {**run.config.limits.deadlines_s, Phase.RENDEZVOUS: 2}
    run.config = run.config.model_copy(
        update={"limits": run.config.limits.model_copy(update={"deadlines_s": deadlines})}
    )
    gang = launch(run)
    gang.kill(1)
    gang.await_exit(0)
    assert gang.processes[0].returncode in {124, *CASCADE}
    assert Phase.RENDEZVOUS in [record.phase for record in gang.phases(0)]


NAMES = (
    ENV_ATTEMPT,
    ENV_COORDINATOR,
    ENV_EPOCH,
    ENV_HIGHEST_STEP,
    ENV_PLAN_SHA,
    ENV_RANK,
    ENV_RANKS,
    ENV_RESTORE,
    ENV_RUN_DIR,
    ENV_RUN_UID,
)


@every_trainer
def test_missing_environment_ends_2_naming_the_variable(kind, make_run, launch):
    gang = launch(make_run(kind), environment={ENV_RESTORE: ""})
    assert gang.await_end() == [2, 2], gang.describe()
    assert ENV_RESTORE in gang.stderr(0)


@quick_trainer
@pytest.mark.parametrize("name", NAMES)
def test_each_missing_variable_is_named(kind, make_run, launch, name):
    gang = launch(make_run(kind), environment={name: ""})
    assert gang.await_end() == [2, 2], gang.describe()
    assert name in gang.stderr(0)


@quick_trainer
@pytest.mark.parametrize(
    ("name", "value"),
    [
        (ENV_RESTORE, "maybe"),
        (ENV_RANKS, "3"),
        (ENV_ATTEMPT, "one"),
        (ENV_RUN_UID, "another"),
        (ENV_COORDINATOR, "nowhere"),
    ],
)
def test_bad_variable_ends_2_naming_it_or_the_config(kind, make_run, launch, name, value):
    run = make_run(kind)
    gang = launch(run, environment={name: value})
    assert gang.await_end() == [2, 2], gang.describe()
    words = (name, "config")
    assert any(word in gang.stderr(0) for word in words), gang.stderr(0)


@quick_trainer
def test_config_with_an_unknown_member_ends_2_naming_it(kind, make_run, launch):
    run = make_run(kind)
    gang = None
    data = run.config.encode()
    run.config = Raw(data.replace(b'"run_name"', b'"run_nam"'), run.config.mesh)
    gang = launch(run)
    assert gang.await_end() == [2, 2], gang.describe()
    assert "run_nam" in gang.stderr(0)


class Raw:
    """Bytes in the place of a config."""

    def __init__(self, data: bytes, mesh) -> None:
        self.data = data
        self.mesh = mesh

    def encode(self) -> bytes:
        return self.data


@every_trainer
def test_changed_text_ends_2_naming_the_file_before_any_step_needs_it(kind, make_run, launch):
    run = make_run(kind)
    path = run.path / run.sources["docs"].heldout
    path.write_bytes(b"X" + path.read_bytes()[1:])
    gang = launch(run)
    assert gang.await_end() == [2, 2], gang.describe()
    assert "data/docs/heldout.txt" in gang.detail(0).text
    assert run.steps() == []


@quick_trainer
@pytest.mark.parametrize("member", ["config_sha", "data_digest"])
def test_plan_of_another_config_ends_2(kind, make_run, launch, member):
    run = make_run(kind)
    run.replace_plan(**{member: "5" * 64})
    gang = launch(run)
    assert gang.await_end() == [2, 2], gang.describe()
    assert gang.detail(0).text


@every_trainer
def test_plan_with_a_changed_past_ends_84(kind, make_run, launch):
    run = make_run(kind)
    knots = [(0, "1/2"), *run.plan.anneals["learning_rate"][1:]]
    child = run.plan.model_copy(
        update={
            "kind": "mixture",
            "parent": run.plan.sha,
            "effective": 20,
            "anneals": {**run.plan.anneals, "learning_rate": knots},
        }
    )
    run.plan = run.publish(child)
    gang = launch(run)
    assert gang.await_end() == [84, 84], gang.describe()
    assert "learning_rate" in gang.detail(0).text


@quick_trainer
def test_plan_whose_parent_is_missing_ends_84(kind, make_run, launch):
    run = make_run(kind)
    child = run.plan.model_copy(update={"kind": "mixture", "parent": "a" * 64, "effective": 20})
    run.plan = run.publish(child)
    gang = launch(run)
    assert gang.await_end() == [84, 84], gang.describe()


@quick_trainer
def test_unreadable_text_ends_1_at_the_step_that_needs_it(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    stages = [
        {"start": 0, "from_percent": 0, "parts": {"code": 32}},
        {"start": 6, "from_percent": 0, "parts": {"docs": 32}},
    ]
    mixture = run.plan.mixture.model_validate({**run.plan.mixture.model_dump(), "stages": stages})
    run.replace_plan(mixture=mixture)
    run.point_to(run.plan.sha)
    (run.path / run.sources["docs"].train).unlink()
    gang = launch(run)
    codes = gang.await_end()
    assert 1 in codes, gang.describe()
    assert set(codes) <= {1, *CASCADE}
    detail = gang.detail(codes.index(1))
    assert detail.step == 6
    assert "data/docs/train.txt: No such file" in detail.text
    assert [record.step for record in run.steps()] == list(range(6))


@quick_trainer
def test_absurd_rate_ends_80_on_all_ranks_and_saves_no_such_step(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    absurd = {"matrix": "1" + "0" * 12, "other": "1" + "0" * 12}
    run.replace_plan(peaks={**PEAKS, "learning_rate": absurd})
    run.point_to(run.plan.sha)
    gang = launch(run)
    assert gang.await_end() == [80, 80], gang.describe()
    steps = run.steps()
    assert gang.detail(0).step == len(steps)
    assert all(step <= len(steps) for step in run.checkpoint_steps())


@quick_trainer
def test_claim_of_a_later_attempt_fences_the_writer(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    gang = launch(run)
    gang.await_verified(10)
    folder = run.path / attempt_dir(2) / "rank-0"
    folder.mkdir(parents=True)
    saved = run.checkpoint_steps()
    (folder / "claim.json").write_bytes(b"{}")
    codes = gang.await_end()
    assert codes[0] == 93, gang.describe()
    assert set(codes) <= {93, *CASCADE}
    assert len(run.checkpoint_steps()) <= len(saved) + 1
