from fractions import Fraction

import pytest

from contract.data import cursors_at
from contract.schedule import round_binary32
from contract.wire import Phase
from controller.core.declared.changes import compare_run_files
from controller.core.declared.planning import make_config, make_policy
from controller.core.declared.run_file import parse_run_file
from tests.run_files import GOOD, good_plan, some_sources


def test_genesis_ends_at_the_declared_fraction_of_each_peak():
    genesis = good_plan()
    last = genesis.values_at(49)["learning_rate"]
    assert last == dict.fromkeys(("matrix", "other"), round_binary32(Fraction(1, 40)))
    assert genesis.values_at(1)["learning_rate"]["matrix"] == 0.5


def test_mixture_starts_are_aligned_down_to_whole_blocks():
    plan = good_plan(GOOD.replace("fromPercent: 80", "fromPercent: 83"))
    assert [stage.start for stage in plan.mixture.stages] == [0, 40]
    assert plan.align_steps == 2
    assert sum(cursors_at(plan, 50).values()) == 50 * 1024


def test_context_stages_carry_their_own_cost():
    text = GOOD.replace(
        "[{fromPercent: 0, length: 64}]",
        "[{fromPercent: 0, length: 32}, {fromPercent: 50, length: 64}]",
    )
    plan = good_plan(text)
    assert [(stage.start, stage.length) for stage in plan.context] == [(0, 32), (25, 64)]
    assert plan.context[0].flops_per_token < plan.context[1].flops_per_token


def test_same_file_and_text_give_the_same_plan():
    assert good_plan().sha == good_plan().sha


def test_weight_decay_has_an_anneal_of_its_own():
    text = GOOD.replace("finalPercent: 5\n", 'finalPercent: 5\n    weightDecay: {peak: "0.1"}\n')
    plan = good_plan(text)
    assert plan.values_at(49)["weight_decay"] == {"matrix": round_binary32(Fraction(1, 10))}


def test_deadlines_are_never_rounded_below_what_was_declared():
    text = GOOD.replace("cascade: 5s", "deadlines: {start: 1500ms}")
    run_file = parse_run_file(text)
    assert make_config(run_file, "u", some_sources()).limits.deadlines_s[Phase.START] == 2
    assert make_policy(run_file, "u").deadlines_ms[Phase.START] == 1500


def test_config_and_plan_name_the_same_model_and_text():
    config = make_config(parse_run_file(GOOD), "u", some_sources())
    genesis = good_plan()
    assert (config.config_sha, config.data_digest) == (genesis.config_sha, genesis.data_digest)


@pytest.mark.parametrize(
    ("old", "new", "path", "is_allowed"),
    [
        ("keep: 3", "keep: 4", "spec.checkpoints.keep", True),
        ("cascade: 5s", "cascade: 6s", "spec.faults.cascade", True),
        ("sequences: 2", "sequences: 3", "spec.evaluation.sequences", True),
        ("[python, -c, pass]", "[python, -c, x]", "spec.trainer.command.2", True),
        ("1, finalS", "1, finalS", "", True),
        ("preset: tiny", "preset: tiny, window: 16", "spec.model.window", False),
        ("fromPercent: 80", "fromPercent: 82", "spec.data.mixture.1.fromPercent", False),
        ("processes: 2", "processes: 4", "spec.fleet.processes", False),
        ("Process: 1", "Process: 1, peakFlopsPerDevice: 7", "spec.fleet.peakFlopsPerDevice", True),
        ("51_200", "102_400", "spec.budget.horizonTokens", False),
        ("  batch:", "  seed: 3\n  batch:", "spec.seed", False),
        ("name: probe", "name: other", "metadata.name", False),
    ],
)
def test_each_change_is_told_and_judged(old, new, path, is_allowed):
    before, after = parse_run_file(GOOD), parse_run_file(GOOD.replace(old, new))
    changes = compare_run_files(before, after)
    assert [change.path for change in changes] == ([path] if path else [])
    assert all(change.is_allowed is is_allowed and change.why for change in changes)


def test_a_default_written_out_is_no_change():
    spelled = GOOD.replace("  batch:", "  seed: 0\n  telemetry: {wandb: disabled}\n  batch:")
    assert compare_run_files(parse_run_file(GOOD), parse_run_file(spelled)) == []
