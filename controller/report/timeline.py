"""Attempts, incidents and phases on one axis of time: shares of equal spans, and what was lost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from contract.wire import Phase
from controller.core.telling.history import AttemptHistory
from controller.core.telling.summary import Evidence, cost_of
from controller.report.scene import known_until_s, origin_s

NUM_BINS = 160
"""Of the axis: five pixels each, on a desk."""
Spans = Sequence[tuple[float, float]]

GROUPS: Mapping[str, tuple[Phase, ...]] = {
    "training": (Phase.STEP, Phase.PRODUCTIVE, Phase.DATA_WAIT),
    "saving, evaluating": (Phase.SAVE_BLOCK, Phase.EVAL, Phase.DRAIN),
    "starting": (
        Phase.START, Phase.RENDEZVOUS, Phase.RESTORE, Phase.COMPILE, Phase.FIRST_STEP,
    ),
    "replaying": (Phase.REPLAY,),
    "stalled": (Phase.STALL,),
    "no gang": (Phase.QUEUED, Phase.SCHEDULE),
    "at rest": (Phase.HALTED,),
    "unknown": (Phase.UNKNOWN,),
}  # fmt: skip
"""What is drawn as one, lowest first."""
GROUP_OF = {phase: name for name, phases in GROUPS.items() for phase in phases}


@dataclass(frozen=True)
class Outage:
    """An incident from the first rank's end to the first step beyond what was known."""

    number: int
    cause: str
    at_s: float
    cost_s: float | None
    """None: not made up for yet."""


@dataclass(frozen=True)
class Timeline:
    """Everything on the axis; seconds since launch."""

    end_s: float
    bins: Mapping[str, Sequence[float]]
    """Group -> its share of each bin, bins of equal length; all groups of a bin sum to 1."""
    attempts: Sequence[tuple[int, float, float]]
    """(number, launched, ended)"""
    outages: Sequence[Outage]
    lost: Sequence[tuple[float, float]]
    """(seconds since launch, seconds lost to incidents until then)"""


def set_timeline(evidence: Evidence, rests: Spans) -> Timeline:
    """Return what happened when; `rests` are spans of wall time without a wanted gang."""
    origin = origin_s(evidence)
    end_s = max(0.0, known_until_s(evidence) - origin)
    outages = list(_list_outages(evidence, origin))
    spans = _list_spans(evidence.histories, origin, origin + end_s, rests)
    return Timeline(
        end_s=end_s,
        bins=_share_out([(it, a - origin, b - origin) for it, a, b in spans if a < b], end_s),
        attempts=[
            (it.number, it.launched_wall_s - origin, it.ended_wall_s - origin)
            for it in evidence.histories
        ],
        outages=outages,
        lost=list(_sum_lost(outages, end_s)),
    )


def _list_outages(evidence: Evidence, origin: float) -> Iterator[Outage]:
    for number, incident in enumerate(evidence.memory.incidents, 1):
        at_s = (incident.ended_wall_ms or incident.at.wall_ms) / 1_000 - origin
        cost_s, _ = cost_of(incident.attempt, evidence.histories)
        yield Outage(number, incident.cause, at_s, cost_s)


def _sum_lost(outages: Sequence[Outage], end_s: float) -> Iterator[tuple[float, float]]:
    """Yield what was lost until each outage; where two overlap, the time is lost once."""
    lost = covered = 0.0
    for outage in outages:
        until = end_s if outage.cost_s is None else outage.at_s + outage.cost_s
        lost += max(0.0, until - max(outage.at_s, covered))
        covered = max(covered, until)
        yield outage.at_s, lost


def _list_spans(
    histories: Sequence[AttemptHistory], start: float, end: float, rests: Spans
) -> Iterator[tuple[str, float, float]]:
    """Yield (group, from, to) in seconds of wall time, without holes."""
    cursor, highest = start, dict[str, int]()
    for history in histories:
        begun = history.phases[0].wall_s if history.phases else history.ended_wall_s
        yield from _split_gap(cursor, begun, rests)
        yield from _list_attempt(history, highest)
        cursor = max(cursor, history.ended_wall_s)
        for record in history.steps[-1:]:
            highest[record.line] = max(highest.get(record.line, 0), record.step + 1)
    yield from _split_gap(cursor, end, rests)


def _split_gap(start: float, end: float, rests: Spans) -> Iterator[tuple[str, float, float]]:
    cursor = start
    for rested, resumed in rests:
        since, until = max(rested, cursor), min(resumed, end)
        if since < until:
            yield "no gang", cursor, since
            yield "at rest", since, until
            cursor = until
    yield "no gang", cursor, end


def _list_attempt(
    history: AttemptHistory, highest: Mapping[str, int]
) -> Iterator[tuple[str, float, float]]:
    ends = [*(it.wall_s for it in history.phases), history.ended_wall_s]
    again_s, newest_s = _find_replay_end(history, highest), _find_newest(history)
    ends = [min(it, history.ended_wall_s) for it in ends]
    for record, (start, end) in zip(history.phases, pairwise(ends), strict=True):
        if record.phase is not Phase.STEP:
            yield GROUP_OF[record.phase], start, end
            continue
        yield "replaying", start, min(end, again_s)
        is_last = record is history.phases[-1]
        stalled_s = max(start, newest_s) if is_last else end
        yield "training", max(start, again_s), min(end, stalled_s)
        yield "stalled", max(start, stalled_s), end


def _find_replay_end(history: AttemptHistory, highest: Mapping[str, int]) -> float:
    """Return when the attempt went beyond what an earlier one had reached on the line."""
    end = float("-inf")
    for record in history.steps:
        if record.step >= highest.get(record.line, 0):
            break
        end = record.wall_s
    return end


def _find_newest(history: AttemptHistory) -> float:
    return history.steps[-1].wall_s if history.steps else float("-inf")


def _share_out(spans: Sequence[tuple[str, float, float]], end_s: float) -> dict[str, list[float]]:
    """Return the share of each group in each bin."""
    width = end_s / NUM_BINS
    shares = {name: [0.0] * NUM_BINS for name in GROUPS}
    if width <= 0:
        return {}
    for name, begun, ended in spans:
        start, end = max(0.0, begun), min(ended, end_s)
        for index in range(int(start / width), min(NUM_BINS, int(end / width) + 1)):
            overlap = min(end, (index + 1) * width) - max(start, index * width)
            shares[name][index] += max(0.0, overlap) / width
    sums = [sum(column) for column in zip(*shares.values(), strict=True)]
    for index, known in enumerate(sums):
        # Two clocks: what overlaps is pressed together, what is missing is shown as unknown.
        if known > 1:
            for column in shares.values():
                column[index] /= known
        shares["unknown"][index] += max(0.0, 1.0 - known)
    return {name: column for name, column in shares.items() if any(it > MIN_SHARE for it in column)}


MIN_SHARE = 1e-3
"""Below it a share is rounding."""
