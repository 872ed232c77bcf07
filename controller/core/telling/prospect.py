"""What could be done about the plan: other horizons, and how two plans differ. Decides nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from contract.plan import Plan
from controller.core.chance import PERMILLE
from controller.core.forecast import Forecast
from controller.core.memory import Memory
from controller.core.outlook import find_horizon, look_shorter
from controller.core.pace import PaceView
from controller.core.proofs import floor_steps, last_window_step
from controller.core.proposal import Proposal
from controller.core.proposing import next_fork, revise_for
from controller.core.readings import Instant
from controller.core.training import Training

PERCENT = 100
PERCENTS = (95, 90, 85, 80, 75)
"""Of the original horizon: what-ifs; those below the floor are left out, the floor is not."""
QUARTERS = (25, 50, 75)


@dataclass(frozen=True)
class WhatIf:
    """The finish if the plan in force ended after `forecast.total_steps`."""

    percent: int
    """Of the original horizon, rounded down."""
    forecast: Forecast
    tokens_given_up: int


@dataclass(frozen=True)
class Prospect:
    """What a shorter horizon would bring, as known now."""

    what_ifs: list[WhatIf]
    target: WhatIf | None
    """The largest horizon with P(on time) at its target, else the floor; None: not to be said."""
    meets_target: bool
    window_step: int
    """The last step at which a horizon may fork."""
    is_window_open: bool


def look_around(memory: Memory, pace: PaceView, now: Instant) -> Prospect:
    """Return the what-ifs of a run that stands where `pace` says."""
    terms, genesis, plan = memory.policy.terms, memory.genesis, memory.plan
    fork = next_fork(memory, Training(step=pace.until_step, pace=pace, is_steady=True))
    floor = floor_steps(genesis, terms)
    wanted = {-(-percent * genesis.total_steps // PERCENT) for percent in PERCENTS} | {floor}
    # A run may end no earlier than a step after the fork: its last step is not its first.
    ahead = sorted(it for it in wanted if max(floor, fork + 2) <= it < plan.total_steps)
    target, meets = None, False
    if terms.due_wall_ms is not None and max(floor, fork + 2) <= plan.total_steps:
        _, found = find_horizon(memory, pace, now, max(floor, fork + 2))
        target = _what_if(memory, found)
        meets = (found.on_time_permille or 0) >= terms.target_percent * PERMILLE
    window_step = last_window_step(genesis, terms)
    return Prospect(
        what_ifs=[_what_if(memory, look_shorter(memory, pace, now, it)) for it in reversed(ahead)],
        target=target,
        meets_target=meets,
        window_step=window_step,
        is_window_open=fork <= window_step,
    )


def _what_if(memory: Memory, forecast: Forecast) -> WhatIf:
    cut = memory.plan.total_steps - forecast.total_steps
    return WhatIf(
        percent=PERCENT * forecast.total_steps // memory.genesis.total_steps,
        forecast=forecast,
        tokens_given_up=cut * memory.plan.tokens_per_step,
    )


def is_behind(memory: Memory, on_time_permille: int | None, *, is_window_open: bool) -> bool:
    """Return whether P(on time) is lower than the run file tolerates.

    After the window, when no contingency is left, that is the target itself.
    """
    if on_time_permille is None:
        return False
    terms = memory.policy.terms
    least = terms.on_time_percent if is_window_open else terms.target_percent
    return on_time_permille < least * PERMILLE


# --- two plans ---


def find_pair(memory: Memory, pace: PaceView | None = None) -> tuple[Plan, Plan] | None:
    """Return the plan in force and the proposed one, else the newest revision and its parent.

    The proposed one forks where it could if it were approved now, as far as `pace` tells.
    """
    if memory.proposal is not None:
        effective = find_fork(memory, memory.proposal, pace)
        return memory.plan, revise_for(memory, memory.plan, memory.proposal, effective)
    for parent, child in zip(memory.chain[-2::-1], memory.chain[:0:-1], strict=True):
        if child.kind != "line":
            return parent, child
    return None


def find_fork(memory: Memory, proposal: Proposal, pace: PaceView | None) -> int:
    """Return the step at which the proposal could take effect if it were approved now."""
    if proposal.change.kind == "execution":
        before = proposal.facts.before
        return max(memory.plan.effective, before.step if before is not None else 0)
    if pace is None:
        return proposal.fork_first
    fork = next_fork(memory, Training(step=pace.until_step, pace=pace, is_steady=True))
    return fork if proposal.fork_first < fork <= proposal.fork_last else proposal.fork_first


@dataclass(frozen=True)
class Difference:
    """One thing that two plans are compared in; values are JSON-able."""

    what: str
    before: object
    after: object

    @property
    def is_change(self) -> bool:
        """Whether the plans differ in it."""
        return self.before != self.after


def compare_plans(before: Plan, after: Plan) -> list[Difference]:
    """Return what two plans have in common and what not: horizon, learning rate, data, execution.

    Learning rates are by parameter group, as the steps receive them.
    """
    rows = [
        Difference("total_steps", before.total_steps, after.total_steps),
        Difference("tokens", _tokens(before), _tokens(after)),
        *(_compare_rate(before, after, step) for step in _list_steps(before, after)),
        _compare_last_rate(before, after),
        Difference("mixture", _mixture_of(before), _mixture_of(after)),
        Difference("context", _context_of(before), _context_of(after)),
    ]
    left, right = (plan.execution.model_dump(mode="json") for plan in (before, after))
    return [*rows, *(Difference(f"execution.{name}", left[name], right[name]) for name in left)]


def _tokens(plan: Plan) -> int:
    return plan.total_steps * plan.tokens_per_step


def _list_steps(before: Plan, after: Plan) -> Sequence[int]:
    """Return the steps around the fork, and at quarters of the new horizon, in order."""
    quarters = (percent * after.total_steps // PERCENT for percent in QUARTERS)
    fork = after.effective
    last = min(before.total_steps, after.total_steps) - 1
    return sorted({step for step in (fork - 1, fork, *quarters) if 0 <= step < last})


def _compare_rate(before: Plan, after: Plan, step: int) -> Difference:
    mark = {after.effective - 1: " (before the fork)", after.effective: " (fork)"}.get(step, "")
    return Difference(f"learning_rate at {step}{mark}", _rate(before, step), _rate(after, step))


def _compare_last_rate(before: Plan, after: Plan) -> Difference:
    return Difference(
        "learning_rate of the last step",
        _rate(before, before.total_steps - 1),
        _rate(after, after.total_steps - 1),
    )


def _rate(plan: Plan, step: int) -> dict[str, float]:
    return plan.values_at(step)["learning_rate"]


def _mixture_of(plan: Plan) -> list[dict[str, object]]:
    return [{"start": stage.start, "parts": stage.parts} for stage in plan.mixture.stages]


def _context_of(plan: Plan) -> list[dict[str, object]]:
    return [{"start": stage.start, "length": stage.length} for stage in plan.context]
