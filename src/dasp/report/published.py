"""Accuracies that papers published, kept apart from measured ones, and tables that compare them.

The files in `papers/` hold them as printed.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dasp.report.compare import SOURCE, PlanRun, RunGroup, over_source, pretty
from dasp.report.formats import UNKNOWN, Cell, Column, Table, mean_cell, mean_std, number, texts
from dasp.report.tables import file_name

TITLES = {"kinetics50": "Kinetics50-C", "vggsound": "VGGSound-C"}
BOTH = ("accuracy", "gain")
UNLIKE = (
    "The data differ from the published ones, so only gains over Source are comparable, and these "
    "only show whether the methods behave alike."
)
ALIKE = (
    "Source differs between papers on these data, because published corruptions were drawn "
    "without a seed: compare gains before accuracies."
)


@dataclass(frozen=True)
class PublishedRow:
    """What a paper prints of one method in one protocol, in %."""

    name: str
    method: str
    average: float
    """As printed."""
    options: Mapping[str, Any]
    domains: Mapping[str, float]
    """By "<modality>/<corruption>"; empty for an ablation."""


@dataclass(frozen=True)
class PublishedTable:
    """One protocol of a table of a paper."""

    source: str
    number: int
    data: str
    protocol: str
    severity: int
    batch_size: int
    rows: Mapping[str, PublishedRow]
    misprints: Sequence[str]
    """Rows whose printed average is not that of their columns."""

    def gain(self, name: str) -> float:
        """Return the printed average minus that of Source; NaN for Source itself."""
        base = math.nan if name == SOURCE else self.rows[SOURCE].average
        return round(self.rows[name].average - base, 1)


Found = tuple[PublishedTable, PublishedRow]


@cache
def read_paper(name: str) -> dict[str, Any]:
    """Return the content of a file in `papers/`."""
    path = files("dasp.report") / "papers" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def published_tables() -> tuple[PublishedTable, ...]:
    """Return the tables of the paper of DASP, one per data set and protocol, the ablation last."""
    paper, ablation = read_paper("dasp"), read_paper("ablation")
    found = []
    for entry in paper["tables"]:
        columns = paper["columns"][entry["protocol"].split("/")[-1]]
        rows = {
            name: PublishedRow(
                name, name, entry["averages"][name], {}, dict(zip(columns, values, strict=True))
            )
            for name, values in entry["rows"].items()
        }
        found.append(_table(paper, entry, rows))
    for place, protocol in enumerate(ablation["protocols"]):
        rows = {
            row["name"]: PublishedRow(
                row["name"], row["method"], row["values"][place], row.get("options", {}), {}
            )
            for row in ablation["rows"]
        }
        found.append(_table(ablation, {**ablation, "protocol": protocol}, rows))
    return tuple(found)


def _table(
    paper: Mapping[str, Any], entry: Mapping[str, Any], rows: Mapping[str, PublishedRow]
) -> PublishedTable:
    place = paper["source"], entry["number"], entry["data"], entry["protocol"]
    setting = paper["severity"], paper["batch_size"]
    return PublishedTable(*place, *setting, rows, entry.get("misprints", ()))


def _same_data(group: RunGroup) -> bool:
    """Tell whether the data are ones that accuracies were published for."""
    return group.runs[0].config.data.get("name") in TITLES


def _data_sets(group: RunGroup) -> Sequence[str]:
    """Return the published data sets to compare with: the group's own, or all of them."""
    return [str(group.runs[0].config.data["name"])] if _same_data(group) else list(TITLES)


def _usable(group: RunGroup, protocol: str, severity: int) -> bool:
    """Tell whether a group ran a protocol with all its domains and at the published severity."""
    runs = [run for run in group.runs if run.protocol == protocol]
    if not runs or group.runs[0].config.severity != severity:
        return False
    wanted = read_paper("dasp")["columns"].get(protocol.split("/")[-1], [])
    return sorted(name.rsplit("/", 1)[0] for name in runs[0].config.domains) == sorted(wanted)


def _tables_for(group: RunGroup, protocol: str, data: str) -> list[PublishedTable]:
    mine = [t for t in published_tables() if (t.data, t.protocol) == (data, protocol)]
    return mine if mine and _usable(group, protocol, mine[0].severity) else []


def find_row(tables: Sequence[PublishedTable], label: str, run: PlanRun) -> Found | None:
    """Return the published row of a run: its method's own, or that of its ablation.

    A row of a plan whose label is not the method's name has options of its own; unless these are
    published as an ablation, it is compared with nothing.
    """
    options = run.config.options
    if options.get("rebalance"):
        return None  # no published method rebalances
    method = run.config.method
    rows = [(t, row) for t in tables for row in t.rows.values() if row.method == method]
    usual = {k: v for _, row in rows if row.name == row.method for k, v in row.options.items()}
    given = {name: options.get(name, value) for name, value in usual.items()}
    if given != usual:
        return next((pair for pair in rows if pair[1].options == given), None)
    plain = label.split(" (")[0] == method
    return next((pair for pair in rows if plain and pair[1].name == method), None)


