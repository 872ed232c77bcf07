"""Parses the run file: all of its problems at once, each with field, value, bound, next command."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from contract.model import PRESETS, ModelShape, shape_of
from controller.core.problems import Problem, SpecError, show_value, suggest_name
from controller.core.spec import RunFile, Spec
from controller.core.spec_rules import RULES, Finding, show
from controller.core.yaml_text import read_yaml

Members = dict[str, object]


def advise(file_name: str) -> str:
    """Return the sentence that ends every message about a run file."""
    return f"Edit {file_name}, then: ctl launch {file_name} --dry-run"


def parse_run_file(text: str, file_name: str = "run.yaml") -> RunFile:
    """Return the run file in `text`.

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
    return parse_document(cast("Members", document), advice, problems)


def parse_document(document: Members, advice: str, problems: Sequence[Problem] = ()) -> RunFile:
    """Return the run file that a YAML document holds; `problems` are those of reading it.

    Raises:
        SpecError: as above.
    """
    parser = _Parser(document, advice)
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

    def __init__(self, document: Members, advice: str) -> None:
        self.problems: list[Problem] = []
        self._advice = advice
        self._document = document

    def parse(self) -> RunFile | None:
        members = dict(self._document)
        raw = members.get("spec")
        if isinstance(raw, dict):
            members["spec"] = self._work_out_model(dict(cast("Members", raw)))
        try:
            run_file = RunFile.model_validate(members)
        except ValidationError as error:
            details = (it for it in error.errors() if it["loc"] != UNWORKED_SHAPE)
            self.problems += map(self._explain, details)
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

    def _apply_rules(self, sections: Mapping[str, object]) -> None:
        spec = Spec.model_construct(_fields_set=None, **sections)
        for rule in RULES:
            if all(name in sections for name in rule.sections):
                self.problems += to_problems(rule.check(spec), self._advice)

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
        bound = f'unknown field "{name}". {suggest_name(name, known)}'
        return Problem("field.unknown", parent, None, bound, self._advice)


UNWORKED_SHAPE = ("spec", "model", "shape")
"""Told already, in the words of the field that could not be worked out."""

RULE_OF = {
    "greater_than_equal": "value.bound",
    "less_than_equal": "value.bound",
    "literal_error": "value.choice",
    "too_short": "value.empty",
    "string_pattern_mismatch": "value.decimal",
}


def _bound_of(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "greater_than_equal":
            return f"it must be at least {context['ge']}"
        case "less_than_equal":
            return f"it must be at most {context['le']}"
        case "literal_error":
            return f"it must be {context['expected']}"
        case "too_short":
            return "it must not be empty"
        case "string_pattern_mismatch":
            return 'it must be a decimal string such as "0.003"'
        case kind:
            return f"it must be {WANTED.get(kind.removesuffix('_type'), detail['msg'])}"


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
