"""Checkpoints as files: what damage is found, what is kept, and what a crash leaves."""

import random
import shutil

import pytest

from contract.checkpoint import (
    ArrayDigest,
    Manifest,
    encode_sealed,
    is_verified,
    read_quarantine_mark,
)
from contract.plan import Line
from contract.wire import CLAIM_FILE, MANIFEST_FILE, rank_dir
from tests.trainer.builders import HEAD, UID, a_config, a_plan
from trainer.store import CheckpointStore, DamageError, check_files, digest_files, list_places

MAIN = Line(name="main", fork_step=0, offset_blocks=0)


class Shelf:
    """A run directory whose checkpoints hold a few small files."""

    def __init__(self, run_dir):
        self.run_dir = run_dir
        self.plan = a_plan(a_config(run_dir))
        self.store = CheckpointStore(run_dir, 1)

    def put(self, step, *, line="main", verified=True):
        place = self.store.place(line, step)
        work = self.store.work_path(line, step, 0)
        (work / "state" / "d").mkdir(parents=True)
        (work / "state" / "_METADATA").write_bytes(b'{"names": ["a"]}')
        (work / "state" / "d" / "data").write_bytes(bytes(range(200)))
        (work / "state" / "empty").write_bytes(b"")
        self.store.complete(work, place, self.manifest(work, line, step))
        if verified:
            self.store.mark_verified(place)
        return place

    def manifest(self, work, line, step):
        return Manifest(
            run_uid=UID,
            attempt=1,
            line=line,
            step=step,
            plans=[self.plan],
            ledger_head=HEAD,
            cursors={"code": 0, "docs": 0},
            rng="00",
            mesh={"ranks": 1},
            code="c",
            last_loss="",
            arrays=[ArrayDigest(path="a", shape=[1], dtype="float32", s0=1, s1=2)],
            files=digest_files(work),
        )

    def steps(self):
        return [place.step for place in list_places(self.run_dir, [MAIN])]


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path)


def test_complete_checkpoint_is_whole_and_verified(shelf):
    place = shelf.put(10)
    assert check_files(place, UID).step == 10
    assert place.is_verified
    assert not list(place.path.parent.joinpath(".work").iterdir())


