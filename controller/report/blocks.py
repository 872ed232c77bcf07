"""What a report is made of, before it is a page or text for an issue tracker.

Every text in it may come from outside: whoever renders blocks escapes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind = Literal["", "good", "bad", "code", "muted"]


@dataclass(frozen=True)
class Words:
    """Text of one kind; with a target it is a link."""

    text: str
    kind: Kind = ""
    target: str = ""
    """`#NAME` of an anchor in the report, or an address."""


@dataclass(frozen=True)
class Bar:
    """A share as a length."""

    percent: float


Piece: TypeAlias = str | Words | Bar
Cell: TypeAlias = Piece | Sequence[Piece]
"""A string is a cell of plain text."""


@dataclass(frozen=True)
class Paragraph:
    """A few sentences."""

    cell: Cell
    kind: Literal["", "lead", "muted"] = ""


@dataclass(frozen=True)
class Heading:
    """Of a part of a section; links may lead to its anchor."""

    cell: Cell
    anchor: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under heads; on a narrow screen each row is a card."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: Sequence[int] = ()
    """Columns that are aligned as such."""
    kinds: Mapping[int, str] = field(default_factory=dict[int, str])
    """Column -> another class of the page's style."""
    anchors: Sequence[str] = ()
    """Of the rows, where links lead to them."""
    notes: Sequence[Cell] = ()
    """One for each row, told below it at full width; none at all, or all of them."""
    note_head: str = ""


@dataclass(frozen=True)
class Pairs:
    """Labels with their values."""

    rows: Sequence[tuple[str, Cell]]


@dataclass(frozen=True)
class Picture:
    """A drawing in each of its forms, and what it shows in words."""

    forms: Sequence[tuple[str, str]]
    """(name of the form, SVG)"""
    words: str


@dataclass(frozen=True)
class Fold:
    """Something that is shown on request."""

    title: str
    blocks: "Sequence[Block]"


Block: TypeAlias = Paragraph | Heading | Table | Pairs | Picture | Fold


@dataclass(frozen=True)
class Section:
    """A part of the report with a title; one without blocks is left out."""

    title: str
    blocks: Sequence[Block]
    anchor: str = ""


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    blocks: Sequence[Block]
    """Before the first section."""
    sections: Sequence[Section] = field(default_factory=list[Section])


def pieces_of(cell: Cell) -> Sequence[Piece]:
    """Return the pieces of a cell."""
    return [cell] if isinstance(cell, str | Words | Bar) else cell


def code(value: object) -> Words:
    """Return a name of the machine's."""
    return Words(str(value), "code")


def entry(seq: int | None) -> Piece:
    """Return a link to an entry of the ledger, a dash where none is known."""
    return "-" if seq is None else Words(f"entry {seq:,}", target=f"#entry-{seq}")


def fold_long(title: str, table: Table, most: int = 12) -> Block:
    """Return the table, folded where it has more than `most` rows."""
    return table if len(table.rows) <= most else Fold(title, [table])
