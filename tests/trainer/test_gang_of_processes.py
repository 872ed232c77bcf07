"""Real ranks of the real trainer whose replicas lie in different processes."""

import dataclasses

import pytest

from contract.config import Mesh
from contract.exits import CASCADE, Exit
from contract.wire import Restore
from tests.conformance.harness import Run
from tests.conformance.trainers import JAX
from tests.trainer.conftest import SMALL

SMALL_SNAKE = {
    "width": SMALL["width"],
    "heads": SMALL["heads"],
    "kv_heads": SMALL["kvHeads"],
    "head_dim": SMALL["headDim"],
    "window": SMALL["window"],
    "experts": SMALL["experts"],
    "experts_per_token": SMALL["expertsPerToken"],
    "latent": SMALL["latent"],
    "expert_width": SMALL["expertWidth"],
    "shared_width": SMALL["sharedWidth"],
}


@pytest.mark.faults
def test_two_replicas_in_two_processes_replay_the_same_bits_after_a_kill(tmp_path):
    kind = dataclasses.replace(JAX, shape=SMALL_SNAKE)
    mesh = Mesh(ranks=2, devices_per_rank=4, expert_axis=4)
    run = Run(tmp_path, kind, total_steps=26, mesh=mesh)
    gang = run.launch()
    try:
        gang.await_verified(10)
        gang.await_step(14)
        gang.kill(1)
        assert gang.await_end()[0] in CASCADE
    finally:
        gang.close()
    first = {record.step: record for record in run.steps()}

    again = run.launch(2, restore=Restore.REQUIRED)
    try:
        assert again.await_end() == [Exit.DONE, Exit.DONE], again.describe()
    finally:
        again.close()
    second = run.steps(2)
    assert second[0].step in (10, 20)
    assert second[-1].step == 25
    replayed = [record for record in second if record.step in first]
    assert replayed
    for record in replayed:
        before = first[record.step]
        assert (record.loss, record.grad_norm, record.drops) == (
            before.loss,
            before.grad_norm,
            before.drops,
        )
    assert run.manifest(26).mesh["replicas"] == 2
