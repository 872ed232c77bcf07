"""What several rehearsals of one run file come to, as plain data for people, programs and pictures.

Shares are permille, instants milliseconds since the epoch, spans milliseconds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from controller.core.declared.spec import RunFile
from controller.core.forecast import PERMILLE
from controller.simulate.rehearsal.tale import IncidentTold, Rehearsal, SparesTold

FORMAT = 1
QUANTILES = {"p10": 10, "p50": 50, "p90": 90}
PERCENT = 100


class Kind(NamedTuple):
    """The failures of one class in all runs."""

    failures: int
    """In all runs."""
    incidents: int
    """Those of them that ended an attempt."""
    mean_cost_ms: int
    mean_replayed: int
    causes: dict[str, int]
    """What the controller took them for, and how often; those that ended no attempt are not in."""


class Given(NamedTuple):
    """A deadline asked about beside the run file's own."""

    text: str
    wall_ms: int
    done: int
    """How many of the runs are finished by then."""


class Tally(NamedTuple):
    """The runs of one run file."""

    file: str
    run: str
    rehearsals: Sequence[Rehearsal]
    spare_trays: int
    """That stand by in all racks, spare ones included."""
    plan_ms: int
    """What the steps take when nothing fails."""
    finish_ms: dict[str, int | None]
    """From the launch; None: so many runs do not finish."""
    on_time_permille: int | None
    horizon_percent: dict[str, int]
    """Least, median, most."""
    account_permille: dict[str, int]
    """Phase -> share of the wall time of all runs, 1,000 in all; of those that ever came up."""
    kinds: dict[str, Kind]
    proposals: dict[str, int]
    """Outcome -> how many."""
    tokens_given_up: int
    """By adopted proposals, on average of the runs."""
    given: list[Given]


