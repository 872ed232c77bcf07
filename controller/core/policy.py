"""The numbers that decisions rest on, from the run file; recorded, so that replays know them."""

from contract.plan import Frozen
from contract.wire import Phase
from controller.core.terms import Terms


class Budget(Frozen):
    """How many restarts are allowed: by window, by progress, by cause."""

    window_ms: int = 6 * 3_600_000
    window_restarts: int = 6
    """Marin progressed through 8 memory failures in a day; a plain 3 was too low."""
    no_progress_incidents: int = 3
    per_cause: dict[str, int] = {"non_finite": 1, "out_of_memory": 3, "error": 3}  # noqa: RUF012  # frozen model
    """Restarts per cause since a newer verified checkpoint; causes not named: no own limit."""
    delay_ms: int = 30_000
    """A restart waits min(delay_ms x 2**n, max_delay_ms); n counts incidents without progress."""
    max_delay_ms: int = 900_000
    drains_a_day: int = 100


class Policy(Frozen):
    """Everything about a run that the rules need and that does not change while it runs."""

    run_uid: str
    run_name: str
    ranks: int
    deadlines_ms: dict[Phase, int]
    """Per rank phase, the watchdog's own."""
    margin_ms: int
    """The controller's deadlines are the watchdog's plus this, else a kill hides exit 124."""
    cascade_ms: int
    """How long the others have to end by themselves after the first rank's end."""
    clock_skew_ms: int = 2_000
    start_ms: int
    """How long ranks may stay unclaimed after a launch."""
    heartbeat_ms: int
    budget: Budget
    terms: Terms = Terms()
    """Deadline and contingency."""
    wake_ms: int = 500
    """The longest pause between two observations while a gang is up."""
