"""Drills: faults that the owner orders, from outside the controller, which never reads of them."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from controller.core.fields import Count, Section
from controller.core.problems import Problem, SpecError, show_value
from controller.core.yaml_text import read_yaml

KINDS = ("kill", "freeze", "corrupt")


class Drill(Section):
    """One fault: at which completed step, of which kind, on which rank."""

    at_step: Count = 0
    kind: Literal["kill", "freeze", "corrupt"]
    rank: Annotated[int, Field(ge=0)] | Literal["all"] | None = None
    """None for `corrupt`, which flips a bit in the newest checkpoint."""


DRILLS = TypeAdapter(list[Drill])


def parse_drills(text: str, file_name: str) -> list[Drill]:
    """Return the drills in a drill file, by step.

    Raises:
        SpecError: it is no list of {atStep, kind, rank}.
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
        bound = f"a drill file is a list of {{atStep, kind, rank}}: {first['msg']}"
        raise SpecError(
            [Problem("drill.form", field, show_value(first["input"]), bound, advice)]
        ) from error
    if problems := [it for drill in drills for it in check_drill(drill, advice)]:
        raise SpecError(problems)
    return sorted(drills, key=lambda drill: drill.at_step)


def check_drill(drill: Drill, advice: str) -> Sequence[Problem]:
    """Return what is wrong with a drill in itself."""
    if drill.kind == "corrupt" and drill.rank is not None:
        bound = "corrupt takes no rank: it flips a bit in the newest checkpoint"
        return [Problem("drill.rank", "rank", show_value(drill.rank), bound, advice)]
    if drill.kind != "corrupt" and drill.rank is None:
        bound = f'{drill.kind} needs a rank, or "all"'
        return [Problem("drill.rank", "rank", "missing", bound, advice)]
    return []
