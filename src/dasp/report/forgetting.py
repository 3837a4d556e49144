"""Forgetting: how much of its accuracy on clean data a model lost while it adapted."""

from collections.abc import Sequence
from dataclasses import replace

from dasp.report.figures import Figure, present, styles
from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import Group, mean_std
from dasp.report.runs import Run
from dasp.report.stream_data import alike, stops
from dasp.report.stream_plot import NAMES, how_many, value_range
from dasp.report.svg import Plot, Style
from dasp.report.tables import pretty

JOINT = "joint"
PANEL, GAP, FOOT = 150, 34, 112  # heights: of a panel, of the room above it, of the names below

MARKS = 7  # markers of a line, about


def forgetting_figure(group: Group, protocol: str) -> Figure | None:
    """Loss on clean data after each domain of a stream, joint and by modality; None if unknown."""
    runs = _judged(group, protocol)
    if not runs:
        return None
    first = next(iter(runs.values()))[0]
    seen = first.clean_after.seen if first.clean_after else 0
    curves = {
        view: {label: _mean_loss(found, view) for label, found in runs.items()}
        for view in _views(first)
    }
    caption = (
        f"Forgetting through the {pretty(protocol)} stream: accuracy on {seen} clean samples "
        "before the first domain minus that after each domain, all modalities together and each "
        f"alone, {how_many(runs.values())}. Above the line at 0, something was lost; "
        "Source stays on it."
    )
    look = styles(list(runs))
    entries = [(label, look[label]) for label in runs]
    drawing = _panels(first, curves, look).svg(caption, entries)
    return Figure(f"forgetting-{protocol.replace('/', '-')}", drawing, caption)


def forgetting_table(group: Group) -> Table | None:
    """Loss on clean data at the end and at the worst place of each stream; None if unknown."""
    judged = {name: _judged(group, name) for name in group.protocols}
    judged = {name: runs for name, runs in judged.items() if runs}
    if not judged:
        return None
    views = _views(next(iter(next(iter(judged.values())).values()))[0])
    rows: list[tuple[Cell, ...]] = []
    for protocol, runs in judged.items():
        columns = [_mark_least([_losses(found, view) for found in runs.values()]) for view in views]
        rows += [
            (Cell(label), Cell(pretty(protocol)), *cells)
            for label, *cells in zip(runs, *columns, strict=True)
        ]
    return Table(
        "forgetting",
        "Forgetting: points of accuracy on clean data lost at the end of the stream, and below it "
        f"at the worst place of it ({group.title})",
        (
            Column("method"),
            Column("protocol"),
            *(Column(_title(view), ("end", "worst")) for view in views),
        ),
        tuple(rows),
    )


def _judged(group: Group, protocol: str) -> dict[str, list[Run]]:
    """Return the runs whose clean accuracy is known, by label, Source left out."""
    labels, _ = present(group, protocol)
    known = {
        label: [run for run in group.of(label, protocol) if run.clean_after is not None]
        for label in labels
        if label != group.source_label
    }
    known = {label: runs for label, runs in known.items() if runs}
    if not known:
        return {}
    first = next(iter(known.values()))[0]
    found = {label: alike(runs, first) for label, runs in known.items()}
    return {label: runs for label, runs in found.items() if runs}


def _views(run: Run) -> list[str]:
    """Return what clean data were judged by: all modalities together first."""
    assert run.clean_after is not None
    return sorted(run.clean_after.right, key=lambda view: (view != JOINT, view))


def _loss(run: Run, view: str) -> list[float]:
    assert run.clean_after is not None
    return run.clean_after.lost(view)


def _mean_loss(runs: Sequence[Run], view: str) -> list[float | None]:
    return [mean_std(values)[0] for values in zip(*(_loss(r, view) for r in runs), strict=True)]


def _losses(runs: Sequence[Run], view: str) -> Cell:
    each = [_loss(run, view) for run in runs]
    end = Quantity(*mean_std(loss[-1] for loss in each), signed=True)
    worst = Quantity(*mean_std(max(loss) for loss in each), signed=True)
    return Cell(quantities=(end, worst))


def _mark_least(cells: list[Cell]) -> list[Cell]:
    shown = [cell.quantities[0].rounded for cell in cells]
    least = min(value for value in shown if value is not None)
    return [replace(cell, best=value == least) for cell, value in zip(cells, shown, strict=True)]


def _title(view: str) -> str:
    return "all together" if view == JOINT else f"{view} alone"


def _panels(
    run: Run, curves: dict[str, dict[str, list[float | None]]], look: dict[str, Style]
) -> Plot:
    """Draw one panel below another, on one scale, the domains named below the last."""
    values = [curve for by_label in curves.values() for curve in by_label.values()]
    y, x = value_range(values, 0.5), (-0.4, len(_places(run)) - 0.6)
    height = len(curves) * (PANEL + GAP) + FOOT
    whole = Plot(x, y, height=height)
    for place, (view, by_label) in enumerate(curves.items()):
        top = place * (PANEL + GAP) + GAP
        panel = Plot(x, y, height=height, top=top, bottom=height - top - PANEL, parts=whole.parts)
        panel.y_axis("points lost")
        panel.rule(x, (0, 0), strong=True)
        panel.text(panel.left, top - 10, _title(view), "start")
        for label, curve in by_label.items():
            _draw(panel, label, curve, look[label], _places(run))
    names = list(enumerate(_places(run)))
    for place, name in names[:: -(-len(names) // NAMES)]:
        x_at, base = panel.at(place, panel.y[0])
        panel.text(x_at + 4, base + 14, name, "end", turn=-50)
    return whole


def _draw(
    panel: Plot, label: str, curve: Sequence[float | None], style: Style, places: Sequence[str]
) -> None:
    """Draw one method's line; markers of equal values start apart, so that each is seen."""
    panel.line(range(len(curve)), curve, style, label)
    step = max(1, len(curve) // MARKS)
    for place in range(style.place % step, len(curve), step):
        value = curve[place]
        if value is not None:
            when = places[place] if place == 0 else f"after {places[place]}"
            panel.dot(place, value, style, f"{label}, {when}: {value:.2f} points lost")


def _places(run: Run) -> list[str]:
    """Return the names of the places where clean data were judged."""
    return ["before", *(name for name, _, _ in stops(run))]
