"""A declared run from its launch to its end in virtual time, under the real core: what it came to.

Everything told is whole numbers and words; instants are milliseconds since the epoch.
"""

from typing import Literal

from contract.plan import Frozen

Outcome = Literal["completed", "halted", "lost", "unfinished"]
"""Halted: again and again without a new step. Lost: no checkpoint is left that it could start from.
Unfinished: given up after three times the time that its steps need, the deadline and the plan's
time once more, or 30 days, whichever is the latest (controller/core/declared/supposition.py)."""


class IncidentTold(Frozen):
    """One failure that struck, and what the controller made of it."""

    at_wall_ms: int
    name: str
    """Its class in the run file; empty: the attempt ended without one."""
    effect: str
    attempt: int | None
    """That it ended; None: the gang trained on."""
    cause: str | None
    """As the controller judged it; None: no attempt ended, or not yet judged."""
    root_rank: int | None
    confidence: str | None
    cost_ms: int
    """Wall time until the step count was back, or until the next one struck; of `slow` what the
    steps took longer."""
    replayed_steps: int
    rack: int | None
    """Where it struck, by number; None: it has no place."""
    tray: int | None
    """Within its rack."""


class ProposalTold(Frozen):
    """One proposal; what did not happen is None."""

    id: str
    author: str
    reason: str
    proposed_wall_ms: int
    approved_wall_ms: int | None
    adopted_wall_ms: int | None
    fork_step: int | None
    total_steps: int
    """Of the run, if it is carried out."""
    tokens_given_up: int
    on_time_before_permille: int | None
    """P(on time) of the plan in force, as proposed."""
    on_time_after_permille: int | None
    outcome: str
    """open, approved (published), adopted, rejected, expired or void."""
    why: str


class SparesTold(Frozen):
    """How far the spare trays went."""

    fewest_by_rack: list[int]
    """Free trays beside those that train: the fewest ever, of each rack."""
    fewest: int
    """The same of all racks together."""
    bare_days: int
    """Days of the run on which some rack that trained had no free tray."""
    tray_moves: int
    """Times that a launch took another tray of the same rack."""
    rack_moves: int
    """Times that a launch took another rack."""
    waited_ms: int
    """For repairs, with too few whole trays to start."""


class ForecastTold(Frozen):
    """One evaluation."""

    at_wall_ms: int
    step: int
    p10_wall_ms: int
    p50_wall_ms: int
    p90_wall_ms: int
    on_time_permille: int | None


class Rehearsal(Frozen):
    """One run."""

    seed: int
    outcome: Outcome
    why: str
    """Of a run that did not complete, in words."""
    launched_wall_ms: int
    ended_wall_ms: int
    """When it was completed or given up."""
    finished_wall_ms: int | None
    """When its completion was recorded."""
    deadline_wall_ms: int | None
    on_time: bool | None
    """Finished by its deadline; None without one."""
    horizon_percent: int
    """The final number of steps of the original one, rounded down."""
    original_steps: int
    total_steps: int
    steps: int
    """Completed on the surviving line."""
    tokens_trained: int
    tokens_lost: int
    """Computed again after a restart."""
    attempts: int
    account: dict[str, int]
    """Phase -> milliseconds; they sum to the time from launch to end."""
    incidents: list[IncidentTold]
    proposals: list[ProposalTold]
    spares: SparesTold
    progress: list[tuple[int, int]]
    """(wall_ms, completed steps) at launch, each day after it, and at the end."""
    forecasts: list[ForecastTold]
    passes: int
    """Of the controller."""
    records: int
    ledger_bytes: int
    """As canonical JSON, a line each."""
