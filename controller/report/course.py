"""Attempts, incidents, evaluations, and where the time went."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from contract.exits import describe_exit
from controller.core.history import AttemptHistory
from controller.core.memory import Incident, Memory
from controller.core.summary import Evidence
from controller.report.markup import folded, table, text
from controller.report.scene import origin_s
from controller.report.wording import (
    MS_PER_S,
    NOTHING,
    show_chance,
    show_duration,
    show_instant,
    show_number,
    show_percent,
)

PERCENT = 100
MAX_OPEN_ROWS = 12
"""A longer table is shown on request: the picture tells the same."""


def show_attempts(evidence: Evidence) -> str:
    """Return every gang that was started, and how it ended."""
    memory, origin = evidence.memory, origin_s(evidence)
    incidents = {it.attempt: it for it in memory.incidents}
    last = evidence.histories[-1].number if evidence.histories else 0
    rows = (
        (
            str(it.number),
            show_duration(it.launched_wall_s - origin),
            show_duration(it.ended_wall_s - it.launched_wall_s),
            _tell_steps(it),
            text(_tell_end(memory, incidents.get(it.number), is_last=it.number == last)),
        )
        for it in evidence.histories
    )
    heads = ("attempt", "launched after", "lived", "steps", "end")
    return table(heads, rows, numbers=(0, 1, 2)) if evidence.histories else ""


def _tell_steps(history: AttemptHistory) -> str:
    if not history.steps:
        return NOTHING
    return f"{history.steps[0].step:,} to {history.steps[-1].step:,}"


def _tell_end(memory: Memory, incident: Incident | None, *, is_last: bool) -> str:
    if incident is not None:
        code = "" if incident.code is None else f", {describe_exit(incident.code)}"
        return f"{incident.cause}{code}"
    if is_last and memory.rest == "completed":
        return "reached the horizon"
    is_open = is_last and memory.attempt is not None and not memory.attempt.ended
    return "goes on" if is_open else "left as asked"


def show_incidents(evidence: Evidence, summary: Mapping[str, object]) -> str:
    """Return every end that nobody asked for, with its evidence and what it cost."""
    told = cast("list[Mapping[str, object]]", summary["incidents"])
    if not told:
        return ""
    rows = (
        (
            str(number),
            show_instant(incident.ended_wall_ms or incident.at.wall_ms),
            text(incident.cause),
            NOTHING if incident.root_rank is None else str(incident.root_rank),
            show_number(incident.step),
            show_duration(facts["detection_seconds"]),
            show_duration(facts["cost_seconds"]),
            show_number(facts["cost_tokens"]),
            text(f"{incident.evidence} (confidence {incident.confidence})"),
        )
        for number, (incident, facts) in enumerate(
            zip(evidence.memory.incidents, told, strict=True), 1
        )
    )
    heads = (
        "incident",
        "ended",
        "cause",
        "rank",
        "step",
        "noticed in",
        "cost",
        "tokens again",
        "evidence",
    )
    return table(heads, rows, numbers=(3, 4, 5, 6, 7), kinds={8: "w"})


def show_evaluations(evidence: Evidence) -> str:
    """Return every forecast as it was made."""
    rows = (
        (
            show_instant(it.facts.forecast.at_wall_ms),
            show_number(it.facts.forecast.step),
            f"{it.facts.forecast.step_us / 1e6:,.3f} s",
            show_instant(it.facts.forecast.p10_wall_ms),
            show_instant(it.facts.forecast.p50_wall_ms),
            show_instant(it.facts.forecast.p90_wall_ms),
            show_chance(it.facts.forecast.on_time_permille),
            _tell_verdict(counts=it.facts.counts, is_late=it.facts.is_late),
        )
        for it in evidence.chronicle.evaluations
    )
    heads = ("made", "step", "a step takes", "P10", "P50", "P90", "P(on time)", "verdict")
    if not evidence.chronicle.evaluations:
        return ""
    shown = table(heads, rows, numbers=range(7))
    count = len(evidence.chronicle.evaluations)
    return shown if count <= MAX_OPEN_ROWS else folded(f"all {count:,}", shown)


def _tell_verdict(*, counts: bool, is_late: bool) -> str:
    if not counts:
        return "does not count yet"
    return '<span class="bad">late</span>' if is_late else "not late"


def show_time(summary: Mapping[str, object]) -> str:
    """Return where the wall time went; the rows sum to it."""
    seconds = cast("dict[str, float]", summary["phase_seconds"])
    whole = sum(seconds.values())
    spent = [(name, value) for name, value in seconds.items() if value > 0]
    return (
        table(
            ("phase", "time", "share", ""),
            list(_list_phases(spent, whole)),
            numbers=(1, 2),
            kinds={3: "b"},
        )
        if whole
        else ""
    )


def _list_phases(spent: Sequence[tuple[str, float]], whole: float) -> Iterator[Sequence[str]]:
    for name, value in sorted(spent, key=lambda it: -it[1]):
        share = PERCENT * value / whole
        bar = f'<div class="bar" style="width: {share:.2f}%"></div>'
        yield text(name.replace("_", " ")), show_duration(value), show_percent(share), bar
    yield "in all", show_duration(whole), show_percent(PERCENT), ""


def tell_origin(evidence: Evidence) -> str:
    """Return when the run was launched."""
    return show_instant(round(origin_s(evidence) * MS_PER_S))
