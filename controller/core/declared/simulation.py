"""The run file's `simulation` section: what `ctl simulate` supposes about machines and people.

It changes nothing about a launch. Defaults are those of the model case, 704 ranks; what is not
declared is scaled to other fleets (controller/core/supposed.py). Durations are milliseconds.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer

from controller.core.declared.fields import (
    UNITS_MS,
    Count,
    Duration,
    InstantText,
    Positive,
    RunName,
    Section,
    Share,
    Span,
    format_duration,
    parse_duration,
)

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = (UNITS_MS[unit] for unit in ("s", "m", "h", "d"))

Effect = Literal["rank", "tray", "rack", "hang", "slow", "storage", "checkpoint", "blind"]
"""What a failure does: ends one rank; takes a tray or a whole rack out until repaired; stops every
rank without an end; stretches the steps; fails the saves; damages the newest checkpoint; hides
telemetry and progress from the controller."""


class Pace(Section):
    """From this day after the launch on, the fleet processes so many tokens a second.

    At the first context length: longer ones take more FLOPs a token, and so much longer.
    """

    from_day: Count = 0
    tokens_per_second: Positive


class Changes(Section):
    """Jumps of the pace, up or down by so many percent; `every` 0s: none."""

    every: Duration = 0
    percent: Count = 0


class Failure(Section):
    """One class of failure."""

    effect: Effect
    every: Span
    """Mean time between two of them, over the whole fleet, while it trains."""
    repair: Duration = 0
    """Median; 0s for what needs none."""
    percent: Share = 5
    """Of `slow` only: by how much the steps get longer. One slow GPU slowed BLOOM by 5%."""


FAILURES: dict[str, Failure] = {
    name: Failure.model_validate(members)
    for name, members in {
        # Shares of 419 unexpected stops in 54 days (arXiv 2407.21783): GPU 148, memory 72,
        # software 54, switch or cable 35, host 32; hangs are 9.9% of incidents (arXiv 2509.16293).
        # The scale, about one a day for 704 GPUs, is what the model case's public plan allows for
        # (marin-community/marin#6689). A tray is away for a day: nothing published says.
        "gpu": {"effect": "tray", "every": "68h", "repair": "1d"},
        "memory": {"effect": "rank", "every": "140h"},
        "software": {"effect": "rank", "every": "186h"},
        "hang": {"effect": "hang", "every": "242h"},
        "link": {"effect": "rank", "every": "12d"},
        "host": {"effect": "tray", "every": "13d", "repair": "1d"},
        # One slow part, one refused or full bucket in three weeks (marin-community/marin#8506).
        "slow": {"effect": "slow", "every": "20d", "repair": "12h"},
        "storage": {"effect": "storage", "every": "22d", "repair": "2h"},
        # No published rate: rare enough to meet one to three in a run.
        "telemetry": {"effect": "blind", "every": "30d", "repair": "30m"},
        "checkpoint": {"effect": "checkpoint", "every": "60d"},
        "rack": {"effect": "rack", "every": "60d", "repair": "2d"},
    }.items()
}
"""Of 704 devices."""


class Restart(Section):
    """How long each phase of a restart takes.

    Restore 22 to 24 min on 11 racks, compile 3 to 5 min from a warm cache (marin-community/marin
    #8538, #7929); the others are not published.
    """

    start: Duration = 3 * MINUTE_MS
    rendezvous: Duration = 2 * MINUTE_MS
    restore: Duration = 24 * MINUTE_MS
    compile: Duration = 5 * MINUTE_MS
    first_step: Duration = MINUTE_MS


class Save(Section):
    """A checkpoint: how long the steps wait, and how long until it is committed.

    Staging 3.3 to 4.1 s (marin-community/marin#7929); 5.36 TB at some 10 GB/s.
    """

    block: Duration = 4 * SECOND_MS
    commit: Span = 9 * MINUTE_MS


def parse_patience(value: object) -> int | None:
    """Return milliseconds, or None for `never`."""
    return None if value == "never" else parse_duration(value)


def format_patience(patience_ms: int | None) -> str:
    """Return the text that `parse_patience` reads."""
    return "never" if patience_ms is None else format_duration(patience_ms)


Patience = Annotated[int | None, BeforeValidator(parse_patience), PlainSerializer(format_patience)]


class Owner(Section):
    """How long people take to answer."""

    approves_after: Patience = 4 * HOUR_MS
    """From a proposal to its approval; `never` leaves every proposal open."""
    resumes_after: Duration = HOUR_MS
    """From a halt to the order to resume."""


class Simulation(Section):
    """What a rehearsal supposes."""

    launch_at: InstantText | None = None
    """The instant of the launch; without it, one that leaves the plan its usual room."""
    throughput: list[Pace] = []  # noqa: RUF012  # frozen model
    """Days in order, the first 0; without it, from mfuPercent or the gate."""
    mfu_percent: Share | None = None
    """Of fleet.peakFlopsPerDevice; the model case was launched at 21 (its public log, #8506)."""
    drift_permille: Count = 3
    """A day's step of the pace's random walk."""
    changes: Changes = Changes()
    failures: dict[RunName, Failure] = FAILURES
    """All that can fail; a declared table replaces the default one."""
    repair_spread_percent: Count = 60
    """Sigma of the logarithm of a repair's time, times 100."""
    restart: Restart = Restart()
    save: Save = Save()
    owner: Owner = Owner()
    detect: Duration = 10 * SECOND_MS
    """From an event that can be seen until the controller looks."""
