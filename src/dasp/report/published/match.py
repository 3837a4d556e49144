"""Which published figures a run may be set beside."""

from collections.abc import Sequence

from dasp.report.groups import Group
from dasp.report.published.load import PublishedRow, PublishedTable, published_tables
from dasp.report.runs import Run

TITLES = {"kinetics50": "Kinetics50-C", "vggsound": "VGGSound-C"}

Found = tuple[PublishedTable, PublishedRow]
"""A published row, and the table it stands in."""


def same_data(group: Group) -> bool:
    """Tell whether the data are ones that figures were published for."""
    return group.runs[0].data.get("name") in TITLES


def data_sets(group: Group) -> Sequence[str]:
    """Return the published data sets to compare with: the group's own, or all of them."""
    return (str(group.runs[0].data["name"]),) if same_data(group) else tuple(TITLES)


def usable(group: Group, protocol: str, severity: int) -> bool:
    """Tell whether the group ran this protocol whole and at the published severity."""
    run = group.runs[0]
    return protocol in group.protocols and run.severity == severity and not run.corruptions


def tables_for(group: Group, protocol: str, data: str) -> list[PublishedTable]:
    """Return the published tables of a data set that the group's protocol may be compared with."""
    return [
        table
        for table in published_tables()
        if (table.data, table.protocol) == (data, protocol)
        and usable(group, protocol, table.severity)
    ]


def find(tables: Sequence[PublishedTable], label: str, run: Run) -> Found | None:
    """Return the published row of a run: its method's own, or that of its ablation.

    A row of a plan whose label is not the method's name has options of its own (but for the
    ablation's, which are published too), so it is compared with nothing.
    """
    if run.options.get("rebalance"):
        return None  # no published method rebalances
    rows = [(t, row) for t in tables for row in t.rows.values() if row.method == run.method]
    usual = {k: v for _, row in rows if row.name == row.method for k, v in row.options.items()}
    given = {name: run.options.get(name, value) for name, value in usual.items()}
    if given != usual:
        return next((pair for pair in rows if pair[1].options == given), None)
    plain = label.split(" (")[0] == run.method
    return next((pair for pair in rows if plain and pair[1].name == run.method), None)