def published_table(group: RunGroup, protocol: str) -> Table | None:
    """Return measured and published accuracy and gain of each method, and the difference.

    Only gains if the data are not the published ones; None if nothing was published of these
    methods for this protocol and severity, or if the stream leaves out corruptions.
    """
    sets = {name: _tables_for(group, protocol, name) for name in _data_sets(group)}
    sets = {name: tables for name, tables in sets.items() if tables}
    parts = BOTH if _same_data(group) else BOTH[1:]
    columns = [Column("method"), Column("measured here", BOTH)]
    if not _same_data(group):  # the gain in a column of its own, beside the published ones
        columns[1:] = [Column("accuracy here", BOTH[:1]), Column("gain here", parts)]
    for name in sets:
        columns.append(Column(f"published, {TITLES[name]}", parts, published=True))
        columns.append(Column(f"here − {TITLES[name]}", parts))
    accuracy, rows, used = group.accuracy(protocol), [], []
    gains = over_source(accuracy, group.source)
    for label in (label for label in group.labels if group.of(label, protocol)):
        own = mean_std(accuracy[label]), mean_std(gains[label])
        split = [own] if parts == BOTH else [own[:1], own[1:]]
        cells = [Cell(label), *(Cell(means=means) for means in split)]
        for tables in sets.values():
            found = find_row(tables, label, group.of(label, protocol)[0])
            used += [found] if found else []
            told = (found[1].average, found[0].gain(found[1].name)) if found else (math.nan,) * 2
            apart = [(mine[0] - theirs, math.nan) for mine, theirs in zip(own, told, strict=True)]
            cells.append(Cell(means=tuple((v, math.nan) for v in told[-len(parts) :])))
            cells.append(Cell(means=tuple(apart[-len(parts) :])))
        rows.append(cells)
    if not used:
        return None
    caption = f"Measured and published, {pretty(protocol)} ({group.title}). {_about(group, used)}"
    return Table(f"published-{file_name(protocol)}", caption, columns, rows)


def claims_table(group: RunGroup) -> Table | None:
    """Return gains over Source that papers claim, beside those of the same methods measured."""
    papers = read_paper("elsewhere")
    settings = [(n, s["data"], s["protocol"]) for n, s in enumerate(papers["settings"])]
    settings = [s for s in settings if s[1] in _data_sets(group)]
    protocols = [p for p in dict.fromkeys(p for _, _, p in settings) if _usable(group, p, 5)]
    if not protocols:
        return None
    columns = texts("method", "claimed in")
    rows = [[Cell(claim["method"]), Cell(claim["source"])] for claim in papers["claims"]]
    for protocol in protocols:
        gains = group.gain(protocol)
        columns.append(Column(f"measured here, {pretty(protocol)}", ("gain",)))
        places = [(n, TITLES[data]) for n, data, name in settings if name == protocol]
        heads = [f"published, {title}, {pretty(protocol)}" for _, title in places]
        columns += [Column(head, ("gain",), published=True) for head in heads]
        for claim, row in zip(papers["claims"], rows, strict=True):
            known = claim["method"] in gains
            row.append(mean_cell(mean_std(gains[claim["method"]]) if known else UNKNOWN))
            row += [number(claim["gains"][n]) for n, _ in places]
    caption = (
        "Gains over Source that papers claim, in points, each over its own Source, at severity 5 "
        f"and with a reset at each domain ({group.title}). {ALIKE if _same_data(group) else UNLIKE}"
    )
    return Table("claims", caption, columns, rows)


def _about(group: RunGroup, used: Sequence[Found]) -> str:
    """Say where the published numbers are from, and how that measurement differs."""
    first = used[0][0]
    numbers = ", ".join(dict.fromkeys(str(table.number) for table, _ in used))
    words = [f"Published: {first.source}, table {numbers}, batch {first.batch_size}."]
    words += [
        f"The average that table {table.number} prints for {row.name} is not that of its columns."
        for table, row in used
        if row.name in table.misprints
    ]
    if not _same_data(group):
        return " ".join([*words, UNLIKE])
    data = group.runs[0].config.data
    clips = read_paper("dasp")["clips"][data["name"]]
    words += [f"Published on all {clips:,} clips."] if data.get("samples") != clips else []
    made = [name for name in ("frost", "noise") if data.get(name) not in (None, "recorded")]
    words += [f"Not the published recordings here: {', '.join(made)}."] if made else []
    return " ".join([*words, ALIKE])
