"""The published figures, read from the data files beside this one and checked."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from dasp.core.errors import DataError

TOLERANCE = 0.1 + 1e-9  # of an average: its own rounding and that of its columns, .05 each
SOURCE = "source"


@dataclass(frozen=True)
class PublishedRow:
    """What one table prints of one method in one protocol, in per cent."""

    name: str
    method: str
    average: float  # as printed
    options: Mapping[str, Any] = field(default_factory=dict)
    domains: Mapping[str, float] = field(default_factory=dict)  # by "<modality>/<corruption>"


@dataclass(frozen=True)
class PublishedTable:
    """One protocol of a table of a paper, with where it stands and how it was made."""

    source: str
    number: int
    label: str
    data: str
    protocol: str
    severity: int
    batch_size: int
    rows: Mapping[str, PublishedRow]
    misprints: tuple[str, ...] = ()  # rows whose printed average is not that of their columns

    @property
    def base(self) -> PublishedRow:
        """Return the row of Source, which gains are counted from."""
        return self.rows[SOURCE]

    def gain(self, name: str) -> float | None:
        """Return the printed average minus that of Source; None for Source itself."""
        return None if name == SOURCE else round(self.rows[name].average - self.base.average, 1)


@dataclass(frozen=True)
class Claim:
    """Gains over its own Source that a paper claims, by (data set, protocol)."""

    method: str
    source: str
    severity: int
    gains: Mapping[tuple[str, str], float]


@cache
def published_tables() -> tuple[PublishedTable, ...]:
    """Return the tables of the paper of DASP, the ablation last, one a data set and protocol."""
    return (*_tables(_read("dasp.toml")), *_ablation(_read("ablation.toml")))


@cache
def claims() -> tuple[Claim, ...]:
    """Return gains that papers claim, DASP's own first."""
    content = _read("elsewhere.toml")
    settings = [(entry["data"], entry["protocol"]) for entry in content["settings"]]
    return tuple(
        Claim(
            entry["method"],
            entry["source"],
            content["severity"],
            dict(zip(settings, entry["gains"], strict=True)),
        )
        for entry in content["claims"]
    )


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / name).read_text(encoding="utf-8"))


def _tables(content: Mapping[str, Any]) -> list[PublishedTable]:
    found = []
    for entry in content["tables"]:
        columns = content["columns"][entry["protocol"].split("/")[-1]]
        place = f"table {entry['number']} ({entry['data']})"
        if entry["rows"].keys() != entry["averages"].keys():
            raise DataError(f"{place}: its rows and its averages name different methods.")
        rows = {
            name: PublishedRow(
                name, name, entry["averages"][name], domains=_columns(place, columns, values)
            )
            for name, values in entry["rows"].items()
        }
        misprints = tuple(entry.get("misprints", ()))
        for name, row in rows.items():
            _check_average(place, name, row.domains.values(), row.average, name in misprints)
        found.append(_table(content, entry, rows, misprints))
    return found


def _ablation(content: Mapping[str, Any]) -> list[PublishedTable]:
    place = f"table {content['number']}"
    each: dict[str, dict[str, PublishedRow]] = {name: {} for name in content["protocols"]}
    for entry in content["rows"]:
        values = _columns(place, content["protocols"], entry["values"])
        name, options = entry["name"], entry.get("options", {})
        _check_average(place, name, values.values(), entry["average"], False)
        for protocol, value in values.items():
            each[protocol][name] = PublishedRow(name, entry["method"], value, options)
    return [_table(content, {**content, "protocol": p}, rows) for p, rows in each.items()]


def _table(
    content: Mapping[str, Any],
    entry: Mapping[str, Any],
    rows: Mapping[str, PublishedRow],
    misprints: tuple[str, ...] = (),
) -> PublishedTable:
    return PublishedTable(
        content["source"],
        entry["number"],
        entry["label"],
        entry["data"],
        entry["protocol"],
        content["severity"],
        content["batch_size"],
        rows,
        misprints,
    )


def _columns(place: str, names: list[str], values: list[float]) -> dict[str, float]:
    if len(names) != len(values) or not all(0 <= value <= 100 for value in values):
        raise DataError(f"{place}: {len(values)} values for {len(names)} columns, or no per cents.")
    return dict(zip(names, values, strict=True))


def _check_average(place: str, name: str, values: Any, average: float, misprint: bool) -> None:
    """Refuse an average that its columns contradict, unless the paper itself prints it so."""
    gap = abs(sum(values) / len(values) - average)
    if (gap > TOLERANCE) != misprint:
        verb = "is" if misprint else "is not"
        raise DataError(f"{place}, {name}: the average {average} {verb} that of its columns.")
