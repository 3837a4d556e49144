"""The pictures of the growth curves: measured points, and the line fitted to them."""

from collections.abc import Mapping
from typing import Any

from dasp.report.style import standalone
from dasp.report.svg import Plot, Style

LOOKS = (0, 8, 4)  # grey, orange, blue: source, dasp and what stands beside them


def pictures(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return the SVG file of each curve by name."""
    return {name: standalone(drawing(name, curve)) for name, curve in figures.items()}


def drawing(name: str, curve: Mapping[str, Any]) -> str:
    """Return the SVG of one curve."""
    xs, series = curve["xs"], curve["series"]
    power = curve.get("line_in_power", 1)
    high = 1.08 * max(max(values) for values in series.values())
    plot = Plot((0, 1.04 * xs[-1]), (0, high), width=480, height=280, left=64)
    plot.y_axis(curve["y"])
    plot.x_axis(curve["x"])
    styles = {label: Style(look) for label, look in zip(series, LOOKS, strict=False)}
    for label, values in series.items():
        fit = curve["fits"][label]
        places = [xs[0] + (xs[-1] - xs[0]) * step / 40 for step in range(41)]
        line = [fit["fixed"] + fit["slope"] * place**power for place in places]
        plot.line(places, line, styles[label], f"{label}: the line")
        for x, y in zip(xs, values, strict=True):
            plot.dot(x, y, styles[label], f"{label}: {y:.4g} at {x:g}")
    caption = f"{curve['y']} against {curve['x']} ({name}): points measured, lines fitted."
    return plot.svg(caption, list(styles.items()))
