"""Renders the reference of the run file from its models: fields, bounds, defaults."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from contract.model import PRESETS, ModelShape
from controller.adapters.corpus import BUILT_IN, COUNTED
from controller.core.declared.fields import format_duration
from controller.core.declared.spec import Model, RunFile, Source
from tools.docstrings import (
    find_class,
    first_sentence,
    parse_module,
    read_annotations,
    read_docstrings,
    render_table,
)

PAGE = Path(__file__).parent.parent / "docs" / "run_file.md"
PREFIXES = {"The contingency": "spec.contingency.", "The simulation": "spec.simulation."}
"""Headings of that page under which fields stand without their section."""

Row = tuple[str, str, str, str]

KINDS = {
    "Positive": "whole number, 1 or more",
    "Count": "whole number, 0 or more",
    "Percent": "whole percent, 0 to 100",
    "Share": "whole percent, 1 to 100",
    "CapacityPercent": "whole percent, 1 to 1000",
    "Duration": "duration",
    "Span": "duration, longer than 0",
    "Patience": "duration, or never",
    "DecimalString": "decimal string",
    "DecimalText": "decimal string",
    "InstantText": "instant with offset",
    "RunName": "name",
    "str": "text",
    "int": "whole number",
    "bool": "true or false",
}
"""Types as the models write them -> in words. One that is missing here stops the page."""
DURATIONS = {"Duration", "Span", "Patience"}
OPTIONS = (
    ("paths", "list: text", "Of `files`: files, folders and globs, from the run file's folder on."),
    ("heldOut", "list: text", "Of `files`: those of them that are only evaluated on."),
    ("heldOutPercent", "whole percent, 1 to 50", "Of `files`, without heldOut: so much is."),
    ("tokens", "whole number, 1 or more", f"Of `{COUNTED}`: text that is only counted."),
)
"""(name, value, meaning) of what stands beside `kind`; the kinds check it themselves."""


def render_run_file() -> str:
    """Return the tables of all fields, and the sizes of the presets."""
    return (
        "# Fields of the run file\n\n"
        "In words: [../run_file.md](../run_file.md). What is refused: [rules.md](rules.md).\n\n"
        "A duration is a whole number with ms, s, m, h or d. A decimal string is quoted, without\n"
        "sign or exponent. `[]` is each member of a list, `NAME` each entry of a mapping.\n\n"
        + render_table(("Field", "Value", "Default", "Meaning"), _walk(RunFile, ""))
        + "\n## Sizes of the model\n\n"
        "`spec.model` names a preset, and beside it any of these that shall differ from it.\n\n"
        + render_table(("Field", *PRESETS, "Meaning"), _list_sizes())
    )


def _walk(model: type[BaseModel], place: str) -> Iterator[Row]:
    texts, written = read_docstrings(find_class(model).body), read_annotations(model)
    told = read_page()
    for name, field in model.model_fields.items():
        path = f"{place}{field.alias or name}"
        annotation = _parse(written[name], model)
        below = _model_of(field.annotation)
        if below is Model:
            yield f"`{path}.preset`", _choices(PRESETS), "required", first_sentence(Model.__doc__)
        elif below is Source:
            yield from _list_source(f"{path}.NAME")
        elif below is None:
            default = _show_default(field, annotation)
            meaning = texts.get(name) or told.get(path, "")
            yield f"`{path}`", _describe(annotation, model), default, meaning
        else:
            meaning = texts.get(name) or first_sentence(below.__doc__)
            yield f"`{path}`", _describe(annotation, model), _show_presence(field), meaning
            yield from _walk(below, f"{path}{_suffix(annotation, model)}.")


@cache
def read_page() -> dict[str, str]:
    """Return field -> meaning, of the rows of docs/run_file.md that are about one field each.

    A row on several fields counts if it says as many things, parted by semicolons.
    """
    found: dict[str, str] = {}
    prefix = "spec."
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            prefix = PREFIXES.get(line[3:], "spec.")
        elif line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            names, words = re.findall(r"`([\w.]+)`", cells[0]), cells[1].split("; ")
            meanings = [cells[1]] if len(names) == 1 else words
            if len(names) == len(meanings):
                found |= {
                    _whole(prefix, it): _aim(text) for it, text in zip(names, meanings, strict=True)
                }
    return found


def _whole(prefix: str, name: str) -> str:
    return name if name.startswith("metadata.") else f"{prefix}{name}"


def _aim(text: str) -> str:
    """Return a cell of that page as it stands one folder below."""
    return text.replace("](", "](../")


def _list_source(path: str) -> Iterator[Row]:
    kinds = _choices([*BUILT_IN, "files", COUNTED])
    yield f"`{path}.kind`", kinds, "required", "Where the text comes from."
    for name, value, meaning in OPTIONS:
        yield f"`{path}.{name}`", value, "none", meaning


def _list_sizes() -> Iterator[tuple[str, ...]]:
    texts = read_docstrings(find_class(ModelShape).body)
    for name, field in ModelShape.model_fields.items():
        sizes = [getattr(preset, name) for preset in PRESETS.values()]
        shown = ["none" if size is None else str(size) for size in sizes]
        yield f"`{field.alias or name}`", *shown, texts.get(name, "")


def _show_presence(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "none" if field.get_default(call_default_factory=True) is None else "as below"


def _show_default(field: FieldInfo, annotation: ast.expr) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ([], {}, ""):
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {it}" for key, it in value.items())
    is_duration = any(isinstance(n, ast.Name) and n.id in DURATIONS for n in ast.walk(annotation))
    return format_duration(value) if is_duration and isinstance(value, int) else str(value)


def _choices(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _model_of(annotation: object) -> type[BaseModel] | None:
    """Return the section within an annotation, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _model_of(argument)) is not None:
            return found
    return None


