"""Attempts, incidents and forecasts, each with the ledger's entry that it can be looked up in."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from contract.exits import describe_exit
from controller.core.memory import Incident, Memory
from controller.core.replan import tell_chance
from controller.core.telling.history import AttemptHistory
from controller.report.blocks import (
    Block,
    Cell,
    Fold,
    Paragraph,
    Piece,
    Table,
    Words,
    entry,
    fold_long,
)
from controller.report.dossier import Dossier
from controller.report.scene import origin_s
from controller.report.wording import (
    MS_PER_S,
    NOTHING,
    count_of,
    show_duration,
    show_instant,
    show_number,
)

OPEN_INCIDENTS = 12
"""The newest; older ones are shown on request, in groups of as many."""
GROUP = 50
MIN_BY_CAUSE = 4
"""Fewer incidents than this need no table by cause."""
Facts = Mapping[str, object]


# --- attempts ---


def list_attempts(dossier: Dossier) -> Iterator[Block]:
    """Yield every gang that was started, and how it ended."""
    evidence, trail = dossier.evidence, dossier.trail
    memory, origin = evidence.memory, origin_s(evidence)
    incidents = {it.attempt: it for it in memory.incidents}
    last = evidence.histories[-1].number if evidence.histories else 0
    shown = [
        it
        for it in evidence.histories
        if dossier.is_new(trail.ends.get(it.number))
        or dossier.is_new(trail.launches.get(it.number))
    ]
    rows = [
        (
            str(it.number),
            show_duration(it.launched_wall_s - origin),
            show_duration(it.ended_wall_s - it.launched_wall_s),
            _tell_steps(it),
            _tell_end(memory, incidents.get(it.number), is_last=it.number == last),
            _link(trail.launches.get(it.number), trail.ends.get(it.number)),
        )
        for it in shown
    ]
    heads = ("attempt", "launched after", "lived", "steps", "end", "ledger")
    if rows:
        yield fold_long(f"all {len(rows):,} attempts", Table(heads, rows, numbers=(0, 1, 2)))
    elif not dossier.is_part:
        yield Paragraph("No gang was started yet.")


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


def _link(*seqs: int | None) -> Cell:
    pieces: list[Piece] = []
    for seq in dict.fromkeys(it for it in seqs if it is not None):
        pieces += [", "] * bool(pieces) + [entry(seq)]
    return pieces or NOTHING


# --- incidents ---


def list_incidents(dossier: Dossier, summary: Facts) -> Iterator[Block]:
    """Yield every end that nobody asked for: evidence, cost, and what was done about it."""
    told = cast("list[Facts]", summary["incidents"])
    incidents = dossier.evidence.memory.incidents
    rows = [
        (incident, _show_incident(dossier, number, incident, facts))
        for number, (incident, facts) in enumerate(zip(incidents, told, strict=True), 1)
        if dossier.is_new(dossier.trail.ends.get(incident.attempt))
    ]
    if len(rows) >= MIN_BY_CAUSE:
        yield _sum_causes([incident for incident, _ in rows], told, incidents)
        if _overlap(incidents, told):
            yield Paragraph(OVERLAP, "muted")
    if any(_is_before_training(it, dossier.evidence.histories) for it, _ in rows):
        yield Paragraph(START, "muted")
    lines = [line for _, line in rows]
    older, newest = lines[:-OPEN_INCIDENTS], lines[-OPEN_INCIDENTS:]
    if newest:
        yield _tabulate(newest)
    for start in range(0, len(older), GROUP):
        group = older[start : start + GROUP]
        yield Fold(f"incidents {group[0][0]} to {group[-1][0]}", [_tabulate(group)])
    if not lines and not dossier.is_part:
        yield Paragraph("None: no attempt ended without being asked to.")


START = (
    "An incident before the first step costs the time from that launch to the first step, the"
    " start that any run needs included."
)


def _is_before_training(incident: Incident, histories: Sequence[AttemptHistory]) -> bool:
    """Return whether no attempt up to the incident's had made a step."""
    return not any(it.steps for it in histories if it.number <= incident.attempt)


OVERLAP = (
    "An incident costs the time until the first step beyond what was known. Where the next one"
    " comes before that, both count it; the picture of what was lost counts it once."
)


def _overlap(incidents: Sequence[Incident], told: Sequence[Facts]) -> bool:
    """Return whether some incident came before the one before it was made up for."""
    begun = [(it.ended_wall_ms or it.at.wall_ms) / MS_PER_S for it in incidents]
    costs = [cast("float", it["cost_seconds"] or 0.0) for it in told]
    ends = [at + cost for at, cost in zip(begun, costs, strict=True)]
    return any(end > at for end, at in zip(ends, begun[1:], strict=False))


