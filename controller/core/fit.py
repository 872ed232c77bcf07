"""Whether another execution fits the gang: the mesh's rules, and memory as it was measured."""

from contract.model import Execution, bank_rows, check_mesh, pool_rows
from contract.plan import Plan
from controller.core.terms import Fit

BYTES = 4
"""An element of a buffer; float32 on this fleet, an upper bound for bfloat16."""
COPIES = 6
"""Sent, received and expert rows, each kept for the backward pass and met by its gradient."""
HEADROOM_PERCENT = 90
"""Of a machine's memory that the ranks may fill."""


def find_misfits(fit: Fit, plan: Plan, execution: Execution) -> list[str]:
    """Return why the mesh cannot hold `execution` at some context length; empty when it can."""
    return sorted(
        {
            text
            for stage in plan.context
            for _, text in check_mesh(
                fit.shape,
                execution,
                fit.expert_axis,
                fit.replicas,
                plan.tokens_per_step,
                stage.length,
            )
        }
    )


def buffer_bytes(fit: Fit, plan: Plan, execution: Execution) -> int:
    """Return the bytes that one rank's exchange buffers take in a step, all waves and blocks."""
    shape = fit.shape
    tokens = plan.tokens_per_step // (fit.expert_axis * fit.replicas)
    assignments = tokens * shape.experts_per_token
    local = max(1, shape.experts // fit.expert_axis)
    sent = fit.expert_axis * pool_rows(execution, assignments, fit.expert_axis)
    banked = local * bank_rows(execution, assignments, local)
    width = sent * shape.latent + banked * (shape.latent + shape.expert_width)
    return execution.waves * width * shape.blocks * BYTES * COPIES * fit.devices_per_rank


def memory_limit_bytes(machine_bytes: int, ranks: int) -> int:
    """Return what one of `ranks` ranks on a machine may use."""
    return machine_bytes * HEADROOM_PERCENT // 100 // max(1, ranks)
