"""The tables of a report. Each is made from one group: one data set, batch size and severity."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import Group, mean_std
from dasp.report.runs import Run

Replicate = tuple[str, str, int]
Values = dict[Replicate, float]
"""A number of each replicate."""


def pretty(protocol: str) -> str:
    """Return the name of a protocol for a heading.

    >>> pretty("per_domain/video")
    'per-domain video'
    """
    return protocol.replace("_", "-").replace("/", " ")


def main_table(group: Group) -> Table:
    """Accuracy and gain over Source of each method in each protocol, and their average."""
    names = [*group.protocols, *(["average"] if len(group.shifted) > 1 else [])]
    columns = [_column_cells(group, name) for name in names]
    counts = [
        [len(group.of(label, protocol)) for protocol in group.protocols] for label in group.labels
    ]
    rows = []
    for place, label in enumerate(group.labels):
        few, many = min(counts[place]), max(counts[place])
        runs = Cell(str(many) if few == many else f"{few}–{many}")
        rows.append((Cell(label), *(column[place] for column in columns), runs))
    return Table(
        "main",
        f"Accuracy in %, and gain over Source in points ({group.title})",
        (
            Column("method"),
            *(Column(pretty(name), ("accuracy", "gain")) for name in names),
            Column("n"),
        ),
        tuple(rows),
    )


def accuracies(group: Group, label: str, protocol: str) -> Values:
    """Return the accuracy of each replicate; "average" is over all shifted protocols.

    A replicate that lacks a protocol has no average.
    """
    if protocol != "average":
        return {run.replicate: run.accuracy for run in group.of(label, protocol)}
    each = [accuracies(group, label, name) for name in group.shifted]
    whole = set.intersection(*(set(values) for values in each))
    return {key: sum(values[key] for values in each) / len(each) for key in sorted(whole)}


def paired_gains(group: Group, protocol: str) -> dict[str, list[float]]:
    """Return the gains over Source of each other label, on the same models and seeds."""
    if group.source_label is None:
        return {}
    base = accuracies(group, group.source_label, protocol)
    rivals = {
        label: accuracies(group, label, protocol)
        for label in group.labels
        if label != group.source_label
    }
    return {
        label: [value - base[key] for key, value in values.items() if key in base]
        for label, values in rivals.items()
    }


def _column_cells(group: Group, protocol: str) -> list[Cell]:
    """Return the cells of one protocol, one a label."""
    each = {label: accuracies(group, label, protocol) for label in group.labels}
    return _compare(each, group.source_label)


def _compare(each: dict[str, Values], source: str | None) -> list[Cell]:
    """Return a cell a label: accuracy, paired gain over Source, best and worse marked.

    Only labels with as many replicates as the fullest one can be best.
    """
    base = each.get(source, {}) if source is not None else {}
    cells = []
    for label, values in each.items():
        gains = [] if label == source else [values[k] - base[k] for k in values if k in base]
        gain = Quantity(*mean_std(gains), signed=True)
        worse = gain.rounded is not None and gain.rounded < 0
        cells.append(Cell(quantities=(Quantity(*mean_std(values.values())), gain), worse=worse))
    fullest = max(len(values) for values in each.values())
    rivals = [len(values) == fullest > 0 for values in each.values()]
    return _mark_best(cells, rivals)


def _mark_best(cells: Sequence[Cell], rivals: Sequence[bool]) -> list[Cell]:
    shown = [
        cell.quantities[0].rounded if able else None
        for cell, able in zip(cells, rivals, strict=True)
    ]
    top = max((value for value in shown if value is not None), default=None)
    return [
        replace(cell, best=value is not None and value == top)
        for cell, value in zip(cells, shown, strict=True)
    ]


def domain_accuracies(runs: Iterable[Run]) -> dict[str, Values]:
    """Return the accuracy in each domain, in order of appearance, of each replicate."""
    found: dict[str, Values] = {}
    for run in runs:
        right: Counter[str] = Counter()
        seen: Counter[str] = Counter()
        for domain in run.domains:
            right[domain.name] += domain.right
            seen[domain.name] += domain.seen
        for name in seen:
            if seen[name]:
                found.setdefault(name, {})[run.replicate] = 100 * right[name] / seen[name]
    return found


def corruption_table(group: Group, protocol: str) -> Table:
    """Accuracy of each method in each domain of one protocol."""
    labels = [label for label in group.labels if group.of(label, protocol)]
    each = {label: domain_accuracies(group.of(label, protocol)) for label in labels}
    names = dict.fromkeys(name for found in each.values() for name in found)
    rows = []
    for name in names:
        cells = _compare({label: each[label].get(name, {}) for label in labels}, group.source_label)
        rows.append((Cell(name), *(replace(c, quantities=c.quantities[:1]) for c in cells)))
    return Table(
        f"by-corruption-{protocol.replace('/', '-')}",
        f"Accuracy in % by domain, {pretty(protocol)} ({group.title})",
        (Column("domain"), *(Column(label, ("accuracy",)) for label in labels)),
        tuple(rows),
    )


def diagnosis_table(group: Group) -> Table:
    """How often a method's diagnosis names the damaged modality, over batches of all replicates.

    "wrong" counts every batch where another set than exactly the damaged modality was named.
    """
    modalities = sorted(
        {d.damaged for run in group.runs for d in run.domains if d.damaged is not None}
    )
    rows = []
    for label in group.labels:
        for protocol in group.protocols:
            counts = diagnosis_counts(group.of(label, protocol))
            if counts:
                rows.append((Cell(label), Cell(pretty(protocol)), *_hits(counts, modalities)))
    return Table(
        "diagnosis",
        f"Diagnosis: numbers of damaged and clean batches, shares in % ({group.title})",
        (
            Column("method"),
            Column("protocol"),
            Column("damaged", ("batches",)),
            *(Column(name, ("share",)) for name in ("right", "wrong", "nothing")),
            *(Column(f"{name} right", ("share",)) for name in modalities),
            Column("clean", ("batches",)),
            Column("clean flagged", ("share",)),
        ),
        tuple(rows),
    )


def diagnosis_counts(runs: Iterable[Run]) -> Counter[tuple[str | None, str]]:
    """Count batches by (damaged modality or None, "right" | "wrong" | "nothing")."""
    counts: Counter[tuple[str | None, str]] = Counter()
    for run in runs:
        for domain in run.domains:
            for batch in range(domain.first_batch, domain.first_batch + domain.batches):
                named = run.batches.biased[batch] if run.batches.biased is not None else None
                if named is not None:
                    counts[domain.damaged, verdict(named, domain.damaged)] += 1
    return counts


def verdict(named: Sequence[str], damaged: str | None) -> str:
    """Judge one diagnosis; naming nothing on clean data counts as "nothing"."""
    if not named:
        return "nothing"
    return "right" if damaged is not None and set(named) == set(damaged.split("+")) else "wrong"


def _hits(counts: Counter[tuple[str | None, str]], modalities: Sequence[str]) -> list[Cell]:
    """Return the figures of one row: over all damaged batches, by modality, and clean."""

    def total(damaged: Iterable[str | None], *verdicts: str) -> int:
        return sum(counts[name, word] for name in damaged for word in verdicts)

    def share(part: int, whole: int) -> Cell:
        return Cell(quantities=(Quantity(100 * part / whole if whole else None),))

    words = ("right", "wrong", "nothing")
    damaged, clean = total(modalities, *words), total([None], *words)
    return [
        Cell(quantities=(Quantity(damaged, digits=0),)),
        *(share(total(modalities, word), damaged) for word in words),
        *(share(total([name], "right"), total([name], *words)) for name in modalities),
        Cell(quantities=(Quantity(clean, digits=0),)),
        share(total([None], "right", "wrong"), clean),
    ]
