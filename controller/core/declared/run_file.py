"""Parses the run file: all of its problems at once, each with field, value, bound, next command."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from contract.model import PRESETS, ModelShape, shape_of
from controller.core.declared.problems import (
    MAX_PROBLEMS,
    Problem,
    SpecError,
    shorten,
    show_value,
    suggest_name,
)
from controller.core.declared.slips import SLIPS
from controller.core.declared.spec import RunFile, Spec
from controller.core.declared.spec_rules import RULES, Finding, Rule, show
from controller.core.declared.yaml_text import read_yaml

Members = dict[str, object]


def advise(file_name: str) -> str:
    """Return the sentence that ends every message about a run file."""
    return f"Edit {file_name}, then: ctl launch {file_name} --dry-run"


def parse_run_file(text: str, file_name: str = "run.yaml", *, is_accepted: bool = False) -> RunFile:
    """Return the run file in `text`.

    `is_accepted`: a run was launched with it. Slips are not looked for: a rule that is newer than
    the run must not keep it from being steered.

    Raises:
        SpecError: with every problem that can be told, in the order of the fields.
    """
    advice = advise(file_name)
    document, problems = read_yaml(text, advice, file_name)
    if not isinstance(document, dict):
        if not problems:
            bound = "a run file is a mapping that begins with apiVersion, kind, metadata, spec"
            problems = [Problem("field.type", "file", None, bound, advice)]
        raise SpecError(problems)
    return parse_document(cast("Members", document), advice, problems, is_accepted=is_accepted)


def parse_document(
    document: Members,
    advice: str,
    problems: Sequence[Problem] = (),
    *,
    is_accepted: bool = False,
) -> RunFile:
    """Return the run file that a YAML document holds; `problems` are those of reading it.

    Raises:
        SpecError: as above.
    """
    parser = _Parser(document, advice, RULES if is_accepted else (*RULES, *SLIPS))
    run_file = parser.parse()
    found = [*problems, *parser.problems]
    if found or run_file is None:
        raise SpecError(_first_per_field(found))
    return run_file


def to_problems(findings: Iterable[Finding], advice: str) -> list[Problem]:
    """Return findings as problems that name the next command."""
    return [
        Problem(rule, field, show(value), bound, advice) for rule, field, value, bound in findings
    ]


def _first_per_field(problems: Iterable[Problem]) -> list[Problem]:
    """Drop what only follows from another problem of the same field, such as a float's type."""
    told: dict[tuple[str, str | None], Problem] = {}
    unread: set[str] = set()
    for problem in problems:
        if problem.rule.startswith("yaml."):
            unread.add(problem.field)
        elif problem.field in unread:
            continue
        # Problems without a value may be several in one field: unknown members, for one.
        told.setdefault((problem.field, problem.value or problem.bound), problem)
    return list(told.values())


class _Parser:
    """One document on its way to a run file."""

    def __init__(self, document: Members, advice: str, rules: Sequence[Rule]) -> None:
        self.problems: list[Problem] = []
        self._advice = advice
        self._document = document
        self._rules = rules

    def parse(self) -> RunFile | None:
        members = dict(self._document)
        raw = members.get("spec")
        if isinstance(raw, dict):
            members["spec"] = self._work_out_model(dict(cast("Members", raw)))
        try:
            run_file = RunFile.model_validate(members)
        except ValidationError as error:
            details = [it for it in error.errors() if it["loc"] != UNWORKED_SHAPE]
            self.problems += map(self._explain, details[:MAX_PROBLEMS])
            self._apply_rules(_parse_sections(members.get("spec")))
            return None
        self._apply_rules({name: getattr(run_file.spec, name) for name in Spec.model_fields})
        return run_file

    def _work_out_model(self, spec: Members) -> Members:
        """Replace the model's overrides by the shape, or leave what cannot be worked out."""
        raw = spec.get("model")
        if not isinstance(raw, dict):
            return spec
        overrides = dict(cast("Members", raw))
        preset = overrides.pop("preset", None)
        overrides = {name: value for name, value in overrides.items() if self._is_known_size(name)}
        if not isinstance(preset, str) or preset not in PRESETS:
            bound = f"it must be one of {', '.join(sorted(PRESETS))}"
            self._add("model.preset", "spec.model.preset", show_value(preset), bound)
            return {**spec, "model": {"preset": ""}}
        try:
            shape = shape_of(preset, overrides)
        except ValidationError as error:
            self.problems += (
                self._explain({**detail, "loc": ("spec", "model", *detail["loc"])})
                for detail in error.errors()
            )
            return {**spec, "model": {"preset": preset}}
        return {**spec, "model": {"preset": preset, "shape": shape}}

    def _is_known_size(self, name: str) -> bool:
        # The shape's model reads snake_case, too: then a size could be given twice.
        if name in _names_of(ModelShape):
            return True
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(self._explain_unknown(("spec", "model", name)))
        return False

    def _apply_rules(self, sections: Mapping[str, object]) -> None:
        spec = Spec.model_construct(_fields_set=None, **sections)
        for rule in self._rules:
            if all(name in sections for name in rule.sections):
                found = islice(rule.check(spec), MAX_PROBLEMS)
                self.problems += to_problems(found, self._advice)

    def _add(self, rule: str, field: str, value: str | None, bound: str) -> None:
        self.problems.append(Problem(rule, field, value, bound, self._advice))

    def _explain(self, detail: ErrorDetails) -> Problem:
        path = tuple(part for part in detail["loc"] if part != "[key]")
        field = ".".join(map(str, path)) or "file"
        kind = detail["type"]
        if kind == "extra_forbidden":
            return self._explain_unknown(path)
        if kind == "missing":
            return Problem("field.missing", field, None, "it must be given", self._advice)
        rule = kind if "." in kind else RULE_OF.get(kind, "field.type")
        bound = detail["msg"] if "." in kind else _bound_of(detail)
        return Problem(rule, field, show_value(detail["input"]), bound, self._advice)

    def _explain_unknown(self, path: tuple[int | str, ...]) -> Problem:
        parent, name = ".".join(map(str, path[:-1])) or "file", str(path[-1])
        known = _names_at(path[:-1])
        bound = f'unknown field "{_spell(name)}". {suggest_name(name, known)}'
        return Problem("field.unknown", parent, None, bound, self._advice)


