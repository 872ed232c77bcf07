"""The arrays of a checkpoint: written by orbax, read back on the host, compared by digest.

Orbax restores a flipped bit without a word, so nothing it returns is believed before its digest
agrees with the one taken on the device when the state was saved. Neither reading nor comparing
uses a device collective, which would have no timeout.
"""

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from contract.checkpoint import ArrayDigest
from trainer.integrity import Digest, add_digests, digest_numpy

SEPARATOR = "/"
Tree = TypeVar("Tree")
"""A nest of arrays: the train state, or any part of it."""


def name_arrays(state: object) -> dict[str, jax.Array]:
    """Return the leaves of the state by path ("params/blocks/w13")."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {
        jax.tree_util.keystr(path, simple=True, separator=SEPARATOR): leaf for path, leaf in leaves
    }


def list_digests(state: object, digests: Mapping[str, Digest]) -> list[ArrayDigest]:
    """Return the manifest's entries for the arrays of the state, by path."""
    return [
        ArrayDigest(
            path=path,
            shape=list(leaf.shape),
            dtype=str(leaf.dtype),
            s0=digests[path][0],
            s1=digests[path][1],
        )
        for path, leaf in sorted(name_arrays(state).items())
    ]


class ArrayWriter:
    """One asynchronous save of the gang's arrays into one folder.

    Orbax meets at barriers of the coordination service; a peer that failed never comes. So the
    commit is waited for in a thread of its own, which may be left behind.
    """

    def __init__(self, name: str, ranks: int, timeout_s: int) -> None:
        everyone = ocp.options.MultiprocessingOptions(
            active_processes=set(range(ranks)), barrier_sync_key_prefix=name
        )
        self._checkpointer = ocp.AsyncCheckpointer(
            _make_handler(everyone),
            async_options=ocp.options.AsyncOptions(timeout_secs=timeout_s),
            multiprocessing_options=everyone,
        )
        self._finished = threading.Event()
        self._error: BaseException | None = None

    def start(self, state: object, folder: Path) -> None:
        """Copy the arrays to the host and go on writing them; returns once they are copied."""
        named = _as_orbax_tree(name_arrays(state))
        self._checkpointer.save(folder, args=ocp.args.PyTreeSave(named))
        threading.Thread(target=self._wait, name="commit", daemon=True).start()

    def poll(self, timeout_s: float) -> bool:
        """Return whether this rank's part of the commit is over; raises what it failed with."""
        if not self._finished.wait(timeout_s):
            return False
        if self._error is not None:
            raise self._error
        return True

    def _wait(self) -> None:
        try:
            self._checkpointer.wait_until_finished()
        except BaseException as error:  # noqa: BLE001  carried to the thread that polls
            self._error = error
        finally:
            self._finished.set()


def restore_arrays(folder: Path, like: Tree) -> Tree:
    """Return the state in `folder` with the shapes, types and shardings of `like`.

    Each process reads its own shards and waits for nobody.
    """
    named = name_arrays(like)
    arguments = {
        path: ocp.ArrayRestoreArgs(
            sharding=leaf.sharding, global_shape=leaf.shape, dtype=leaf.dtype, strict=True
        )
        for path, leaf in named.items()
    }
    found = _read_by_orbax(folder, named, arguments)
    return jax.tree.unflatten(jax.tree.structure(like), [found[path] for path in named])


def read_arrays(folder: Path, arrays: Iterable[ArrayDigest]) -> dict[str, np.ndarray]:
    """Return whole arrays in host memory."""
    wanted = {
        array.path: jax.ShapeDtypeStruct(tuple(array.shape), np.dtype(array.dtype))
        for array in arrays
    }
    arguments = {path: ocp.RestoreArgs(restore_type=np.ndarray) for path in wanted}
    return _read_by_orbax(folder, wanted, arguments)


def digest_held(state: object) -> dict[str, Digest]:
    """Return this process's share of the digest of each array, from what its devices hold.

    Each element counts once in the gang: of equal shards only the first replica counts.
    """
    shares: dict[str, Digest] = {}
    for path, leaf in name_arrays(state).items():
        parts = [
            _digest_shard(shard, leaf.shape)
            for shard in leaf.addressable_shards
            if shard.replica_id == 0
        ]
        shares[path] = add_digests(parts)
    return shares


def compare_digests(
    expected: Iterable[ArrayDigest], shares: Iterable[Mapping[str, Digest]]
) -> str | None:
    """Return the path of the first array whose shares do not add up to its digest, or None."""
    shares = list(shares)
    for array in expected:
        parts = [share[array.path] for share in shares if array.path in share]
        total = add_digests((part[0], part[1]) for part in parts)
        if not parts or total != (array.s0, array.s1):
            return array.path
    return None


def _digest_shard(shard: jax.Shard, whole: tuple[int, ...]) -> Digest:
    start = [index.start or 0 for index in shard.index]
    return digest_numpy(np.asarray(shard.data), start=start, whole=whole)


def _read_by_orbax(
    folder: Path, named: Mapping[str, Any], arguments: Mapping[str, ocp.RestoreArgs]
) -> dict[str, Any]:
    alone = ocp.options.MultiprocessingOptions(
        primary_host=jax.process_index(), active_processes={jax.process_index()}
    )
    handler = _make_handler(alone)
    request = ocp.args.PyTreeRestore(
        item=_as_orbax_tree(named), restore_args=_as_orbax_tree(arguments), partial_restore=True
    )
    found = handler.restore(epath.Path(folder), args=request)
    return {_from_orbax_name(name): value for name, value in found.items()}


def _make_handler(processes: ocp.options.MultiprocessingOptions) -> ocp.PyTreeCheckpointHandler:
    # Not replica-parallel: that compiles a slice for every shape in the middle of the first save.
    registry = ocp.type_handlers.create_type_handler_registry(
        (jax.Array, ocp.type_handlers.ArrayHandler(use_replica_parallel=False)),
        (np.ndarray, ocp.type_handlers.NumpyHandler()),
    )
    return ocp.PyTreeCheckpointHandler(
        multiprocessing_options=processes, type_handler_registry=registry
    )


def _as_orbax_tree(named: Mapping[str, Any]) -> dict[str, Any]:
    # Orbax makes file names of keys.
    return {path.replace(SEPARATOR, "."): value for path, value in named.items()}


def _from_orbax_name(name: str) -> str:
    return name.replace(".", SEPARATOR)
