"""Our figures beside the published ones, in columns that say which is which."""

from collections.abc import Sequence

from dasp.data.sets import SPECS
from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import Group, mean_std
from dasp.report.published.load import claims
from dasp.report.published.match import (
    TITLES,
    Found,
    data_sets,
    find,
    same_data,
    tables_for,
    usable,
)
from dasp.report.tables import Values, accuracies, domain_accuracies, pretty

BOTH: tuple[str, ...] = ("accuracy", "gain")
UNLIKE = (
    "The data differ from the published ones, so only gains over Source stand side by side, and "
    "even these say no more than whether the methods behave alike."
)
ALIKE = (
    "Source differs between papers on these data, as published corruptions were drawn without a "
    "seed: compare gains before accuracies."
)


def published_table(group: Group, protocol: str) -> Table | None:
    """Measured and published accuracy and gain over Source of each method, and the difference.

    Gains alone where the data are not the published ones; None where nothing was published of
    these methods for this protocol and severity, or where the stream leaves out corruptions.
    """
    labels = [label for label in group.labels if group.of(label, protocol)]
    sets = {name: tables_for(group, protocol, name) for name in data_sets(group)}
    sets = {name: tables for name, tables in sets.items() if tables}
    names, columns = BOTH, [Column("method"), Column("measured here", BOTH)]
    if not same_data(group):  # the gain by itself, level with the published ones
        names = BOTH[1:]
        columns[1:] = [Column("accuracy here", BOTH[:1]), Column("gain here", names)]
    for name in sets:
        columns.append(Column(TITLES[name], names, published=True))
        columns.append(Column(f"here − {TITLES[name]}", names))
    rows, used = [], []
    for label in labels:
        measured = _measured(group, label, protocol)
        own = (measured,) if names == BOTH else (measured[:1], measured[1:])
        cells = [Cell(label), *(Cell(quantities=part) for part in own)]
        for tables in sets.values():
            found = find(tables, label, group.of(label, protocol)[0])
            used += [found] if found is not None else []
            told = _told(found)
            cells.append(Cell(quantities=told[-len(names) :]))
            cells.append(Cell(quantities=_differences(measured, told)[-len(names) :]))
        rows.append(tuple(cells))
    if not used:
        return None
    caption = f"Measured and published, {pretty(protocol)} ({group.title}). {_about(group, used)}"
    return Table(f"published-{protocol.replace('/', '-')}", caption, tuple(columns), tuple(rows))


def published_domains_table(group: Group, protocol: str) -> Table | None:
    """Measured minus published accuracy and gain in each domain, on the published data alone."""
    tables = tables_for(group, protocol, group.runs[0].data.get("name", ""))
    source = group.of(group.source_label, protocol) if group.source_label is not None else []
    base = domain_accuracies(source)
    columns: dict[str, dict[str, Cell]] = {}
    used = []
    for label in group.labels:
        runs = group.of(label, protocol)
        found = find(tables, label, runs[0]) if runs else None
        if found is None or not found[1].domains:
            continue
        used.append(found)
        columns[label] = {
            name: Cell(quantities=_domain_differences(values, base.get(name, {}), name, found))
            for name, values in domain_accuracies(runs).items()
        }
    if not columns:
        return None
    names = list(dict.fromkeys(name for cells in columns.values() for name in cells))
    nothing = Cell(quantities=(Quantity(None), Quantity(None)))
    return Table(
        f"published-by-corruption-{protocol.replace('/', '-')}",
        f"Measured minus published by domain, {pretty(protocol)} ({group.title}): accuracy, and "
        f"below it gain over Source, in points. {_about(group, used)}",
        (Column("domain"), *(Column(f"{label}, here − published", BOTH) for label in columns)),
        tuple(
            (Cell(name), *(cells.get(name, nothing) for cells in columns.values()))
            for name in names
        ),
    )


