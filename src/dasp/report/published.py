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
from dasp.report.formats import NAN, Cell, Table, mean_cell, mean_std
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
    """What a table of a paper prints of one method in one protocol, in %."""

    table: int
    data: str
    protocol: str
    name: str
    method: str
    options: Mapping[str, Any]
    """Of the method, for a row of an ablation."""
    average: float
    """As printed."""
    gain: float
    """The printed average minus that of Source; NaN for Source itself."""
    misprint: bool = False
    """Whether the printed average is not that of the row's columns."""


@cache
def read_paper(name: str) -> dict[str, Any]:
    """Return the content of a file in `papers/`."""
    path = files("dasp.report") / "papers" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Return the rows of all tables of the paper of DASP, those of the ablation last."""
    found = []
    for table in read_paper("dasp")["tables"]:
        place = table["number"], table["data"], table["protocol"]
        for name, average in table["averages"].items():
            gain = _gain(name, average, table["averages"][SOURCE])
            misprint = name in table.get("misprints", ())
            found.append(PublishedRow(*place, name, name, {}, average, gain, misprint))
    ablation = read_paper("ablation")
    for column, protocol in enumerate(ablation["protocols"]):
        place = ablation["number"], ablation["data"], protocol
        source, *_ = (r["values"][column] for r in ablation["rows"] if r["name"] == SOURCE)
        for row in ablation["rows"]:
            words, average = (row["name"], row["method"]), row["values"][column]
            gain = _gain(row["name"], average, source)
            found.append(PublishedRow(*place, *words, row.get("options", {}), average, gain))
    return tuple(found)


def _gain(name: str, average: float, source: float) -> float:
    return NAN if name == SOURCE else round(average - source, 1)


def _data_sets(group: RunGroup) -> list[str]:
    """Return the published data sets to compare with: the group's own, or all of them."""
    name = str(group.runs[0].config.data.get("name"))
    return [name] if name in TITLES else list(TITLES)


def _usable(group: RunGroup, protocol: str) -> bool:
    """Tell whether a group ran a protocol with all its domains and at the published severity."""
    paper = read_paper("dasp")
    domains = [run.config.domains for run in group.runs if run.protocol == protocol]
    wanted = paper["columns"].get(protocol.split("/")[-1], [])
    if not domains or group.runs[0].config.severity != paper["severity"]:
        return False
    return sorted(name.rsplit("/", 1)[0] for name in domains[0]) == sorted(wanted)


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
    sets = {
        name: [r for r in published_rows() if (r.data, r.protocol) == (name, protocol)]
        for name in _data_sets(group)
    }
    sets = {name: found for name, found in sets.items() if found and _usable(group, protocol)}
    same = group.runs[0].config.data.get("name") in TITLES
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
    caption = f"Measured and published, {pretty(protocol)} ({group.title}). {_about(group, used)}"
    return Table(f"published-{file_name(protocol)}", caption, rows)


def claims_table(group: RunGroup) -> Table | None:
    """Return gains over Source that papers claim, beside those of the same methods measured."""
    papers = read_paper("elsewhere")
    rows: list[dict[str, str | Cell]] = [
        {"method": claim["method"], "claimed in": claim["source"]} for claim in papers["claims"]
    ]
    places = sorted(enumerate(papers["settings"]), key=lambda place: place[1]["protocol"])
    used = [
        p for p in places if p[1]["data"] in _data_sets(group) and _usable(group, p[1]["protocol"])
    ]
    for place, setting in used:
        protocol = setting["protocol"]
        gains = group.gain(protocol)
        for claim, row in zip(papers["claims"], rows, strict=True):
            row[f"measured here, {pretty(protocol)}"] = mean_cell(
                gains.get(claim["method"], ()), part="gain"
            )
            claimed = Cell(((claim["gains"][place], NAN),), ("gain",), published=True)
            row[f"published, {TITLES[setting['data']]}, {pretty(protocol)}"] = claimed
    same = group.runs[0].config.data.get("name") in TITLES
    caption = (
        "Gains over Source that papers claim, in points, each over its own Source, at severity 5 "
        f"and with a reset at each domain ({group.title}). {ALIKE if same else UNLIKE}"
    )
    return Table("claims", caption, rows) if used else None


def _about(group: RunGroup, used: Sequence[PublishedRow]) -> str:
    """Say where the published numbers are from, and how that measurement differs."""
    paper, data = read_paper("dasp"), group.runs[0].config.data
    numbers = ", ".join(dict.fromkeys(str(row.table) for row in used))
    words = [f"Published: {paper['source']}, table {numbers}, batch {paper['batch_size']}."]
    words += [
        f"The average that table {row.table} prints for {row.name} is not that of its columns."
        for row in used
        if row.misprint
    ]
    clips = paper["clips"].get(data.get("name"))
    if clips is None:
        return " ".join([*words, UNLIKE])
    words += [f"Published on all {clips:,} clips."] if data.get("samples") != clips else []
    made = [name for name in ("frost", "noise") if data.get(name) not in (None, "recorded")]
    words += [f"Not the published recordings here: {', '.join(made)}."] if made else []
    return " ".join([*words, ALIKE])
