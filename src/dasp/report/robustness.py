"""Every method on every stream: what it gains over not adapting, and where it does harm."""

from collections.abc import Sequence
from dataclasses import replace

from dasp.report.dot_plots import dots
from dasp.report.figures import Figure
from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import mean_std
from dasp.report.judged import (
    HARM,
    Stream,
    adapting,
    average,
    floor,
    harmed,
    harms,
    ours,
    several,
    streams_of,
    voting,
)
from dasp.report.overview import gain_scale
from dasp.report.parts import Part
from dasp.report.sections import Section
from dasp.report.stream_plot import how_many
from dasp.report.tables import accuracies

MARK = f"▼ and red: more than {HARM} points below Source."


def robustness(section: Section) -> list[Part]:
    """Return the tables and the figure of all streams of a section; none without Source."""
    streams = [s for s in streams_of(section.groups) if s.group.source_label is not None]
    if not adapting(streams):
        return []
    items = (floor_table(streams), robustness_table(streams), robustness_figure(streams))
    return [Part("Robustness", items)]


def floor_table(streams: Sequence[Stream]) -> Table:
    """Average and worst gain of each method, and on how many streams it does harm."""
    labels = adapting(streams)
    lowest = {label: floor(streams, label) for label in labels}
    averages = _best([_gain(average(streams, label)) for label in labels])
    floors = _best([_gain(lowest[label][0]) for label in labels])
    rows = []
    for place, label in enumerate(labels):
        ran = sum(bool(stream.gains(label)) for stream in streams)
        count = len(harmed(streams, label))
        back = sum(len(run.rollbacks) for stream in streams for run in stream.runs(label))
        rows.append(
            (
                Cell(label),
                averages[place],
                floors[place],
                Cell(lowest[label][1]),
                Cell(f"{count} of {ran}", (Quantity(count, digits=0),)),
                Cell(quantities=(Quantity(back, digits=0),)),
            )
        )
    over = (
        f": average over {several(len(voting(streams)))} with the same weight each (clean data "
        "have no vote; –: not run on all), and floor, the worst of all "
        f"{several(len(streams))}"
    ) * (len(streams) > 1)
    return Table(
        "floors",
        f"Gain over Source in points{over}. {MARK} Rolled back: how often, in all runs, a method "
        "went back to earlier weights.",
        (
            Column("method"),
            Column("average", ("gain",)),
            Column("floor", ("gain",)),
            Column("worst on"),
            Column("harm on", ("streams",)),
            Column("rolled back", ("times",)),
        ),
        tuple(rows),
    )


def robustness_table(streams: Sequence[Stream]) -> Table:
    """Accuracy of Source and gain of every other method: a row a stream."""
    labels = adapting(streams)
    rows = [(Cell(stream.name), *_row(stream, labels)) for stream in streams]
    blank = Cell(quantities=(Quantity(None),))
    averages = [average(streams, label) for label in labels]
    floors = [floor(streams, label)[0] for label in labels]
    if len(streams) > 1:
        rows += [
            (Cell(name), blank, *_best([_gain(gain) for gain in gains]))
            for name, gains in (("average", averages), ("floor", floors))
        ]
    titles = {stream.group.title for stream in streams}
    setting = f" ({titles.pop()})" if len(titles) == 1 else ""
    return Table(
        "robustness",
        f"Accuracy of Source in %, and gain over it in points, by stream{setting}; mean ±standard "
        f"deviation over source models and seeds. Bold: the best of a row. {MARK}",
        (
            Column("stream"),
            Column("source", ("accuracy",)),
            *(Column(label, ("gain",)) for label in labels),
        ),
        tuple(rows),
    )


def robustness_figure(streams: Sequence[Stream]) -> Figure:
    """Gain over Source by stream, a dot a method, DASP's rows in a lane of their own."""
    labels = adapting(streams)
    gains = {(label, s.name): s.gain(label).value for s in streams for label in labels}
    if len(streams) > 1:
        gains |= {(label, "average"): average(streams, label).value for label in labels}
    means = {key: value for key, value in gains.items() if value is not None}
    replicates = how_many(s.gains(label) for s in streams for label in labels)
    front = ours(streams)
    lane = f" Lower lane of each row: {', '.join(front)}." if front else ""
    caption = (
        f"Gain over Source by stream, in points, on the same models and seeds: {replicates}. Left "
        f"of the line at 0, adapting did harm; a marker at the very edge lies beyond it.{lane}"
    )
    drawing = dots(
        labels, means, "gain, points", caption, gain_scale(list(means.values())), front=front
    )
    return Figure("gain-by-stream", drawing, caption)


def _source(stream: Stream) -> Cell:
    source = stream.group.source_label
    assert source is not None
    values = accuracies(stream.group, source, stream.protocol).values()
    return Cell(quantities=(Quantity(*mean_std(values)),))


def _row(stream: Stream, labels: Sequence[str]) -> list[Cell]:
    """Return the cells of a stream; only a method with as many runs as any can be its best."""
    counts = [len(stream.gains(label)) for label in labels]
    able = [count == max(counts) for count in counts]
    gains = [_gain(stream.gain(label)) for label in labels]
    nothing = Cell(quantities=(Quantity(0.0),))  # the gain of Source, best where all others lose
    first, *others = _best([nothing, *gains], [True, *able])
    return [replace(_source(stream), best=first.best), *others]


def _gain(gain: Quantity) -> Cell:
    return Cell(quantities=(gain,), worse=harms(gain))


def _best(cells: Sequence[Cell], able: Sequence[bool] = ()) -> list[Cell]:
    """Mark the highest value as a reader sees it, among the cells that are able to win."""
    able = able or [True] * len(cells)
    shown = [
        cell.quantities[0].rounded if may else None for cell, may in zip(cells, able, strict=True)
    ]
    top = max((value for value in shown if value is not None), default=None)
    return [
        replace(cell, best=value is not None and value == top)
        for cell, value in zip(cells, shown, strict=True)
    ]
