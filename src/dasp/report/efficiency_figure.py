"""Efficiency as a figure: accuracy against speed, memory and trained parameters."""

import math
from collections.abc import Callable, Mapping, Sequence

from dasp.report.curves import is_wide, place_values, value_axis
from dasp.report.efficiencies import Efficiency, ordered
from dasp.report.figures import Figure, styles
from dasp.report.groups import mean_std
from dasp.report.labels import place_names
from dasp.report.runs import Run
from dasp.report.stream_plot import value_range
from dasp.report.svg import Plot, Style, ticks
from dasp.report.tables import pretty

HEIGHT, LEFT, GAP, TOP, BOTTOM = 320, 56, 40, 12, 48

Points = Mapping[str, tuple[Efficiency, float]]
"""What a row costs and its accuracy."""
AXES: tuple[tuple[str, Callable[[Efficiency], float | None]], ...] = (
    ("samples a second", lambda entry: mean_std(entry.speeds(loading=False))[0]),
    ("peak memory above the start, MiB", lambda entry: entry.over_mib),
    ("trained parameters", lambda entry: float(entry.trainable)),
)


def efficiency_figures(found: Sequence[Efficiency], runs: Sequence[Run]) -> list[Figure]:
    """One figure a source model and setting: accuracy against speed, memory and trained parameters.

    The accuracy is that of the runs of the same row, model and stream; a row without is left out.
    """
    figures = []
    for setting in dict.fromkeys(entry.setting for entry in found):
        here = ordered([entry for entry in found if entry.setting == setting])
        known = {e.label: (e, e.accuracy(runs)) for e in here}
        points = {label: (e, a) for label, (e, a) in known.items() if a is not None}
        if points:
            figures.append(_figure(points))
    return figures


def _figure(points: Points) -> Figure:
    y = value_range([[accuracy for _, accuracy in points.values()]], 1.0)
    whole = Plot((0, 1), y, height=HEIGHT)
    look = styles(list(points))
    axes = [(title, {label: get(e) for label, (e, _) in points.items()}) for title, get in AXES]
    known = [(title, values) for title, values in axes if None not in values.values()]
    width = (whole.width - LEFT) // len(known)
    for place, (title, values) in enumerate(known):
        tips = {n: f"{n}: {a:.1f} %, {values[n]:,.0f} {title}" for n, (_, a) in points.items()}
        costs = {label: value for label, value in values.items() if value is not None}
        places, x = place_values(sorted(set(costs.values())))
        left = LEFT + place * width
        right = whole.width - left - width + (GAP if place + 1 < len(known) else 12)
        panel = Plot(x, y, whole.width, HEIGHT, left, right, TOP, BOTTOM, whole.parts)
        panel.y_axis("" if place else "accuracy, %")
        value_axis(panel, _marks(places, x), title)
        dots = {label: (places[costs[label]], a) for label, (_, a) in points.items()}
        _draw(panel, dots, look, tips)
    first = next(iter(points.values()))[0]
    model, protocol, severity, batch_size = first.setting
    caption = (
        f"Accuracy in the {pretty(protocol)} stream (severity {severity}, batches of {batch_size}) "
        f"against what adapting {model} costs, {first.machine}: samples a second from raw inputs "
        "to logits, loading left out; "
        "memory beyond what the process held before its first batch; parameters that are trained. "
        "A scale of wide range is logarithmic."
    )
    drawing = whole.svg(caption, [(label, look[label]) for label in points], lines=False)
    name = f"efficiency-{model}-{protocol}-{severity}-{batch_size}".replace("/", "-")
    return Figure(name, drawing, caption)


def _marks(places: Mapping[float, float], x: tuple[float, float]) -> dict[float, float]:
    """Return round values along an axis and their places; zero keeps its own."""
    if not is_wide(places):
        return {value: value for value in ticks(*x, about=4) if value >= 0}
    above = [place for value, place in places.items() if value > 0]
    low, high = min(above) - 0.15, x[1]
    powers = range(math.floor(low), math.ceil(high) + 1)
    factors = (1,) if high - low > 2 else (1, 2, 5)
    values = [factor * 10.0**power for power in powers for factor in factors]
    marks = {value: math.log10(value) for value in values if low <= math.log10(value) <= high}
    return marks | {value: place for value, place in places.items() if value == 0}


def _draw(
    panel: Plot,
    dots: Mapping[str, tuple[float, float]],
    look: Mapping[str, Style],
    tips: Mapping[str, str],
) -> None:
    """Draw a marker a row, with its name beside it."""
    at = {label: panel.at(*dot) for label, dot in dots.items()}
    frame = (panel.left + 2, panel.top, panel.width - panel.right + 8, panel.height - panel.bottom)
    names = place_names([(*at[label], label) for label in dots], frame)
    for label, (x, y, anchor) in zip(dots, names, strict=True):
        panel.dot(*dots[label], look[label], tips[label])
        panel.text(x, y, label, anchor)
