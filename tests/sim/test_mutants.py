"""Each mutant of the core is caught by what the table names, which is silent without it."""

import pytest

from controller.simulate.chaos.programme import live_named
from tests.sim.mutants import MUTANTS
from tests.sim.named_seeds import NAMED_SEEDS
from tests.sim.page import PAGE, fill


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught_and_its_catcher_is_silent_without_it(mutant):
    assert mutant.is_caught()
    assert mutant.is_silent()


def test_mutants_have_names_of_their_own():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))


def test_page_shows_what_there_is():
    assert fill(PAGE.read_text(), MUTANTS) == PAGE.read_text(), "python -m tests.sim.mutants"


@pytest.mark.parametrize("seed", NAMED_SEEDS, ids=lambda seed: seed.name)
def test_defect_that_was_found_is_gone_and_would_be_found_again(seed):
    assert live_named(seed.life).violations == ()
    with seed.undo.applied():
        assert seed.phrase in " | ".join(live_named(seed.life).violations)
