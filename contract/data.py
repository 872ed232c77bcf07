"""Where every sequence of every step comes from: a pure function of (plan, line, step).

Tokens are consumed in blocks of a fixed size. A block holds `parts` units of each source, one
unit being the longest declared context, so a block holds the same tokens of each source at any
context length. Each source has a cursor in tokens on its own endless stream; the stream walks
the source's units in a keyed order, another one in each epoch.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from contract.plan import MixtureStage, Plan

FEISTEL_ROUNDS = 4


@dataclass(frozen=True)
class Segment:
    """One sequence: `length` tokens at `position` of the endless stream of `source`."""

    source: str
    position: int
    length: int


@dataclass(frozen=True)
class _Order:
    """Which source fills each unit of a block, and how many of the same came before."""

    sources: tuple[str, ...]
    before: tuple[int, ...]


def segments_at(plan: Plan, step: int) -> tuple[Segment, ...]:
    """Return the sequences of `step` in batch order.

    Raises:
        ValueError: `step` is outside the plan.
    """
    plan.require_step(step)
    length = plan.context_at(step).length
    start = step * plan.tokens_per_step
    return tuple(
        _segment_of(plan, step, start + offset, length)
        for offset in range(0, plan.tokens_per_step, length)
    )


def _segment_of(plan: Plan, step: int, position: int, length: int) -> Segment:
    unit_tokens = plan.mixture.unit_tokens
    index = plan.mixture_index_at(step)
    stage = plan.mixture.stages[index]
    block, inside = divmod(position, plan.mixture.block_tokens)
    slot, offset = divmod(inside, unit_tokens)
    order = _order_of(stage)
    source = order.sources[slot]
    blocks = block - plan.first_block(stage.start)
    units = blocks * stage.parts[source] + order.before[slot]
    cursor = _cursor_before(plan, index, source) + units * unit_tokens + offset
    return Segment(source, cursor + _skipped(plan, step, source), length)


def _cursor_before(plan: Plan, index: int, source: str) -> int:
    """Return the tokens of `source` that the mixture stages before `index` consume."""
    units = 0
    stages = plan.mixture.stages
    for stage, following in pairwise(stages[: index + 1]):
        blocks = plan.first_block(following.start) - plan.first_block(stage.start)
        units += blocks * stage.parts.get(source, 0)
    return units * plan.mixture.unit_tokens


def _skipped(plan: Plan, step: int, source: str) -> int:
    """Return the tokens of `source` that the line and its ancestors skipped up to `step`."""
    units = 0
    for index, line in enumerate(plan.lineage):
        # A line that was left before its own fork never skipped anything.
        left_at = min((later.fork_step for later in plan.lineage[index + 1 :]), default=step)
        if line.offset_blocks and line.fork_step <= min(step, left_at):
            stage = plan.mixture.stages[plan.mixture_index_at(line.fork_step)]
            units += line.offset_blocks * stage.parts.get(source, 0)
    return units * plan.mixture.unit_tokens


def _order_of(stage: MixtureStage) -> _Order:
    return _spread(tuple(sorted(stage.parts.items())))


@lru_cache(maxsize=64)
def _spread(parts: tuple[tuple[str, int], ...]) -> _Order:
    """Spread the sources over a block as evenly as their parts allow."""
    total = sum(count for _, count in parts)
    taken = dict.fromkeys((name for name, _ in parts), 0)
    sources: list[str] = []
    before: list[int] = []
    for slot in range(1, total + 1):
        # The source furthest behind its share goes next; names break ties.
        name = max(parts, key=lambda part: part[1] * slot - taken[part[0]] * total)[0]
        sources.append(name)
        before.append(taken[name])
        taken[name] += 1
    return _Order(tuple(sources), tuple(before))


def cursors_at(plan: Plan, step: int) -> dict[str, int]:
    """Return, per source, the tokens consumed and skipped before `step` (0 to total_steps)."""
    index = plan.mixture_index_at(max(0, step))
    stage = plan.mixture.stages[index]
    position = step * plan.tokens_per_step
    block, inside = divmod(position, plan.mixture.block_tokens)
    blocks = block - plan.first_block(stage.start)
    cursors: dict[str, int] = {}
    for source in plan.sources:
        count = blocks * stage.parts.get(source, 0) * plan.mixture.unit_tokens
        count += _tokens_inside(stage, source, inside, plan.mixture.unit_tokens)
        cursors[source] = _cursor_before(plan, index, source) + count + _skipped(plan, step, source)
    return cursors


def _tokens_inside(stage: MixtureStage, source: str, inside: int, unit_tokens: int) -> int:
    slot, offset = divmod(inside, unit_tokens)
    order = _order_of(stage).sources
    tokens = order[:slot].count(source) * unit_tokens
    return tokens + (offset if order[slot] == source else 0)


def locate(segment: Segment, *, source_tokens: int, unit_tokens: int, seed: int) -> int:
    """Return the token offset of `segment` inside its source's store of `source_tokens` tokens.

    Raises:
        ValueError: the store is shorter than one unit.
    """
    units = source_tokens // unit_tokens
    if units < 1:
        raise ValueError(
            f"source {segment.source} has {source_tokens} tokens; "
            f"one unit of the longest context is {unit_tokens}"
        )
    unit, offset = divmod(segment.position, unit_tokens)
    epoch, index = divmod(unit, units)
    key = f"{seed}/{segment.source}/{epoch}"
    return permute(index, size=units, key=key) * unit_tokens + offset


def permute(index: int, *, size: int, key: str) -> int:
    """Return where `index` goes under a keyed permutation of range(size).

    A balanced Feistel network over the next even power of two, walked until the result is in
    range: no table, so any position of any epoch costs the same.
    """
    assert 0 <= index < size
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    while True:
        index = _feistel(index, half_bits, key)
        if index < size:
            return index


def _feistel(value: int, half_bits: int, key: str) -> int:
    mask = (1 << half_bits) - 1
    left, right = value >> half_bits, value & mask
    for turn in range(FEISTEL_ROUNDS):
        digest = hashlib.sha256(f"{key}/{turn}/{right}".encode()).digest()
        left, right = right, left ^ (int.from_bytes(digest[:8], "big") & mask)
    return (left << half_bits) | right


def epochs_at(
    cursors: Mapping[str, int], source_tokens: Mapping[str, int], unit_tokens: int
) -> dict[str, int]:
    """Return the epoch, counted from 1, that each cursor stands in."""
    return {
        source: cursor // (source_tokens[source] // unit_tokens * unit_tokens) + 1
        for source, cursor in cursors.items()
    }