HEADS = ("incident", "ended", "cause", "attempt", "root rank", "step", "noticed in", "cost",
         "tokens again")  # fmt: skip


def _tabulate(rows: Sequence[Sequence[Cell]]) -> Table:
    return Table(
        HEADS,
        [row[:-1] for row in rows],
        numbers=(3, 4, 5, 6, 7, 8),
        anchors=[f"incident-{row[0]}" for row in rows],
        notes=[row[-1] for row in rows],
        note_head="evidence, acts",
    )


def _show_incident(
    dossier: Dossier, number: int, incident: Incident, facts: Facts
) -> Sequence[Cell]:
    seconds = facts["cost_seconds"]
    return (
        str(number),
        show_instant(incident.ended_wall_ms or incident.at.wall_ms),
        _tell_cause(incident),
        str(incident.attempt),
        NOTHING if incident.root_rank is None else str(incident.root_rank),
        show_number(incident.step),
        show_duration(facts["detection_seconds"]),
        "not made up for" if seconds is None else show_duration(seconds),
        show_number(facts["cost_tokens"]),
        [
            f"{incident.evidence} (confidence {incident.confidence})",
            *_list_deeds(dossier, incident.attempt),
        ],
    )


def _tell_cause(incident: Incident) -> str:
    code = "" if incident.code is None else f", {describe_exit(incident.code)}"
    return f"{incident.cause}{code}"


def _list_deeds(dossier: Dossier, attempt: int) -> Iterator[Piece]:
    trail = dossier.trail
    if (seq := trail.ends.get(attempt)) is not None:
        yield from ("; recorded as ", entry(seq))
    for deed in trail.deeds.get(attempt, ()):
        yield from (f"; {deed.text} (", entry(deed.seq), ")")


def _sum_causes(
    shown: Sequence[Incident], told: Sequence[Facts], incidents: Sequence[Incident]
) -> Table:
    counts = Counter(it.cause for it in shown)
    seconds: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    attempts = {it.attempt for it in shown}
    for incident, facts in zip(incidents, told, strict=True):
        if incident.attempt in attempts:
            seconds[incident.cause] += cast("int", facts["cost_seconds"] or 0)
            tokens[incident.cause] += cast("int", facts["cost_tokens"])
    rows = [
        (cause, f"{count:,}", show_duration(seconds[cause]), f"{tokens[cause]:,}")
        for cause, count in sorted(counts.items(), key=lambda it: (-it[1], it[0]))
    ]
    whole = f"{len(shown):,}", show_duration(sum(seconds.values())), f"{sum(tokens.values()):,}"
    heads = ("cause", "incidents", "cost", "tokens again")
    return Table(heads, [*rows, ("sum", *whole)], numbers=(1, 2, 3))


# --- forecasts ---


def list_forecasts(dossier: Dossier) -> Iterator[Block]:
    """Yield every forecast as it was made."""
    seqs: list[int | None] = [*dossier.trail.evaluations]
    evaluations = dossier.evidence.chronicle.evaluations
    seqs += [None] * (len(evaluations) - len(seqs))
    rows = [
        (
            show_instant(it.facts.forecast.at_wall_ms),
            show_number(it.facts.forecast.step),
            f"{it.facts.forecast.step_us / 1e6:,.3f} s",
            show_instant(it.facts.forecast.p10_wall_ms),
            show_instant(it.facts.forecast.p50_wall_ms),
            show_instant(it.facts.forecast.p90_wall_ms),
            tell_chance(it.facts.forecast),
            _tell_verdict(counts=it.facts.counts, is_late=it.facts.is_late),
            entry(seq),
        )
        for it, seq in zip(evaluations, seqs, strict=True)
        if dossier.is_new(seq)
    ]
    heads = ("made", "step", "a step takes", "P10", "P50", "P90", "P(on time)", "verdict", "ledger")
    if rows:
        table = Table(heads, rows, numbers=range(7))
        yield fold_long(f"all {count_of(len(rows), 'forecast')}", table, most=6)
    elif not dossier.is_part:
        yield Paragraph(_tell_silence(dossier))


def _tell_verdict(*, counts: bool, is_late: bool) -> Piece:
    if not counts:
        return "does not count yet"
    return Words("late", "bad") if is_late else "not late"


def _tell_silence(dossier: Dossier) -> str:
    terms = dossier.evidence.memory.policy.terms
    if terms.deadline_wall_ms is None:
        return "No forecast was made: the run has no deadline."
    settle = show_duration(terms.settle_ms / MS_PER_S)
    return (
        f"No forecast was made yet: it takes {count_of(terms.min_clean_steps, 'clean step')},"
        f" and counts after {settle} of training."
    )
