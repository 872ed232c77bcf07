"""Where the wall time of a run went: each second in exactly one phase.

wall = queued + schedule + start + rendezvous + restore + compile + first_step + productive
       + replay + data_wait + save_block + eval + stall + drain + halted + unknown
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from contract.wire import ACCOUNT_PHASES, Phase, StepRecord
from controller.core.telling.history import AttemptHistory, find_replays

Spans = Sequence[tuple[float, float]]
"""(from, to) in seconds of wall time."""


@dataclass(frozen=True)
class Account:
    """Seconds of wall time per account phase."""

    seconds: Mapping[Phase, float]

    @property
    def wall_s(self) -> float:
        """All of it."""
        return sum(self.seconds.values())

    @property
    def unattributed_percent(self) -> float:
        """What no record explains."""
        return 100 * self.seconds[Phase.UNKNOWN] / self.wall_s if self.wall_s else 0.0


def make_account(
    histories: Sequence[AttemptHistory], started_wall_s: float, ended_wall_s: float, rests: Spans
) -> Account:
    """Return the account of a run from its launch to its end.

    `rests` are the spans in which the owner, or a halt, kept the gang down.
    """
    seconds = dict.fromkeys(ACCOUNT_PHASES, 0.0)
    replayed = {(replay.again.line, replay.again.step) for replay in find_replays(histories)}
    cursor = started_wall_s
    seen: set[tuple[str, int]] = set()
    for history in histories:
        begun = history.phases[0].wall_s if history.phases else history.ended_wall_s
        _account_gap(seconds, cursor, begun, rests)
        known = replayed & seen
        again = [it for it in history.steps if (it.line, it.step) in known]
        _account_attempt(seconds, history, again)
        seen |= {(it.line, it.step) for it in history.steps}
        cursor = max(cursor, history.ended_wall_s)
    _account_gap(seconds, cursor, ended_wall_s, rests)
    # Overlaps of clocks and records are shown, never hidden in another phase.
    missing = (ended_wall_s - started_wall_s) - sum(seconds.values())
    seconds[Phase.UNKNOWN] += max(0.0, missing)
    return Account(seconds)


def _account_gap(seconds: dict[Phase, float], start: float, end: float, rests: Spans) -> None:
    """No gang: the owner's rest, or being scheduled (detection and delays included)."""
    if end <= start:
        return
    rested = sum(max(0.0, min(end, to) - max(start, since)) for since, to in rests)
    seconds[Phase.HALTED] += rested
    seconds[Phase.SCHEDULE] += (end - start) - rested


def _account_attempt(
    seconds: dict[Phase, float], history: AttemptHistory, again: Sequence[StepRecord]
) -> None:
    if not history.phases:
        return
    in_step = 0.0
    ends = [min(record.wall_s, history.ended_wall_s) for record in history.phases]
    ends.append(history.ended_wall_s)
    for record, (start, end) in zip(history.phases, pairwise(ends), strict=True):
        if record.phase is Phase.STEP:
            in_step += max(0.0, end - start)
        else:
            seconds[record.phase] += max(0.0, end - start)
    stalled = min(in_step, _tail_s(history))
    waited, replayed = _split_steps(history.steps, again)
    # Step times and phase changes are read from two clocks: never more than there was.
    scale = min(1.0, (in_step - stalled) / (waited + replayed)) if waited + replayed else 0.0
    seconds[Phase.STALL] += stalled
    seconds[Phase.DATA_WAIT] += waited * scale
    seconds[Phase.REPLAY] += replayed * scale
    seconds[Phase.PRODUCTIVE] += in_step - stalled - (waited + replayed) * scale


def _tail_s(history: AttemptHistory) -> float:
    """Return how long the attempt lived in phase `step` after its last step: it got nowhere."""
    last = history.phases[-1]
    if last.phase is not Phase.STEP:
        return 0.0
    newest = max((record.wall_s for record in history.steps), default=last.wall_s)
    return max(0.0, history.ended_wall_s - max(newest, last.wall_s))


def _split_steps(steps: Iterable[StepRecord], again: Sequence[StepRecord]) -> tuple[float, float]:
    """Return (seconds of data wait, seconds of replay); a first step has a phase of its own."""
    waited = sum(record.data_wait_s for record in steps if "first" not in record.tags)
    replayed = sum(
        max(0.0, record.step_s - record.data_wait_s)
        for record in again
        if "first" not in record.tags
    )
    return waited, replayed
