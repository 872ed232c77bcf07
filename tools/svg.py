"""A few marks of SVG, in colours that read on light and on dark paper."""

from collections.abc import Sequence
from html import escape

WIDTH = 720
STYLE = """
text{font:13px system-ui,sans-serif;fill:#1f2328}.soft{fill:#59636e}.small{font-size:11px}
.strong{font-weight:600}.paper{fill:#ffffff}
.axis{stroke:#8c959f;stroke-width:1;fill:none}.dash{stroke-dasharray:4 4}
.a{fill:#0969da}.b{fill:#bc4c00}.c{fill:#1a7f37}.d{fill:#cf222e}.e{fill:#d1d9e0}
.la,.lb,.lc,.ld,.le{fill:none;stroke-width:2.5}
.la{stroke:#0969da}.lb{stroke:#bc4c00}.lc{stroke:#1a7f37}.ld{stroke:#cf222e}.le{stroke:#8c959f}
.box{fill:none;stroke:#8c959f;stroke-width:1.5}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.soft{fill:#9198a1}.paper{fill:#0d1117}.axis,.box,.le{stroke:#656c76}
.a{fill:#58a6ff}.b{fill:#f0883e}.c{fill:#3fb950}.d{fill:#f85149}.e{fill:#3d444d}
.la{stroke:#58a6ff}.lb{stroke:#f0883e}.lc{stroke:#3fb950}.ld{stroke:#f85149}}
"""
"""a blue, b orange, c green, d red, e grey; with l before it, a line of that colour."""

Point = tuple[float, float]


class Drawing:
    """Marks in the order they are made, on paper of a given height."""

    def __init__(self, title: str, height: int) -> None:
        self._height = height
        self._title = title
        self._marks: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """Write words; `anchor` start, middle or end."""
        self._marks.append(
            f'<text x="{_n(x)}" y="{_n(y)}" class="{kind}" text-anchor="{anchor}">'
            f"{escape(words)}</text>"
        )

    def line(self, points: Sequence[Point], kind: str = "axis") -> None:
        """Draw a line through the points."""
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._marks.append(f'<polyline points="{path}" class="{kind}"/>')

    def rect(self, x: float, y: float, size: Point, kind: str) -> None:
        """Draw a rectangle; `size` is width and height."""
        width, height = size
        self._marks.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="2"'
            f' class="{kind}"/>'
        )

    def dot(self, x: float, y: float, kind: str, radius: float = 4) -> None:
        """Draw a dot."""
        self._marks.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" class="{kind}"/>')

    def arrow(self, start: Point, end: Point, kind: str = "axis") -> None:
        """Draw a straight arrow, to the right or down."""
        (x, y), head = end, 5
        self.line([start, end], kind)
        if start[1] == end[1]:
            self.line([(x - head, y - head), end, (x - head, y + head)], kind)
        else:
            self.line([(x - head, y - head), end, (x + head, y - head)], kind)

    def render(self) -> str:
        """Return the file's text."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._height}"'
            f' width="{WIDTH}" height="{self._height}" role="img">\n'
            f"<title>{escape(self._title)}</title>\n<style>{STYLE}</style>\n"
            f'<rect class="paper" width="{WIDTH}" height="{self._height}"/>\n'
            + "\n".join(self._marks)
            + "\n</svg>\n"
        )


def _n(value: float) -> str:
    """Return a number with at most one decimal, the same on every machine."""
    return f"{value:.1f}".removesuffix(".0")