def tally(
    file: str, run_file: RunFile, rehearsals: Sequence[Rehearsal], plan_ms: int, given: list[Given]
) -> Tally:
    """Return what the rehearsals of one file come to."""
    spans = [span_of(it) for it in rehearsals]
    on_time = [it.on_time for it in rehearsals if it.on_time is not None]
    horizons = sorted(it.horizon_percent for it in rehearsals)
    adopted = [it for run in rehearsals for it in run.proposals if it.outcome == "adopted"]
    return Tally(
        file=file,
        run=run_file.metadata.name,
        rehearsals=rehearsals,
        spare_trays=count_spares(run_file),
        plan_ms=plan_ms,
        finish_ms={name: find_quantile(spans, percent) for name, percent in QUANTILES.items()},
        on_time_permille=share(on_time) if on_time else None,
        horizon_percent={
            "least": horizons[0],
            "median": horizons[(len(horizons) - 1) // 2],
            "most": horizons[-1],
        },
        account_permille=split_wall(rehearsals),
        kinds=count_kinds(it for run in rehearsals for it in run.incidents),
        proposals=dict(Counter(it.outcome for run in rehearsals for it in run.proposals)),
        tokens_given_up=sum(it.tokens_given_up for it in adopted) // len(rehearsals),
        given=given,
    )


def count_spares(run_file: RunFile) -> int:
    """Return how many trays stand by."""
    fleet = run_file.spec.fleet
    return fleet.racks * fleet.trays_per_rack - fleet.ranks // fleet.processes_per_tray


def span_of(rehearsal: Rehearsal) -> int | None:
    """Return how long the run took; None: it did not finish."""
    finished = rehearsal.finished_wall_ms
    return None if finished is None else finished - rehearsal.launched_wall_ms


def share(held: Sequence[bool]) -> int:
    """Return how many of them hold, in permille."""
    return PERMILLE * sum(held) // len(held)


def find_quantile(spans: Sequence[int | None], percent: int) -> int | None:
    """Return the smallest span that at least so many percent of the runs do not exceed."""
    done = sorted(it for it in spans if it is not None)
    rank = max(1, -(-percent * len(spans) // PERCENT))
    return done[rank - 1] if rank <= len(done) else None


def count_done_by(rehearsals: Sequence[Rehearsal], wall_ms: int) -> int:
    """Return how many of the runs are finished at an instant."""
    return sum((it.finished_wall_ms or wall_ms + 1) <= wall_ms for it in rehearsals)


def split_wall(rehearsals: Iterable[Rehearsal]) -> dict[str, int]:
    """Return phase -> share of all wall time, the largest first."""
    total: Counter[str] = Counter()
    for rehearsal in rehearsals:
        total.update(rehearsal.account)
    spent = {phase: spent_ms for phase, spent_ms in total.most_common() if spent_ms}
    return dict(zip(spent, apportion(list(spent.values()), PERMILLE), strict=True))


def apportion(amounts: Sequence[int], whole: int) -> list[int]:
    """Return shares that sum to `whole` exactly: the largest remainders are rounded up.

    Of equal remainders the first; of nothing there are no shares.
    """
    total = max(1, sum(amounts))
    shares = [whole * it // total for it in amounts]
    order = sorted(range(len(amounts)), key=lambda index: -(whole * amounts[index] % total))
    for index in order[: whole - sum(shares)]:
        shares[index] += 1
    return shares


def count_kinds(incidents: Iterable[IncidentTold]) -> dict[str, Kind]:
    """Return class of failure -> what it came to, the most costly first."""
    by_name: dict[str, list[IncidentTold]] = {}
    for incident in incidents:
        by_name.setdefault(incident.name or UNPROVOKED, []).append(incident)
    kinds = {
        name: Kind(
            failures=len(found),
            incidents=sum(it.attempt is not None for it in found),
            mean_cost_ms=round(fmean(it.cost_ms for it in found)),
            mean_replayed=round(fmean(it.replayed_steps for it in found)),
            causes=dict(Counter(it.cause for it in found if it.cause is not None)),
        )
        for name, found in by_name.items()
    }
    return dict(sorted(kinds.items(), key=lambda it: (-it[1].failures * it[1].mean_cost_ms, it[0])))


UNPROVOKED = "(none)"
"""An attempt that ended without a failure of the run file."""


def sum_spares(rehearsals: Sequence[Rehearsal]) -> dict[str, int]:
    """Return the least of what was ever free, and averages of the rest."""
    told = [it.spares for it in rehearsals]
    return {
        "fewest": min(it.fewest for it in told),
        "fewest_of_a_rack": min(min(it.fewest_by_rack, default=0) for it in told),
        **{f"mean_{name}": _mean(told, name) for name in AVERAGED},
    }


AVERAGED = ("bare_days", "tray_moves", "rack_moves", "waited_ms")


def _mean(told: Sequence[SparesTold], name: str) -> int:
    return round(fmean(getattr(it, name) for it in told))


def describe_json(tallies: Sequence[Tally]) -> Mapping[str, object]:
    """Return everything, rehearsals included, as members of JSON."""
    return {"format": FORMAT, "files": [_describe_one(it) for it in tallies]}


def _describe_one(told: Tally) -> Mapping[str, object]:
    return {
        "file": told.file,
        "run": told.run,
        "runs": len(told.rehearsals),
        "spare_trays": told.spare_trays,
        "plan_ms": told.plan_ms,
        "finish_ms": told.finish_ms,
        "on_time_permille": told.on_time_permille,
        "by_deadline": [it._asdict() for it in told.given],
        "horizon_percent": told.horizon_percent,
        "account_permille": told.account_permille,
        "failures": {name: kind._asdict() for name, kind in told.kinds.items()},
        "proposals": told.proposals,
        "tokens_given_up": told.tokens_given_up,
        "spares": sum_spares(told.rehearsals),
        "rehearsals": [it.model_dump(mode="json") for it in told.rehearsals],
    }
