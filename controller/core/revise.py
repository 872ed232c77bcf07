"""From a plan and a change to the revision: a pure function of (parent, change, effective step)."""

from collections.abc import Callable, Sequence

from contract.plan import ContextStage, MixtureStage, Plan
from contract.schedule import format_fraction, retime
from controller.core.proposal import Change, WantedStage


def align_up(step: int, align: int) -> int:
    """Return the first multiple of `align` that is not below `step`."""
    return -(-step // align) * align


def revise(
    parent: Plan, change: Change, effective: int, *, author: str, reason: str, midtrain_steps: int
) -> Plan:
    """Return the revision of `parent` that governs from `effective` on.

    `midtrain_steps`: the last mixture stage keeps at least so many, whatever its share.
    No instant and no identity but the author's goes into it, so a crash between writing it and
    publishing it yields the same plan.
    """
    common = {
        "kind": change.kind,
        "parent": parent.sha,
        "effective": effective,
        "supersedes": None,
        "author": author,
        "reason": reason,
    }
    build = BUILDERS[change.kind]
    return parent.model_copy(update=common | build(parent, change, effective, midtrain_steps))


def _revise_horizon(
    parent: Plan, change: Change, effective: int, midtrain_steps: int
) -> dict[str, object]:
    total = change.total_steps
    assert total is not None
    return {
        "total_steps": total,
        "anneals": {
            name: [
                (step, format_fraction(value))
                for step, value in retime(parent.knots_of(name), effective, total)
            ]
            for name in parent.anneals
        },
        "mixture": parent.mixture.model_copy(
            update={"stages": move_mixture(parent, effective, total, midtrain_steps)}
        ),
        "context": move_context(parent, effective, total),
    }


def move_mixture(
    parent: Plan, effective: int, total_steps: int, midtrain_steps: int
) -> list[MixtureStage]:
    """Return the stages with those after `effective` moved to their share of the new horizon.

    Aligned down to whole blocks, never before the first aligned step at or after the fork.
    """
    stages = parent.mixture.stages
    kept = [stage for stage in stages if stage.start < effective or stage.start == 0]
    moved: list[MixtureStage] = []
    for stage in stages[len(kept) :]:
        wanted = stage.from_percent * total_steps // 100
        if stage is stages[-1]:
            wanted = min(wanted, total_steps - midtrain_steps)
        aligned = max(0, wanted) // parent.align_steps * parent.align_steps
        start = max(aligned, align_up(effective, parent.align_steps))
        moved.append(stage.model_copy(update={"start": start}))
    return [*kept, *_drop_overtaken(moved)]


def _drop_overtaken(moved: Sequence[MixtureStage]) -> list[MixtureStage]:
    """Leave out stages that would begin where a later one does: they would govern no step."""
    starts = [stage.start for stage in moved]
    return [stage for at, stage in enumerate(moved) if stage.start not in starts[at + 1 :]]


def move_context(parent: Plan, effective: int, total_steps: int) -> list[ContextStage]:
    """Return the context stages with those after `effective` at their percent of the horizon."""
    kept = [stage for stage in parent.context if stage.start < effective or stage.start == 0]
    moved = {
        max(effective, stage.from_percent * total_steps // 100): stage
        for stage in parent.context[len(kept) :]
    }
    return [
        *kept,
        *(stage.model_copy(update={"start": start}) for start, stage in sorted(moved.items())),
    ]


def _revise_mixture(parent: Plan, change: Change, effective: int, _: int) -> dict[str, object]:
    assert change.stages is not None
    kept = [stage for stage in parent.mixture.stages if stage.start < effective]
    future = place_stages(parent, change.stages, effective)
    return {"mixture": parent.mixture.model_copy(update={"stages": [*kept, *future]})}


def place_stages(parent: Plan, wanted: Sequence[WantedStage], effective: int) -> list[MixtureStage]:
    """Return the wanted stages from `effective` on: the one that governs there begins there."""
    first = align_up(effective, parent.align_steps)
    placed: dict[int, MixtureStage] = {}
    for stage in wanted:
        aligned = stage.from_percent * parent.total_steps // 100
        aligned = aligned // parent.align_steps * parent.align_steps
        start = max(first, aligned)
        # A later stage that would begin no later takes the place.
        placed[start] = MixtureStage(
            start=start, from_percent=stage.from_percent, parts=stage.parts
        )
    return [placed[start] for start in sorted(placed)]


def _revise_execution(_: Plan, change: Change, __: int, ___: int) -> dict[str, object]:
    assert change.execution is not None
    return {"execution": change.execution}


Builder = Callable[[Plan, Change, int, int], dict[str, object]]

BUILDERS: dict[str, Builder] = {
    "horizon": _revise_horizon,
    "mixture": _revise_mixture,
    "execution": _revise_execution,
}
