"""Several small plots in one drawing: dots by row, or lines over one axis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dasp.report.stream_plot import value_range
from dasp.report.svg import Plot, Style, ticks

WIDTH = 820  # narrower than the stream figures: words stay legible on a phone
ROW = 22
GAP = 30
TITLE = 26
TICK = 34  # room that the number at a tick needs
SHADE = "fill:currentColor;opacity:.13"


@dataclass(frozen=True)
class Series:
    """One value a row or a place of the axis; NaN where there is none."""

    name: str
    style: Style
    values: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """One plot; `shaded` says for each row whether it stands out, `why` what that means."""

    title: str
    series: Sequence[Series]
    shaded: Sequence[bool] = ()
    why: str = ""


def dot_panels(rows: Sequence[str], panels: Sequence[Panel], caption: str, left: int = 168) -> str:
    """Draw panels side by side that share their rows, named at the left."""
    height = TITLE + ROW * len(rows) + 30
    whole = Plot((0, 1), (-0.5, len(rows) - 0.5), WIDTH, height, left, 10, TITLE, 30)
    for place, name in enumerate(rows):
        whole.text(left - 10, whole.at(0, len(rows) - 1 - place)[1] + 4, name, "end")
    for panel, (start, end) in zip(panels, _columns(left, len(panels)), strict=True):
        reach = _range(panel)
        plot = Plot(reach, whole.y, WIDTH, height, start, WIDTH - end, TITLE, 30)
        _frame_x(plot, panel.title)
        for place, name in enumerate(rows):
            y = len(rows) - 1 - place
            if panel.shaded and panel.shaded[place]:
                plot.box(plot.x, (y - 0.45, y + 0.45), SHADE, f"{name}: {panel.why}")
            plot.rule(plot.x, (y, y))
            for series in panel.series:
                value = series.values[place]
                if math.isfinite(value):
                    plot.dot(value, y, series.style, f"{series.name}, {name}: {value:.3g}")
        whole.parts += plot.parts
    return whole.svg(caption, _entries(panels), lines=False)


def line_panels(
    axis: Sequence[tuple[float, str]], title: str, panels: Sequence[Panel], caption: str
) -> str:
    """Draw panels, two in a row, whose lines run over one axis of (place, name)."""
    rows = math.ceil(len(panels) / 2)
    tall = 250
    whole = Plot((0, 1), (0, 1), WIDTH, tall * rows)
    spans = _columns(46, min(2, len(panels)), gap=58)
    margin = 0.06 * (axis[-1][0] - axis[0][0])
    for number, panel in enumerate(panels):
        row, (start, end) = number // 2, spans[number % 2]
        top, bottom = TITLE + row * tall, (rows - 1 - row) * tall + 46
        x = (axis[0][0] - margin, axis[-1][0] + margin)
        plot = Plot(x, _range(panel), WIDTH, whole.height, start, WIDTH - end, top, bottom)
        _frame_y(plot, panel.title)
        for place, name in axis:
            px, py = plot.at(place, plot.y[0])
            plot.text(px, py + 16, name)
        plot.text((start + end) / 2, plot.at(0, plot.y[0])[1] + 34, title)
        for series in panel.series:
            plot.line([place for place, _ in axis], series.values, series.style, series.name)
            for (place, name), value in zip(axis, series.values, strict=True):
                if series.style.marked and math.isfinite(value):
                    tip = f"{series.name}: {value:.3g} at {name}"
                    plot.dot(place, value, series.style, tip)
        whole.parts += plot.parts
    return whole.svg(caption, _entries(panels))


def _columns(left: int, count: int, gap: int = GAP) -> list[tuple[int, int]]:
    """Return where each of `count` columns begins and ends."""
    wide = (WIDTH - 10 - left - gap * (count - 1)) // count
    return [
        (left + place * (wide + gap), left + place * (wide + gap) + wide) for place in range(count)
    ]


def _range(panel: Panel) -> tuple[float, float]:
    low, high = value_range([series.values for series in panel.series], 0.0)
    margin = 0.06 * (high - low) or 0.5
    return low - margin, high + margin


def _frame_x(plot: Plot, title: str) -> None:
    """Draw a panel's title above it, and ticks below."""
    plot.text((plot.left + plot.width - plot.right) / 2, plot.top - 10, title)
    for value in ticks(*plot.x, about=(plot.width - plot.left - plot.right) // TICK):
        x, y = plot.at(value, plot.y[0])
        plot.text(x, y + 16, f"{value:g}")
        plot.rule((value, value), plot.y)
    plot.rule(plot.x, (plot.y[0], plot.y[0]), strong=True)


def _frame_y(plot: Plot, title: str) -> None:
    """Draw a panel's title above it, and ticks at its left."""
    plot.text((plot.left + plot.width - plot.right) / 2, plot.top - 10, title)
    for value in ticks(*plot.y, about=5):
        x, y = plot.at(plot.x[0], value)
        plot.text(x - 6, y + 4, f"{value:g}", "end")
        plot.rule(plot.x, (value, value))
    plot.rule((plot.x[0], plot.x[0]), plot.y, strong=True)
    plot.rule(plot.x, (plot.y[0], plot.y[0]), strong=True)


def _entries(panels: Sequence[Panel]) -> list[tuple[str, Style]]:
    """Return the entries of one legend for all panels, each series once."""
    entries = {series.name: series.style for panel in panels for series in panel.series}
    return list(entries.items())