@pytest.mark.parametrize("name", ["state/d/data", "state/_METADATA", MANIFEST_FILE])
def test_every_flipped_byte_of_a_file_is_found(shelf, name):
    place = shelf.put(10)
    path = place.path / name
    whole = path.read_bytes()
    chance = random.Random(name)
    for position in chance.sample(range(len(whole)), min(len(whole), 60)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(DamageError, match=path.name):
            check_files(place, UID)
    path.write_bytes(whole)
    check_files(place, UID)


@pytest.mark.parametrize("name", ["state/d/data", "state/empty", "state/_METADATA", MANIFEST_FILE])
def test_missing_file_is_found(shelf, name):
    place = shelf.put(10)
    (place.path / name).unlink()
    with pytest.raises(DamageError, match=f"{name.rpartition('/')[2]} is missing"):
        check_files(place, UID)


def test_truncated_and_extra_files_are_found(shelf):
    place = shelf.put(10)
    extra = place.path / "state" / "d" / "more"
    extra.write_bytes(b"")
    with pytest.raises(DamageError, match="more is not in the manifest"):
        check_files(place, UID)
    extra.unlink()
    data = place.path / "state" / "d" / "data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(DamageError, match="data has 199 bytes, not 200"):
        check_files(place, UID)


def test_checkpoint_at_another_place_or_of_another_run_is_damage(shelf):
    place = shelf.put(10)
    with pytest.raises(DamageError, match="run, line, step"):
        check_files(place, "another")
    moved = shelf.store.place("main", 11)
    shutil.copytree(place.path, moved.path)
    with pytest.raises(DamageError, match="run, line, step"):
        check_files(moved, UID)


def test_every_flipped_byte_of_a_verified_mark_means_not_verified(shelf):
    place = shelf.put(10)
    whole = place.verified_path.read_bytes()
    manifest = (place.path / MANIFEST_FILE).read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        assert not is_verified(manifest, bytes(damaged)), position
    place.verified_path.write_bytes(whole[:-1])
    assert not place.is_verified


def test_places_of_a_line_and_its_ancestors_are_newest_first_up_to_the_fork(shelf):
    for step in (9, 10, 100, 30):
        shelf.put(step)
    shelf.put(30, line="calm")
    shelf.put(31, line="calm")
    (shelf.run_dir / "checkpoints" / "main" / "007").mkdir()
    lineage = [MAIN, Line(name="calm", fork_step=30, offset_blocks=1)]
    found = [(place.line, place.step) for place in list_places(shelf.run_dir, lineage)]
    assert found == [("calm", 31), ("calm", 30), ("main", 30), ("main", 10), ("main", 9)]


def test_retention_keeps_the_newest_verified_and_the_permanent(shelf):
    for step in (10, 20, 30, 40, 50, 60):
        shelf.put(step, verified=step != 60)
    deleted = shelf.store.retain(shelf.plan, keep=2, permanent_every=20)
    assert sorted(place.step for place in deleted) == [10, 30]
    # 60 is not verified and so counts for nothing; 20 is permanent.
    assert shelf.steps() == [60, 50, 40, 20]
    assert not shelf.store.place("main", 10).verified_path.exists()


def test_retention_never_counts_or_deletes_a_quarantined_one(shelf):
    places = {step: shelf.put(step) for step in (10, 20, 30, 40)}
    shelf.store.mark_quarantined(places[10], "bad")
    shelf.store.mark_quarantined(places[40], "bad")
    assert shelf.store.retain(shelf.plan, keep=2, permanent_every=None) == []
    shelf.put(50)
    shelf.store.retain(shelf.plan, keep=2, permanent_every=None)
    assert shelf.steps() == [50, 40, 30, 10]


def test_retention_with_few_verified_ones_deletes_nothing(shelf):
    for step in (10, 20, 30):
        shelf.put(step, verified=step == 10)
    assert shelf.store.retain(shelf.plan, keep=2, permanent_every=None) == []
    assert shelf.steps() == [30, 20, 10]


def test_quarantined_step_can_be_saved_anew_with_the_old_one_kept(shelf):
    for _ in range(2):
        place = shelf.put(10)
        shelf.store.mark_quarantined(place, "state/d/data differs")
    again = shelf.put(10)
    assert not again.is_quarantined
    assert again.is_verified
    aside = again.path.parent / ".quarantine"
    assert sorted(path.name for path in aside.iterdir()) == [
        "10-a1",
        "10-a1.1",
        "10-a1.1.quarantined.json",
        "10-a1.quarantined.json",
    ]
    mark = read_quarantine_mark((aside / "10-a1.quarantined.json").read_bytes())
    assert mark.reason == "state/d/data differs"
    assert mark.manifest_sha256 is not None


def test_quarantine_mark_without_a_manifest_says_so(shelf):
    place = shelf.put(10)
    (place.path / MANIFEST_FILE).unlink()
    shelf.store.mark_quarantined(place, f"{MANIFEST_FILE} is missing")
    assert read_quarantine_mark(place.quarantined_path.read_bytes()).manifest_sha256 is None


def test_only_work_of_older_attempts_is_removed(shelf):
    store = CheckpointStore(shelf.run_dir, 3)
    for attempt in (1, 2, 3, 12):
        CheckpointStore(shelf.run_dir, attempt).work_path("main", 10, 0).mkdir(parents=True)
    store.remove_stale_work([MAIN])
    work = shelf.run_dir / "checkpoints" / "main" / ".work"
    assert sorted(path.name for path in work.iterdir()) == ["a12-10", "a3-10"]


def test_successor_is_a_higher_attempt_that_a_rank_claimed(shelf):
    store = CheckpointStore(shelf.run_dir, 9)
    for attempt in (8, 10):
        (shelf.run_dir / rank_dir(attempt, 0)).mkdir(parents=True)
    (shelf.run_dir / rank_dir(8, 0) / CLAIM_FILE).write_text("{}")
    assert store.find_successor() is None
    (shelf.run_dir / rank_dir(10, 0) / CLAIM_FILE).write_text("{}")
    assert store.find_successor() == 10


def test_manifest_sealed_again_over_other_files_is_still_whole(shelf):
    # What files alone cannot show: that is what the digests of the arrays are for.
    place = shelf.put(10)
    (place.path / "state" / "d" / "data").write_bytes(bytes(200))
    (place.path / MANIFEST_FILE).unlink()
    manifest = shelf.manifest(place.path, "main", 10)
    (place.path / MANIFEST_FILE).write_bytes(encode_sealed(manifest))
    assert check_files(place, UID) == manifest
    assert not place.is_verified
