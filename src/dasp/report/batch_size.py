"""Accuracy against the size of a batch."""

from collections.abc import Mapping, Sequence

from dasp.report.curves import Curve, mean_line, place_values, spread_band, spread_range, value_axis
from dasp.report.figures import Figure, styles
from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import Group, mean_std
from dasp.report.runs import Run
from dasp.report.stream_plot import how_many
from dasp.report.svg import Plot
from dasp.report.tables import pretty

BANDED = "dasp"


def batch_size_figures(runs: Sequence[Run]) -> list[Figure]:
    """One figure a protocol that was run with several batch sizes: a line a method."""
    curves = {name: _by_batch_size(runs, name) for name in _protocols(runs)}
    return [_figure(name, found) for name, found in curves.items() if found]


def batch_size_table(runs: Sequence[Run]) -> Table:
    """Accuracy of each method by the size of a batch."""
    sizes = sorted({run.batch_size for run in runs})
    rows = []
    for protocol in _protocols(runs):
        for label, curve in _by_batch_size(runs, protocol).items():
            shares = [Quantity(*mean_std(curve.get(size, ()))) for size in sizes]
            cells = [Cell(quantities=(share,)) for share in shares]
            rows.append((Cell(label), Cell(pretty(protocol)), *cells))
    sized = (Column(f"batch {size}", ("accuracy",)) for size in sizes)
    columns = (Column("method"), Column("protocol"), *sized)
    return Table("batch-size", "Accuracy in % by the size of a batch", columns, tuple(rows))


def _protocols(runs: Sequence[Run]) -> list[str]:
    return Group(runs).protocols


def _by_batch_size(runs: Sequence[Run], protocol: str) -> dict[str, dict[float, list[float]]]:
    """Return {label: {batch size: accuracies}} of the labels that have several sizes."""
    found: dict[str, dict[float, list[float]]] = {}
    for label in Group(runs).labels:
        for run in (run for run in runs if (run.label, run.protocol) == (label, protocol)):
            found.setdefault(label, {}).setdefault(run.batch_size, []).append(run.accuracy)
    return {label: curve for label, curve in found.items() if len(curve) > 1}


def _figure(protocol: str, curves: Mapping[str, Curve]) -> Figure:
    sizes = sorted({size for curve in curves.values() for size in curve})
    places, x = place_values(sizes, log=True)
    plot = Plot(x, spread_range(curves.values()), height=360, bottom=46)
    plot.y_axis("accuracy, %")
    value_axis(plot, places, "samples a batch")
    look = styles(list(curves))
    for label, curve in curves.items():
        if label == BANDED:
            spread_band(plot, curve, places, look[label])
        mean_line(plot, curve, places, look[label], f"{label}, batch")
    replicates = how_many(values for curve in curves.values() for values in curve.values())
    caption = f"Accuracy in the {pretty(protocol)} stream by the size of a batch, {replicates}."
    if any(len(values) > 1 for values in curves.get(BANDED, {}).values()):
        caption += f" Band: ± one standard deviation of {BANDED}."
    drawing = plot.svg(caption, [(label, look[label]) for label in curves])
    return Figure(f"batch-size-{protocol.replace('/', '-')}", drawing, caption)
