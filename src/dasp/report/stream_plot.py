"""Parts that the figures along a stream share."""

from collections.abc import Iterable, Sequence, Sized
from math import isfinite

from dasp.report.runs import Run
from dasp.report.stream_data import spans, stops
from dasp.report.svg import Plot, Style

MARKS = 24
NAMES = 60  # of domains, that one axis has room for


def marker_step(length: int) -> int:
    """Return how many batches lie between two markers of a line."""
    return max(1, length // MARKS)


def centres(length: int) -> list[float]:
    """Return the middle of each batch on the x axis."""
    return [place + 0.5 for place in range(length)]


def draw_curve(plot: Plot, curve: Sequence[float | None], style: Style, title: str) -> None:
    """Draw one method's curve, with markers."""
    plot.line(centres(len(curve)), curve, style, title, every=marker_step(len(curve)))


def value_range(
    curves: Iterable[Iterable[float | None]], margin: float = 2.0
) -> tuple[float, float]:
    """Return the lowest and the highest value of all curves, with a margin."""
    values = [v for curve in curves for v in curve if v is not None and isfinite(v)]
    return (min(values) - margin, max(values) + margin) if values else (0.0, 1.0)


def how_many(runs: Iterable[Sized]) -> str:
    """Say over how many replicates a figure is averaged."""
    counts = sorted({len(entry) for entry in runs if entry})
    if counts == [1]:
        return "one run a method"
    return f"mean over {'–'.join(str(c) for c in dict.fromkeys((counts[0], counts[-1])))} runs"


def threshold_line(
    scores: Sequence[Sequence[float | None]], delta: float | None
) -> list[float | None]:
    """Return the lowest score of each batch plus delta."""
    lines: list[float | None] = []
    for values in zip(*scores, strict=True):
        known = [value for value in values if value is not None and isfinite(value)]
        lines.append(min(known) + delta if known and delta is not None else None)
    return lines


def damaged_modalities(run: Run) -> list[str | None]:
    """Return the damaged modality of each batch."""
    truth: list[str | None] = [None] * len(run.batches.right)
    for domain in run.domains:
        truth[domain.first_batch : domain.first_batch + domain.batches] = [
            domain.damaged
        ] * domain.batches
    return truth


def stream_plot(run: Run, y: tuple[float, float], height: int, left: int = 56) -> Plot:
    """Return a plot over the batches of a stream, its domains marked and named below.

    Of very many domains, each so-manieth.
    """
    plot = Plot((0, len(run.batches.right)), y, height=height, left=left, bottom=112)
    marked = stops(run)
    for name, first, batches in marked[:: -(-len(marked) // NAMES)]:
        plot.rule((first, first), y)
        x, base = plot.at(first + batches / 2, y[0])
        plot.text(x + 4, base + 12, name, "end", turn=-50)
    plot.rule(plot.x, (y[0], y[0]), strong=True)
    return plot


def score_axis(plot: Plot, low: float) -> None:
    """Draw the y axis over the part of the plot that holds scores."""
    upper = Plot(plot.x, (low, plot.y[1]), height=plot.height, left=plot.left, top=plot.top)
    upper.bottom = plot.height - round(plot.at(0, low)[1])
    upper.y_axis("redundancy")
    plot.parts += upper.parts


def draw_strip(
    plot: Plot, y: tuple[float, float], flags: Sequence[bool], css: str, title: str
) -> None:
    """Fill the batches whose flag is set, in a strip named at its left."""
    for start, end in spans(flags):
        plot.box((start, end), y, css, f"{title}: batches {start}–{end - 1}")
    plot.text(plot.left - 6, plot.at(0, y[0])[1] - 4, title, "end")
