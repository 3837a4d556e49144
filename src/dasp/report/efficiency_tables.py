"""Efficiency as tables: speed, memory and parameters, and passes through the model."""

from collections.abc import Sequence

from dasp.report.efficiencies import Efficiency, ordered
from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import mean_std
from dasp.report.runs import Run


def efficiency_table(found: Sequence[Efficiency], runs: Sequence[Run]) -> Table:
    """Speed with and without loading, time beside Source, memory and parameters of each row."""
    rows = []
    for entry in ordered(found):
        speed, loaded = (
            Quantity(*mean_std(entry.speeds(with_it)), digits=0) for with_it in (False, True)
        )
        clock, processor = (Quantity(*mean_std(entry.ratios(p)), digits=2) for p in (False, True))
        share = 100 * entry.trainable / entry.total
        values = (
            Quantity(entry.accuracy(runs)),
            speed,
            loaded,
            clock,
            processor,
            Quantity(entry.over_mib),
            Quantity(entry.peak_mib, digits=0),
            Quantity(entry.trainable, digits=0),
            Quantity(share, digits=2),
        )
        cells = (Cell(quantities=(value,)) for value in values)
        rows.append((Cell(entry.label), Cell(entry.model_name), *cells))
    titles = (
        "accuracy, %", "samples/s", "with loading", "× Source", "× Source, processor",
        "MiB above start", "MiB in all", "trained", "% trained",
    )  # fmt: skip
    columns = (Column("method"), Column("model"), *(Column(t, ("value",)) for t in titles))
    return Table("efficiency", _caption(found), columns, tuple(rows))


def passes_table(found: Sequence[Efficiency]) -> Table:
    """Passes a sample by part of the model: forward without and with gradient, and backward."""
    parts = dict.fromkeys(
        (not entry.encoder, tuple(entry.modalities)) for e in found for entry in e.passes
    )
    order = sorted(parts, key=lambda part: (part[0], -len(part[1]), part[1]))
    rows = []
    for entry in ordered(found):
        cells = [_part(entry, not fusion, names) for fusion, names in order]
        rows.append((Cell(entry.label), Cell(entry.model_name), *cells))
    kinds = ("forward", "forward with gradient", "backward")
    titles = [f"{'fusion' if fusion else 'encoder'} {' + '.join(n)}" for fusion, n in order]
    return Table(
        "passes",
        "Passes a sample by part of the model: forward without a gradient, below it forward with "
        "one, and backward; a sample of which some tokens are left out counts as one",
        (Column("method"), Column("model"), *(Column(title, kinds) for title in titles)),
        tuple(rows),
    )


def _part(entry: Efficiency, encoder: bool, modalities: tuple[str, ...]) -> Cell:
    mine = [p for p in entry.passes if (p.encoder, tuple(p.modalities)) == (encoder, modalities)]
    counts = (
        sum(p.forward for p in mine if not p.gradient),
        sum(p.forward for p in mine if p.gradient),
        sum(p.backward for p in mine),
    )
    values = [count / entry.samples if mine else None for count in counts]
    return Cell(quantities=tuple(Quantity(value, digits=2) for value in values))


def _caption(found: Sequence[Efficiency]) -> str:
    machine = " or ".join(sorted({entry.machine for entry in found}))
    return (
        f"Cost from raw inputs to logits, each method in a process of its own, {machine}: "
        f"mean ± standard deviation over {len(found[0].rounds)} rounds of "
        f"{found[0].samples} samples; × Source: time over that of Source in the round before. "
        f"Loading: {found[0].measured.get('loading', 'unknown')}"
    )
