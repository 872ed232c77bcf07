"""Each proposal as whoever decides saw it: what it changes, what it rests on, what was proven."""

from collections.abc import Iterator, Sequence

from controller.core.chance import PERMILLE
from controller.core.forecast import Forecast, Lag
from controller.core.memory import Memory
from controller.core.proposal import Facts, Proof, Proposal, Revision
from controller.core.replan import tell_chance
from controller.core.telling.chronicle import Deadline, Story
from controller.core.telling.status_plan import find_newest
from controller.report.blocks import (
    Block,
    Cell,
    Heading,
    Pairs,
    Paragraph,
    Piece,
    Table,
    Words,
    code,
    entry,
)
from controller.report.dossier import Dossier
from controller.report.wording import (
    MS_PER_S,
    show_duration,
    show_instant,
    show_number,
)

MICRO = 1e-6
MIB = 2**20


def list_proposals(dossier: Dossier) -> Iterator[Block]:
    """Yield the blocks of each proposal, oldest first."""
    memory = dossier.evidence.memory
    pending = [memory.revision] if memory.revision else []
    revisions = {it.proposal.id: it for it in [*memory.adopted, *pending]}
    stories = dossier.evidence.chronicle.stories
    for story in stories:
        seqs = dossier.trail.proposals.get(story.proposal.id, [])
        if dossier.is_new(max(seqs, default=None)):
            yield from _list_story(dossier, story, revisions.get(story.proposal.id))
    if not stories and not dossier.is_part:
        yield Paragraph(_tell_silence(dossier))


def _tell_silence(dossier: Dossier) -> str:
    terms = dossier.evidence.memory.policy.terms
    if terms.mode == "off":
        return "None was made: the contingency's mode is off."
    late = f"{terms.evaluations} late evaluations in a row"
    return f"None was made: it takes {late}, or somebody who asks (ctl replan)."


def _list_story(dossier: Dossier, story: Story, revision: Revision | None) -> Iterator[Block]:
    proposal = story.proposal
    by = "" if story.by is None else f" by {story.by}"
    yield Heading([code(proposal.id), f" {story.outcome}{by}"], f"proposal-{proposal.id}")
    floor = " Only the floor can be reached, and it does not meet the target." * proposal.is_floor
    last_call = " It was the last call before the window closed." * proposal.is_last_call
    said = f"{proposal.author} proposed to {proposal.change.describe()}: {proposal.reason}."
    yield Paragraph(f"{said}{floor}{last_call}")
    yield Pairs(
        [
            ("made", show_instant(proposal.at.wall_ms)),
            ("fork", f"step {proposal.fork_first:,} to {proposal.fork_last:,}"),
            *_list_facts(proposal.facts),
            *_list_newest(dossier.evidence.memory, proposal),
            *_list_end(story, revision),
            *_list_entries(dossier, proposal.id),
        ]
    )
    yield _tabulate(proposal.facts.proofs)


def _list_entries(dossier: Dossier, proposal: str) -> Iterator[tuple[str, Cell]]:
    pieces: list[Piece] = []
    for seq in dossier.trail.proposals.get(proposal, ()):
        pieces += [", "] * bool(pieces) + [entry(seq)]
    if pieces:
        yield "ledger", pieces


def _list_facts(facts: Facts) -> Iterator[tuple[str, Cell]]:
    if facts.before is not None:
        yield "finish as it was", _tell_forecast(facts.before)
    if facts.after is not None:
        yield "finish as proposed", _tell_forecast(facts.after)
    if facts.due_wall_ms is not None:
        yield "due", show_instant(facts.due_wall_ms)
    if facts.lag is not None:
        yield "lag", _tell_lag(facts.lag)
    yield from _list_costs(facts)


