"""One undisturbed run, from the first step to its horizon."""

from collections.abc import Callable
from itertools import groupby, pairwise

import pytest

from contract.canonical import hash_bytes
from contract.checkpoint import is_verified
from contract.data import cursors_at
from contract.metrics import METRICS, RANK_0, REQUIRED_OF_EVERY_RANK, REQUIRED_OF_RANK_0
from contract.wire import DETAIL_FILE, MANIFEST_FILE, RANK_PHASES, Phase
from tests.conformance.harness import EMPTY_HEAD, RUN_UID, Run, TrainerKind
from tests.conformance.trainers import quick_trainer, slow_trainer

TOTAL_STEPS = 40
SCRAPED_STEP = 25
"""After the first evaluation and two saves."""


class Story:
    """What a whole run left, and what its ranks served on the way."""

    def __init__(self, path, kind: TrainerKind) -> None:
        self.kind = kind
        self.run = Run(path, kind, total_steps=TOTAL_STEPS)
        self.run.point_to(self.run.plan.sha)
        self.gang = self.run.launch()
        try:
            self.gang.await_step(SCRAPED_STEP)
            self.scraped = [self.gang.metrics(rank) for rank in range(2)]
            self.codes = self.gang.await_end()
        finally:
            self.gang.close()


CHECKS: list[Callable[[Story], None]] = []


def check(function: Callable[[Story], None]) -> Callable[[Story], None]:
    """Add a case that only looks at the finished run."""
    CHECKS.append(function)
    return function


STORIES: dict[str, Story] = {}


@pytest.fixture
def story(kind, tmp_path_factory) -> Story:
    """Return the trainer's one run: the cases only look at it."""
    if kind.name not in STORIES:
        STORIES[kind.name] = Story(tmp_path_factory.mktemp(kind.name) / "run", kind)
    return STORIES[kind.name]


@check
def run_to_the_horizon_ends_done_on_all_ranks(story):
    assert story.codes == [0, 0], story.gang.describe()
    assert not any(story.gang.file(rank, DETAIL_FILE).exists() for rank in range(2))


@check
def step_log_holds_each_step_once_with_the_plans_values(story):
    plan, steps = story.run.plan, story.run.steps()
    assert [record.step for record in steps] == list(range(TOTAL_STEPS))
    for record in steps:
        rates = plan.values_at(record.step)["learning_rate"]
        assert record.lr == {group: rate.hex() for group, rate in rates.items()}
        assert (record.line, record.plan_sha) == ("main", plan.sha)
        assert record.execution_sha == plan.execution_sha
        assert record.tokens == plan.tokens_per_step
        assert record.step_s > 0
        assert record.data_wait_s >= 0
        dropped = record.drops.sender + record.drops.receiver
        assert 0 <= dropped <= record.assignments
    assert "first" in steps[0].tags
    assert sum(not record.tags for record in steps) > TOTAL_STEPS // 2


@check
def loss_falls(story):
    losses = [float.fromhex(record.loss) for record in story.run.steps()]
    assert sum(losses[-5:]) / 5 < sum(losses[:5]) / 5 - 0.1


@check
def evaluations_come_at_their_steps_and_at_the_horizon(story):
    records = [record for record in story.run.evals() if record.variant == "model"]
    found = [(record.step, record.source) for record in records]
    assert sorted(found) == [(step, s) for step in (15, 30, TOTAL_STEPS) for s in ("code", "docs")]
    by_source = {s: [float.fromhex(r.loss) for r in records if r.source == s] for _, s in found}
    for losses in by_source.values():
        assert losses[-1] < losses[0]


@check
def phases_follow_one_another(story):
    for rank in range(2):
        check_phases(story.gang.phases(rank))


def check_phases(records):
    first = [phase for phase, _ in groupby(record.phase for record in records)]
    assert first[:6] == [
        Phase.START,
        Phase.RENDEZVOUS,
        Phase.RESTORE,
        Phase.COMPILE,
        Phase.FIRST_STEP,
        Phase.STEP,
    ]
    assert set(first[6:]) <= {Phase.STEP, Phase.SAVE_BLOCK, Phase.EVAL, Phase.DRAIN}
    assert {Phase.SAVE_BLOCK, Phase.EVAL} <= set(first)
    for before, after in pairwise(records):
        assert before.mono_s <= after.mono_s
        assert before.boot_id == after.boot_id


