"""The shape of the model, how it is spread over a mesh, and what both cost.

Widths of the `hero` preset and the counting conventions: the public record of Marin's 535B-A23B run
(marin-community/marin#8435).
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Count = Annotated[int, Field(ge=1, le=2**40, strict=True)]
"""Bounded where no machine will hold it, so that sums over a shape stay small."""
Decimal = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$", max_length=60)]
CapacityPercent = Annotated[int, Field(ge=1, le=1000, strict=True)]
Finding = tuple[str, str]
"""A rule id and a sentence that names field, value and bound."""

MAX_LOCAL_EXPERTS = 255
"""Expert ids ride in the payload as id + 1 (0 is empty), and bfloat16 is exact only up to 256."""


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class ModelShape(_Frozen):
    """Every size of the model. Reals are decimal strings, so that the shape hashes exactly."""

    vocabulary: Count
    width: Count
    blocks: Annotated[int, Field(ge=1, le=10_000, strict=True)]
    heads: Count
    kv_heads: Count
    head_dim: Count
    window: Count
    """Keys that a sliding-window block sees, the query's own position included."""
    full_attention_every: Count
    """Every n-th block and the last: full causal, no RoPE. The others: window and half-RoPE."""
    experts: Count
    experts_per_token: Count
    latent: Count
    """Width in which routed experts work: W_down, RMSNorm, experts, combine, W_up."""
    expert_width: Count
    shared_experts: Count
    shared_width: Count
    router_scale: Decimal = "2.5"
    """Sum of the routing weights of one token."""
    z_loss: Decimal = "0.0001"
    """Factor of the mean squared logsumexp of the output logits."""
    activation: Literal["float32", "bfloat16"] = "float32"
    full_kv_heads_counted: Count | None = None
    """KV heads of a full block in the FLOPs count, where they differ (the record has 6 of 12)."""


class Execution(_Frozen):
    """How tokens reach their experts. Capacities are whole percents of the balanced load."""

    transport: Literal["pooled_wave"] = "pooled_wave"
    waves: Count = 3
    sender_capacity_percent: CapacityPercent = 110
    receiver_capacity_percent: CapacityPercent = 115


PRESETS: dict[str, ModelShape] = {
    "tiny": ModelShape(
        vocabulary=256,
        width=64,
        blocks=2,
        heads=4,
        kv_heads=2,
        head_dim=16,
        window=32,
        full_attention_every=2,
        experts=16,
        experts_per_token=4,
        latent=32,
        expert_width=64,
        shared_experts=1,
        shared_width=64,
    ),
    "hero": ModelShape(
        vocabulary=128_256,
        width=6_144,
        blocks=48,
        heads=48,
        kv_heads=12,
        head_dim=128,
        window=2_048,
        full_attention_every=4,
        experts=384,
        experts_per_token=8,
        latent=3_072,
        expert_width=3_072,
        shared_experts=2,
        shared_width=3_072,
        activation="bfloat16",
        full_kv_heads_counted=6,
    ),
}


def shape_of(preset: str, overrides: Mapping[str, object] | None = None) -> ModelShape:
    """Return a preset with some fields replaced; names in camelCase or snake_case.

    Raises:
        ValueError: unknown preset, or (pydantic's ValidationError) an unknown or bad field.
    """
    if preset not in PRESETS:
        raise ValueError(f'preset "{preset}" is unknown; presets are {", ".join(sorted(PRESETS))}')
    fields = PRESETS[preset].model_dump(by_alias=True)
    fields |= {to_camel(name): value for name, value in (overrides or {}).items()}
    return ModelShape.model_validate(fields)


def is_full_attention(shape: ModelShape, block: int) -> bool:
    """Return whether block 0..blocks-1 sees its whole past."""
    return (block + 1) % shape.full_attention_every == 0 or block == shape.blocks - 1


def parameters(shape: ModelShape) -> tuple[int, int]:
    """Return (total, active) weights of the matrices; norm gains (below 0.001%) are left out.

    Active leaves out embedding, head and unselected experts, as the public record does.
    """
    expert = 3 * shape.latent * shape.expert_width
    dense = (
        2 * shape.width * shape.latent
        + shape.shared_experts * 3 * shape.width * shape.shared_width
        + 2 * shape.width * (shape.heads + shape.kv_heads) * shape.head_dim
        + shape.width * shape.experts
    )
    total = shape.blocks * (shape.experts * expert + dense)
    active = shape.blocks * (shape.experts_per_token * expert + dense)
    return total + 2 * shape.vocabulary * shape.width, active


