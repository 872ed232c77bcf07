"""Drills: faults that the owner orders, from outside the controller, which never reads of them."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from controller.core.declared.fields import Count, DecimalString, Section
from controller.core.declared.problems import Problem, SpecError, show_value
from controller.core.declared.yaml_text import read_yaml

KINDS = ("kill", "freeze", "corrupt", "pace")
HITTING = ("kill", "freeze")
"""Kinds that need a rank."""
MAX_PACE_S = 60
"""Half of the default deadline of a step: slower, the ranks' own watchdogs would end them."""


class Drill(Section):
    """One fault: at which completed step, of which kind, on which rank, how slow."""

    at_step: Count = 0
    kind: Literal["kill", "freeze", "corrupt", "pace"]
    rank: Annotated[int, Field(ge=0)] | Literal["all"] | None = None
    """None for `corrupt`, which flips a bit in the newest checkpoint, and for `pace`."""
    step_s: DecimalString | None = None
    """Of `pace`: seconds a step from here on; 0 ends pacing."""


DRILLS = TypeAdapter(list[Drill])


def parse_drills(text: str, file_name: str) -> list[Drill]:
    """Return the drills in a drill file, by step.

    Raises:
        SpecError: it is no list of {atStep, kind, rank or stepS}.
    """
    advice = f"Edit {file_name}, then: ctl drill NAME --file {file_name}"
    document, problems = read_yaml(text, advice, file_name)
    if problems:
        raise SpecError(problems)
    try:
        drills = DRILLS.validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "file"
        bound = f"a drill file is a list of {{atStep, kind, rank or stepS}}: {first['msg']}"
        raise SpecError(
            [Problem("drill.form", field, show_value(first["input"]), bound, advice)]
        ) from error
    if problems := [it for drill in drills for it in check_drill(drill, advice)]:
        raise SpecError(problems)
    return sorted(drills, key=lambda drill: drill.at_step)


def check_drill(drill: Drill, advice: str) -> Sequence[Problem]:
    """Return what is wrong with a drill in itself."""
    return [*_check_rank(drill, advice), *_check_pace(drill, advice)]


def _check_rank(drill: Drill, advice: str) -> Iterator[Problem]:
    if drill.kind in HITTING and drill.rank is None:
        bound = f'{drill.kind} needs a rank, or "all"'
        yield Problem("drill.rank", "rank", "missing", bound, advice)
    elif drill.kind not in HITTING and drill.rank is not None:
        bound = f"{drill.kind} takes no rank: {NO_RANK[drill.kind]}"
        yield Problem("drill.rank", "rank", show_value(drill.rank), bound, advice)


NO_RANK = {
    "corrupt": "it flips a bit in the newest checkpoint",
    "pace": "it holds all of them",
}


def _check_pace(drill: Drill, advice: str) -> Iterator[Problem]:
    given = drill.step_s
    if drill.kind != "pace":
        if given is not None:
            bound = f"{drill.kind} takes no pace"
            yield Problem("drill.pace", "stepS", show_value(given), bound, advice)
    elif given is None:
        bound = f"pace needs seconds a step, 0 to {MAX_PACE_S}; 0 ends pacing"
        yield Problem("drill.pace", "stepS", "missing", bound, advice)
    elif Fraction(given) > MAX_PACE_S:
        bound = f"it must be 0 to {MAX_PACE_S}"
        yield Problem("drill.pace", "stepS", show_value(given), bound, advice)
