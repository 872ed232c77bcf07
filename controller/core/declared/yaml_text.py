"""Reads the YAML that people write: strings, whole numbers, true, false, null, lists, mappings.

Stricter than YAML 1.1 on purpose: `off` is a word, an instant is text; a real number is refused
(it would be rounded before we see it), and so are a number that begins with 0 (octal for some
readers), a name that stands twice or is no text, tags, aliases and merges. What is read never
grows beyond the text, and a text of the largest size is read in seconds, whatever it holds.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

import yaml

from controller.core.declared.problems import MAX_PROBLEMS, Problem, shorten

Document = object
"""dict | list | str | int | bool | None, nested."""

MAX_CHARS = 1 << 18
"""A hundred times a long run file; PyYAML reads some 200,000 characters a second."""
MAX_DEPTH = 20
MAX_VALUES = 30_000
MAX_DIGITS = 30
"""More than any count of tokens has; Python itself refuses to read some thousand digits."""
WHOLE = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
PADDED = re.compile(r"[-+]?0[0-9_]*[0-9]")
REAL = re.compile(r"[-+]?(?=\.?[0-9])[0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|[-+]?\.(inf|nan)", re.I)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""Neither text nor layout. YAML breaks lines at some of them, where no editor does."""
HIDDEN = re.compile(r"[\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
"""Seen by nobody, and what turns the reading direction shows a text that is not the one read."""
WORDS: dict[str, bool | None] = {
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    "": None,
}


class _Stopped(Exception):
    """The rest is not worth reading."""


@dataclass
class _Container:
    """A list or mapping that is being filled."""

    path: str | None
    """None: of what holds the document."""
    items: list[Document] | None = None
    members: dict[str, Document] = field(default_factory=dict[str, Document])
    name: str | None = None
    """Of the member whose value comes next."""
    lines: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def value(self) -> Document:
        return self.members if self.items is None else self.items

    @property
    def wants_name(self) -> bool:
        return self.items is None and self.name is None

    @property
    def place(self) -> str:
        """The path of the value that comes next."""
        if self.items is None:
            return f"{self.path}.{self.name}" if self.path else str(self.name)
        return f"{self.path}.{len(self.items)}" if self.path is not None else ""

    def put(self, value: Document) -> None:
        if self.items is not None:
            self.items.append(value)
        else:
            assert self.name is not None
            self.members[self.name] = value
            self.name = None


class YamlReader:
    """One document on its way to plain values; `problems` collects what was refused."""

    def __init__(self, advice: str, file_name: str) -> None:
        self.problems: list[Problem] = []
        self._advice = advice
        self._file_name = file_name
        self._root = _Container(None, items=[])
        self._open = [self._root]
        self._num_values = self._num_documents = 0

    def read(self, text: str) -> Document:
        """Return the document in `text`; None with a problem when there is none."""
        try:
            self._check_text(text)
            # The stubs leave `parse` untyped. Events, since nodes are composed by recursion.
            for event in yaml.parse(text, Loader=yaml.SafeLoader):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # see above
                self._take(cast("yaml.Event", event))
        except _Stopped:
            return None
        except yaml.YAMLError as error:
            self._refuse("yaml.syntax", "", None, f"this is not YAML: {self._explain(error)}")
            return None
        items = self._root.items
        return items[0] if items else None

    def _check_text(self, text: str) -> None:
        """Stop at what no text holds."""
        if len(text) > MAX_CHARS:
            shown = f"{len(text):,} characters"
            self._stop("yaml.size", "", shown, f"it must have at most {MAX_CHARS:,}")
        body = text.removeprefix("\ufeff")
        if found := CONTROL.search(body):
            bound = f"control characters are refused, {_point_at(body, found)}"
            self._stop("yaml.control", "", None, bound)
        if found := HIDDEN.search(body):
            bound = f"characters that nobody sees are refused, {_point_at(body, found)}"
            self._stop("yaml.hidden", "", None, bound)

    def _explain(self, error: yaml.YAMLError) -> str:
        """Return what is wrong, and where."""
        problem = shorten(" ".join(str(getattr(error, "problem", None) or error).split()), 160)
        if "'\\t'" in problem:
            problem = f"{problem} (indent by spaces, not by tabs)"
        context, begun = getattr(error, "context", None), getattr(error, "context_mark", None)
        mark = getattr(error, "problem_mark", None) or begun
        since = f", {context} of line {begun.line + 1}" if context and begun else ""
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        return f'{problem} in "{self._file_name}"{place}{since}'

    def _refuse(self, rule: str, place: str | None, value: str | None, bound: str) -> None:
        self.problems.append(Problem(rule, place or "file", value, bound, self._advice))
        if len(self.problems) > MAX_PROBLEMS:
            raise _Stopped

    def _stop(self, rule: str, place: str | None, value: str | None, bound: str) -> None:
        self._refuse(rule, place, value, bound)
        raise _Stopped

    # --- events ---

    def _take(self, event: yaml.Event) -> None:
        """Put what an event brings where it belongs."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._num_documents += 1
            if self._num_documents > 1:
                bound = f"it must hold one document; another begins in {_line_of(event)}"
                self._stop("yaml.documents", "", None, bound)
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self._open.pop()
            self._open[-1].put(done.value)
        elif isinstance(event, yaml.NodeEvent):
            self._take_node(event)

    def _take_node(self, event: yaml.NodeEvent) -> None:
        top = self._open[-1]
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            self._stop("yaml.many", "", None, f"it must hold at most {MAX_VALUES:,} values")
        if isinstance(event, yaml.AliasEvent | yaml.ScalarEvent) and top.wants_name:
            self._take_name(top, event)
            return
        if top.wants_name:
            bound = f"a name must be text, not a list or mapping ({_line_of(event)})"
            self._stop("yaml.name", top.path, None, bound)
        self._check_tag(event, top.place)
        if isinstance(event, yaml.CollectionStartEvent):
            self._open_container(event, top.place)
        elif isinstance(event, yaml.ScalarEvent):
            top.put(self._convert(event, top.place))
        else:
            bound = f"aliases (*name) are refused; write it out ({_line_of(event)})"
            self._refuse("yaml.alias", top.place, None, bound)
            top.put(None)

    def _check_tag(self, event: yaml.NodeEvent, place: str) -> None:
        tag: object = getattr(event, "tag", None)
        if tag is not None:
            bound = "tags (!name) are refused; write the value alone"
            self._refuse("yaml.tag", place, None, f"{bound} ({_line_of(event)})")

    def _open_container(self, event: yaml.NodeEvent, place: str) -> None:
        if len(self._open) > MAX_DEPTH:
            bound = f"at most {MAX_DEPTH} levels of nesting are read ({_line_of(event)})"
            self._stop("yaml.depth", "", None, bound)
        is_list = isinstance(event, yaml.SequenceStartEvent)
        self._open.append(_Container(place, items=[] if is_list else None))

    def _take_name(self, top: _Container, event: yaml.NodeEvent) -> None:
        """Note the name of the member to come."""
        line = _line_of(event)
        if isinstance(event, yaml.AliasEvent):
            self._refuse("yaml.alias", top.path, None, f"aliases (*name) are refused ({line})")
            top.name = f"*{event.anchor}"
            return
        assert isinstance(event, yaml.ScalarEvent)
        name = str(event.value)
        top.name = name
        self._check_tag(event, top.place)
        is_plain = event.style is None
        if is_plain and name == "<<":
            bound = f"merges (<<) are refused; write the members out ({line})"
            self._refuse("yaml.merge", top.path, None, bound)
        elif is_plain and (name.lower() in WORDS or WHOLE.fullmatch(name) or REAL.fullmatch(name)):
            bound = f'a name must be text: write "{shorten(name)}" in quotes ({line})'
            self._refuse("yaml.name", top.path, None, bound)
        elif _is_unclean(name):
            bound = f"control characters and hidden ones are refused ({line})"
            self._refuse("yaml.control", top.place, None, bound)
        elif name in top.lines:
            bound = f"it stands twice, in line {top.lines[name]} and again in {line}"
            self._refuse("yaml.duplicate", top.place, None, bound)
        top.lines[name] = event.start_mark.line + 1

    def _convert(self, event: yaml.ScalarEvent, place: str) -> Document:
        text = str(event.value)
        if _is_unclean(text):
            bound = f"control characters and hidden ones are refused ({_line_of(event)})"
            self._refuse("yaml.control", place, None, bound)
            return ""
        if event.style is not None:  # quoted, or a block
            return text
        if text.lower() in WORDS:
            return WORDS[text.lower()]
        if WHOLE.fullmatch(text):
            return self._convert_number(text, place)
        if REAL.fullmatch(text):
            bound = (
                "real numbers are refused: write a whole number or, where the field is a decimal,"
                f' quotes: "{shorten(text)}"'
            )
            self._refuse("yaml.float", place, shorten(text), bound)
        return text

    def _convert_number(self, text: str, place: str) -> int | None:
        if len(text) > MAX_DIGITS:
            self._refuse("yaml.digits", place, shorten(text, 12), f"at most {MAX_DIGITS} digits")
            return None
        if PADDED.fullmatch(text):
            bound = f"it must not begin with 0, which means octal to some: write {int(text)}"
            self._refuse("yaml.octal", place, text, bound)
        return int(text)


def _line_of(event: yaml.Event) -> str:
    return f"line {event.start_mark.line + 1}"


def _is_unclean(text: str) -> bool:
    return CONTROL.search(text) is not None or HIDDEN.search(text) is not None


def _point_at(text: str, found: re.Match[str]) -> str:
    """Return character, line and column of what was found."""
    before = text[: found.start()]
    line, column = before.count("\n") + 1, found.start() - before.rfind("\n")
    return f"U+{ord(found[0]):04X} in line {line}, column {column}"


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
