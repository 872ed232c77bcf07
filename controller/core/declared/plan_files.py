"""What `ctl replan` is given beside numbers: another mixture, another execution, as YAML.

Checked as if it stood in the run file, so that each mistake is told as there.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from controller.core.declared.problems import Problem, SpecError
from controller.core.declared.run_file import parse_document
from controller.core.declared.spec import Spec, Stage
from controller.core.declared.spec_rules import make_execution
from controller.core.declared.yaml_text import read_yaml
from controller.core.proposal import Change, WantedStage

Members = dict[str, object]


def read_mixture(text: str, run_text: str, file_name: str, advice: str) -> Change:
    """Return the change to the mixture in `text`, a list like `spec.data.mixture`.

    Raises:
        SpecError: with every problem found; `advice` says what to do next.
    """
    spec = _parse_within(text, run_text, ("data", "mixture"), (file_name, advice))
    return change_mixture(spec.data.mixture)


def change_mixture(stages: list[Stage]) -> Change:
    """Return the change to these stages."""
    wanted = [WantedStage(from_percent=it.from_percent, parts=it.parts) for it in stages]
    return Change(kind="mixture", stages=wanted)


def find_alternative(spec: Spec, name: str, advice: str) -> Change:
    """Return the change to the declared alternative `name`; raises SpecError."""
    if name in spec.data.alternatives:
        return change_mixture(spec.data.alternatives[name])
    known = ", ".join(sorted(spec.data.alternatives)) or "none is declared"
    bound = f"it must be one of spec.data.alternatives ({known})"
    raise SpecError([Problem("replan.alternative", "--mixture", f'"@{name}"', bound, advice)])


def read_execution(text: str, run_text: str, file_name: str, advice: str) -> Change:
    """Return the change to the execution in `text`, a mapping like `spec.execution`.

    Raises:
        SpecError: with every problem found; `advice` says what to do next.
    """
    spec = _parse_within(text, run_text, ("execution",), (file_name, advice))
    return Change(kind="execution", execution=make_execution(spec))


def _parse_within(text: str, run_text: str, place: tuple[str, ...], told: tuple[str, str]) -> Spec:
    """Return the spec of the run with the document in `text` at `place`."""
    file_name, advice = told
    document, problems = read_yaml(text, advice, file_name)
    if problems:
        raise SpecError(problems)
    whole, _ = read_yaml(run_text, advice)
    assert isinstance(whole, dict), "an accepted run file"
    _put(cast("Members", whole), ("spec", *place), document)
    try:
        return parse_document(cast("Members", whole), advice, is_accepted=True).spec
    except SpecError as error:
        raise SpecError([_shorten(it, place) for it in error.problems]) from error


def _put(members: Members, place: tuple[str, ...], value: object) -> None:
    for name in place[:-1]:
        inner = members.get(name)
        members[name] = dict(cast("Mapping[str, object]", inner)) if inner else {}
        members = cast("Members", members[name])
    members[place[-1]] = value


def _shorten(problem: Problem, place: tuple[str, ...]) -> Problem:
    """Name a field as it stands in the owner's file: from its own name on."""
    prefix = ".".join(("spec", *place[:-1], ""))
    return replace(problem, field=problem.field.removeprefix(prefix))
