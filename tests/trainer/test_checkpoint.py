"""Saving and restoring real arrays over eight devices, with damage at every stage."""

import errno
import json
import shutil
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from contract import metrics
from contract.checkpoint import encode_sealed, read_quarantine_mark
from contract.exits import Exit
from contract.wire import MANIFEST_FILE, Restore
from tests.trainer.builders import (
    HEAD,
    a_config,
    a_plan,
    a_seat,
    retimed,
    some_gang,
)
from trainer.arrays import compare_digests, digest_held, name_arrays
from trainer.checkpoint import (
    NO_PERMISSION,
    NO_SPACE,
    OTHER,
    VERIFIED,
    Moment,
    Saver,
    classify_failure,
)
from trainer.ends import End
from trainer.gang import Gang, LocalStore
from trainer.integrity import state_digests
from trainer.mesh import make_mesh
from trainer.restore import Restorer
from trainer.store import check_files, digest_files, list_places
from trainer.telemetry import Meter


class State(NamedTuple):
    """The parts of a train state that saving looks at, and arrays of every kind."""

    params: dict[str, jax.Array]
    count: jax.Array
    rng: jax.Array


def draw_state(seed):
    key = jax.random.key(seed)
    whole = jax.random.normal(key, (8, 6, 4))
    params = {"w": whole, "half": whole[0].astype(jnp.bfloat16), "gain": whole[0, 0]}
    return State(params, jnp.int32(seed), jax.random.key_data(key))


@pytest.fixture(scope="module")
def shardings():
    mesh = make_mesh(4)
    cut, everywhere = NamedSharding(mesh, P("expert")), NamedSharding(mesh, P())
    params = {"w": cut, "half": everywhere, "gain": cut}
    return State(params, everywhere, everywhere)


@pytest.fixture
def make_state(shardings):
    return jax.jit(draw_state, static_argnums=0, out_shardings=shardings)


@pytest.fixture
def like(make_state, shardings):
    shapes = jax.eval_shape(lambda: draw_state(0))
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings
    )


class Dock:
    """A run directory, a gang of one, and its saver."""

    def __init__(self, run_dir, *, attempt=1, store=None, **changes):
        self.run_dir = run_dir
        self.config = a_config(run_dir, **changes)
        self.plan = a_plan(self.config, total_steps=100)
        self.seat = a_seat(run_dir, attempt=attempt)
        self.meter = Meter()
        self.gang = Gang(0, 1, store or LocalStore())
        self.saver = Saver(self.seat, self.config, self.gang, self.meter, "code-1")

    def save(self, state, step, *, chain=None):
        moment = Moment(chain or [self.plan], step, (2.5).hex(), HEAD)
        self.saver.begin(state, moment, lambda: None)
        return self.saver.finish(lambda: None)

    def place(self, step):
        return next(p for p in list_places(self.run_dir, self.plan.lineage) if p.step == step)

    def steps(self):
        return [place.step for place in list_places(self.run_dir, self.plan.lineage)]

    def failures(self, reason):
        return self.meter.value(metrics.CHECKPOINT_FAILURES, reason=reason)

    def restore(self, like, *, restore=Restore.REQUIRED, chain=None):
        seat = a_seat(self.run_dir, attempt=2, restore=restore)
        restorer = Restorer(seat, some_gang(1)[0], chain or [self.plan], 10)
        return restorer.restore(like, lambda: None)


@pytest.fixture
def dock(tmp_path):
    return Dock(tmp_path)


def bits_of(state):
    return {path: np.asarray(leaf).tobytes() for path, leaf in name_arrays(state).items()}


def flip(path, position=None):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if position is None else position] ^= 1
    path.write_bytes(data)


def data_file(place):
    """Return the largest file: that is where the arrays are."""
    return max((place.path / "state").rglob("*"), key=lambda p: p.stat().st_size * p.is_file())


def test_saved_state_is_verified_and_restored_bit_for_bit(dock, make_state, like):
    state = make_state(5)
    bits = bits_of(state)
    assert dock.save(state, 10) == VERIFIED
    assert dock.place(10).is_verified
    restored = dock.restore(like)
    assert bits_of(restored.state) == bits
    assert restored.state.params["w"].sharding == like.params["w"].sharding
    assert restored.manifest.step == 10


def test_manifest_records_what_a_restart_needs(dock, make_state):
    dock.save(make_state(5), 10)
    manifest = check_files(dock.place(10), dock.seat.run_uid)
    assert manifest.plans == [dock.plan]
    assert manifest.ledger_head == HEAD
    assert manifest.last_loss == (2.5).hex()
    assert manifest.cursors == {"code": 10 * 160, "docs": 10 * 96}
    assert manifest.mesh == {"ranks": 1, "devices_per_rank": 8, "expert_axis": 4, "replicas": 2}
    assert manifest.code == "code-1"
    key = np.asarray(jax.random.key_data(jax.random.key(5)))
    assert manifest.rng == key.tobytes().hex()
    digests = state_digests(make_state(5))
    assert {a.path: (a.s0, a.s1) for a in manifest.arrays} == digests


