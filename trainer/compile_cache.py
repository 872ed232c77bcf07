"""Compiled programs outlive their process: a restarted rank loads what an earlier one compiled.

The stored program is the one that ran before, so a warm start gives the same bits as a cold one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

# The process number by which JAX decides who writes its cache has no public name.
from jax._src import distributed

from trainer.seat import Seat

CACHE_DIR = ".jax_cache"
ENV_CACHE_DIR = "JAX_COMPILATION_CACHE_DIR"
"""JAX's own variable; set, it names the place for the programs of many runs."""


def open_cache(seat: Seat) -> None:
    """Keep every compiled program, whatever it cost, in a folder of this rank's own."""
    root = Path(os.environ.get(ENV_CACHE_DIR) or seat.run_dir / CACHE_DIR)
    folder = root / f"{seat.rank}-of-{seat.ranks}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # XLA's own caches would lie in the same folder, and their path is part of each program's key:
    # a folder that was moved, as from an admission test to its launch, would hold nothing.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")


@contextmanager
def storing_programs() -> Iterator[None]:
    """Store what is compiled inside.

    JAX stores programs of process 0 only, for the sake of file systems that dislike many writers.
    But on a CPU the programs of other processes differ from those of process 0, so that they
    would compile anew at every start, and the gang waits for the slowest. Folders do not contend.
    """
    held = distributed.global_state.process_id
    distributed.global_state.process_id = 0
    try:
        yield
    finally:
        distributed.global_state.process_id = held
