"""A whole rank in this process: from an empty run directory to the horizon."""

import dataclasses
import json

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from contract import metrics
from contract.checkpoint import read_manifest
from contract.config import Evaluation, TrainerConfig
from contract.exits import Exit
from contract.model import Execution
from contract.plan import Plan
from contract.schedule import round_binary32
from contract.wire import (
    EVALS_FILE,
    MANIFEST_FILE,
    PHASES_FILE,
    STEPS_FILE,
    EvalRecord,
    Phase,
    Restore,
    StepRecord,
)
from tests.trainer.builders import (
    HEAD,
    a_config,
    a_context,
    a_plan,
    a_seat,
    point_to,
    publish,
    retimed,
)
from trainer.compile_cache import ENV_CACHE_DIR
from trainer.ends import End
from trainer.phases import PhaseClock
from trainer.start import Post, get_ready, hold_execution
from trainer.store import list_places
from trainer.telemetry import Meter, watch_clock
from trainer.train import is_at_fork, train

TOTAL = 12


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return one folder of compiled programs for all runs here; they differ in no program.

    Gives other tests back the settings of JAX that a rank changes for its process.
    """
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    held = {name: getattr(jax.config, name) for name in names}
    compilation_cache.reset_cache()
    yield tmp_path_factory.mktemp("programs")
    for name, value in held.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def make_scene(tmp_path, programs, monkeypatch):
    monkeypatch.setenv(ENV_CACHE_DIR, str(programs))

    def make(name="run"):
        (tmp_path / name).mkdir()
        return Scene(tmp_path / name)

    return make


class Scene:
    """A run directory with a plan of two context stages."""

    def __init__(self, run_dir):
        self.run_dir = run_dir
        evaluation = Evaluation(every_steps=5, sequences=16, final_sequences=32)
        self.config: TrainerConfig = a_config(run_dir, evaluation=evaluation)
        self.plan = publish(run_dir, a_plan(self.config, TOTAL, ((0, 16), (6, 32))))

    def start(self, *, attempt=1, restore=Restore.NONE, is_asked=lambda: False, **changes):
        seat = a_seat(self.run_dir, attempt=attempt, restore=restore)
        seat = dataclasses.replace(seat, **{"plan_sha": self.plan.sha, **changes})
        clock = PhaseClock(
            seat.rank_dir / PHASES_FILE, self.config.limits.deadlines_s, step_factor=10
        )
        meter = Meter()
        watch_clock(meter, clock, is_first=True)
        return get_ready(Post(seat, self.config, clock, meter), is_asked)

    def steps(self, attempt=1):
        path = a_seat(self.run_dir, attempt=attempt).attempt_dir / STEPS_FILE
        return [StepRecord.model_validate_json(line) for line in path.read_text().splitlines()]

    def phases(self, attempt=1):
        path = a_seat(self.run_dir, attempt=attempt).rank_dir / PHASES_FILE
        return [json.loads(line)["phase"] for line in path.read_text().splitlines()]

    def verified_steps(self):
        places = list_places(self.run_dir, self.plan.lineage)
        return [place.step for place in places if place.is_verified]


@pytest.mark.slow
def test_run_of_two_contexts_and_a_moved_boundary_traces_once_a_context(make_scene):
    scene = make_scene()
    child = retimed(
        scene.plan, effective=5, total_steps=TOTAL, context=a_context([(0, 16), (8, 32)])
    )
    publish(scene.run_dir, child)
    point_to(scene.run_dir, child.sha)
    rank = scene.start()
    assert train(rank) is Exit.DONE

    assert rank.run.trace_count == 2
    steps = scene.steps()
    assert [record.step for record in steps] == list(range(TOTAL))
    assert [record.plan_sha for record in steps] == [scene.plan.sha] * 5 + [child.sha] * 7
    assert {r.step for r in steps if "compile" in r.tags} == {8}
    assert {r.step for r in steps if "plan" in r.tags} == {5}
    assert {r.step for r in steps if "save" in r.tags} == {5}
    assert {r.step for r in steps if "first" in r.tags} == {0}
    assert {r.step for r in steps if "eval" in r.tags} == {5, 10}
    for record in steps:
        values = child.values_at(record.step)["learning_rate"]
        assert record.lr == {group: rate.hex() for group, rate in values.items()}
    final = child.fraction_at("learning_rate", TOTAL - 1) * 1
    assert steps[-1].lr["matrix"] == round_binary32(final / 100).hex()
    assert scene.verified_steps() == [TOTAL, 5]
    at_fork = list_places(scene.run_dir, child.lineage)[-1]
    assert read_manifest((at_fork.path / MANIFEST_FILE).read_bytes()).plans == [scene.plan, child]
    check_numbers(rank, steps)
    check_evaluations(scene)


def check_evaluations(scene):
    lines = (a_seat(scene.run_dir).attempt_dir / EVALS_FILE).read_text().splitlines()
    records = [EvalRecord.model_validate_json(line) for line in lines]
    assert {record.step for record in records} == {5, 10, TOTAL}
    last = {(r.source, r.variant): r for r in records if r.step == TOTAL}
    variants = ("model", "no_routed_experts")
    assert set(last) == {(source, variant) for source in ("code", "docs") for variant in variants}
    assert {record.tokens for record in last.values()} == {32 * 32}
    assert last["code", "model"].loss != last["code", "no_routed_experts"].loss


def check_numbers(rank, steps):
    meter = rank.post.meter
    tokens = rank.plan.tokens_per_step
    assert meter.value(metrics.STEP) == TOTAL
    assert meter.value(metrics.TOKENS, replay="false") == TOTAL * tokens
    assert meter.value(metrics.FLOPS) == TOTAL * tokens * 7
    assignments = tokens * rank.post.config.model.experts_per_token * rank.post.config.model.blocks
    assert {record.assignments for record in steps} == {assignments}
    assert meter.value(metrics.ASSIGNMENTS) == TOTAL * assignments
    seconds = rank.post.clock.seconds()
    assert seconds[Phase.COMPILE] > 0
    assert seconds[Phase.STEP] > 0


@pytest.mark.slow
def test_drained_run_goes_on_with_the_same_bits(make_scene):
    whole = make_scene("whole")
    assert train(whole.start()) is Exit.DONE

    parts = make_scene("parts")
    # Asked to leave before the first step: agreed three steps ahead.
    assert train(parts.start(is_asked=lambda: True)) is Exit.DRAINED
    assert parts.verified_steps() == [3]
    assert parts.phases()[-1] == Phase.DRAIN
    point_to(parts.run_dir, parts.plan.sha, drain="restart")
    rank = parts.start(attempt=2, restore=Restore.REQUIRED)
    assert train(rank) is Exit.RESTART
    point_to(parts.run_dir, parts.plan.sha, seq=2)
    assert train(parts.start(attempt=3, restore=Restore.REQUIRED)) is Exit.DONE

    together = [*parts.steps(1), *parts.steps(2), *parts.steps(3)]
    assert [record.step for record in together] == list(range(TOTAL))
    exact = [(r.loss, r.grad_norm, r.lr, r.drops) for r in together]
    assert exact == [(r.loss, r.grad_norm, r.lr, r.drops) for r in whole.steps()]
    newest = list_places(parts.run_dir, parts.plan.lineage)[0]
    assert HEAD.hash in (newest.path / "manifest.json").read_text()


@pytest.mark.slow
def test_unreadable_source_ends_at_the_step_that_needs_it_and_names_it(make_scene):
    scene = make_scene()
    rank = scene.start()
    (scene.run_dir / "data/code/train.txt").unlink()
    with pytest.raises(End) as end:
        train(rank)
    assert end.value.code is Exit.ERROR
    assert end.value.text.startswith("data/code/train.txt")
    assert "No such file" in end.value.text
    # The first step had been read when the file went.
    assert rank.post.clock.step == rank.step


@dataclasses.dataclass
class Standing:
    """Where a rank stands, as far as the fork is concerned."""

    plan: Plan
    step: int
    staged_step: int = 4


def test_state_is_saved_at_a_fork_unless_it_was_saved_there_already(tmp_path):
    plan = a_plan(a_config(tmp_path))
    child = retimed(plan, effective=8, total_steps=16)
    assert is_at_fork(Standing(child, 8))
    assert not is_at_fork(Standing(child, 8, staged_step=8))
    assert not is_at_fork(Standing(child, 9))
    assert not is_at_fork(Standing(plan, 0))


def test_gang_that_fell_back_before_an_execution_change_runs_the_plan_before_it(tmp_path):
    plan = a_plan(a_config(tmp_path))
    change = {"kind": "execution", "parent": plan.sha, "effective": 8}
    child = plan.model_copy(update={**change, "execution": Execution(waves=2)})
    later = retimed(child, effective=12, total_steps=16)
    chain = [plan, child, later]
    assert hold_execution(chain, 7) == [plan]
    assert hold_execution(chain, 8) == chain


def test_changed_source_is_refused_before_the_gang_meets(make_scene):
    scene = make_scene()
    (scene.run_dir / "data/docs/train.txt").write_bytes(b"another text" * 100)
    with pytest.raises(End) as end:
        scene.start()
    assert end.value.code is Exit.CONFIG
    assert "data/docs/train.txt" in end.value.text


def test_plan_of_another_config_is_refused(make_scene):
    scene = make_scene()
    other = publish(scene.run_dir, scene.plan.model_copy(update={"config_sha": "1" * 64}))
    with pytest.raises(End) as end:
        scene.start(plan_sha=other.sha)
    assert end.value.code is Exit.CONFIG
    assert "config_sha" in end.value.text


def test_plan_with_a_changed_past_is_a_mismatch(make_scene):
    scene = make_scene()
    child = retimed(scene.plan, effective=8, total_steps=10)
    knots = [(0, "1/2"), (1, "9/10"), *child.anneals["learning_rate"][2:]]
    child = publish(scene.run_dir, child.model_copy(update={"anneals": {"learning_rate": knots}}))
    with pytest.raises(End) as end:
        scene.start(plan_sha=child.sha)
    assert end.value.code is Exit.PLAN_MISMATCH
