"""Plots as SVG text: axes, lines, dots and bands, legible in light and dark.

A series has a colour, a dash and a marker of its own, so that colour is never all that tells it
apart. Colours come from the classes of `svg_style`, which the page has once and a drawing saved
alone carries with it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby

from dasp.report.svg_paths import DASHES, MARKERS, legend_places, short, steps, tip

PALETTE = (  # light, dark; the first ones are those of the known methods, as in `LOOKS`
    ("#5f6672", "#a3abb8"),
    ("#a87400", "#e6a817"),
    ("#2b87bd", "#6cc0f0"),
    ("#00805d", "#2fc79b"),
    ("#1f4fa3", "#7ea6ff"),
    ("#b0538a", "#e59ac6"),
    ("#7d5c36", "#c9a57a"),
    ("#6a4aa0", "#b79df0"),
    ("#c74a00", "#ff8a3d"),
    ("#4b7a12", "#a0cf5e"),
    ("#8a1c3b", "#f07a98"),
    ("#0b7285", "#66d9e8"),
    ("#1b1f24", "#e6e9ee"),
)


@dataclass(frozen=True)
class Style:
    """How one series looks."""

    place: int
    width: float = 1.6
    marked: bool = True

    @property
    def name(self) -> str:
        """Return the class that colours it."""
        return f"c{self.place % len(PALETTE)}"

    @property
    def colour(self) -> str:
        """Return the CSS colour, with the light one as fallback outside the report."""
        place = self.place % len(PALETTE)
        return f"var(--s{place},{PALETTE[place][0]})"

    def mark(self, x: float, y: float, title: str = "") -> str:
        """Return this series' marker at a point of the drawing."""
        return self.marks([(x, y)], title)

    def marks(self, points: Iterable[tuple[float, float]], title: str = "") -> str:
        """Return this series' marker at several points, as one path."""
        shape, filled = MARKERS[self.place % len(MARKERS)]
        path = "".join(f"M{short(x)} {short(y)}{shape}" for x, y in points)
        return (
            f'<path class="{self.name} {"dot" if filled else "ring"}" d="{path}">'
            f"{tip(title)}</path>"
        )

    def stroke(self, path: str, title: str = "") -> str:
        """Return a path drawn as this series' line."""
        dash = DASHES[self.place % len(DASHES)]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        return (
            f'<path class="{self.name} line" stroke-width="{self.width:g}"{dashes} d="{path}">'
            f"{tip(title)}</path>"
        )


@dataclass
class Plot:
    """A drawing of `width` × `height` with a frame for data; `x` and `y` are (lowest, highest)."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: int = 960
    height: int = 340
    left: int = 56
    right: int = 16
    top: int = 12
    bottom: int = 40
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point of the data lies in the drawing."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        inner = self.height - self.top - self.bottom
        return (
            self.left + across * (self.width - self.left - self.right),
            self.height - self.bottom - up * inner,
        )

    def line(
        self,
        xs: Sequence[float],
        ys: Sequence[float | None],
        style: Style,
        title: str,
        every: int = 0,
    ) -> None:
        """Draw a line, broken where a value is None; a marker at each `every`-th point."""
        points = [
            self.at(x, y) if y is not None and math.isfinite(y) else None
            for x, y in zip(xs, ys, strict=True)
        ]
        pieces = groupby(points, key=lambda point: point is not None)
        path = "".join(steps([p for p in piece if p]) for known, piece in pieces if known)
        self.parts.append(style.stroke(path, title))
        if every:  # each series starts at a place of its own, so that equal ones stay apart
            marked = points[style.place % every :: every]
            self.parts.append(style.marks([point for point in marked if point], title))

    def dot(self, x: float, y: float, style: Style, title: str) -> None:
        """Draw one marker."""
        self.parts.append(style.mark(*self.at(x, y), title))

    def box(self, x: tuple[float, float], y: tuple[float, float], css: str, title: str) -> None:
        """Fill a box of the data's plane; `css` holds its fill."""
        (x0, y0), (x1, y1) = self.at(x[0], y[1]), self.at(x[1], y[0])
        self.parts.append(
            f'<rect style="{css}" x="{short(x0)}" y="{short(y0)}" '
            f'width="{short(max(x1 - x0, 0.5))}" height="{short(y1 - y0)}">{tip(title)}</rect>'
        )

    def rule(self, x: tuple[float, float], y: tuple[float, float], strong: bool = False) -> None:
        """Draw a straight line of the grid between two points."""
        path = steps([self.at(x[0], y[0]), self.at(x[1], y[1])])
        self.parts.append(f'<path class="{"axis" if strong else "grid"}" d="{path}"/>')

    def text(
        self,
        x: float,
        y: float,
        words: str,
        anchor: str = "middle",
        turn: int = 0,
        strong: bool = False,
    ) -> None:
        """Write words at a point of the drawing, turned by some degrees."""
        place = f"{short(x)} {short(y)}"
        turned = f' transform="rotate({turn} {place})"' if turn else ""
        weight = ' font-weight="700"' if strong else ""
        self.parts.append(
            f'<text x="{short(x)}" y="{short(y)}" text-anchor="{anchor}"{turned}{weight}>'
            f"{escape(words)}</text>"
        )

    def y_axis(self, title: str, grid: bool = True) -> None:
        """Draw ticks at round values and the axis' title."""
        for value in ticks(*self.y):
            x, y = self.at(self.x[0], value)
            self.text(x - 6, y + 4, _number(value), "end")
            if grid:
                self.rule(self.x, (value, value))
        self.rule((self.x[0], self.x[0]), self.y, strong=True)
        middle = (self.top + self.height - self.bottom) / 2
        self.text(14, middle, title, turn=-90)

    def x_axis(self, title: str, about: int = 6) -> None:
        """Draw `about` so many ticks at round values below the frame, and the axis' title."""
        for value in ticks(*self.x, about):
            x, y = self.at(value, self.y[0])
            self.text(x, y + 16, _number(value))
            self.rule((value, value), self.y)
        self.rule(self.x, (self.y[0], self.y[0]), strong=True)
        if title:
            middle = (self.left + self.width - self.right) / 2
            self.text(middle, self.height - self.bottom + 34, title)

    def svg(
        self, description: str, legend: Sequence[tuple[str, Style]] = (), lines: bool = True
    ) -> str:
        """Return the drawing with its legend below; without `lines` the markers stand alone."""
        places = legend_places([name for name, _ in legend], self.width - self.left - self.right)
        for (name, style), (x, row) in zip(legend, places, strict=True):
            self._entry(self.left + x, self.height + 12 + 20 * row, name, style, lines)
        height = self.height + (28 + 20 * places[-1][1] if places else 0)
        return (
            f'<svg viewBox="0 0 {self.width} {height}" role="img" '
            f'aria-label="{escape(description)}">\n' + "\n".join(self.parts) + "\n</svg>\n"
        )

    def _entry(self, x: float, y: float, name: str, style: Style, line: bool) -> None:
        """Draw one entry of the legend."""
        if line:
            self.parts.append(style.stroke(f"M{short(x)} {short(y)}h34"))
        if style.marked:
            self.parts.append(style.mark(x + 17, y))
        self.text(x + 40, y + 4, name, "start")


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Return round values between two ends.

    >>> ticks(0, 100)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= about)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 10) for place in range(first, last + 1)]