def _spell(name: str) -> str:
    """Return a name with what is not ASCII by its number: look-alikes show."""
    return shorten(name.encode("ascii", "backslashreplace").decode())


UNWORKED_SHAPE = ("spec", "model", "shape")
"""Told already, in the words of the field that could not be worked out."""

RULE_OF = {
    "greater_than_equal": "value.bound",
    "less_than_equal": "value.bound",
    "literal_error": "value.choice",
    "too_short": "value.empty",
    "too_long": "value.many",
    "string_pattern_mismatch": "value.decimal",
    "string_too_long": "value.decimal",
}


def _bound_of(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    kind = detail["type"]
    if kind in BOUNDS:
        return BOUNDS[kind].format(**context)
    return f"it must be {WANTED.get(kind.removesuffix('_type'), detail['msg'])}"


BOUNDS = {
    "greater_than_equal": "it must be at least {ge}",
    "less_than_equal": "it must be at most {le}",
    "literal_error": "it must be {expected}",
    "too_short": "it must not be empty",
    "too_long": "it must have at most {max_length} members",
    "string_pattern_mismatch": 'it must be a decimal string such as "0.003"',
    "string_too_long": "it must be a decimal string of at most {max_length} characters",
}

WANTED = {
    "int": "a whole number",
    "string": "text",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "model_attributes": "a mapping",
}


def _names_at(path: tuple[int | str, ...]) -> list[str]:
    """Return the names of the fields that may stand at `path`."""
    current: object = RunFile
    for part in path:
        if current is Spec and part == "model":
            current = ModelShape
            continue
        current = _member_of(current, part)
    if current is ModelShape:
        return ["preset", *_names_of(ModelShape)]
    return _names_of(current) if _is_model(current) else []


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _names_of(kind: object) -> list[str]:
    model = cast("type[BaseModel]", kind)
    return [field.alias or name for name, field in model.model_fields.items()]


def _member_of(kind: object, part: int | str) -> object:
    """Return the model one step below, through unions, lists and mappings, or None."""
    if not _is_model(kind) or isinstance(part, int):
        return kind  # the position in a list, or the key of a mapping
    fields: dict[str, FieldInfo] = cast("type[BaseModel]", kind).model_fields
    for name, field in fields.items():
        if part in (name, field.alias):
            return _first_model(field.annotation)
    return None


def _first_model(annotation: object) -> object:
    if _is_model(annotation):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _first_model(argument)) is not None:
            return found
    return None


def _parse_sections(spec: object) -> dict[str, object]:
    """Return the sections that are right by themselves; defaults where none is written."""
    raw = cast("Members", spec) if isinstance(spec, dict) else {}
    parsed: dict[str, object] = {}
    for name, field in Spec.model_fields.items():
        alias = field.alias or name
        if alias not in raw:
            if not field.is_required():
                parsed[name] = field.get_default()
            continue
        try:
            adapter = TypeAdapter(cast("type[object]", field.annotation))
            parsed[name] = adapter.validate_python(raw[alias])
        except ValidationError:
            continue
    return parsed
