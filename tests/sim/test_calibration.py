"""The forecast held to account: runs whose truth is not its own model."""

import itertools
from random import Random

import pytest

from tests.sim.truth import (
    BEGIN,
    PAGE,
    STEP_S,
    STEPS,
    TRIALS,
    Run,
    count_deciles,
    count_inside,
    render,
    try_all,
)


@pytest.fixture(scope="module")
def trials():
    return try_all()


def test_finishes_fall_between_p10_and_p90_in_four_of_five_runs(trials):
    assert len(trials) == TRIALS == 500
    assert 0.73 <= count_inside(trials) <= 0.87


def test_finishes_fall_there_early_and_late_in_a_run_alike(trials):
    early = [trial for trial in trials if trial.done_share < 0.4]
    late = [trial for trial in trials if trial.done_share >= 0.4]
    assert len(early) > 150 < len(late)
    assert 0.70 <= count_inside(early) <= 0.90
    assert 0.70 <= count_inside(late) <= 0.90


def test_neither_end_nor_any_tenth_holds_most_finishes(trials):
    counts = count_deciles(trials)
    assert sum(counts) == TRIALS
    assert max(counts) < 2 * TRIALS / 10
    assert min(counts) > TRIALS / 10 / 2


def test_page_shows_the_figures_of_these_runs(trials):
    assert f"{BEGIN}\n{render(trials)}" in PAGE.read_text(), "next: python -m tests.sim.truth"


def test_truth_has_clusters_tails_and_drift():
    runs = [Run(Random(seed)) for seed in range(40)]
    for run in runs:
        while not run.is_done:
            run.train()
    gaps_ms, lost_ms = [], []
    for run in runs:
        at = [outage.trained_ms for outage in run.outages]
        mean = at[-1] / len(at)
        gaps_ms += [(later - earlier) / mean for earlier, later in itertools.pairwise(at)]
        lost_ms += [outage.lost_ms for outage in run.outages]
    # Independent failures leave gaps whose square averages twice their mean's square.
    assert sum(gap**2 for gap in gaps_ms) / len(gaps_ms) > 3
    lost_ms.sort()
    assert lost_ms[-len(lost_ms) // 100] > 8 * lost_ms[len(lost_ms) // 2]
    paces = [run.paces[-1] / STEP_S for run in runs]
    assert min(paces) < 0.9
    assert max(paces) > 1.1
    assert all(run.steps == STEPS for run in runs)
