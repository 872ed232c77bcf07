"""What only the store on a file system has: marks, files, probes."""

import os

import pytest

from contract import wire
from contract.checkpoint import encode_sealed, read_quarantine_mark
from contract.wire import LedgerHead
from controller.adapters import checkpoints as module
from controller.ports import Unavailable
from tests.suites.manifests import a_manifest
from tests.suites.stages import RealStoreStage


@pytest.fixture
def stage(tmp_path):
    return RealStoreStage(tmp_path)


@pytest.fixture
def folder(stage):
    return stage.run_dir / wire.line_dir("main")


def test_checkpoint_of_another_place_or_run_is_not_trusted(stage, folder):
    stage.add(10)
    (folder / "10").rename(folder / "20")
    assert stage.store.observe().checkpoints[0].plan_sha is None
    place = folder / "30"
    place.mkdir()
    foreign = a_manifest(place, step=30, run_uid="another")
    (place / wire.MANIFEST_FILE).write_bytes(encode_sealed(foreign))
    assert stage.store.observe().checkpoints[1].plan_sha is None


def test_work_in_progress_and_what_was_moved_aside_is_no_checkpoint(stage, folder):
    (folder / wire.WORK_DIR / "a1-10").mkdir(parents=True)
    assert not stage.store.observe().ever_complete
    (folder / wire.QUARANTINE_DIR / "10-a1").mkdir(parents=True)
    store = stage.store.observe()
    assert (store.checkpoints, store.ever_complete) == ([], True)


def test_what_was_moved_aside_is_told_with_its_reason_and_is_no_checkpoint(stage, folder):
    stage.add(10)
    stage.store.quarantine("main", 10, "array w differs", attempt=4)
    aside = folder / wire.QUARANTINE_DIR
    aside.mkdir()
    (folder / "10").rename(aside / "10-a2")
    (folder / f"10{wire.QUARANTINED_SUFFIX}").rename(aside / f"10-a2{wire.QUARANTINED_SUFFIX}")
    (aside / f"20-a2.1{wire.QUARANTINED_SUFFIX}").write_bytes(b"{")
    (aside / f"notes{wire.QUARANTINED_SUFFIX}").write_bytes(b"{")
    stage.add(10)
    for _ in range(2):
        store = stage.store.observe()
        (view,) = store.checkpoints
        assert (view.step, view.quarantined) == (10, None)
        assert [(it.line, it.step, it.quarantined) for it in store.set_aside] == [
            ("main", 10, "array w differs"),
            ("main", 20, "its quarantine mark is unreadable"),
        ]


def test_mark_shows_that_there_was_a_checkpoint(stage, folder):
    folder.mkdir(parents=True)
    (folder / f"10{wire.VERIFIED_SUFFIX}").touch()
    assert stage.store.observe().ever_complete


def test_store_that_was_seen_full_stays_so_when_all_is_deleted(stage, folder):
    stage.add(10)
    assert stage.store.observe().ever_complete
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    store = stage.store.observe()
    assert (store.checkpoints, store.ever_complete) == ([], True)


def test_verified_mark_of_another_manifest_vouches_for_nothing(stage, folder):
    stage.add(10)
    stage.verify(10)
    (folder / f"10{wire.VERIFIED_SUFFIX}").rename(folder / f"20{wire.VERIFIED_SUFFIX}")
    stage.add(20)
    assert [view.verified for view in stage.store.observe().checkpoints] == [False, False]


def test_unreadable_quarantine_mark_still_counts(stage, folder):
    stage.add(10)
    (folder / f"10{wire.QUARANTINED_SUFFIX}").write_bytes(b"{")
    assert stage.store.observe().checkpoints[0].quarantined == "its quarantine mark is unreadable"


def test_quarantine_mark_names_the_manifest_that_was_found(stage, folder):
    stage.add(10)
    stage.store.quarantine("main", 10, "why", attempt=4)
    mark = read_quarantine_mark((folder / f"10{wire.QUARANTINED_SUFFIX}").read_bytes())
    view = stage.store.observe().checkpoints[0]
    assert (mark.step, mark.attempt, mark.reason) == (10, 4, "why")
    assert mark.manifest_sha256 == view.manifest_sha256


def test_unchanged_manifest_is_read_once(stage, folder, monkeypatch):
    stage.add(10)
    first = stage.store.observe()
    monkeypatch.setattr(module, "read_manifest", lambda _: pytest.fail("read again"))
    assert stage.store.observe() == first


def test_checkpoint_that_vanishes_while_it_is_read_is_none(stage, folder, monkeypatch):
    stage.add(10)
    real = module.read_or_none

    def read(path):
        if path.name == wire.MANIFEST_FILE and (folder / "10").exists():
            (folder / "10").rename(folder / ".gone")
        return real(path)

    monkeypatch.setattr(module, "read_or_none", read)
    assert stage.store.observe().checkpoints == []


def test_store_that_cannot_be_read_is_unavailable_after_three_tries(stage, monkeypatch):
    tries = []

    def refuse(path):
        tries.append(path)
        raise OSError(5, "Input/output error")

    stage.add(10)
    monkeypatch.setattr(module.os, "scandir", refuse)
    with pytest.raises(Unavailable, match="Input/output error"):
        stage.store.observe()
    assert len(tries) == module.TRIES


def test_probe_leaves_nothing_behind(stage):
    assert stage.store.probe().problem is None
    assert list((stage.run_dir / wire.CHECKPOINTS_DIR).iterdir()) == []


def test_probe_of_a_full_disk_says_so_and_leaves_nothing_behind(stage, monkeypatch):
    def refuse(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", refuse)
    assert "No space left on device" in (stage.store.probe().problem or "")
    assert list((stage.run_dir / wire.CHECKPOINTS_DIR).iterdir()) == []


def damage(kind: str, place) -> None:
    target = place / wire.STATE_DIR / "a.bin"
    match kind:
        case "flipped":
            data = bytearray(target.read_bytes())
            data[50] ^= 4
            target.write_bytes(data)
        case "truncated":
            os.truncate(target, 99)
        case "missing":
            target.unlink()
        case "extra":
            (place / wire.STATE_DIR / "c.bin").touch()
        case _:
            path = place / wire.MANIFEST_FILE
            path.unlink() if kind == "no manifest" else path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("flipped", "state/a.bin does not match its sha256"),
        ("truncated", "state/a.bin has 99 bytes, not 100"),
        ("missing", "state/a.bin is missing"),
        ("extra", "state/c.bin is not in the manifest"),
        ("no manifest", "manifest.json is missing"),
        ("torn manifest", "Manifest: not JSON"),
    ],
)
def test_damage_is_named_file_by_file(stage, folder, kind, words):
    stage.add(10)
    assert stage.store.damage_of("main", 10) == []
    damage(kind, folder / "10")
    (found,) = stage.store.damage_of("main", 10)
    assert found.startswith(words)


def test_anchors_are_the_heads_in_readable_manifests(stage, folder):
    stage.add(10)
    stage.add(20)
    damage("torn manifest", folder / "20")
    (folder / "30").mkdir()
    assert stage.store.anchors() == [("checkpoint main/10", LedgerHead(seq=1, hash="0" * 64))]


def test_store_that_cannot_be_read_anchors_nothing(stage):
    stage.fill_disk()
    assert stage.store.anchors() == []