# --- annotations in words ---


def _parse(text: str, model: type[BaseModel]) -> ast.expr:
    """Return an annotation without `None`, `Annotated` and the module's own aliases."""
    return _resolve(ast.parse(text, mode="eval").body, model)


def _resolve(node: ast.expr, model: type[BaseModel]) -> ast.expr:
    if isinstance(node, ast.Name) and node.id not in KINDS:
        alias = _aliases(model).get(node.id)
        return _resolve(alias, model) if alias is not None else node
    if isinstance(node, ast.BinOp):
        sides = [it for it in (node.left, node.right) if ast.unparse(it) != "None"]
        assert len(sides) == 1, f"a union in {model.__name__}: say here what it means"
        return _resolve(sides[0], model)
    return node


def _aliases(model: type[BaseModel]) -> dict[str, ast.expr]:
    """Return the types that the model's module gives a name to."""
    tree = parse_module(sys.modules[model.__module__])
    return {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Subscript)
    }


def _describe(node: ast.expr, model: type[BaseModel]) -> str:
    node = _resolve(node, model)
    if isinstance(node, ast.Name):
        return KINDS.get(node.id, "mapping")
    assert isinstance(node, ast.Subscript), ast.unparse(node)
    outer, inner = ast.unparse(node.value), node.slice
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    match outer:
        case "Literal":
            return _choices(str(ast.literal_eval(part)) for part in parts)
        case "Annotated":
            return _describe(parts[0], model) + "".join(map(_bound, parts[1:]))
        case "list":
            return f"list: {_describe(parts[0], model)}"
        case _:
            assert outer == "dict", outer
            return f"names: {_describe(parts[1], model)}"


def _bound(node: ast.expr) -> str:
    """Return what the metadata of an annotation demands, in words."""
    words = {"min_length": ", at least {}", "ge": ", {} or more", "pattern": ", `{}`"}
    return "".join(
        words[keyword.arg].format(ast.literal_eval(keyword.value).strip("^$"))
        if keyword.arg == "pattern"
        else words[keyword.arg].format(ast.literal_eval(keyword.value))
        for keyword in (node.keywords if isinstance(node, ast.Call) else [])
        if keyword.arg in words
    )


def _suffix(node: ast.expr, model: type[BaseModel]) -> str:
    """Return how the path goes on into a list or a mapping of sections."""
    node = _resolve(node, model)
    if not isinstance(node, ast.Subscript):
        return ""
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    match ast.unparse(node.value):
        case "list":
            return f"[]{_suffix(inner[0], model)}"
        case "dict":
            return f".NAME{_suffix(inner[1], model)}"
        case _:
            return _suffix(inner[0], model)
