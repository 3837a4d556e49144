"""Clean stretches: does a method leave alone what is not broken, and does it say so?"""

from collections import Counter
from collections.abc import Sequence

from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import mean_std
from dasp.report.judged import Stream, labels_of, ours, streams_of
from dasp.report.parts import Part, known
from dasp.report.runs import CLEAN, Run
from dasp.report.sections import Section
from dasp.report.tables import Values, diagnosis_counts

NEAR = 0.2  # points below Source that clean data may cost
FEW = 2.0  # per cent of clean batches that may be flagged
BATCH = 64  # the size of a batch that `FEW` is asked of


def stretches(section: Section) -> list[Part]:
    """Return how each method does on clean visits; nothing if a section has none."""
    return [Part("Clean stretches", known([stretches_table(_clean_streams(section))]))]


def stretches_table(streams: Sequence[Stream]) -> Table:
    """Accuracy on clean visits beside Source's on the same ones, and clean batches flagged."""
    rows = []
    for stream in streams:
        for label in stream.group.labels:
            if label == stream.group.source_label or not stream.runs(label):
                continue
            own = clean_accuracies(stream.runs(label)).values()
            gap = clean_gap(stream, label)
            count, share = clean_flagged(stream.runs(label))
            rows.append(
                (
                    Cell(stream.name),
                    Cell(label),
                    Cell(quantities=(Quantity(*mean_std(own), digits=2),)),
                    Cell(quantities=(gap,), worse=_too_far(stream, label)),
                    Cell(quantities=(Quantity(count, digits=0),)),
                    Cell(quantities=(Quantity(share),), worse=_too_many(stream, label)),
                )
            )
    return Table(
        "stretches",
        "Clean visits of each stream: accuracy in %, difference to Source on the same visits in "
        "points (paired: the same models and seeds), clean batches of all runs, and the share of "
        f"them in % in which a modality was flagged. ▼ and red: more than {NEAR} points below "
        f"Source; {FEW:g} % or more flagged in batches of {BATCH}.",
        (
            Column("stream"),
            Column("method"),
            Column("on clean visits", ("accuracy",)),
            Column("against Source", ("difference",)),
            Column("clean", ("batches",)),
            Column("flagged", ("share",)),
        ),
        tuple(rows),
    )


def stretches_verdicts(section: Section) -> list[str]:
    """Return a sentence on clean visits: holds or fails, for each row of DASP."""
    streams = _clean_streams(section)
    found = []
    for label in ours(streams):
        mine = [stream for stream in streams if clean_gap(stream, label).value is not None]
        bad = [stream for stream in mine if _too_far(stream, label) or _too_many(stream, label)]
        word = "fails" if bad else "holds"
        found.append(f"{label} {word} ({'; '.join(_told(s, label) for s in bad or mine)})")
    return [f"Clean visits: {', '.join(found)}."] if found else []


def _told(stream: Stream, label: str) -> str:
    _, share = clean_flagged(stream.runs(label))
    flagged = "" if share is None else f", {share:.1f} % flagged"
    return f"{stream.name} {clean_gap(stream, label).text}{flagged}"


def _too_far(stream: Stream, label: str) -> bool:
    gap = clean_gap(stream, label).value
    return gap is not None and gap < -NEAR


def _too_many(stream: Stream, label: str) -> bool:
    _, share = clean_flagged(stream.runs(label))
    return share is not None and share >= FEW and stream.group.runs[0].batch_size == BATCH


def clean_accuracies(runs: Sequence[Run]) -> Values:
    """Return the accuracy of each replicate over all clean visits of its stream."""
    found: Values = {}
    for run in runs:
        counts: Counter[str] = Counter()
        for domain in (domain for domain in run.domains if domain.name == CLEAN):
            counts += Counter(right=domain.right, seen=domain.seen)
        if counts["seen"]:
            found[run.replicate] = 100 * counts["right"] / counts["seen"]
    return found


def clean_gap(stream: Stream, label: str) -> Quantity:
    """Return the accuracy on clean visits minus that of Source, and its spread."""
    source = stream.group.source_label
    base = clean_accuracies(stream.runs(source)) if source is not None else {}
    mine = clean_accuracies(stream.runs(label))
    gaps = [value - base[key] for key, value in mine.items() if key in base]
    return Quantity(*mean_std(gaps), digits=2, signed=True)


def clean_flagged(runs: Sequence[Run]) -> tuple[int | None, float | None]:
    """Return how many clean batches were diagnosed, and the per cent of them that were flagged."""
    counts = diagnosis_counts(runs)
    own = {word: counts[None, word] for word in ("right", "wrong", "nothing")}
    whole = sum(own.values())
    return (whole, 100 * (whole - own["nothing"]) / whole) if whole else (None, None)


def _clean_streams(section: Section) -> list[Stream]:
    """Return the streams with visits where nothing is wrong and every batch is clean."""
    return [
        stream
        for stream in streams_of(section.groups)
        if any(
            domain.name == CLEAN and domain.batches
            for label in labels_of([stream])
            for run in stream.runs(label)
            for domain in run.domains
        )
    ]
