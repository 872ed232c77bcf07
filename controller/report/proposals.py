"""Each proposal as whoever decides saw it: what it changes, what it rests on, what was proven."""

from collections.abc import Iterator, Mapping, Sequence

from contract.plan import Plan
from controller.core.chronicle import Deadline, Story
from controller.core.forecast import Forecast, Lag
from controller.core.proposal import Facts, Proof, Revision
from controller.core.summary import Evidence
from controller.report.markup import code, paragraph, rows, table, text
from controller.report.wording import (
    MS_PER_S,
    show_chance,
    show_duration,
    show_instant,
    show_number,
    show_percent,
)

MICRO = 1e-6
MIB = 2**20


def show_proposals(evidence: Evidence) -> Sequence[str]:
    """Return the pieces of the section, oldest proposal first."""
    memory = evidence.memory
    pending = [memory.revision] if memory.revision else []
    revisions = {it.proposal.id: it for it in [*memory.adopted, *pending]}
    return [_show_story(it, revisions) for it in evidence.chronicle.stories]


def _show_story(story: Story, revisions: Mapping[str, Revision]) -> str:
    proposal = story.proposal
    by = "" if story.by is None else f" by {story.by}"
    title = f"<h3>{code(proposal.id)} {text(f'{story.outcome}{by}')}</h3>"
    floor = " Only the floor can be reached, and it does not meet the target." * proposal.is_floor
    last_call = " It was the last call before the window closed." * proposal.is_last_call
    said = f"{proposal.author} proposed to {proposal.change.describe()}: {proposal.reason}."
    pairs = [
        ("made", show_instant(proposal.at.wall_ms)),
        ("fork", f"step {proposal.fork_first:,} to {proposal.fork_last:,}"),
        *_list_facts(proposal.facts),
        *_list_end(story, revisions.get(proposal.id)),
    ]
    return "\n".join(
        [
            title,
            paragraph(text(f"{said}{floor}{last_call}")),
            rows((label, text(value)) for label, value in pairs),
            _show_proofs(proposal.facts.proofs),
        ]
    )


def _list_facts(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.before is not None:
        yield "finish as it was", _tell_forecast(facts.before)
    if facts.after is not None:
        yield "finish as proposed", _tell_forecast(facts.after)
    if facts.due_wall_ms is not None:
        yield "due", show_instant(facts.due_wall_ms)
    if facts.lag is not None:
        yield "lag", _tell_lag(facts.lag)
    yield from _list_costs(facts)


def _tell_lag(lag: Lag) -> str:
    whole_ms = lag.lost_ms + lag.slow_ms
    whole, lost, slow = (
        show_duration(abs(it) / MS_PER_S) for it in (whole_ms, lag.lost_ms, lag.slow_ms)
    )
    side = "behind" if whole_ms >= 0 else "ahead"
    how = "lost by steps slower" if lag.slow_ms >= 0 else "won by steps faster"
    return f"{whole} {side}: {lost} lost time, {slow} {how} than the even pace"


def _list_costs(facts: Facts) -> Iterator[tuple[str, str]]:
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
    chance = found.on_time_permille
    on_time = "" if chance is None else f"; P(on time) {show_chance(chance)}"
    return f"{show_instant(found.p50_wall_ms)} (P10 to P90: {ends}){on_time}"


def _list_end(story: Story, revision: Revision | None) -> Iterator[tuple[str, str]]:
    if story.ended_at is not None:
        yield "answered", f"{show_instant(story.ended_at.wall_ms)}: {story.reason}"
    if revision is None:
        return
    step = revision.adopted_step
    adopted = "not adopted yet" if step is None else f"adopted when seen at step {step:,}"
    yield "revision", f"{revision.plan_sha[:12]} from step {revision.fork_step:,}, {adopted}"
    if revision.missed:
        yield "missed siblings", ", ".join(sha[:12] for sha in revision.missed)


def _show_proofs(proofs: Sequence[Proof]) -> str:
    return table(
        ("proof", "verdict", "found", "must be"),
        (
            (
                text(it.name.replace("_", " ")),
                '<span class="good">holds</span>' if it.holds else '<span class="bad">FAILS</span>',
                text(it.value),
                text(it.bound),
            )
            for it in proofs
        ),
        kinds={2: "w"},
    )


# --- plans and dates ---


def show_deadlines(evidence: Evidence) -> str:
    """Return the deadline of the launch and each later one; nothing where it was never moved."""
    found = evidence.chronicle.deadlines
    rows_of = (
        (
            show_instant(it.at.wall_ms),
            text(_tell_mover(it, is_first=index == 0)),
            show_instant(it.deadline_wall_ms),
            show_instant(it.due_wall_ms),
        )
        for index, it in enumerate(found)
    )
    return table(("since", "by", "deadline", "due"), rows_of) if len(found) > 1 else ""


def _tell_mover(deadline: Deadline, *, is_first: bool) -> str:
    if is_first:
        return "the launch"
    return deadline.by or "the run file, read by the next controller"


def show_plans(chain: Sequence[Plan]) -> str:
    """Return every plan of the chain with its horizon and mixture."""
    return table(
        ("plan", "kind", "from step", "horizon", "last rate", "mixture"),
        (
            (
                code(plan.sha[:12]),
                text(plan.kind),
                show_number(plan.effective),
                show_number(plan.total_steps),
                show_percent(100 * float(plan.knots_of("learning_rate")[-1][1])),
                "<br>".join(_tell_stages(plan)),
            )
            for plan in chain
        ),
        numbers=(2, 3, 4),
    )


def _tell_stages(plan: Plan) -> Iterator[str]:
    for stage in plan.mixture.stages:
        parts = ", ".join(f"{name} {share}" for name, share in sorted(stage.parts.items()))
        yield text(f"from {stage.start:,}: {parts}")
