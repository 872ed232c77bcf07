"""Blocks as GitHub-flavoured Markdown for an issue tracker; pictures are told in words."""

import re
from collections.abc import Iterable, Iterator, Sequence

from controller.report.blocks import (
    Bar,
    Block,
    Cell,
    Document,
    Fold,
    Heading,
    Pairs,
    Paragraph,
    Picture,
    Piece,
    Table,
    Words,
    pieces_of,
)
from controller.report.wording import plain

SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+!|~$&-])")
MENTION = re.compile(r"([@#])(?=\w)")
UNSEEN = "\N{ZERO WIDTH SPACE}"
BAR_CELLS = 20
FULL, EIGHTHS = "█", " ▏▎▍▌▋▊▉"
SCHEMES = ("https://", "http://")
MARKS = {"bad": "**", "good": "**", "muted": ""}


def text(value: object) -> str:
    """Return text that no tracker takes for markup, a mention or a reference."""
    flat = " ".join(plain(str(value)).split())
    # A minus within a word is none of Markdown's; a run of them, or one that begins, may be.
    return MENTION.sub(rf"\1{UNSEEN}", SPECIAL.sub(_escape, flat))


def _escape(found: re.Match[str]) -> str:
    sign, whole, at = found[0], found.string, found.start()
    if sign in "&<>":
        return {"&": "&amp;", "<": "&lt;", ">": "&gt;"}[sign]
    if sign in "-+#!()" and at > 0 and whole[at - 1] not in "\n]!":
        return sign
    return f"\\{sign}"


def show_cell(cell: Cell) -> str:
    """Return a cell on one line."""
    return "".join(map(_show_piece, pieces_of(cell)))


def _show_piece(piece: Piece) -> str:
    match piece:
        case str():
            # The spaces around a piece hold the words apart.
            lead, rest = piece[: len(piece) - len(piece.lstrip(" "))], piece.strip(" ")
            return f"{lead}{text(rest)}{' ' * bool(rest and piece.endswith(' '))}"
        case Bar():
            return show_bar(piece.percent)
        case Words():
            return _show_words(piece)


def _show_words(words: Words) -> str:
    if words.kind == "code":
        flat = " ".join(plain(words.text).split()).replace("`", "'").replace("|", "/")
        dressed = f"`{flat}`" if flat else ""
    else:
        mark = MARKS.get(words.kind, "")
        dressed = f"{mark}{text(words.text)}{mark}"
    if words.target.lower().startswith(SCHEMES):
        return f"[{dressed}](<{_quote(words.target)}>)"
    return dressed


def _quote(target: str) -> str:
    return re.sub(r"[<>\s|]", lambda it: f"%{ord(it[0]):02X}", plain(target))


def show_bar(percent: float) -> str:
    """Return a bar of block characters, to an eighth of one."""
    eighths = round(8 * BAR_CELLS * max(0.0, min(100.0, percent)) / 100)
    if eighths == 0 and percent > 0:
        eighths = 1
    whole, rest = divmod(eighths, 8)
    return f"{FULL * whole}{EIGHTHS[rest] if rest else ''}"


# --- blocks ---


def show_block(block: Block) -> str:
    """Return a block's lines; nothing for a picture, whose numbers stand in tables."""
    match block:
        case Paragraph():
            told = show_cell(block.cell)
            return f"**{told}**" if block.kind == "lead" else told
        case Heading():
            return f"#### {show_cell(block.cell)}"
        case Table():
            return "\n".join(_list_lines(*_widen(block)))
        case Pairs():
            return "\n".join(_list_lines(("", ""), block.rows, ()))
        case Picture():
            return ""
        case Fold():
            title = text(block.title)
            inside = show_blocks(block.blocks)
            return f"<details><summary>{title}</summary>\n\n{inside}\n\n</details>"


def show_blocks(blocks: Iterable[Block]) -> str:
    """Return the blocks, an empty line between them."""
    return "\n\n".join(told for block in blocks if (told := show_block(block)))


def _widen(table: Table) -> tuple[Sequence[str], Sequence[Sequence[Cell]], Sequence[int]]:
    """Return heads, rows and columns of numbers; notes are a column: there is no wide row."""
    if not table.notes:
        return table.heads, table.rows, table.numbers
    rows = [[*row, note] for row, note in zip(table.rows, table.notes, strict=True)]
    return [*table.heads, table.note_head], rows, table.numbers


def _list_lines(
    heads: Sequence[str], rows: Sequence[Sequence[Cell]], numbers: Sequence[int]
) -> Iterator[str]:
    yield _line(text(head) for head in heads)
    yield _line("--:" if index in numbers else "---" for index in range(len(heads)))
    for row in rows:
        yield _line(map(show_cell, row))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def show_document(document: Document) -> str:
    """Return the whole text, ending in a new line."""
    parts = [f"## {text(document.title)}", show_blocks(document.blocks)]
    parts += [
        f"### {text(section.title)}\n\n{told}"
        for section in document.sections
        if (told := show_blocks(section.blocks))
    ]
    return "\n\n".join(it for it in parts if it) + "\n"