def test_state_donated_after_the_copy_is_saved_as_it_was(dock, make_state, shardings, like):
    state = make_state(5)
    bits = bits_of(state)
    scramble = jax.jit(
        lambda s: jax.tree.map(lambda x: x + x, s), donate_argnums=0, out_shardings=shardings
    )
    scramble(make_state(6))
    dock.saver.begin(state, Moment([dock.plan], 10, "", HEAD), lambda: None)
    for _ in range(5):
        state = scramble(state)
    assert dock.saver.finish(lambda: None) == VERIFIED
    assert bits_of(dock.restore(like).state) == bits


def test_shares_of_the_digest_add_up_over_shards(make_state):
    state = make_state(3)
    assert digest_held(state) == state_digests(state)


def test_digest_of_a_changed_element_is_named(dock, make_state):
    state = make_state(3)
    dock.save(state, 10)
    expected = check_files(dock.place(10), dock.seat.run_uid).arrays
    assert compare_digests(expected, [digest_held(state)]) is None
    other = state._replace(params={**state.params, "gain": state.params["gain"] * 2})
    assert compare_digests(expected, [digest_held(other)]) == "params/gain"
    assert compare_digests(expected, []) is not None


def test_retention_follows_verified_saves(dock, make_state):
    for step in (10, 20, 30):
        assert dock.save(make_state(step), step) == VERIFIED
    assert dock.steps() == [30, 20]


def test_same_state_saved_under_a_plan_that_was_left_is_saved_anew(dock, make_state, like):
    # The step at a fork trains alike under both plans: at 21 the arrays are the same.
    child = retimed(dock.plan, effective=20, total_steps=90)
    for step in (20, 21):
        assert dock.save(make_state(7), step) == VERIFIED
    for step in (20, 21):
        assert dock.save(make_state(7), step, chain=[dock.plan, child]) == VERIFIED
    held = [check_files(dock.place(step), dock.seat.run_uid).plans for step in (20, 21)]
    assert held == [[dock.plan], [dock.plan, child]]
    assert dock.restore(like, chain=[dock.plan, child]).manifest.step == 21


class DamagingStore(LocalStore):
    """Flips a bit of one file as soon as the checkpoint is complete."""

    def __init__(self, run_dir, name):
        super().__init__()
        self.run_dir = run_dir
        self.name = name

    def put(self, key, value):
        if key.endswith("/complete"):
            flip(self.run_dir / "checkpoints/main/10" / self.name)
        super().put(key, value)


@pytest.mark.parametrize("name", [MANIFEST_FILE, "state/manifest.ocdbt"])
def test_read_back_that_differs_is_quarantined_and_counted(tmp_path, make_state, like, name):
    dock = Dock(tmp_path, store=DamagingStore(tmp_path, name))
    assert dock.save(make_state(1), 10).startswith(OTHER)
    place = dock.place(10)
    assert place.is_quarantined
    assert not place.is_verified
    assert dock.failures(OTHER) == 1
    assert not list(place.path.with_name(".work").iterdir())
    with pytest.raises(End) as end:
        dock.restore(like)
    assert end.value.code is Exit.NO_CHECKPOINT


class LyingStore(LocalStore):
    """Reports another digest of an array than was read back."""

    def put(self, key, value):
        if "/read/" in key:
            shares = json.loads(value)
            shares["params/half"][0] ^= 1
            value = json.dumps(shares)
        super().put(key, value)


def test_array_that_reads_back_different_is_named_in_the_mark(tmp_path, make_state):
    dock = Dock(tmp_path, store=LyingStore())
    assert "params/half reads back different" in dock.save(make_state(1), 10)
    mark = read_quarantine_mark(dock.place(10).quarantined_path.read_bytes())
    assert "params/half" in mark.reason


def test_failed_save_is_counted_and_the_next_one_succeeds(dock, make_state):
    blocked = dock.run_dir / "checkpoints" / "main" / ".work"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    assert dock.save(make_state(1), 10).startswith(OTHER)
    assert dock.failures(OTHER) == 1
    assert dock.steps() == []
    blocked.unlink()
    assert dock.save(make_state(1), 20) == VERIFIED
    assert dock.failures(OTHER) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "x"), NO_SPACE),
        (OSError(errno.EDQUOT, "x"), NO_SPACE),
        (ValueError("RESOURCE_EXHAUSTED: Error writing: No space left on device"), NO_SPACE),
        (PermissionError(errno.EACCES, "x"), NO_PERMISSION),
        (OSError(errno.EROFS, "x"), NO_PERMISSION),
        (ValueError("PERMISSION_DENIED: Error opening"), NO_PERMISSION),
        (TimeoutError("late"), OTHER),
    ],
)
def test_failures_are_classified_by_number_or_by_words(error, reason):
    assert classify_failure(error) == reason


