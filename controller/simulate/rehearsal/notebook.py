"""What a rehearsal notes as its controller decides: evaluations, proposals, progress."""

from dataclasses import dataclass, field

from controller.core.memory import Incident, Memory
from controller.core.proposal import Proposal
from controller.core.readings import Instant
from controller.simulate.rehearsal.casebook import Case
from controller.simulate.rehearsal.tale import ForecastTold, IncidentTold, ProposalTold


@dataclass
class Notebook:
    """Filled after each pass from the controller's memory."""

    forecasts: list[ForecastTold] = field(default_factory=list[ForecastTold])
    progress: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    proposals: dict[str, Proposal] = field(default_factory=dict[str, Proposal])
    approved_at: dict[str, Instant] = field(default_factory=dict[str, Instant])
    _evaluated_at: Instant | None = None

    def look(self, memory: Memory) -> None:
        """Note what is new."""
        if memory.evaluation is not None and memory.evaluated_at != self._evaluated_at:
            self._evaluated_at = memory.evaluated_at
            found = memory.evaluation.forecast
            self.forecasts.append(
                ForecastTold(
                    at_wall_ms=found.at_wall_ms,
                    step=found.step,
                    p10_wall_ms=found.p10_wall_ms,
                    p50_wall_ms=found.p50_wall_ms,
                    p90_wall_ms=found.p90_wall_ms,
                    on_time_permille=found.on_time_permille,
                )
            )
        if memory.proposal is not None:
            self.proposals.setdefault(memory.proposal.id, memory.proposal)
            if memory.approval is not None:
                self.approved_at.setdefault(memory.proposal.id, memory.approval.at)

    def tell_proposals(self, memory: Memory) -> list[ProposalTold]:
        """Return what became of each, oldest first."""
        return [self._tell(memory, it) for it in self.proposals.values()]

    def _tell(self, memory: Memory, proposal: Proposal) -> ProposalTold:
        closed = {it.id: it for it in memory.closed}.get(proposal.id)
        revisions = [*memory.adopted, *([memory.revision] if memory.revision else [])]
        revision = {it.proposal.id: it for it in revisions}.get(proposal.id)
        facts, outcome = proposal.facts, closed.outcome if closed else "open"
        if revision is not None and revision.adopted_at is not None:
            outcome = "adopted"
        return ProposalTold(
            id=proposal.id,
            author=proposal.author,
            reason=proposal.reason,
            proposed_wall_ms=proposal.at.wall_ms,
            approved_wall_ms=_wall_ms(self.approved_at.get(proposal.id)),
            adopted_wall_ms=_wall_ms(revision.adopted_at if revision else None),
            fork_step=revision.fork_step if revision else None,
            total_steps=proposal.change.total_steps or memory.plan.total_steps,
            tokens_given_up=facts.tokens_given_up,
            on_time_before_permille=facts.before.on_time_permille if facts.before else None,
            on_time_after_permille=facts.after.on_time_permille if facts.after else None,
            outcome=outcome,
            why=closed.reason if closed else "",
        )


def _wall_ms(at: Instant | None) -> int | None:
    return None if at is None else at.wall_ms


def tell_incident(case: Case, judged: Incident | None, launched_wall_ms: int) -> IncidentTold:
    """Return a case beside the controller's judgement of the attempt that it ended."""
    return IncidentTold(
        at_wall_ms=launched_wall_ms + case.at_ms,
        name=case.name,
        effect=case.effect,
        attempt=case.attempt,
        cause=judged.cause if judged else None,
        root_rank=judged.root_rank if judged else None,
        confidence=judged.confidence if judged else None,
        cost_ms=case.cost_ms,
        replayed_steps=case.replayed_steps,
        rack=case.rack,
        tray=case.tray,
    )
