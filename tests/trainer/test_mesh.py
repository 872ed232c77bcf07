from types import SimpleNamespace

import jax
import numpy as np
import pytest

from trainer.mesh import AXES, arrange, local_rows, make_mesh, place_batch, place_words


@pytest.mark.parametrize(("expert_axis", "replicas"), [(8, 1), (4, 2), (1, 8)])
def test_mesh_puts_experts_on_neighbours(expert_axis, replicas):
    mesh = make_mesh(expert_axis)
    assert mesh.axis_names == AXES
    ids = [[device.id for device in row] for row in mesh.devices]
    assert ids == np.arange(8).reshape(replicas, expert_axis).tolist()


def test_mesh_axis_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="expert axis is 3; it must divide the gang's 8 devices"):
        make_mesh(3)


def test_mesh_orders_devices_by_process():
    shuffled = [SimpleNamespace(process_index=p, id=i) for p, i in [(1, 9), (0, 1), (1, 8), (0, 0)]]
    crossing = arrange(shuffled, 4)
    assert [device.id for device in crossing[0]] == [0, 1, 8, 9]
    within = arrange(shuffled, 2)
    assert [[device.process_index for device in row] for row in within] == [[0, 0], [1, 1]]


def test_batch_rows_lie_in_mesh_order():
    mesh = make_mesh(4)
    rows = np.arange(32, dtype=np.int32).reshape(16, 2)
    assert local_rows(mesh, 16) == slice(0, 16)
    placed = place_batch(mesh, rows, 16)
    for number, device in enumerate(mesh.devices.flat):
        shard = next(s for s in placed.addressable_shards if s.device == device)
        np.testing.assert_array_equal(shard.data, rows[2 * number : 2 * number + 2])


def test_words_reach_every_device():
    words = place_words(make_mesh(8), (7, 2**32 - 1))
    assert words.shape == (8, 2)
    np.testing.assert_array_equal(jax.device_get(words), [[7, 2**32 - 1]] * 8)
