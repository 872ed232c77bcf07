"""Reads the YAML that people write: strings, whole numbers, true, false, null, lists, mappings.

Stricter than YAML 1.1 on purpose: `off` is a word, `010` is ten, an instant is text; a real number
is refused (it would be rounded before we see it), and so is a key that stands twice.
"""

import re
from collections.abc import Iterable
from typing import cast

import yaml

from controller.core.problems import Problem

Document = object
"""dict | list | str | int | bool | None, nested."""

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_DIGITS = 30
"""More than any count of tokens has; Python itself refuses to read some thousand digits."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
WHOLE = re.compile(r"[-+]?[0-9][0-9_]*")
REAL = re.compile(r"[-+]?([0-9][0-9_]*)?\.[0-9_]*([eE][-+]?[0-9]+)?|[-+]?\.(inf|nan)", re.I)
WORDS: dict[str, bool | None] = {
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    "": None,
}


class YamlReader:
    """One document on its way to plain values; `problems` collects what was refused."""

    def __init__(self, advice: str, file_name: str) -> None:
        self.problems: list[Problem] = []
        self._advice = advice
        self._file_name = file_name
        self._seen: set[int] = set()

    def read(self, text: str) -> Document:
        """Return the document in `text`; None with a problem when there is none."""
        if len(text) > MAX_BYTES:
            self._refuse("yaml.size", "file", f"{len(text)} characters", f"at most {MAX_BYTES}")
            return None
        try:
            # The stubs leave `compose` untyped.
            node = cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]  # see above
        except RecursionError:
            self._refuse("yaml.depth", "file", None, f"at most {MAX_DEPTH} levels of nesting")
            return None
        except yaml.YAMLError as error:
            place = " ".join(str(error).split()).replace("<unicode string>", self._file_name)
            self._refuse("yaml.syntax", "file", None, f"this is not YAML: {place}")
            return None
        return None if node is None else self._convert(node, "")

    def _refuse(self, rule: str, field: str, value: str | None, bound: str) -> None:
        self.problems.append(Problem(rule, field or "file", value, bound, self._advice))

    def _convert(self, node: yaml.Node, path: str) -> Document:
        if path.count(".") >= MAX_DEPTH:
            self._refuse("yaml.depth", "file", None, f"at most {MAX_DEPTH} levels of nesting")
            return None
        if id(node) in self._seen:
            self._refuse("yaml.alias", path, None, "aliases (*name) are refused; write it out")
            return None
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._convert_mapping(node.value, path)
        if isinstance(node, yaml.SequenceNode):
            items: list[yaml.Node] = node.value
            return [self._convert(item, f"{path}.{index}") for index, item in enumerate(items)]
        assert isinstance(node, yaml.ScalarNode)
        return self._convert_scalar(node, path)

    def _convert_mapping(
        self, pairs: Iterable[tuple[yaml.Node, yaml.Node]], path: str
    ) -> dict[str, Document]:
        found: dict[str, Document] = {}
        for key_node, value_node in pairs:
            name = str(key_node.value)
            place = f"{path}.{name}" if path else name
            if name in found:
                line = key_node.start_mark.line + 1
                self._refuse(
                    "yaml.duplicate", place, None, f"it stands twice, again in line {line}"
                )
            found[name] = self._convert(value_node, place)
        return found

    def _convert_scalar(self, node: yaml.ScalarNode, path: str) -> Document:
        text: str = node.value
        if CONTROL.search(text):
            self._refuse("yaml.control", path, None, "control characters are refused")
            return ""
        if node.style is not None:  # quoted, or a block
            return text
        if text.lower() in WORDS:
            return WORDS[text.lower()]
        if WHOLE.fullmatch(text) and len(text) > MAX_DIGITS:
            self._refuse("yaml.digits", path, f"{text[:8]}...", f"at most {MAX_DIGITS} digits")
            return None
        if WHOLE.fullmatch(text):
            return int(text.replace("_", ""))
        if REAL.fullmatch(text):
            bound = (
                "real numbers are refused: write a whole number or, where the field is a decimal,"
                f' quotes: "{text}"'
            )
            self._refuse("yaml.float", path, text, bound)
        return text


def read_yaml(
    text: str, advice: str, file_name: str = "the file"
) -> tuple[Document, list[Problem]]:
    """Return the document and what was refused; `advice` says what to do next."""
    reader = YamlReader(advice, file_name)
    document = reader.read(text)
    return document, reader.problems


def flatten(value: Document, path: str = "") -> dict[str, Document]:
    """Return dotted path -> leaf; empty containers are leaves."""
    if isinstance(value, dict) and value:
        members = cast("dict[str, Document]", value)
        return _join((f"{path}.{name}" if path else name, it) for name, it in members.items())
    if isinstance(value, list) and value:
        items = cast("list[Document]", value)
        return _join((f"{path}.{index}", item) for index, item in enumerate(items))
    return {path: value}


def _join(members: Iterable[tuple[str, Document]]) -> dict[str, Document]:
    joined: dict[str, Document] = {}
    for path, value in members:
        joined |= flatten(value, path)
    return joined
