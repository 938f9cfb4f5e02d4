"""What a drawing consists of, and how it becomes an SVG file.

A drawing is a list of shapes on a canvas with its own background, so that it is readable on any page. Colours have
names; a style sheet in the file gives each name one value for light and one for dark, by the preference of the reader's
system. There are no scripts, no fonts and no links: the file is complete.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from xml.sax.saxutils import escape

# name: (light, dark)
COLOURS = {
    "ground": ("#f7f9fb", "#161b22"),
    "ink": ("#1f2933", "#e6edf3"),
    "quiet": ("#5b6875", "#9aa7b4"),
    "line": ("#7b8794", "#8b98a5"),
    "area": ("#e9eef3", "#1f2630"),
    "queue": ("#cfe3f5", "#1c3f5f"),
    "program": ("#fff4cc", "#4d4117"),
    "station": ("#d8f0dc", "#1d4a2b"),
    "fabric": ("#eadcf6", "#41295a"),
    "table": ("#fde0d2", "#5a2f1c"),
    "bad": ("#c0392b", "#ff7b6b"),
}
FONT = "'DejaVu Sans', Verdana, 'Segoe UI', sans-serif"
LINE_HEIGHT = 18


@dataclass
class Drawing:
    """A canvas of `width` by `height`; `title` is what a screen reader says."""

    title: str
    width: int
    height: int
    shapes: list[str] = field(default_factory=list)

    def area(self, x: int, y: int, width: int, height: int, label: str = "") -> None:
        """A region with a label in its upper left corner: a machine, a site, a process."""
        self.shapes.append(f'<rect class="area" x="{x}" y="{y}" width="{width}" height="{height}" rx="10"/>')
        if label:
            self.text(x + 12, y + 20, label, "quiet", "start")

    def box(self, x: int, y: int, width: int, height: int, text: str, colour: str = "queue") -> None:
        """A thing, with its name in the middle; the first line is bold, the others explain."""
        self.shapes.append(f'<rect class="{colour} edge" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        lines = text.split("\n")
        top = y + height / 2 - (len(lines) - 1) * LINE_HEIGHT / 2 + 5
        for number, line in enumerate(lines):
            style = "ink bold" if number == 0 else "quiet"
            self.text(x + width / 2, top + number * LINE_HEIGHT, line, style)

    def text(self, x: float, y: float, text: str, style: str = "ink", anchor: str = "middle") -> None:
        for number, line in enumerate(text.split("\n")):
            where = f'x="{x:g}" y="{y + number * LINE_HEIGHT:g}" text-anchor="{anchor}"'
            self.shapes.append(f'<text class="{style}" {where}>{escape(line)}</text>')

    def arrow(self, *points: tuple[int, int], label: str = "", colour: str = "line", dashed: bool = False) -> None:
        """A line through `points` with a head at the end; the label stands above the middle of its longest part."""
        way = " ".join(f"{x},{y}" for x, y in points)
        dash = ' stroke-dasharray="6 5"' if dashed else ""
        self.shapes.append(f'<polyline class="way {colour}-way" points="{way}"{dash} marker-end="url(#{colour})"/>')
        if label:
            (x0, y0), (x1, y1) = max(pairwise(points), key=lambda part: _length(*part))
            style = "bad" if colour == "bad" else "quiet"
            if y0 == y1:
                self.text((x0 + x1) / 2, y0 - 8 - LINE_HEIGHT * label.count("\n"), label, style)
            else:
                self.text(x0 + 10, (y0 + y1) / 2 + 5, label, style, "start")

    def cells(self, x: int, y: int, width: int, height: int, texts: list[str], colours: list[str]) -> None:
        """A row of cells without gaps: products in a log, bytes in a record."""
        for number, (text, colour) in enumerate(zip(texts, colours, strict=True)):
            left = x + number * width
            self.shapes.append(f'<rect class="{colour} edge" x="{left}" y="{y}" width="{width}" height="{height}"/>')
            self.text(left + width / 2, y + height / 2 + 5, text)

    def svg(self) -> str:
        heads = "".join(
            f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path class="{name}" d="M0,0.8 L10,5 L0,9.2 z"/></marker>'
            for name in ("line", "bad")
        )
        body = "\n".join(self.shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img">\n<title>{escape(self.title)}</title>\n<style>\n{_style()}</style>\n'
            f'<defs>{heads}</defs>\n<rect class="ground" width="{self.width}" height="{self.height}" rx="12"/>\n'
            f"{body}\n</svg>\n"
        )


def _length(start: tuple[int, int], end: tuple[int, int]) -> int:
    return abs(start[0] - end[0]) + abs(start[1] - end[1])


def _style() -> str:
    fixed = (
        f"text {{ font: 14px {FONT}; }}\n.bold {{ font-weight: bold; }}\n.quiet {{ font-size: 13px; }}\n"
        ".edge { stroke-width: 1.2; }\n.way { fill: none; stroke-width: 1.8; }\n"
    )
    return f"{fixed}{_colours(0)}@media (prefers-color-scheme: dark) {{\n{_colours(1)}}}\n"


def _colours(which: int) -> str:
    fills = "".join(f".{name} {{ fill: {pair[which]}; }}\n" for name, pair in COLOURS.items())
    line, bad = COLOURS["line"][which], COLOURS["bad"][which]
    return f"{fills}.edge {{ stroke: {line}; }}\n.line-way {{ stroke: {line}; }}\n.bad-way {{ stroke: {bad}; }}\n"
