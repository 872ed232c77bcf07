"""HTML in small pieces; every text from outside passes `text`."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from types import MappingProxyType

from controller.report.style import CSS

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is ever fetched, whatever a text from outside may hold."""


NO_KINDS: Mapping[int, str] = MappingProxyType({})


def text(value: object) -> str:
    """Return text that is safe anywhere in the page."""
    return escape(str(value))


def code(value: object) -> str:
    """Return a name of the machine's."""
    return f"<code>{text(value)}</code>"


def paragraph(html: str, *, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{html}</p>' if kind else f"<p>{html}</p>"


def section(title: str, *parts: str) -> str:
    """Return a section with what it holds; nothing where it holds nothing."""
    body = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{text(title)}</h2>\n{body}\n</section>" if body else ""


def wide(html: str) -> str:
    """Return something that may be wider than a phone."""
    return f'<div class="wide">{html}</div>'


def figure(forms: Iterable[tuple[str, str]]) -> str:
    """Return a figure in each of its forms, of which the style shows the one that fits."""
    return "\n".join(f'<div class="figure {name}">{svg}</div>' for name, svg in forms)


def folded(title: str, html: str) -> str:
    """Return something that is shown on request."""
    return f"<details><summary>{text(title)}</summary>\n{html}\n</details>"


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Sequence[int] = (),
    kinds: Mapping[int, str] = NO_KINDS,
) -> str:
    """Return a table, whose rows are cards on a phone: each cell knows its column's head.

    `numbers` are the columns that are aligned as such; `kinds` those of another class of the style.
    """
    classes = {**dict.fromkeys(numbers, "n"), **kinds}
    lines = [f"<tr>{_cells(row, heads, classes)}</tr>" for row in rows]
    names = "".join(f"<th{_class(classes, i)}>{text(it)}</th>" for i, it in enumerate(heads))
    head = f'<tr class="heads">{names}</tr>' if any(heads) else ""
    return wide("<table>\n" + "\n".join([head, *lines]).strip() + "\n</table>")


def _cells(cells: Sequence[str], heads: Sequence[str], classes: Mapping[int, str]) -> str:
    return "".join(
        f"<td{_class(classes, index)}{_head(heads[index])}>{cell}</td>"
        for index, cell in enumerate(cells)
    )


def _class(classes: Mapping[int, str], index: int) -> str:
    return f' class="{classes[index]}"' if index in classes else ""


def _head(head: str) -> str:
    return f' data-head="{text(head)}"' if head else ""


def rows(pairs: Iterable[tuple[str, str]]) -> str:
    """Return labels with their values, which are HTML already."""
    lines = [f"<tr><th>{text(label)}</th><td>{value}</td></tr>" for label, value in pairs]
    return wide("<table>\n" + "\n".join(lines) + "\n</table>") if lines else ""


def page(title: str, body: str) -> str:
    """Return the whole page."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{text(title)}</title>
<style>{CSS}</style>
</head>
<body>
{body}
</body>
</html>
"""
