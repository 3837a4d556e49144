"""What the figures draw along a stream: accuracy batch by batch, and where domains begin."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from dasp.report.groups import Group
from dasp.report.runs import Run


def domain_starts(run: Run) -> tuple[tuple[str, int, int], ...]:
    """Return what must be equal for two streams to be averaged batch by batch."""
    return tuple((domain.name, domain.first_batch, domain.batches) for domain in run.domains)


def stops(run: Run) -> list[tuple[str, int, int]]:
    """Return (name fit for an axis, first batch, batches) of each stop of a stream.

    A domain is one, and so are all domains whose samples lie side by side.
    """
    found = []
    for first, here in groupby(run.domains, key=lambda domain: domain.first_batch):
        domain, *others = here
        if others:
            found.append(("mixed", first, len(run.batches.right) - first))
        else:
            signs = "".join(word[0].upper() for word in (domain.damaged or "").split("+") if word)
            found.append((f"{signs} {domain.short}".strip(), first, domain.batches))
    return found


def alike(runs: Sequence[Run], first: Run) -> list[Run]:
    """Return the runs whose stream has the same domains at the same places as `first`."""
    return [run for run in runs if domain_starts(run) == domain_starts(first)]


def accuracy_curve(runs: Sequence[Run], window: int) -> list[float]:
    """Return the accuracy in % over the last `window` batches, samples of all runs pooled.

    The window never reaches back beyond the start of the stream.
    """
    right = [sum(counts) for counts in zip(*(run.batches.right for run in runs), strict=True)]
    seen = [sum(counts) for counts in zip(*(run.batches.seen for run in runs), strict=True)]
    curve = []
    for end in range(1, len(right) + 1):
        start = max(0, end - window)
        curve.append(100 * sum(right[start:end]) / max(1, sum(seen[start:end])))
    return curve


def gain_curve(runs: Sequence[Run], source: Sequence[Run]) -> list[float]:
    """Return the accuracy since the start minus that of Source, in points, batch by batch."""
    length = len(runs[0].batches.right)
    mine, theirs = accuracy_curve(runs, length), accuracy_curve(source, length)
    return [a - b for a, b in zip(mine, theirs, strict=True)]


def paired_source(group: Group, runs: Sequence[Run], first: Run) -> tuple[list[Run], list[Run]]:
    """Return those of `runs` whose Source run on the same model and seed exists, and those."""
    if group.source_label is None:
        return [], []
    found = alike(group.of(group.source_label, first.protocol), first)
    base = {run.replicate: run for run in found}
    mine = [run for run in runs if run.replicate in base]
    return mine, [base[run.replicate] for run in mine]


def usual_window(run: Run) -> int:
    """Return half of a usual domain, in batches, at least one."""
    lengths = sorted(batches for _, _, batches in stops(run))
    return max(1, lengths[len(lengths) // 2] // 2)


def spans(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Give (start, end) of each run of true values.

    >>> list(spans([False, True, True, False, True]))
    [(1, 3), (4, 5)]
    """
    for value, entries in groupby(enumerate(flags), key=lambda entry: entry[1]):
        places = [place for place, _ in entries]
        if value:
            yield places[0], places[-1] + 1
