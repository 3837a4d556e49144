"""Sensitivity: accuracy as one option of a method varies, the others as they were."""

from collections.abc import Sequence

from dasp.report.curves import mean_line, place_values, spread_band, spread_range, value_axis
from dasp.report.figures import Figure, styles
from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import SOURCE, Group, mean_std
from dasp.report.runs import Run
from dasp.report.stream_plot import how_many
from dasp.report.svg import Plot, Style
from dasp.report.tables import pretty

ACROSS, HEIGHT = 3, 260  # panels a row; height of a row
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 14, 50  # room around a panel

Curves = dict[str, dict[float, list[float]]]
"""Accuracies by option and value."""


def sensitivity_figures(runs: Sequence[Run]) -> list[Figure]:
    """One figure a varied row and protocol: a panel an option, accuracy against its value.

    Rows that a plan's `vary` made are labelled "<row> <option>=<value>".
    """
    return [
        _figure(base, protocol, runs, curves)
        for protocol in Group(runs).protocols
        for base, curves in _varied(runs, protocol).items()
    ]


def sensitivity_table(runs: Sequence[Run]) -> Table:
    """Accuracy of every value of every varied option, and Source's, by protocol."""
    protocols = Group(runs).protocols
    found = {protocol: _varied(runs, protocol) for protocol in protocols}
    names = dict.fromkeys(
        (base, option, value)
        for by_base in found.values()
        for base, curves in by_base.items()
        for option, curve in curves.items()
        for value in sorted(curve)
    )
    rows = []
    for base, option, value in names:
        each = [found[name].get(base, {}).get(option, {}).get(value, []) for name in protocols]
        rows.append((Cell(base), Cell(option), Cell(f"{value:g}"), *map(_mean, each)))
    each = [_source(runs, protocol) for protocol in protocols]
    rows.append((Cell(SOURCE), Cell(), Cell(), *map(_mean, each)))
    texts = (Column("method"), Column("option"), Column("value"))
    columns = (*texts, *(Column(pretty(protocol), ("accuracy",)) for protocol in protocols))
    caption = "Accuracy in % as one option varies, all others as in the method's own row"
    return Table("sensitivity", caption, columns, tuple(rows))


def _mean(values: Sequence[float]) -> Cell:
    return Cell(quantities=(Quantity(*mean_std(values)),))


def _source(runs: Sequence[Run], protocol: str) -> list[float]:
    return [r.accuracy for r in runs if r.method == SOURCE and r.protocol == protocol]


def _varied(runs: Sequence[Run], protocol: str) -> dict[str, Curves]:
    """Return the curves of each row of which options were varied, its own values among them."""
    here = [run for run in runs if run.protocol == protocol]
    labels = {run.label for run in here}
    found: dict[str, Curves] = {}
    for run in here:
        base, _, setting = run.label.rpartition(" ")
        option = setting.partition("=")[0]
        value = run.options.get(option)
        if base in labels and isinstance(value, int | float) and not isinstance(value, bool):
            curve = found.setdefault(base, {}).setdefault(option, {})
            curve.setdefault(float(value), []).append(run.accuracy)
    for base, curves in found.items():
        own = [run for run in here if run.label == base]
        for option, curve in curves.items():
            value = _own(own[0], option)
            if value not in curve:  # a plan may name the row's own value among the others
                curve[value] = [run.accuracy for run in own]
    return found


def _own(run: Run, option: str) -> float:
    return float(run.options[option])


def _figure(base: str, protocol: str, runs: Sequence[Run], curves: Curves) -> Figure:
    level, _ = mean_std(_source(runs, protocol))
    own = next(run for run in runs if (run.label, run.protocol) == (base, protocol))
    y = spread_range(curves.values(), [] if level is None else [level])
    whole = Plot((0, 1), y, height=-(-len(curves) // ACROSS) * HEIGHT)
    look = styles([base, SOURCE])
    for place, (option, curve) in enumerate(curves.items()):
        places, x = place_values(sorted(curve))
        panel = _panel(whole, x, divmod(place, ACROSS))
        panel.y_axis("" if place % ACROSS else "accuracy, %")
        value_axis(panel, places, option, first=[_own(own, option)])
        panel.rule((places[_own(own, option)],) * 2, y, strong=True)
        if level is not None:
            panel.line(x, (level, level), look[SOURCE], f"{SOURCE}: {level:.2f}")
        spread_band(panel, curve, places, look[base])
        mean_line(panel, curve, places, look[base], f"{base}, {option}")
    replicates = how_many(values for curve in curves.values() for values in curve.values())
    caption = (
        f"Accuracy of {base} in the {pretty(protocol)} stream as one option varies, all others as "
        f"in its own row (upright: the value there), {replicates}. "
        "Band: ± one standard deviation."
    )
    entries = [(base, look[base])]
    if level is not None:
        entries.append((SOURCE, Style(look[SOURCE].place, look[SOURCE].width, marked=False)))
    name = f"sensitivity-{base}-{protocol}".replace("/", "-").replace(" ", "-")
    return Figure(name, whole.svg(caption, entries), caption)


def _panel(whole: Plot, x: tuple[float, float], place: tuple[int, int]) -> Plot:
    """Return the panel of a row and column of the drawing."""
    down, across = place
    width = whole.width // ACROSS
    return Plot(
        x,
        whole.y,
        height=whole.height,
        left=across * width + LEFT,
        right=whole.width - (across + 1) * width + RIGHT,
        top=down * HEIGHT + TOP,
        bottom=whole.height - (down + 1) * HEIGHT + BOTTOM,
        parts=whole.parts,
    )
