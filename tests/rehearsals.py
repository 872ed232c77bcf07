"""Rehearsals as they come out, for tests of what is made of them."""

from controller.simulate.rehearsal.tale import IncidentTold, ProposalTold, Rehearsal, SparesTold

DAY_MS = 86_400_000


def a_rehearsal(seed: int = 0, *, days: float | None = 80.0, **changes: object) -> Rehearsal:
    """Return a run that was launched at 0 and took so many days; None: it never finished."""
    ended_ms = round((days or 300.0) * DAY_MS)
    lost_ms = ended_ms // 10
    told = Rehearsal(
        seed=seed,
        outcome="unfinished" if days is None else "completed",
        why="not done in time" if days is None else "",
        launched_wall_ms=0,
        ended_wall_ms=ended_ms,
        finished_wall_ms=None if days is None else ended_ms,
        deadline_wall_ms=90 * DAY_MS,
        on_time=days is not None and days <= 90,
        horizon_percent=100,
        original_steps=1_000,
        total_steps=1_000,
        steps=1_000 if days else 900,
        tokens_trained=10**9,
        tokens_lost=10**6,
        attempts=2,
        account={"productive": ended_ms - lost_ms, "restore": lost_ms},
        incidents=[an_incident()],
        proposals=[],
        spares=SparesTold(
            fewest_by_rack=[1, 0], fewest=1, bare_days=2, tray_moves=1, rack_moves=0, waited_ms=0
        ),
        progress=[(0, 0), (DAY_MS, 12), (ended_ms, 1_000)],
        forecasts=[],
        passes=10,
        records=20,
        ledger_bytes=3_000,
    )
    return told.model_copy(update=changes)


def an_incident(name: str = "gpu", **changes: object) -> IncidentTold:
    """Return a failure of which the controller knew the cause."""
    told = IncidentTold(
        at_wall_ms=5 * DAY_MS, name=name, effect="tray", attempt=1, cause="error", root_rank=3,
        confidence="high", cost_ms=3_600_000, replayed_steps=40, rack=0, tray=1,
    )  # fmt: skip
    return told.model_copy(update=changes)


def a_proposal(outcome: str = "adopted", **changes: object) -> ProposalTold:
    """Return a proposal to shorten the run."""
    told = ProposalTold(
        id="p1", author="controller", reason="late", proposed_wall_ms=9 * DAY_MS,
        approved_wall_ms=10 * DAY_MS, adopted_wall_ms=11 * DAY_MS, fork_step=200, total_steps=900,
        tokens_given_up=10**12, on_time_before_permille=20, on_time_after_permille=800,
        outcome=outcome, why="",
    )  # fmt: skip
    return told.model_copy(update=changes)