@check
def required_metrics_are_served(story):
    for metric in REQUIRED_OF_EVERY_RANK:
        assert all(metric.name in samples for samples in story.scraped), metric.name
    for metric in REQUIRED_OF_RANK_0:
        assert metric.name in story.scraped[0], metric.name


@check
def metrics_are_declared_with_exactly_their_labels(story):
    declared = {metric.name: metric for metric in METRICS}
    for rank, samples in enumerate(story.scraped):
        for name, series in samples.items():
            metric = declared[name]
            assert rank == 0 or metric.producer != RANK_0, name
            for labels in series:
                assert tuple(label for label, _ in labels) == tuple(sorted(metric.labels))


@check
def metrics_tell_the_state_of_the_run(story):
    samples, plan = story.scraped[0], story.run.plan
    assert samples["moe_train_step"][()] > SCRAPED_STEP
    assert samples["moe_train_rank_step"][()] > SCRAPED_STEP
    assert sum(samples["moe_train_rank_phase"].values()) == 1
    tokens = samples["moe_train_tokens_total"]
    assert tokens[(("replay", "false"),)] >= (SCRAPED_STEP + 1) * plan.tokens_per_step
    assert tokens.get((("replay", "true"),), 0) == 0
    flops = samples["moe_train_model_flops_total"][()]
    assert flops % (plan.tokens_per_step * plan.context[0].flops_per_token) == 0
    assert sum(samples["moe_train_checkpoint_failures_total"].values()) == 0
    assert sum(samples["moe_train_rank_control_refused"].values()) == 0
    for rank, served in enumerate(story.scraped):
        identity = dict(next(iter(served["moe_train_rank_info"])))
        assert identity == {
            "run_uid": RUN_UID,
            "attempt": "1",
            "rank": str(rank),
            "plan_sha": plan.sha,
        }


@check
def phase_seconds_sum_to_uptime(story):
    phases = story.gang.phases(0)
    seconds = story.scraped[0]["moe_train_phase_seconds_total"]
    assert {dict(labels)["phase"] for labels in seconds} <= set(RANK_PHASES)
    total = sum(seconds.values())
    # The scrape came between the two: after the step it waited for, before the end.
    until = phases[-1].mono_s - phases[0].mono_s
    assert 0 < total <= until + 1
    for phase in (Phase.RENDEZVOUS, Phase.RESTORE, Phase.COMPILE, Phase.FIRST_STEP):
        index = next(i for i, record in enumerate(phases) if record.phase is phase)
        lasted = phases[index + 1].mono_s - phases[index].mono_s
        assert seconds[(("phase", phase.value),)] == pytest.approx(lasted, abs=0.05)


@check
def checkpoints_are_complete_verified_and_thinned_out(story):
    # keep = 2: of 10, 20, 30 and 40 the newest two stay.
    assert story.run.checkpoint_steps() == [30, 40]
    for step in (30, 40):
        data = (story.run.checkpoint(step) / MANIFEST_FILE).read_bytes()
        assert is_verified(data, story.run.mark(step).read_bytes())
    work = story.run.checkpoint(0).with_name(".work")
    assert not work.exists() or not list(work.iterdir())


@check
def manifest_records_place_plans_data_and_every_file(story):
    run, manifest = story.run, story.run.manifest(TOTAL_STEPS)
    assert (manifest.run_uid, manifest.attempt) == (RUN_UID, 1)
    assert (manifest.line, manifest.step) == ("main", TOTAL_STEPS)
    assert manifest.plans == [run.plan]
    assert manifest.ledger_head == EMPTY_HEAD
    assert manifest.cursors == cursors_at(run.plan, TOTAL_STEPS)
    assert manifest.last_loss == run.steps()[-1].loss
    assert manifest.code == run.steps()[-1].code
    assert len({array.path for array in manifest.arrays}) == len(manifest.arrays) > 1
    root = run.checkpoint(TOTAL_STEPS)
    files = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()} - {MANIFEST_FILE}
    assert {file.path for file in manifest.files} == files
    for file in manifest.files:
        data = (root / file.path).read_bytes()
        assert (file.size_bytes, file.sha256) == (len(data), hash_bytes(data))


@quick_trainer
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_whole_run(story, check):
    check(story)


@slow_trainer
def test_whole_run_of_a_slow_trainer(story):
    # One test, so that one worker tells the whole story and no other repeats the run.
    for check in CHECKS:
        check(story)