def flops_per_token(shape: ModelShape, context_length: int) -> int:
    """Return the analytic FLOPs of training one token: three times the forward pass.

    The convention of the public record: spans are uncut (no causal half), the embedding look-up and
    recomputation are not counted. The hero at 4,096: 1.49736e11 (published 1.49737e11).
    """
    blocks = (_block_flops(shape, block, context_length) for block in range(shape.blocks))
    return 3 * (sum(blocks) + 2 * shape.width * shape.vocabulary)


def _block_flops(shape: ModelShape, block: int, context_length: int) -> int:
    is_full = is_full_attention(shape, block)
    span = context_length if is_full else min(shape.window, context_length)
    kv_heads = (shape.full_kv_heads_counted if is_full else None) or shape.kv_heads
    query_width = shape.heads * shape.head_dim
    routed = shape.experts_per_token * 6 * shape.latent * shape.expert_width
    latent = 4 * shape.width * shape.latent
    shared = shape.shared_experts * 6 * shape.width * shape.shared_width
    router = 2 * shape.width * shape.experts
    inputs = 2 * shape.width * (query_width + 2 * kv_heads * shape.head_dim)
    output = 2 * query_width * shape.width
    attention = 4 * span * query_width + 3 * span * shape.heads
    return routed + latent + shared + router + inputs + output + attention


def pool_rows(execution: Execution, assignments: int, expert_axis: int) -> int:
    """Return the rows per (destination, wave): ceil(c_send A / (S W)), exactly.

    `assignments` A are those of one device. In floats 1.10 q rounds up one too far for some q.
    """
    share = Fraction(execution.sender_capacity_percent, 100)
    return ceil(share * assignments / (expert_axis * execution.waves))


def bank_rows(execution: Execution, assignments: int, local_experts: int) -> int:
    """Return the rows per (local expert, wave): ceil(c_recv A / (El W)), exactly."""
    share = Fraction(execution.receiver_capacity_percent, 100)
    return ceil(share * assignments / (local_experts * execution.waves))


def check_mesh(  # six sizes, each of another owner: bundling them would only hide the list
    shape: ModelShape,
    execution: Execution,
    expert_axis: int,
    replicas: int,
    tokens_per_step: int,
    context_length: int,
) -> list[Finding]:
    """Return what forbids this model on a (replicas, expert_axis) mesh; empty when it fits."""
    findings = _check_shape(shape) + _check_experts(shape, expert_axis)
    findings += _check_batch(expert_axis * replicas, tokens_per_step, context_length)
    return findings + _check_waves(shape, execution, tokens_per_step // (expert_axis * replicas))


def _check_shape(shape: ModelShape) -> list[Finding]:
    findings: list[Finding] = []
    if shape.heads % shape.kv_heads:
        text = f"heads is {shape.heads}; it must be a multiple of kvHeads ({shape.kv_heads})"
        findings.append(("model-kv-heads", text))
    if shape.head_dim % 4:
        text = f"headDim is {shape.head_dim}; half-RoPE needs a multiple of 4"
        findings.append(("model-head-dim", text))
    if shape.experts_per_token >= shape.experts:
        text = (
            f"expertsPerToken is {shape.experts_per_token}; it must be below experts"
            f" ({shape.experts}): quantile balancing reads the next best expert"
        )
        findings.append(("model-experts-per-token", text))
    return findings


def _check_experts(shape: ModelShape, expert_axis: int) -> list[Finding]:
    if shape.experts % expert_axis:
        text = (
            f"experts is {shape.experts}; it must be a multiple of the expert axis ({expert_axis})"
        )
        return [("mesh-experts", text)]
    local = shape.experts // expert_axis
    if local > MAX_LOCAL_EXPERTS:
        text = (
            f"experts is {shape.experts}, which is {local} a device; at most {MAX_LOCAL_EXPERTS}"
            " fit: larger ids are not exact in the payload"
        )
        return [("mesh-local-experts", text)]
    return []


def _check_batch(devices: int, tokens_per_step: int, context_length: int) -> list[Finding]:
    if tokens_per_step % context_length:
        text = (
            f"tokensPerStep is {tokens_per_step}; it must be a multiple of the context length"
            f" ({context_length})"
        )
        return [("mesh-sequences", text)]
    sequences = tokens_per_step // context_length
    if sequences % devices:
        text = (
            f"a step holds {sequences} sequences of {context_length} tokens; that must be a"
            f" multiple of the {devices} devices, since each sequence lies whole on one"
        )
        return [("mesh-batch", text)]
    return []


def _check_waves(shape: ModelShape, execution: Execution, device_tokens: int) -> list[Finding]:
    assignments = device_tokens * shape.experts_per_token
    if execution.waves > max(assignments, 1):
        text = f"waves is {execution.waves}; a device has only {assignments} assignments a step"
        return [("mesh-waves", text)]
    return []
