"""Accuracies that papers published, kept apart from measured ones, and tables that compare them.

The files in `papers/` hold them as printed.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dasp.report.compare import SOURCE, PlanRun, RunGroup, pretty
from dasp.report.formats import NAN, Cell, Table, mean_std
from dasp.report.frame import slug
from dasp.report.tables import BOTH

TITLES = {"kinetics50": "Kinetics50-C", "vggsound": "VGGSound-C"}
UNLIKE = (
    "The data differ from the published ones, so only gains over Source are comparable, and these "
    "only show whether the methods behave alike."
)
ALIKE = (
    "Published on the whole test split. Source differs between papers, because published "
    "corruptions were drawn without a seed: compare gains before accuracies."
)


@dataclass(frozen=True)
class PublishedRow:
    """What a paper prints of one method in one protocol, in %; `average` is NaN for a claim.

    `options` are those of the method in an ablation. `gain` is over the Source of the same paper.
    """

    where: str
    data: str
    protocol: str
    name: str
    method: str
    options: Mapping[str, Any]
    average: float
    gain: float


@cache
def read_paper(name: str) -> dict[str, Any]:
    """Return the content of a file in `papers/`."""
    path = files("dasp.report") / "papers" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Return the rows of the paper of DASP, those of its ablation, and the claims of others."""
    paper, ablation, elsewhere = map(read_paper, ("dasp", "ablation", "elsewhere"))
    tables: list[Any] = []
    for table in paper["tables"]:
        rows: list[Any] = [(name, name, {}, average) for name, average in table["averages"].items()]
        tables.append((f"table {table['number']}", table["data"], table["protocol"], rows))
    for column, protocol in enumerate(ablation["protocols"]):
        rows = [
            (row["name"], row["method"], row.get("options", {}), row["values"][column])
            for row in ablation["rows"]
        ]
        tables.append((f"table {ablation['number']}", ablation["data"], protocol, rows))
    found = []
    for where, data, protocol, rows in tables:
        source = next(average for name, _, _, average in rows if name == SOURCE)
        for name, method, options, average in rows:
            gain = NAN if name == SOURCE else round(average - source, 1)
            found.append(PublishedRow(where, data, protocol, name, method, options, average, gain))
    for claim in elsewhere["claims"]:
        name, where = claim["method"], f"{claim['method']} as claimed in {claim['source']}"
        for setting, gain in zip(elsewhere["settings"], claim["gains"], strict=True):
            place = where, setting["data"], setting["protocol"]
            found.append(PublishedRow(*place, name, name, {}, NAN, gain))
    return tuple(found)


def find_row(rows: Sequence[PublishedRow], run: PlanRun) -> PublishedRow | None:
    """Return the published row of a run: its method's own, or that of its ablation.

    A row of a plan whose label is not the method's name has options of its own; unless these are
    published as an ablation, it is compared with nothing.
    """
    options, method = run.config.options, run.config.method
    if options.get("rebalance"):
        return None  # no published method rebalances
    rows = [row for row in rows if row.method == method]
    usual = {k: v for row in rows if row.name == row.method for k, v in row.options.items()}
    given = {name: options.get(name, value) for name, value in usual.items()}
    if given != usual:
        return next((row for row in rows if row.options == given), None)
    plain = run.label.split(" (")[0] == method
    return next((row for row in rows if plain and row.name == method), None)


def published_table(group: RunGroup, protocol: str) -> Table | None:
    """Return measured and published accuracy and gain of each method, and the difference.

    Only gains if the data are not the published ones; None if nothing was published of these
    methods for this protocol and severity, or if the stream leaves out corruptions.
    """
    paper, config = read_paper("dasp"), next(r.config for r in group.runs if r.protocol == protocol)
    domains = sorted(name.rsplit("/", 1)[0] for name in config.domains)
    whole = domains == sorted(paper["columns"].get(protocol.split("/")[-1], []))
    if not whole or config.severity != paper["severity"]:
        return None
    same = config.data["name"] in TITLES
    sets = {
        name: [r for r in published_rows() if (r.data, r.protocol) == (name, protocol)]
        for name in ([config.data["name"]] if same else TITLES)
    }
    sets = {name: found for name, found in sets.items() if found}
    parts = BOTH if same else BOTH[1:]
    accuracy, gains = group.accuracy(protocol), group.gain(protocol)
    rows, used = [], []
    for label in (label for label in group.labels if group.of(label, protocol)):
        own = mean_std(accuracy[label]), mean_std(gains[label])
        row: dict[str, str | Cell] = {"method": label}
        if same:
            row["measured here"] = Cell(own, BOTH)
        else:  # the gain in a column of its own, beside the published ones
            row |= {"accuracy here": Cell(own[:1], BOTH[:1]), "gain here": Cell(own[1:], parts)}
        for name, known in sets.items():
            found = find_row(known, group.of(label, protocol)[0])
            used += [found] if found else []
            told = (found.average, found.gain) if found else (NAN, NAN)
            apart = [(mine[0] - theirs, NAN) for mine, theirs in zip(own, told, strict=True)]
            printed = tuple((value, NAN) for value in told[-len(parts) :])
            row[f"published, {TITLES[name]}"] = Cell(printed, parts, published=True)
            row[f"here − {TITLES[name]}"] = Cell(tuple(apart[-len(parts) :]), parts)
        rows.append(row)
    if not used:
        return None
    places = dict.fromkeys(row.where for row in used)
    caption = (
        f"Measured and published, {pretty(protocol)} ({group.title}). Published: "
        f"{paper['source']}, batch {paper['batch_size']}, {', '.join(places)}. "
        f"{ALIKE if same else UNLIKE}"
    )
    return Table(slug(f"published-{protocol}"), caption, rows)
