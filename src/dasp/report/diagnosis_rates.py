"""The diagnosis by stream: is all that is damaged named, and nothing that is well?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.judged import labels_of, streams_of
from dasp.report.runs import Run
from dasp.report.sections import Section


@dataclass(frozen=True)
class Rates:
    """Counts of diagnosed batches, over runs."""

    damaged: int = 0  # something that came was damaged
    hit: int = 0  # of these: all of it was flagged
    mixed: int = 0  # of the damaged: something else came undamaged
    wrong: int = 0  # of these: some of that was flagged
    clean: int = 0  # all that came was undamaged
    quiet: int = 0  # of these: nothing was flagged

    def __add__(self, other: "Rates") -> "Rates":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Rates(*(mine + theirs for mine, theirs in pairs))


def rates(runs: Iterable[Run]) -> Rates:
    """Count the diagnosed batches of runs; a modality that is missing is neither hit nor wrong."""
    total = Rates()
    for run in runs:
        known = set(run.batches.scores or ())
        for domain in run.domains:
            damaged = set(domain.damaged.split("+")) if domain.damaged is not None else set()
            healthy = known - damaged - domain.absent
            for batch in range(domain.first_batch, domain.first_batch + domain.batches):
                named = run.batches.biased[batch] if run.batches.biased is not None else None
                if named is not None:
                    total += _judge(set(named), damaged, healthy)
    return total


def _judge(named: set[str], damaged: set[str], healthy: set[str]) -> Rates:
    if not damaged:
        return Rates(clean=1, quiet=int(not named))
    return Rates(
        damaged=1,
        hit=int(damaged <= named),
        mixed=int(bool(healthy)),
        wrong=int(bool(named & healthy)),
    )


def rates_table(section: Section) -> Table:
    """Shares of hits, of false names and of clean batches left alone: a row a stream and method."""
    rows = []
    for stream in streams_of(section.groups):
        for label in labels_of([stream]):
            found = rates(stream.runs(label))
            if found != Rates():
                rows.append((Cell(stream.name), Cell(label), *_cells(found)))
    return Table(
        "diagnosis-by-stream",
        "Diagnosis by stream, over batches of all runs, shares in %. Hit: every damaged modality "
        "was flagged, of the damaged batches. Healthy flagged: of the damaged batches in which "
        "something undamaged came too (–: there is none). Left alone: nothing was flagged, of "
        "the clean batches. A missing modality is neither damaged nor healthy, a constant one is "
        "damaged; batches of several domains are not judged.",
        (
            Column("stream"),
            Column("method"),
            Column("damaged", ("batches",)),
            Column("hit", ("share",)),
            Column("healthy flagged", ("share",)),
            Column("clean", ("batches",)),
            Column("left alone", ("share",)),
        ),
        tuple(rows),
    )


def _cells(found: Rates) -> Sequence[Cell]:
    def share(part: int, whole: int) -> Cell:
        return Cell(quantities=(Quantity(100 * part / whole if whole else None),))

    return [
        Cell(quantities=(Quantity(found.damaged, digits=0),)),
        share(found.hit, found.damaged),
        share(found.wrong, found.mixed),
        Cell(quantities=(Quantity(found.clean, digits=0),)),
        share(found.quiet, found.clean),
    ]
