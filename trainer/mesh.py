"""The (replica, expert) mesh over the devices of all processes, and what is placed on it.

Experts are sharded over `expert`, every replica holds them all. The batch is sharded over both
axes: each device takes whole sequences, in mesh order.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

REPLICA = "replica"
EXPERT = "expert"
AXES = (REPLICA, EXPERT)

BATCH = P(AXES)
REPLICATED = P()


def make_mesh(expert_axis: int) -> Mesh:
    """Return the mesh over all devices of all processes; the expert axis runs over neighbours.

    Devices are ordered by process, so an expert axis larger than the devices of one process crosses
    process boundaries and a smaller one never does.

    Raises:
        ValueError: `expert_axis` does not divide the number of devices.
    """
    grid = arrange(jax.devices(), expert_axis)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto, AxisType.Auto))


def arrange(devices: Sequence[Any], expert_axis: int) -> np.ndarray:
    """Return the devices as [replica, expert], in the order of their processes."""
    if expert_axis < 1 or len(devices) % expert_axis:
        raise ValueError(
            f"the expert axis is {expert_axis}; it must divide the gang's {len(devices)} devices"
        )
    ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
    return np.array(ordered, dtype=object).reshape(-1, expert_axis)


def local_rows(mesh: Mesh, sequences: int) -> slice:
    """Return which of the `sequences` of a global batch belong to this process: one range."""
    mine = [n for n, d in enumerate(mesh.devices.flat) if d.process_index == jax.process_index()]
    assert mine == list(range(mine[0], mine[-1] + 1)), "devices of a process must be neighbours"
    each = sequences // mesh.size
    return slice(mine[0] * each, (mine[-1] + 1) * each)


def place_batch(mesh: Mesh, rows: np.ndarray, sequences: int) -> jax.Array:
    """Return the global [sequences, length] array of which this process holds `rows`."""
    shape = (sequences, *rows.shape[1:])
    sharding = NamedSharding(mesh, BATCH)
    return jax.make_array_from_process_local_data(sharding, rows, shape)


def place_words(mesh: Mesh, words: tuple[int, int]) -> jax.Array:
    """Return uint32[devices, 2] in which each device carries the words of its own process."""
    shape = (mesh.size, 2)
    rows = local_rows(mesh, mesh.size)
    local = np.tile(np.array(words, np.uint32), (rows.stop - rows.start, 1))
    return jax.make_array_from_process_local_data(NamedSharding(mesh, BATCH), local, shape)