def _list_newest(memory: Memory, proposal: Proposal) -> Iterator[tuple[str, Cell]]:
    """Yield what the newest evaluation says of the proposal, while that is open."""
    found = find_newest(memory)
    if found is None or memory.proposal != proposal:
        return
    told = f"{_tell_forecast(found)}, of {show_instant(found.at_wall_ms)}"
    yield "by the newest evaluation", told
    target = memory.policy.terms.target_percent
    if (found.on_time_permille or 0) < target * PERMILLE:
        yield "target", Words(f"NOT met by now: P(on time) is under {target}%", "bad")


def _tell_lag(lag: Lag) -> str:
    whole_ms = lag.lost_ms + lag.slow_ms
    whole, lost, slow = (
        show_duration(abs(it) / MS_PER_S) for it in (whole_ms, lag.lost_ms, lag.slow_ms)
    )
    side = "behind" if whole_ms >= 0 else "ahead"
    how = "lost by steps slower" if lag.slow_ms >= 0 else "won by steps faster"
    return f"{whole} {side}: {lost} lost time, {slow} {how} than the even pace"


def _list_costs(facts: Facts) -> Iterator[tuple[str, Cell]]:
    if facts.tokens_given_up:
        yield "tokens given up", show_number(facts.tokens_given_up)
    if (cost := facts.loss_cost) is not None:
        low, high = cost.low_micronats * MICRO, cost.high_micronats * MICRO
        yield "expected loss cost", f"{low:.4f} to {high:.4f} nats, if {cost.assumption}"
    if facts.shortfall_ms:
        yield "still missing", show_duration(facts.shortfall_ms / MS_PER_S)
    if facts.rank_bytes is not None:
        yield "largest rank", f"{facts.rank_bytes / MIB:,.0f} MiB resident"


def _tell_forecast(found: Forecast) -> str:
    ends = f"{show_instant(found.p10_wall_ms)} to {show_instant(found.p90_wall_ms)}"
    is_judged = found.on_time_permille is not None
    on_time = f"; P(on time) {tell_chance(found)}" if is_judged else ""
    return f"{show_instant(found.p50_wall_ms)} (P10 to P90: {ends}){on_time}"


def _list_end(story: Story, revision: Revision | None) -> Iterator[tuple[str, Cell]]:
    if story.ended_at is None:
        yield "answered", "not yet"
    else:
        by = "" if story.by is None else f" by {story.by}"
        at = show_instant(story.ended_at.wall_ms)
        yield "answered", f"{at}, {story.outcome}{by}: {story.reason}"
    if revision is None:
        return
    step = revision.adopted_step
    adopted = "not adopted yet" if step is None else f"adopted when seen at step {step:,}"
    plan = Words(revision.plan_sha[:12], "code", f"#plan-{revision.plan_sha[:12]}")
    yield "revision", [plan, f" from step {revision.fork_step:,}, {adopted}"]
    if revision.missed:
        yield "missed siblings", ", ".join(sha[:12] for sha in revision.missed)


def _tabulate(proofs: Sequence[Proof]) -> Table:
    return Table(
        ("proof", "verdict", "found", "must be"),
        [
            (
                it.name.replace("_", " "),
                Words("holds", "good") if it.holds else Words("FAILS", "bad"),
                it.value,
                it.bound,
            )
            for it in proofs
        ],
        kinds={2: "w"},
    )


# --- dates ---


def list_deadlines(dossier: Dossier) -> Iterator[Block]:
    """Yield the deadline of the launch and each later one; nothing where it was never moved."""
    found = dossier.evidence.chronicle.deadlines
    rows = [
        (
            show_instant(it.at.wall_ms),
            _tell_mover(it, is_first=index == 0),
            show_instant(it.deadline_wall_ms),
            show_instant(it.due_wall_ms),
        )
        for index, it in enumerate(found)
    ]
    if len(found) > 1:
        yield Table(("since", "by", "deadline", "due"), rows)


def _tell_mover(deadline: Deadline, *, is_first: bool) -> str:
    if is_first:
        return "the launch"
    return deadline.by or "the run file, read by the next controller"
