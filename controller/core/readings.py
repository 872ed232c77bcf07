"""Values that may be missing, and instants that may not be comparable."""

from contract.plan import Frozen

MS_PER_S = 1_000


class Unknown(Frozen):
    """What could not be read: never zero, never a failure, never the last value."""

    unknown: str
    """Why, in words."""


class Instant(Frozen):
    """A moment on one machine, in whole milliseconds."""

    wall_ms: int
    mono_ms: int
    boot_id: str


def elapsed_ms(since: Instant, now: Instant) -> int | Unknown:
    """Return the milliseconds from `since` to `now` by the monotonic clock of one boot."""
    if since.boot_id != now.boot_id:
        return Unknown(unknown="the machine was restarted in between")
    return now.mono_ms - since.mono_ms


def age_ms(since: Instant, now: Instant) -> int:
    """Return the milliseconds since, across restarts of the machine by the wall clock.

    For spans of days, in which a machine may be restarted: the monotonic clock begins anew then.
    """
    elapsed = elapsed_ms(since, now)
    return now.wall_ms - since.wall_ms if isinstance(elapsed, Unknown) else elapsed


def show_seconds(duration_ms: int) -> str:
    """Return a duration in words: `2.5 s`."""
    return f"{duration_ms / MS_PER_S:g} s"


def offset_change_ms(before: Instant, now: Instant) -> int | Unknown:
    """Return by how much the wall clock moved against the monotonic clock."""
    if before.boot_id != now.boot_id:
        return Unknown(unknown="the machine was restarted in between")
    return (now.wall_ms - now.mono_ms) - (before.wall_ms - before.mono_ms)
