"""What a checkpoint store must do."""

import pytest

from controller.ports import EpochLost
from tests.suites.stages import PLAN, FakeStoreStage, RealStoreStage


@pytest.fixture(params=[FakeStoreStage, RealStoreStage], ids=["fake", "real"])
def stage(request, tmp_path):
    return request.param(tmp_path)


def views(stage):
    return stage.store.observe().checkpoints


def test_empty_store_never_held_a_complete_one(stage):
    store = stage.store.observe()
    assert (store.checkpoints, store.ever_complete) == ([], False)


def test_checkpoints_are_listed_by_line_and_by_step_as_a_number(stage):
    for step in (100, 90):
        stage.add(step)
    stage.add(5, line="main-2")
    assert [(view.line, view.step) for view in views(stage)] == [
        ("main", 90),
        ("main", 100),
        ("main-2", 5),
    ]
    assert stage.store.observe().ever_complete


def test_complete_checkpoint_names_its_plan_and_is_not_yet_verified(stage):
    stage.add(10)
    view = views(stage)[0]
    assert view.plan_sha == PLAN.sha
    assert view.manifest_sha256 is not None
    assert (view.verified, view.quarantined) == (False, None)


def test_verified_checkpoint_is_shown_so(stage):
    stage.add(10)
    before = views(stage)[0]
    stage.verify(10)
    assert views(stage)[0] == before.model_copy(update={"verified": True})


def test_damaged_manifest_makes_it_neither_of_a_plan_nor_verified(stage):
    stage.add(10)
    stage.verify(10)
    assert views(stage)[0].verified
    stage.damage_manifest(10)
    view = views(stage)[0]
    assert (view.plan_sha, view.manifest_sha256, view.verified) == (None, None, False)
    assert stage.store.observe().ever_complete


def test_quarantined_checkpoint_keeps_the_first_reason(stage):
    stage.add(10)
    stage.damage_manifest(10)
    stage.store.quarantine("main", 10, "its manifest is damaged", attempt=1)
    stage.store.quarantine("main", 10, "another reason", attempt=2)
    assert views(stage)[0].quarantined == "its manifest is damaged"


def test_probe_of_a_healthy_store_finds_no_problem(stage):
    view = stage.store.probe()
    assert view.problem is None
    assert view.free_bytes > 0


def test_probe_of_a_store_that_takes_no_file_says_so(stage):
    stage.fill_disk()
    assert stage.store.probe().problem


def test_former_controller_marks_nothing(stage):
    stage.add(10)
    stage.damage_manifest(10)
    former = stage.store
    stage.store = stage.take_over()
    with pytest.raises(EpochLost):
        former.quarantine("main", 10, "late", attempt=1)
    assert views(stage)[0].quarantined is None
