"""What each method costs."""

from collections.abc import Callable, Iterable

from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import Group, mean_std
from dasp.report.runs import Run


def cost_table(group: Group) -> Table:
    """Seconds a batch, their ratio to Source on the same cell, and updates of each method.

    Means over all runs; times compare only where one machine made them, undisturbed.
    """
    source = [run for run in group.runs if run.label == group.source_label]
    base = {(run.protocol, run.replicate): seconds_a_batch(run) for run in source}
    rows = []
    for label in group.labels:
        runs = [run for run in group.runs if run.label == label]
        pairs = [(seconds_a_batch(run), base.get((run.protocol, run.replicate))) for run in runs]
        ratios = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
        updated = [100 * run.updates / len(run.batches.right) for run in runs]
        rows.append(
            (
                Cell(label),
                _mean(runs, lambda run: _times(seconds_a_batch(run), 1000)),
                Cell(quantities=(Quantity(*mean_std(ratios), digits=2),)),
                _mean(runs, lambda run: run.measured.get("samples_per_second"), 0),
                Cell(quantities=(Quantity(*mean_std(updated)),)),
                Cell(quantities=(Quantity(sum(run.rejections for run in runs), digits=0),)),
            )
        )
    titles = ("ms a batch", "× Source", "samples/s", "% updated", "rejected")
    return Table(
        "cost",
        "What the runs took, several at once and on tokens encoded before: no measure of a "
        f"method's cost, which the plan paper/efficiency takes. Mean over all runs ({group.title})",
        (Column("method"), *(Column(title, ("value",)) for title in titles)),
        tuple(rows),
    )


def seconds_a_batch(run: Run) -> float | None:
    """Return the seconds that adapting to one batch took, loading left out; None if unknown."""
    seconds: dict[str, float] = run.measured.get("seconds", {})
    if "adapt" not in seconds:
        return None
    # Where the encoders are tuned, their passes are told apart.
    return (seconds["adapt"] + seconds.get("encode", 0.0)) / len(run.batches.right)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _mean(runs: Iterable[Run], get: Callable[[Run], float | None], digits: int = 1) -> Cell:
    values = [value for value in map(get, runs) if value is not None]
    return Cell(quantities=(Quantity(*mean_std(values), digits=digits),))
