import os

import jax
import pytest

from contract.model import Execution, shape_of

# Before any test touches a device: eight virtual ones, and no silent promotion of ranks or types.
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def start_backend():
    """Start XLA with cheap compilation: these tests compile much and compute little.

    The flag is read once, at the start; processes that tests spawn shall not inherit it.
    """
    flags = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{flags or ''} --xla_backend_optimization_level=0"
    jax.devices()
    if flags is None:
        del os.environ["XLA_FLAGS"]
    else:
        os.environ["XLA_FLAGS"] = flags


start_backend()

SMALL = {
    "vocabulary": 32,
    "width": 16,
    "heads": 2,
    "kvHeads": 1,
    "headDim": 8,
    "window": 4,
    "experts": 8,
    "expertsPerToken": 2,
    "latent": 8,
    "expertWidth": 8,
    "sharedExperts": 2,
    "sharedWidth": 8,
}


@pytest.fixture(scope="session")
def small_shape():
    return shape_of("tiny", SMALL)


@pytest.fixture(scope="session")
def ample():
    return Execution(sender_capacity_percent=800, receiver_capacity_percent=800)
