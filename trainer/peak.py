"""The peak that MFU is measured against, where none is declared: what a matrix product reaches.

On a CPU the virtual devices of all ranks share the machine, so every rank measures at the same time
and the rates are added: the sum is what the gang can reach together.
"""

import time

import jax
import jax.numpy as jnp

SIDE = 512
ROUNDS = 3
PRODUCTS = 8
"""A few milliseconds each: long against a call, short against a start."""


def measure_matrix_flops() -> float:
    """Return the best FLOP/s of float32 products of SIDE x SIDE on one local device."""
    device = jax.local_devices()[0]
    multiply = jax.jit(lambda a, b: a @ b)
    left = jax.device_put(jnp.ones((SIDE, SIDE), jnp.float32), device)
    multiply(left, left).block_until_ready()
    return max(_time_round(multiply, left) for _ in range(ROUNDS))


def _time_round(multiply: jax.stages.Wrapped, left: jax.Array) -> float:
    start_s = time.perf_counter()
    product = left
    for _ in range(PRODUCTS):
        product = multiply(product, left)
    product.block_until_ready()
    return PRODUCTS * 2 * SIDE**3 / (time.perf_counter() - start_s)
