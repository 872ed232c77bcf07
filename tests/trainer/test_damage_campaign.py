"""Two hundred damaged checkpoints: none may be restored in silence.

The outcome of each must be bit-identical to what was saved, or the checkpoint is quarantined with
a reason and the next older one is restored bit for bit.
"""

import random
import shutil
from collections import Counter

import pytest

from contract.checkpoint import read_quarantine_mark
from contract.wire import MANIFEST_FILE
from tests.trainer import test_checkpoint as saving
from tests.trainer.test_checkpoint import Dock, bits_of

# Fixtures are found by name in the module that uses them.
like, make_state, shardings = saving.like, saving.make_state, saving.shardings

pytestmark = pytest.mark.faults

DAMAGES = 200
OLD, NEW = 9, 10


def kinds_of_files(place):
    """Return what can be damaged: kind -> files of that kind, marker and manifest included."""
    files = [path for path in (place.path / "state").rglob("*") if path.is_file()]
    kinds = {"manifest": [place.path / MANIFEST_FILE], "marker": [place.verified_path]}
    for path in files:
        is_data = path.parent.name == "d"
        kinds.setdefault("arrays" if is_data else path.name, []).append(path)
    return kinds


def flip_a_bit(rng, paths):
    """Flip one bit, uniform over every byte of every file of the kind."""
    sizes = [path.stat().st_size for path in paths]
    path = rng.choices(paths, weights=sizes)[0]
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(rng, paths):
    path = rng.choice(paths)
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def remove(rng, paths):
    rng.choice(paths).unlink()


@pytest.fixture
def pristine(tmp_path, make_state):
    dock = Dock(tmp_path / "pristine")
    for step in (OLD, NEW):
        dock.save(make_state(step), step)
    return dock


def damage_a_copy(pristine, target, kind, how, rng):
    shutil.copytree(pristine.run_dir, target)
    dock = Dock(target)
    how(rng, kinds_of_files(dock.place(NEW))[kind])
    return dock


def test_no_damage_of_two_hundred_is_restored_in_silence(
    tmp_path,
    pristine,
    make_state,
    like,
):
    wanted = {step: bits_of(make_state(step)) for step in (OLD, NEW)}
    kinds = sorted(kinds_of_files(pristine.place(NEW)))
    hows = [flip_a_bit, flip_a_bit, flip_a_bit, truncate, remove]
    tried, outcomes = Counter(), Counter()
    for number in range(DAMAGES):
        rng = random.Random(number)
        kind = kinds[number % len(kinds)]
        how = hows[number // len(kinds) % len(hows)]
        dock = damage_a_copy(pristine, tmp_path / "copy", kind, how, rng)
        restored = dock.restore(like)
        step = restored.manifest.step
        story = f"damage {number}: {how.__name__} in {kind}"
        assert bits_of(restored.state) == wanted[step], f"{story}: silent at step {step}"
        if step != NEW:
            reason = read_quarantine_mark(dock.place(NEW).quarantined_path.read_bytes()).reason
            assert reason, story
        tried[kind] += 1
        outcomes["identical" if step == NEW else "quarantined"] += 1
        shutil.rmtree(tmp_path / "copy")
    assert sum(tried.values()) == DAMAGES
    assert min(tried.values()) >= 10, tried
    assert outcomes["quarantined"] > outcomes["identical"] > 0, outcomes
