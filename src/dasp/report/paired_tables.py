"""The paired comparison as tables and a figure: over Source, and over the best rival."""

from dasp.report.bootstrap import LEVEL
from dasp.report.figures import Figure, styles
from dasp.report.grid import NONE, Cell, Column, Quantity, Table
from dasp.report.groups import Group
from dasp.report.paired import AVERAGE, Comparison, Scores, best_label, compare, scores
from dasp.report.stream_plot import value_range
from dasp.report.svg import Plot
from dasp.report.tables import pretty

PARTS = ("difference", "low", "high", "models ahead", "models")
DIGITS = 2  # so that an end that is all but 0 shows its sign
MARKS = {"better": " ▲", "worse": " ▼"}
READING = (
    f"[ ]: {LEVEL:.0%} bootstrap interval over samples, each drawn with all it appears in, domains "
    "and source models alike; it does not cover other source models (for these see the ± and the "
    "count below) nor another order of the stream. ▲ better, ▼ worse: it excludes 0 and every "
    "source model agrees. Not corrected for being many."
)


def paired_table(group: Group) -> Table | None:
    """Gain over Source on the same samples, with its interval, of each method in each protocol.

    None without Source, or if no run kept which samples were right.
    """
    found = {name: over_source(group, name) for name in _protocols(group)}
    labels = [label for label in group.labels if any(label in own for own in found.values())]
    if not labels:
        return None
    rows = [(Cell(label), *(_cell(own.get(label)) for own in found.values())) for label in labels]
    return Table(
        "paired",
        f"Gain over Source on the same samples, in points, mean ±standard deviation over runs "
        f"({group.title}). {READING}",
        (Column("method"), *(Column(pretty(name), PARTS) for name in found)),
        tuple(rows),
    )


def rival_table(group: Group) -> Table | None:
    """The best method, and DASP, against the best of the others, in each protocol.

    None where fewer than two methods besides Source kept which samples were right.
    """
    rows = []
    for protocol in _protocols(group):
        found = _adapting(group, protocol)
        for label in dict.fromkeys((best_label(found), "dasp")):
            others = {name: own for name, own in found.items() if name != label}
            rival = best_label(others)
            if label is None or label not in found or rival is None:
                continue
            result = compare(found[label], found[rival], f"{label} and {rival}, {protocol}")
            if result is not None:
                words = [pretty(protocol), label, rival]
                rows.append((*map(Cell, words), _cell(result), Cell(result.verdict)))
    if not rows:
        return None
    titles = ("protocol", "method", "best rival")
    return Table(
        "rivals",
        f"Difference to the best rival on the same samples, in points ({group.title}). The rival "
        "is picked as the best of the others by what came out here, which favours it; a method "
        "picked as the best of all is favoured likewise, but dasp has its row in any case. "
        f"{READING}",
        (*map(Column, titles), Column("difference", PARTS), Column("verdict")),
        tuple(rows),
    )


def paired_figure(group: Group, protocol: str) -> Figure | None:
    """Gain over Source of each method with its interval, and a stroke for each source model."""
    found = over_source(group, protocol)
    if not found:
        return None
    labels, look = list(found), styles(list(found))
    ends = [[own.low, own.high, *own.by_model.values()] for own in found.values()]
    low, high = value_range([*ends, [0.0]], 0.5)
    height = 26 * len(labels) + 60
    plot = Plot(
        (low, high), (-0.5, len(labels) - 0.5), height=height, left=190, bottom=46, right=80
    )
    plot.x_axis("gain over Source, points")
    plot.rule((0, 0), plot.y, strong=True)
    thin = (high - low) / 1500
    for place, (label, own) in enumerate(found.items()):
        y, colour = len(labels) - 1 - place, look[label].colour
        told = f"{label}: {own.difference:+.2f} [{own.low:+.2f}, {own.high:+.2f}], {own.verdict}"
        plot.box((own.low, own.high), (y - 0.1, y + 0.1), f"fill:{colour};opacity:.45", told)
        for model, value in own.by_model.items():
            css = "fill:currentColor;opacity:.7"
            plot.box(
                (value - thin, value + thin), (y - 0.3, y + 0.3), css, f"{model}: {value:+.2f}"
            )
        plot.dot(own.difference, y, look[label], told)
        plot.text(plot.left - 8, plot.at(low, y)[1] + 4, label, "end")
        plot.text(plot.width - plot.right + 8, plot.at(low, y)[1] + 4, own.verdict, "start")
    caption = (
        f"Gain over Source on the same samples, {pretty(protocol)}. Dot: mean; bar: {LEVEL:.0%} "
        "bootstrap interval over samples; upright strokes: each source model. Better or worse: "
        "the bar leaves out 0 and every source model agrees; mixed: the models disagree."
    )
    return Figure(f"paired-{protocol.replace('/', '-')}", plot.svg(caption), caption)


def over_source(group: Group, protocol: str) -> dict[str, Comparison]:
    """Return how each method compares with Source in a protocol, or on their average."""
    source = group.source_label
    if source is None:
        return {}
    base = scores(group, source, protocol)
    found = {
        label: compare(own, base, f"{label} and {source}, {protocol}")
        for label, own in _adapting(group, protocol).items()
    }
    return {label: result for label, result in found.items() if result is not None}


def _adapting(group: Group, protocol: str) -> dict[str, Scores]:
    """Return the scores of every method but Source that has any."""
    labels = [label for label in group.labels if label != group.source_label]
    found = {label: scores(group, label, protocol) for label in labels}
    return {label: own for label, own in found.items() if own.counts}


def _protocols(group: Group) -> list[str]:
    return [*group.protocols, *([AVERAGE] if len(group.shifted) > 1 else [])]


def _cell(result: Comparison | None) -> Cell:
    """Return a comparison in three lines, and as numbers."""
    if result is None:
        return Cell(NONE, tuple(Quantity(None) for _ in PARTS))
    mean = Quantity(result.difference, result.spread, DIGITS, signed=True)
    low, high = (Quantity(end, None, DIGITS, signed=True) for end in (result.low, result.high))
    mark = MARKS.get(result.verdict, "")
    ends, models = f"{low.text}, {high.text}", len(result.by_model)
    return Cell(
        f"{mean.text}{mark}\n[{ends}]\n{result.ahead} of {models} models",
        (mean, low, high, Quantity(result.ahead, digits=0), Quantity(models, digits=0)),
        best=result.verdict == "better",
        worse=result.verdict == "worse",
    )
