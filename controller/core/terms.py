"""The contingency as declared: the numbers that evaluations, proposals and proofs rest on."""

from typing import Annotated, Literal

from pydantic import Field

from contract.model import ModelShape
from contract.plan import Frozen

MAX_WALL_MS = 253_402_214_400_000
"""The last day of the year 9999: what calendars can show."""


class Fit(Frozen):
    """What decides whether an execution fits the gang: the model and how it is spread."""

    shape: ModelShape
    expert_axis: int
    replicas: int
    devices_per_rank: int


class Terms(Frozen):
    """What the owner declared about deadline and contingency, and what the arithmetic needs.

    Recorded with the policy; an owner's edit of the deadline is recorded as another one.
    """

    mode: Literal["propose", "auto", "off"] = "off"
    deadline_wall_ms: Annotated[int, Field(ge=0, le=MAX_WALL_MS)] | None = None
    reserve_ms: Annotated[int, Field(ge=0, le=MAX_WALL_MS)] = 0
    """Taken off the deadline: the forecast must be done by then."""
    window_percent: int = 25
    """A revision of the horizon forks within this share of the original token budget."""
    floor_percent: int = 75
    """The horizon never falls below this share of the original one."""
    on_time_percent: int = 10
    clear_above_percent: int = 30
    target_percent: int = 80
    evaluate_every_ms: int = 86_400_000
    evaluations: int = 3
    settle_ms: int = 4 * 86_400_000
    """Training time before the first evaluation that counts."""
    min_clean_steps: int = 500
    min_change_percent: int = 2
    max_revisions: int = 2
    cool_down_ms: int = 7 * 86_400_000
    midtrain_min_tokens: int = 0
    max_epochs: int = 8
    lead_ms: int = 2_000
    """From publishing a revision to its effective step, beside the steps the gang needs."""
    launched_wall_ms: int = 0
    """When the run's directory was made: what the lag is counted from."""
    devices: int = 1
    save_every_steps: int = 1
    source_tokens: dict[str, int] = {}  # noqa: RUF012  # frozen model
    """Training tokens of each source, for the epochs that a plan reads of it."""
    data_budget_tokens: int | None = None
    """Tokens that the data was provisioned for; None: the epochs alone bound it."""

    fit: Fit | None = None
    """None: another team's trainer, of which nothing is known that a fit check could use."""

    @property
    def due_wall_ms(self) -> int | None:
        """When the run must be done: the deadline less its reserve."""
        if self.deadline_wall_ms is None:
            return None
        return max(0, self.deadline_wall_ms - self.reserve_ms)
