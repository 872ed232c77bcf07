"""Blocks as HTML; every text passes `text`, every address `address`."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

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
    Section,
    Table,
    Words,
    pieces_of,
)
from controller.report.style import CSS
from controller.report.wording import plain

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Nothing is ever fetched, whatever a text from outside may hold."""
SCHEMES = ("https://", "http://")


def text(value: object) -> str:
    """Return text that is safe anywhere in the page."""
    return escape(plain(str(value)))


def address(target: str) -> str | None:
    """Return a link's target as an attribute; None unless it is of the page or of the web."""
    is_known = target.startswith("#") or target.lower().startswith(SCHEMES)
    return f' href="{text(target)}"' if is_known else None


def show_cell(cell: Cell) -> str:
    """Return a cell's HTML."""
    return "".join(map(_show_piece, pieces_of(cell)))


def _show_piece(piece: Piece) -> str:
    match piece:
        case str():
            return text(piece)
        case Bar():
            return f'<div class="bar" style="width: {piece.percent:.2f}%"></div>'
        case Words():
            return _link(piece, _dress(piece))


def _dress(words: Words) -> str:
    match words.kind:
        case "":
            return text(words.text)
        case "code":
            return f"<code>{text(words.text)}</code>"
        case kind:
            return f'<span class="{kind}">{text(words.text)}</span>'


def _link(words: Words, html: str) -> str:
    target = address(words.target) if words.target else None
    if target is None:
        return html
    outside = "" if words.target.startswith("#") else ' rel="noopener noreferrer"'
    return f"<a{target}{outside}>{html}</a>"


# --- blocks ---


def show_block(block: Block) -> str:
    """Return a block's HTML."""
    match block:
        case Paragraph():
            kind = f' class="{block.kind}"' if block.kind else ""
            return f"<p{kind}>{show_cell(block.cell)}</p>"
        case Heading():
            return f"<h3{_anchor(block.anchor)}>{show_cell(block.cell)}</h3>"
        case Table():
            return _show_table(block)
        case Pairs():
            return _show_pairs(block)
        case Picture():
            return _show_picture(block)
        case Fold():
            return (
                f"<details><summary>{text(block.title)}</summary>\n"
                f"{show_blocks(block.blocks)}\n</details>"
            )


def show_blocks(blocks: Iterable[Block]) -> str:
    """Return the blocks' HTML, one after the other."""
    return "\n".join(map(show_block, blocks))


def _anchor(name: str) -> str:
    return f' id="{text(name)}"' if name else ""


def _show_picture(picture: Picture) -> str:
    label = f' aria-label="{text(picture.words)}"'
    return "\n".join(
        f'<div class="figure {name}">{svg.replace(" role=", f"{label} role=", 1)}</div>'
        for name, svg in picture.forms
    )


def _show_table(table: Table) -> str:
    classes = {**dict.fromkeys(table.numbers, "n"), **table.kinds}
    anchors = [*table.anchors, *[""] * (len(table.rows) - len(table.anchors))]
    lines = [
        f"<tr{_anchor(anchor)}>{_cells(row, table.heads, classes)}</tr>"
        for row, anchor in zip(table.rows, anchors, strict=True)
    ]
    if table.notes:
        whole = f'<td class="note" colspan="{len(table.heads)}"{_head(table.note_head)}>'
        notes = [f"<tr>{whole}{show_cell(it)}</td></tr>" for it in table.notes]
        lines = [line for pair in zip(lines, notes, strict=True) for line in pair]
    names = "".join(f"<th{_class(classes, i)}>{text(it)}</th>" for i, it in enumerate(table.heads))
    # In a head of its own, so that paper repeats it on each page.
    head = f'<thead><tr class="heads">{names}</tr></thead>'
    return _wide(f"<table>{head}<tbody>\n" + "\n".join(lines) + "\n</tbody></table>")


def _show_pairs(pairs: Pairs) -> str:
    lines = [f"<tr><th>{text(name)}</th><td>{show_cell(it)}</td></tr>" for name, it in pairs.rows]
    return _wide('<table class="pairs">\n' + "\n".join(lines) + "\n</table>")


def _wide(html: str) -> str:
    return f'<div class="wide">{html}</div>'


def _cells(cells: Sequence[Cell], heads: Sequence[str], classes: Mapping[int, str]) -> str:
    return "".join(
        f"<td{_class(classes, index)}{_head(heads[index])}>{show_cell(cell)}</td>"
        for index, cell in enumerate(cells)
    )


def _class(classes: Mapping[int, str], index: int) -> str:
    return f' class="{classes[index]}"' if index in classes else ""


def _head(head: str) -> str:
    return f' data-head="{text(head)}"' if head else ""


# --- the page ---


def show_page(document: Document) -> str:
    """Return the whole page: complete in itself, without a script."""
    parts = [show_blocks(document.blocks), *map(_show_section, document.sections)]
    body = "\n".join(it for it in parts if it)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{text(document.title)}: report</title>
<style>{CSS}</style>
</head>
<body>
<h1>{text(document.title)}</h1>
{body}
</body>
</html>
"""


def _show_section(section: Section) -> str:
    if not section.blocks:
        return ""
    title = f"<h2{_anchor(section.anchor)}>{text(section.title)}</h2>"
    return f"<section>\n{title}\n{show_blocks(section.blocks)}\n</section>"
