"""How often indicators flag what is damaged and leave alone what is not, as tables."""

from collections.abc import Sequence
from dataclasses import replace

from dasp.report.flags import QUIET, Flags, Rates
from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import mean_std
from dasp.report.indicators import how_many_models
from dasp.report.runs import CLEAN

SHUFFLED, SORTED = "shuffled", "sorted"


def flag_tables(views: Sequence[Flags]) -> list[Table]:
    """Return three tables a batch size: shuffled, sorted, and one threshold for both."""
    tables = []
    for size in sizes(views):
        mine = [view for view in views if view.batch_size == size]
        both = [order for order in (SHUFFLED, SORTED) if order in mine[0].orders]
        for name, shown, chosen in (
            (SHUFFLED, [SHUFFLED], [SHUFFLED]),
            (SORTED, [SORTED], [SHUFFLED]),
            ("any", both, both),
        ):
            tables.append(_table(name, Rates(mine, shown), Rates(mine, chosen)))
    return tables


def sizes(views: Sequence[Flags]) -> list[int]:
    """Return the batch sizes, the largest first."""
    return sorted({view.batch_size for view in views}, reverse=True)


def severities(views: Sequence[Flags]) -> list[int]:
    """Return the severities, the highest first."""
    return sorted({view.severity for view in views}, reverse=True)


def damageable(views: Sequence[Flags]) -> list[str]:
    """Return the modalities that some domain damages."""
    found = {name.split("/")[0] for order in views[0].orders.values() for name in order.domains}
    return [name for name in views[0].modalities if name in found]


def _table(name: str, shown: Rates, chosen: Rates) -> Table:
    """Return the rates in the orders of `shown`, at the thresholds that `chosen` asks for."""
    views = shown.views
    columns = [(m, s) for m in damageable(views) for s in severities(views)]
    spots = [chosen.quiet_spot(place) for place in range(len(views[0].indicators))]
    rows = []
    for spot in spots:
        values = [Quantity(views[0].thresholds[spot[1]])]
        values += [Quantity(*mean_std(shown.hits(spot, s, f"{m}/")), digits=0) for m, s in columns]
        values.append(Quantity(*mean_std(shown.hits(spot)), digits=0))
        values.append(Quantity(*mean_std(shown.clean(spot))))
        values.append(Quantity(*mean_std(shown.wrong(spot))))
        cells = (Cell(quantities=(value,)) for value in values)
        rows.append([Cell(views[0].indicators[spot[0]]), *cells])
    _mark([row for row, spot in zip(rows, spots, strict=True) if shown.is_quiet(spot)])
    titles = ["threshold", *(f"{modality} {severity}" for modality, severity in columns)]
    titles += ["all hits", f"{CLEAN}, no flag", "wrong"]
    return Table(
        f"flags-batch{views[0].batch_size}-{name}",
        _caption(shown, chosen),
        (Column("indicator"), *(Column(title, ("value",)) for title in titles)),
        tuple(map(tuple, rows)),
    )


def _mark(rows: Sequence[list[Cell]]) -> None:
    """Mark the highest rate in each column of hits."""
    for column in range(2, len(rows[0]) - 2 if rows else 0):
        values = [row[column].quantities[0].rounded or 0.0 for row in rows]
        for row, value in zip(rows, values, strict=True):
            if value == max(values):
                row[column] = replace(row[column], best=True)


def _caption(shown: Rates, chosen: Rates) -> str:
    view = shown.views[0]
    words = {SORTED: "sorted by class"}
    where = " and ".join(words.get(order, order) for order in shown.orders)
    which = " and ".join(words.get(order, order) for order in chosen.orders)
    return (
        f"Batches of {view.batch_size}, {where}: share of those with the damaged modality flagged, "
        "by modality and severity; of clean ones without a flag; of damaged ones with a healthy "
        f"modality flagged; in % ({how_many_models(shown.views)}). Threshold: in standard "
        f"deviations of clean batches drawn from {view.source['samples']} training samples, the "
        f"lowest with which {QUIET:.0f} % of batches, {which}, have no false alarm, be they clean "
        "or damaged. Marked: the most hits among indicators of which that holds here"
    )
