"""Plots as SVG text: axes, lines, dots and bands, legible in light and dark.

Colours are CSS variables with a fallback, text and axes take the colour of the page. A series
has a colour, a dash and a marker of its own, so that colour is never all that tells it apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

PALETTE = (  # light, dark; the first nine are those of the known methods, in their order
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
)
DASHES = ("", "7 3", "2 2", "9 3 2 3", "5 2", "3 3", "12 4", "8 2 2 2 2 2", "")
MARKERS = ("circle", "square", "up", "diamond", "down", "cross", "plus", "ring", "star")
_SHAPES = {  # drawn around (0, 0), about eight wide
    "circle": "M-3.5 0A3.5 3.5 0 1 0 3.5 0A3.5 3.5 0 1 0-3.5 0Z",
    "square": "M-3-3H3V3H-3Z",
    "up": "M0-4L4 3H-4Z",
    "diamond": "M0-4.5L4 0L0 4.5L-4 0Z",
    "down": "M0 4L4-3H-4Z",
    "cross": "M-3.5-3.5L3.5 3.5M-3.5 3.5L3.5-3.5",
    "plus": "M0-4.5V4.5M-4.5 0H4.5",
    "ring": "M-3.5 0A3.5 3.5 0 1 0 3.5 0A3.5 3.5 0 1 0-3.5 0Z",
    "star": "M0-5.5L1.5-1.8L5.4-1.6L2.4 .9L3.3 4.6L0 2.5L-3.3 4.6L-2.4 .9L-5.4-1.6L-1.5-1.8Z",
}
_HOLLOW = ("cross", "plus", "ring")


@dataclass(frozen=True)
class Style:
    """How one series looks."""

    place: int
    width: float = 1.6
    marked: bool = True

    @property
    def colour(self) -> str:
        """Return the CSS colour, with the light one as fallback outside the report."""
        place = self.place % len(PALETTE)
        return f"var(--s{place},{PALETTE[place][0]})"

    def mark(self, x: float, y: float, title: str = "") -> str:
        """Return this series' marker at a point of the drawing."""
        kind = MARKERS[self.place % len(MARKERS)]
        fill = "none" if kind in _HOLLOW else self.colour
        tip = f"<title>{escape(title)}</title>" if title else ""
        return (
            f'<path d="{_SHAPES[kind]}" transform="translate({x:.1f} {y:.1f})" '
            f'style="fill:{fill};stroke:{self.colour};stroke-width:1.4">{tip}</path>'
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
        path, pen = [], "M"
        for x, y in zip(xs, ys, strict=True):
            if y is None or not math.isfinite(y):
                pen = "M"
                continue
            px, py = self.at(x, y)
            path.append(f"{pen}{px:.1f} {py:.1f}")
            pen = "L"
        dash = DASHES[style.place % len(DASHES)]
        self.parts.append(
            f'<path d="{"".join(path)}" style="fill:none;stroke:{style.colour};'
            f"stroke-width:{style.width};stroke-dasharray:{dash or 'none'}"
            f'"><title>{escape(title)}</title></path>'
        )
        # Each series starts at a place of its own, so that markers of equal values stay apart.
        for place in range(style.place % max(every, 1), len(xs), every) if every else ():
            y = ys[place]
            if y is not None and math.isfinite(y):
                tip = f"{title}: {y:.3g} at batch {int(xs[place])}"
                self.parts.append(style.mark(*self.at(xs[place], y), tip))

    def dot(self, x: float, y: float, style: Style, title: str) -> None:
        """Draw one marker."""
        self.parts.append(style.mark(*self.at(x, y), title))

    def box(self, x: tuple[float, float], y: tuple[float, float], css: str, title: str) -> None:
        """Fill a box of the data's plane; `css` holds its fill."""
        (x0, y0), (x1, y1) = self.at(x[0], y[1]), self.at(x[1], y[0])
        tip = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(
            f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{max(x1 - x0, 0.5):.1f}" '
            f'height="{y1 - y0:.1f}" style="{css}">{tip}</rect>'
        )

    def rule(self, x: tuple[float, float], y: tuple[float, float], strong: bool = False) -> None:
        """Draw a straight line of the grid between two points."""
        (x0, y0), (x1, y1) = self.at(x[0], y[0]), self.at(x[1], y[1])
        opacity = 0.6 if strong else 0.16
        self.parts.append(
            f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" '
            f'style="stroke:currentColor;opacity:{opacity}"/>'
        )

    def text(self, x: float, y: float, words: str, anchor: str = "middle", turn: int = 0) -> None:
        """Write words at a point of the drawing, turned by some degrees."""
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turned}>{escape(words)}</text>'
        )

    def y_axis(self, title: str, grid: bool = True) -> None:
        """Draw ticks at round values and the axis' title."""
        for value in ticks(*self.y):
            x, y = self.at(self.x[0], value)
            self.text(x - 6, y + 4, f"{value:g}", "end")
            if grid:
                self.rule(self.x, (value, value))
        self.rule((self.x[0], self.x[0]), self.y, strong=True)
        middle = (self.top + self.height - self.bottom) / 2
        self.text(14, middle, title, turn=-90)

    def x_axis(self, title: str) -> None:
        """Draw ticks at round values below the frame, and the axis' title."""
        for value in ticks(*self.x):
            x, y = self.at(value, self.y[0])
            self.text(x, y + 16, f"{value:g}")
            self.rule((value, value), self.y)
        self.rule(self.x, (self.y[0], self.y[0]), strong=True)
        self.text((self.left + self.width - self.right) / 2, self.height - self.bottom + 34, title)

    def svg(self, description: str) -> str:
        """Return the drawing."""
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(description)}" '
            'font-size="12" fill="currentColor" font-family="system-ui,sans-serif">\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def legend(entries: Sequence[tuple[str, Style]], lines: bool = True) -> str:
    """Return the legend as HTML that wraps; without `lines` the markers stand alone."""
    drawn = []
    for name, style in entries:
        dash = DASHES[style.place % len(DASHES)] or "none"
        stroke = (
            f'<path d="M0 7H34" style="stroke:{style.colour};stroke-width:{style.width};'
            f'stroke-dasharray:{dash}"/>'
        )
        drawn.append(
            f'<span><svg width="34" height="14" aria-hidden="true">{stroke if lines else ""}'
            f"{style.mark(17, 7) if style.marked else ''}</svg> {escape(name)}</span>"
        )
    return f'<div class="legend">{"".join(drawn)}</div>\n'


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Return round values between two ends.

    >>> ticks(0, 100)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= about)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 10) for place in range(first, last + 1)]