class FullStore(LocalStore):
    """Fails the first save after its arrays are written, as a disk does that is full now."""

    def __init__(self):
        super().__init__()
        self.is_full = True

    def put(self, key, value):
        if self.is_full and key.endswith("/committed/0"):
            self.is_full = False
            raise OSError(errno.ENOSPC, "No space left on device")
        super().put(key, value)


def test_save_that_meets_a_full_disk_is_counted_and_frees_what_it_took(tmp_path, make_state):
    dock = Dock(tmp_path, store=FullStore())
    assert dock.save(make_state(1), 10).startswith(NO_SPACE)
    assert dock.failures(NO_SPACE) == 1
    assert not list((tmp_path / "checkpoints/main/.work").iterdir())
    assert dock.save(make_state(1), 20) == VERIFIED
    assert [place.step for place in places_verified(dock)] == [20]


def places_verified(dock):
    places = list_places(dock.run_dir, dock.plan.lineage)
    return [place for place in places if place.is_verified]


def test_same_state_saved_again_counts_as_saved_and_is_verified(dock, make_state, tmp_path):
    dock.save(make_state(1), 10)
    place = dock.place(10)
    before = place.path.stat().st_ino
    place.verified_path.unlink()
    again = Dock(tmp_path, attempt=2)
    assert again.save(make_state(1), 10) == VERIFIED
    assert place.is_verified
    assert place.path.stat().st_ino == before


def test_other_state_of_the_same_step_moves_the_old_one_aside(dock, make_state, tmp_path, like):
    dock.save(make_state(1), 10)
    again = Dock(tmp_path, attempt=2)
    assert again.save(make_state(2), 10) == VERIFIED
    assert bits_of(dock.restore(like).state) == bits_of(make_state(2))
    mark = dock.place(10).path.parent / ".quarantine" / "10-a2.quarantined.json"
    assert "another state" in read_quarantine_mark(mark.read_bytes()).reason


def test_damaged_checkpoint_is_quarantined_and_the_next_older_used(dock, make_state, like):
    for step in (9, 10):
        dock.save(make_state(step), step)
    flip(data_file(dock.place(10)))
    restored = dock.restore(like)
    assert restored.manifest.step == 9
    assert bits_of(restored.state) == bits_of(make_state(9))
    mark = read_quarantine_mark(dock.place(10).quarantined_path.read_bytes())
    assert data_file(dock.place(10)).name in mark.reason
    # Left where it lies: another reader may still hold it.
    assert dock.place(10).is_complete


def test_files_sealed_anew_over_other_arrays_are_caught_by_the_digests(dock, make_state, like):
    dock.save(make_state(9), 9)
    dock.save(make_state(10), 10)
    old, new = dock.place(9), dock.place(10)
    manifest = check_files(new, dock.seat.run_uid)
    shutil.rmtree(new.path / "state")
    shutil.copytree(old.path / "state", new.path / "state")
    (new.path / MANIFEST_FILE).unlink()
    forged = manifest.model_copy(update={"files": digest_files(new.path)})
    (new.path / MANIFEST_FILE).write_bytes(encode_sealed(forged))
    assert dock.restore(like).manifest.step == 9
    reason = read_quarantine_mark(new.quarantined_path.read_bytes()).reason
    assert "differs from its digest" in reason


def test_restore_without_a_mark_verifies_and_marks(dock, make_state, like):
    dock.save(make_state(1), 10)
    place = dock.place(10)
    flip(place.verified_path)
    assert not place.is_verified
    assert dock.restore(like).manifest.step == 10
    assert place.is_verified


def test_restore_of_verified_only_skips_the_unverified(dock, make_state, like):
    dock.save(make_state(1), 10)
    dock.save(make_state(2), 20)
    dock.place(20).verified_path.unlink()
    assert dock.restore(like, restore=Restore.VERIFIED).manifest.step == 10
    assert dock.restore(like, restore=Restore.REQUIRED).manifest.step == 20


def test_nothing_to_restore_starts_at_0_only_if_allowed(dock, like):
    assert dock.restore(like, restore=Restore.NONE) is None
    for restore in (Restore.REQUIRED, Restore.VERIFIED):
        with pytest.raises(End) as end:
            dock.restore(like, restore=restore)
        assert end.value.code is Exit.NO_CHECKPOINT


def test_checkpoint_past_a_fork_may_not_start_the_revision(dock, make_state, like):
    dock.save(make_state(1), 10)
    dock.save(make_state(2), 20)
    child = retimed(dock.plan, effective=15, total_steps=80)
    restored = dock.restore(like, chain=[dock.plan, child])
    assert restored.manifest.step == 10
    # Not admissible is not damaged.
    assert not dock.place(20).is_quarantined


def test_checkpoint_of_other_arrays_is_no_damage_but_an_end(dock, make_state, like):
    dock.save(make_state(1), 10)
    params = {name: leaf for name, leaf in like.params.items() if name != "gain"}
    with pytest.raises(End) as end:
        dock.restore(like._replace(params=params))
    assert end.value.code is Exit.NO_RETRY
    assert not dock.place(10).is_quarantined
