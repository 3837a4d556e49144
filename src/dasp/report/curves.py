"""Means over replicates against a value that was varied: its axis, lines and bands."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from dasp.report.groups import mean_std
from dasp.report.stream_plot import value_range
from dasp.report.svg import Plot, Style

WIDE = 8  # the largest value over the smallest above zero from which an axis is logarithmic
DIGIT = 7  # width of a digit, and of the room between two labels of an axis

Curve = Mapping[float, Sequence[float]]
"""Accuracies of the replicates by the value that was varied."""


def is_wide(values: Iterable[float]) -> bool:
    """Tell whether values span so much that their axis should be logarithmic."""
    numbers = sorted(values)
    above = [value for value in numbers if value > 0]
    return len(above) > 1 and above[-1] / above[0] >= WIDE and numbers[0] >= 0


def place_values(
    values: Sequence[float], log: bool | None = None
) -> tuple[dict[float, float], tuple[float, float]]:
    """Return the place of each value on an axis and the axis' two ends, a margin outside.

    The axis is logarithmic if `log`, or by default where the values span a wide range; zero then
    has a place of its own left of all others. `values` ascend.

    >>> place_values([1, 10, 100])[0]
    {1: 0.0, 10: 1.0, 100: 2.0}
    >>> place_values([0, 1, 10])[0]
    {0: -1.0, 1: 0.0, 10: 1.0}
    >>> place_values([0, 1, 2])
    ({0: 0.0, 1: 1.0, 2: 2.0}, (-0.2, 2.2))
    """
    above = [value for value in values if value > 0]
    if is_wide(values) if log is None else log:
        gaps = [math.log10(b / a) for a, b in pairwise(above)]
        zero = math.log10(above[0]) - max(gaps, default=1.0)
        places = {value: math.log10(value) if value > 0 else zero for value in values}
    else:
        places = {value: float(value) for value in values}
    low, high = min(places.values()), max(places.values())
    margin = 0.1 * (high - low) or 0.5
    return places, (low - margin, high + margin)


def spread_range(curves: Iterable[Curve], levels: Iterable[float] = ()) -> tuple[float, float]:
    """Return the lowest and the highest of all means ± spreads and of `levels`, with a margin."""
    ends = list(levels)
    for values in (values for curve in curves for values in curve.values()):
        mean, spread = mean_std(values)
        if mean is not None:
            ends += [mean - (spread or 0.0), mean + (spread or 0.0)]
    return value_range([ends], 0.5)


def value_axis(
    plot: Plot, places: Mapping[float, float], title: str, first: Sequence[float] = ()
) -> None:
    """Mark the values below the frame; of labels that would overlap, those of `first` are kept."""
    plot.rule(plot.x, (plot.y[0], plot.y[0]), strong=True)
    taken: list[tuple[float, float]] = []
    for value in sorted(places, key=lambda value: value not in first):
        x, base = plot.at(places[value], plot.y[0])
        plot.parts.append(f'<path d="M{x:.1f} {base:.1f}v4" style="stroke:currentColor"/>')
        half = DIGIT * (len(short(value)) + 1) / 2
        if all(x + half < left or x - half > right for left, right in taken):
            plot.text(x, base + 17, short(value))
            taken.append((x - half, x + half))
    plot.text(sum(plot.at(end, 0)[0] for end in plot.x) / 2, base + 36, title)


def short(value: float) -> str:
    """Return a number as it stands at an axis.

    >>> short(0.05), short(256.0), short(20000), short(1.5e6)
    ('0.05', '256', '20k', '1.5M')
    """
    if value < 1e4:
        return f"{value:g}"
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k"


def mean_line(
    plot: Plot, curve: Curve, places: Mapping[float, float], style: Style, title: str
) -> None:
    """Draw the means, with a marker each."""
    means = {value: mean_std(curve[value])[0] for value in sorted(curve)}
    plot.line([places[value] for value in means], list(means.values()), style, title)
    for value, mean in means.items():
        if mean is not None:
            plot.dot(places[value], mean, style, f"{title} {value:g}: {mean:.2f}")


def spread_band(plot: Plot, curve: Curve, places: Mapping[float, float], style: Style) -> None:
    """Fill ± one standard deviation around the means, where there are several replicates."""
    upper, lower = [], []
    for value in sorted(curve):
        mean, spread = mean_std(curve[value])
        if mean is not None and spread is not None:
            upper.append(plot.at(places[value], mean + spread))
            lower.append(plot.at(places[value], mean - spread))
    if len(upper) > 1:
        outline = "L".join(f"{x:.1f} {y:.1f}" for x, y in upper + lower[::-1])
        plot.parts.append(f'<path d="M{outline}Z" style="fill:{style.colour};opacity:.18"/>')
