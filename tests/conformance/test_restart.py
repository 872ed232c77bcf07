"""Killed and started again: replayed bits, damaged checkpoints, and what may be started from."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.checkpoint import read_quarantine_mark
from contract.plan import Line
from contract.wire import MANIFEST_FILE, QUARANTINED_SUFFIX, STATE_DIR, Restore
from tests.conformance.harness import Gang, Run, retimed
from tests.conformance.trainers import every_trainer, quick_trainer
from tests.waiting import wait_for

FAR = 40_000


def kill_after(run: Run, launch: Callable[..., Gang], step: int) -> list[str]:
    """Run to a verified checkpoint and some steps past it, kill all; return the losses."""
    gang = launch(run)
    gang.await_verified(step)
    gang.await_step(step + 5)
    gang.kill()
    gang.await_end()
    return [record.loss for record in run.steps()]


@every_trainer
def test_killed_gang_replays_the_same_bits_from_its_newest_checkpoint(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    losses = kill_after(run, launch, 20)
    newest = run.checkpoint_steps()[-1]
    (run.checkpoint(0).with_name(".work") / "a1-9999" / STATE_DIR).mkdir(parents=True)

    again = launch(run, 2, restore=Restore.REQUIRED)
    replayed = again.await_step(len(losses) + 2)
    assert replayed[0].step == newest
    for record in replayed:
        if record.step < len(losses):
            assert record.loss == losses[record.step], record.step
    tokens = again.metrics(0)["moe_train_tokens_total"]
    per_step = run.plan.tokens_per_step
    assert tokens[(("replay", "true"),)] == (len(losses) - newest) * per_step
    assert not (run.checkpoint(0).with_name(".work") / "a1-9999").exists()


@quick_trainer
def test_two_fresh_runs_train_the_same_bits(kind, tmp_path, launch):
    losses = []
    for name in ("left", "right"):
        run = Run(tmp_path / name, kind, total_steps=15)
        gang = launch(run)
        assert gang.await_end() == [0, 0], gang.describe()
        losses.append([(record.loss, record.grad_norm) for record in run.steps()])
    assert losses[0] == losses[1]


@quick_trainer
def test_run_killed_between_last_checkpoint_and_exit_only_ends_again(kind, make_run, launch):
    run = make_run(kind, total_steps=20)
    assert launch(run).await_end() == [0, 0]
    again = launch(run, 2, restore=Restore.REQUIRED)
    assert again.await_end() == [0, 0], again.describe()
    assert run.steps(2) == []
    assert run.checkpoint_steps()[-1] == 20


def flip_byte(path: Path, share: float = 0.5) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * share)] ^= 0x10
    path.write_bytes(data)


def largest_file(checkpoint: Path) -> Path:
    files = (path for path in (checkpoint / STATE_DIR).rglob("*") if path.is_file())
    return max(files, key=lambda path: (path.stat().st_size, path.name))


def damage_array(run: Run, step: int) -> str:
    path = largest_file(run.checkpoint(step))
    flip_byte(path)
    return str(path.relative_to(run.checkpoint(step)))


def damage_manifest(run: Run, step: int) -> str:
    flip_byte(run.checkpoint(step) / MANIFEST_FILE)
    return MANIFEST_FILE


def remove_manifest(run: Run, step: int) -> str:
    (run.checkpoint(step) / MANIFEST_FILE).unlink()
    return MANIFEST_FILE


def truncate_file(run: Run, step: int) -> str:
    path = largest_file(run.checkpoint(step))
    path.write_bytes(path.read_bytes()[:-1])
    return str(path.relative_to(run.checkpoint(step)))


def remove_file(run: Run, step: int) -> str:
    path = largest_file(run.checkpoint(step))
    path.unlink()
    return str(path.relative_to(run.checkpoint(step)))


def add_file(run: Run, step: int) -> str:
    (run.checkpoint(step) / STATE_DIR / "stranger").write_bytes(b"x")
    return f"{STATE_DIR}/stranger"


def copy_of_another_step(run: Run, step: int) -> str:
    shutil.rmtree(run.checkpoint(step))
    shutil.copytree(run.checkpoint(step - 10), run.checkpoint(step))
    return MANIFEST_FILE


DAMAGES = (
    damage_manifest,
    remove_manifest,
    truncate_file,
    remove_file,
    add_file,
    copy_of_another_step,
)


def assert_quarantined(kind, make_run, launch, damage: Callable[[Run, int], str]) -> None:
    run = make_run(kind, total_steps=FAR)
    losses = kill_after(run, launch, 20)
    older, newest = run.checkpoint_steps()[-2:]
    subject = damage(run, newest)

    again = launch(run, 2, restore=Restore.REQUIRED)
    replayed = again.await_step(older + 2)
    assert replayed[0].step == older
    mark = read_quarantine_mark(run.mark(newest, QUARANTINED_SUFFIX).read_bytes())
    assert subject in mark.reason, mark.reason
    assert (mark.step, mark.attempt) == (newest, 2)
    assert [r.loss for r in replayed[:3]] == losses[older : older + 3]
    # Its step is saved anew, and the damaged one is kept aside with its mark.
    wait_for(
        lambda: not run.mark(newest, QUARANTINED_SUFFIX).exists() and run.mark(newest).exists(),
        kind.patience_s,
        f"a new checkpoint {newest}",
    )
    aside = run.checkpoint(0).with_name(".quarantine")
    assert {path.name for path in aside.iterdir()} == {
        f"{newest}-a2",
        f"{newest}-a2{QUARANTINED_SUFFIX}",
    }


@every_trainer
def test_flipped_bit_of_an_array_is_found_and_the_older_checkpoint_used(kind, make_run, launch):
    assert_quarantined(kind, make_run, launch, damage_array)


@quick_trainer
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_is_quarantined_and_the_older_one_used(kind, make_run, launch, damage):
    assert_quarantined(kind, make_run, launch, damage)


@quick_trainer
def test_damaged_verified_mark_only_means_not_verified(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    kill_after(run, launch, 20)
    for step in set(run.checkpoint_steps()) - set(run.verified_steps()):
        shutil.rmtree(run.checkpoint(step))  # the kill came between the rename and the mark
    older, newest = run.checkpoint_steps()[-2:]
    flip_byte(run.mark(newest))
    only_verified = launch(run, 2, restore=Restore.VERIFIED)
    assert only_verified.await_step(older)[0].step == older
    only_verified.kill()
    only_verified.await_end()
    newest = run.checkpoint_steps()[-1]
    run.mark(newest).write_bytes(b"{}")
    again = launch(run, 3, restore=Restore.REQUIRED)
    assert again.await_step(newest)[0].step == newest


@quick_trainer
def test_checkpoint_past_a_fork_is_left_alone(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    losses = kill_after(run, launch, 20)
    older, newest = run.checkpoint_steps()[-2:]
    parent = run.plan
    run.plan = run.publish(retimed_before(run, newest))
    again = launch(run, 2, restore=Restore.REQUIRED)
    steps = again.await_step(older + 1)
    assert steps[0].step == older
    assert steps[0].loss == losses[older]
    assert not run.mark(newest, QUARANTINED_SUFFIX).exists()
    assert run.plan.parent == parent.sha


def retimed_before(run: Run, step: int):
    return retimed(run.plan, effective=step - 2, total_steps=FAR - 100)


@quick_trainer
def test_new_line_leaves_at_its_fork_and_saves_apart(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    losses = kill_after(run, launch, 20)
    older, newest = run.checkpoint_steps()[-2:]
    parent = run.plan
    line = Line(name="b", fork_step=older, offset_blocks=3)
    changes = {"kind": "line", "parent": parent.sha, "effective": older}
    run.plan = run.publish(
        parent.model_copy(update={**changes, "lineage": [*parent.lineage, line]})
    )
    run.point_to(run.plan.sha)
    again = launch(run, 2, restore=Restore.REQUIRED)
    steps = again.await_step(older + 12)
    assert steps[0].step == older
    assert {record.line for record in steps} == {"b"}
    assert steps[0].loss != losses[older]  # other text: three blocks were skipped
    wait_for(lambda: run.verified_steps("b"), kind.patience_s, "a checkpoint on line b")
    assert newest in run.checkpoint_steps()
    again.kill()
    again.await_end()
    saved = run.checkpoint_steps("b")[-1]
    assert saved > older
    resumed = launch(run, 3, restore=Restore.REQUIRED).await_step(saved + 2)
    assert resumed[0].step == saved
    recorded = {record.step: record.loss for record in run.steps(2)}
    for record in resumed:
        assert record.loss == recorded.get(record.step, record.loss), record.step


@quick_trainer
@pytest.mark.parametrize("restore", [Restore.REQUIRED, Restore.VERIFIED])
def test_required_checkpoint_that_is_not_there_ends_82(kind, make_run, launch, restore):
    gang = launch(make_run(kind), restore=restore)
    assert gang.await_end() == [82, 82], gang.describe()
    assert gang.detail(0).text


@quick_trainer
def test_all_checkpoints_damaged_ends_82_and_keeps_them(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    kill_after(run, launch, 20)
    steps = run.checkpoint_steps()
    for step in steps:
        damage_array(run, step)
    gang = launch(run, 2, restore=Restore.REQUIRED)
    assert gang.await_end() == [82, 82], gang.describe()
    assert run.checkpoint_steps() == steps


@quick_trainer
def test_unwritable_line_fails_saves_but_not_training(kind, make_run, launch):
    run = make_run(kind, total_steps=FAR)
    run.checkpoint(0).parent.parent.mkdir()
    run.checkpoint(0).parent.write_bytes(b"a file where a folder should be")
    gang = launch(run)
    gang.await_step(25)
    failures = gang.metrics(0)["moe_train_checkpoint_failures_total"]
    assert failures[(("reason", "other"),)] >= 1
    assert sum(failures.values()) == failures[(("reason", "other"),)]
    assert "saving" in gang.stderr(0)
    run.checkpoint(0).parent.unlink()
    gang.await_verified(run.steps()[-1].step // 10 * 10 + 10)
