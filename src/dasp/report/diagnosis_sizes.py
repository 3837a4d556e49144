"""The diagnosis of small batches, beside that of the same samples in large ones."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import Group, text
from dasp.report.judged import ours, streams_of
from dasp.report.runs import DomainCount, Run
from dasp.report.sections import Section
from dasp.report.tables import pretty, verdict

LARGE = 64
ENOUGH = 90.0  # per cent of the small batches where the large one is right
REORDERED = ("dirichlet",)  # the order of samples depends on the size of a batch

Counts = tuple[int, int]
"""How many of how many."""


def sizes_table(section: Section) -> Table | None:
    """How often the diagnosis is right by the size of a batch; None without batches of 64."""
    found = _by_row(section.runs)
    sizes = sorted({size for runs in found.values() for size in runs if size <= LARGE})
    if len(sizes) < 2:
        return None
    rows = []
    for (label, protocol), runs in found.items():
        cells = [_cell(runs, size) for size in sizes]
        rows.append((Cell(label), Cell(pretty(protocol)), *cells))
    return Table(
        "diagnosis-by-batch-size",
        "Diagnosis by the size of a batch, over batches of all runs, in %. Above: batches in which "
        "exactly what is damaged was flagged (on clean data: nothing). Below: the same share of "
        f"only those small batches whose samples lie in a batch of {LARGE} that the same method "
        "diagnosed rightly, with the same model and seed; samples come in the same order "
        f"whatever the size, so these are the same samples. ▼ and red: below {ENOUGH:g} %.",
        (
            Column("method"),
            Column("protocol"),
            *(Column(f"batch {size}", ("right", f"right where {LARGE} is")) for size in sizes),
        ),
        tuple(rows),
    )


def sizes_verdicts(section: Section) -> list[str]:
    """Return a sentence on the smallest batches, for each row of DASP."""
    mine = ours([s for s in streams_of(section.groups) if s.group.source_label is not None])
    words = []
    for (label, protocol), runs in _by_row(section.runs).items():
        smallest = min(runs)
        share = _share(_kept(runs, smallest))
        if label in mine and smallest < LARGE and share is not None:
            word = "fails" if share < ENOUGH else "holds"
            words.append(f"{label} {word} ({share:.1f} %, {pretty(protocol)}, batch {smallest})")
    if not words:
        return []
    return [f"Diagnosis of small batches where batch {LARGE} is right: {', '.join(words)}."]


def kept(small: Run, large: Run) -> Counts:
    """Return how many small batches are right, of those that lie in a large batch that is right.

    (0, 0) where the two streams do not have the same domains and samples.
    """
    shape = [(domain.name, domain.seen) for domain in small.domains]
    if shape != [(domain.name, domain.seen) for domain in large.domains]:
        return 0, 0
    right = total = 0
    for mine, theirs in zip(small.domains, large.domains, strict=True):
        starts, good = _judged(large, theirs)
        for start, own in zip(*_judged(small, mine), strict=True):
            if good[bisect_right(starts, start) - 1]:
                right, total = right + own, total + 1
    return right, total


def _judged(run: Run, domain: DomainCount) -> tuple[list[int], list[bool]]:
    """Return, for each batch of a domain, its first sample and whether its diagnosis is right."""
    here = slice(domain.first_batch, domain.first_batch + domain.batches)
    starts = [0, *accumulate(run.batches.seen[here])][:-1]
    named = (run.batches.biased or ())[here]
    wanted = "right" if domain.damaged is not None else "nothing"
    return starts, [n is not None and verdict(n, domain.damaged) == wanted for n in named]


def _by_row(runs: Sequence[Run]) -> dict[tuple[str, str], dict[int, list[Run]]]:
    """Return {(label, protocol): {batch size: runs}} of what diagnoses, with batches of 64."""
    found: dict[tuple[str, str], dict[int, list[Run]]] = {}
    for label in Group(runs).labels:
        for run in (run for run in runs if run.label == label):
            if run.batches.biased is not None and run.protocol not in REORDERED:
                row = found.setdefault((label, run.protocol), {})
                row.setdefault(run.batch_size, []).append(run)
    return {row: sizes for row, sizes in found.items() if LARGE in sizes and len(sizes) > 1}


def _kept(runs: Mapping[int, Sequence[Run]], size: int) -> Counts:
    large = {_stream(run): run for run in runs[LARGE]}
    pairs = [(run, large[_stream(run)]) for run in runs.get(size, ()) if _stream(run) in large]
    counts = [kept(*pair) for pair in pairs]
    return sum(right for right, _ in counts), sum(total for _, total in counts)


def _stream(run: Run) -> str:
    """Return what two runs share if they see the same samples in the same order."""
    return text([run.replicate, run.data, run.severity, list(run.corruptions)])


def _right(runs: Sequence[Run]) -> Counts:
    flags = [flag for run in runs for domain in run.domains for flag in _judged(run, domain)[1]]
    return sum(flags), len(flags)


def _cell(runs: Mapping[int, Sequence[Run]], size: int) -> Cell:
    """Return the shares of one size; the large batches need not be compared with themselves."""
    whole = _share(_right(runs.get(size, ())))
    among = _share(_kept(runs, size)) if size != LARGE else None
    return Cell(
        quantities=(Quantity(whole), Quantity(among)), worse=among is not None and among < ENOUGH
    )


def _share(counts: Counts) -> float | None:
    return 100 * counts[0] / counts[1] if counts[1] else None