def claims_table(group: Group) -> Table | None:
    """Gains over Source that papers claim, beside the gains of the same methods measured here."""
    settings = dict.fromkeys(setting for claim in claims() for setting in claim.gains)
    settings = {place: None for place in settings if place[0] in data_sets(group)}
    protocols = [p for p in dict.fromkeys(p for _, p in settings) if usable(group, p, 5)]
    if not protocols:
        return None
    columns = [Column("method"), Column("claimed in")]
    for protocol in protocols:
        columns.append(Column(f"measured here, {pretty(protocol)}", ("gain",)))
        columns += [
            Column(f"{TITLES[data]}, {pretty(protocol)}", ("gain",), published=True)
            for data, name in settings
            if name == protocol
        ]
    rows = []
    for claim in claims():
        cells = [Cell(claim.method), Cell(claim.source)]
        for protocol in protocols:
            cells.append(Cell(quantities=_measured(group, claim.method, protocol)[1:]))
            cells += [
                Cell(quantities=(Quantity(claim.gains[place], signed=True),))
                for place in settings
                if place[1] == protocol
            ]
        rows.append(tuple(cells))
    caption = (
        f"Gains over Source that papers claim, in points, each over its own Source, at severity 5 "
        f"and with a reset at each domain ({group.title}). {ALIKE if same_data(group) else UNLIKE}"
    )
    return Table("claims", caption, tuple(columns), tuple(rows))


def _measured(group: Group, label: str, protocol: str) -> tuple[Quantity, Quantity]:
    """Return accuracy and paired gain over Source, over replicates."""
    mine = accuracies(group, label, protocol)
    source = group.source_label
    base = accuracies(group, source, protocol) if source not in (None, label) else {}
    gains = [mine[key] - base[key] for key in mine if key in base]
    return Quantity(*mean_std(mine.values())), Quantity(*mean_std(gains), signed=True)


def _told(found: Found | None) -> tuple[Quantity, Quantity]:
    if found is None:
        return Quantity(None), Quantity(None)
    table, row = found
    return Quantity(row.average), Quantity(table.gain(row.name), signed=True)


def _differences(measured: Sequence[Quantity], told: Sequence[Quantity]) -> tuple[Quantity, ...]:
    return tuple(
        Quantity(_minus(mine.value, theirs.value), signed=True)
        for mine, theirs in zip(measured, told, strict=True)
    )


def _minus(mine: float | None, theirs: float | None) -> float | None:
    return None if mine is None or theirs is None else mine - theirs


def _domain_differences(
    values: Values, base: Values, name: str, found: Found
) -> tuple[Quantity, Quantity]:
    table, row = found
    domain = name.rsplit("/", 1)[0]
    theirs, source = row.domains.get(domain), table.base.domains.get(domain)
    gains = [] if row is table.base else [values[key] - base[key] for key in values if key in base]
    return (
        Quantity(_minus(mean_std(values.values())[0], theirs), signed=True),
        Quantity(_minus(mean_std(gains)[0], _minus(theirs, source)), signed=True),
    )


def _about(group: Group, used: Sequence[Found]) -> str:
    """Say where the published figures are from, and what makes them another measurement."""
    first = used[0][0]
    numbers = ", ".join(dict.fromkeys(str(table.number) for table, _ in used))
    words = [f"Published: {first.source}, table {numbers}, batch {first.batch_size}."]
    words += [
        f"The average that table {table.number} prints for {row.name} is not that of its columns."
        for table, row in used
        if row.name in table.misprints
    ]
    if not same_data(group):
        return " ".join([*words, UNLIKE])
    data = group.runs[0].data
    clips = SPECS[str(data["name"])].clips
    words += [f"Published on all {clips:,} clips."] if data.get("samples") != clips else []
    grown = [name for name in ("frost", "noise") if data.get(name) not in (None, "recorded")]
    words += [f"Not the published recordings here: {', '.join(grown)}."] if grown else []
    return " ".join([*words, ALIKE])
