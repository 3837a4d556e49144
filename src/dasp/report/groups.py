"""Runs that may be compared with each other, and nothing else in one table.

A group holds the runs of one setting: the same data, the same number of samples, batch size and
severity. Runs of one label and protocol in it differ by model and seed alone: replicates.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dasp.report.runs import CLEAN, Result, Run, run_of

METHODS = (
    "source", "tent", "eata", "sar", "read", "abpem", "sumi", "tsa", "pta", "brimpr", "dasp",
)  # fmt: skip
PROTOCOLS = (
    "per_domain/video",
    "per_domain/audio",
    "continual/video",
    "continual/audio",
    "interleaved",
    CLEAN,
)
SOURCE = "source"


@dataclass(frozen=True)
class Group:
    """The runs of one setting."""

    runs: Sequence[Run]
    notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        """Return the setting in one line."""
        run = self.runs[0]
        data = dict(run.data)
        name, split, samples = (data.pop(key, None) for key in ("name", "split", "samples"))
        more = ", ".join(f"{key} {text(value)}" for key, value in data.items())
        words = [f"{name} ({more})" if more else str(name)]
        words += [str(split)] if split is not None else []
        words += [f"{samples} samples a domain"] if samples is not None else []
        words += [f"only {', '.join(run.corruptions)}"] if run.corruptions else []
        words += [f"batch {run.batch_size}"]
        words += [f"severity {run.severity}"] if run.severity is not None else []
        return ", ".join(words)

    @cached_property
    def labels(self) -> list[str]:
        """Return the labels, the known methods first, then the others as they appear."""
        first: dict[str, tuple[int, int]] = {}
        for place, run in enumerate(self.runs):
            name = run.label.split(" (")[0]
            rank = METHODS.index(name) if name in METHODS else len(METHODS)
            first.setdefault(run.label, (rank, place))
        return sorted(first, key=lambda label: first[label])

    @cached_property
    def protocols(self) -> list[str]:
        """Return the protocols that are present, in the order of the main table."""
        present = dict.fromkeys(run.protocol for run in self.runs)
        known = [name for name in PROTOCOLS if name in present]
        return known + [name for name in present if name not in PROTOCOLS]

    @property
    def shifted(self) -> list[str]:
        """Return the protocols that an average is over: clean data have a column, no vote."""
        return [protocol for protocol in self.protocols if protocol != CLEAN]

    @cached_property
    def source_label(self) -> str | None:
        """Return the label that gains are counted from, None if Source was not run."""
        labels = {run.label for run in self.runs if run.method == SOURCE}
        return next((label for label in self.labels if label in labels), None)

    @cached_property
    def _index(self) -> Mapping[tuple[str, str], list[Run]]:
        index: dict[tuple[str, str], list[Run]] = {}
        for run in sorted(self.runs, key=lambda run: run.replicate):
            index.setdefault((run.label, run.protocol), []).append(run)
        return index

    def of(self, label: str, protocol: str) -> list[Run]:
        """Return the replicates of one label and protocol, ordered by model and seed."""
        return self._index.get((label, protocol), [])


def mean_std(values: Iterable[float]) -> tuple[float | None, float | None]:
    """Return the mean and the sample standard deviation; None where there is none.

    >>> mean_std([1.0, 3.0])
    (2.0, 1.4142135623730951)
    >>> mean_std([1.0])
    (1.0, None)
    """
    numbers = list(values)
    if not numbers:
        return None, None
    return statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None


def text(value: Any) -> str:
    """Return an option's value as short text."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def group_results(results: Iterable[Result]) -> list[Group]:
    """Sort parsed result files into groups that may be compared."""
    return group_runs(map(run_of, results))


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Sort runs into groups that may be compared, in order of appearance and severity."""
    settings: dict[str, list[Run]] = {}
    for run in runs:
        setting = [run.data, run.batch_size, run.severity, run.corruptions]
        settings.setdefault(json.dumps(setting, sort_keys=True), []).append(run)
    groups = [_group(runs) for runs in settings.values()]
    return sorted(groups, key=lambda group: -(group.runs[0].severity or 0))


def _group(runs: Sequence[Run]) -> Group:
    """Keep one run a cell, and tell apart runs of one label whose options differ."""
    cells: dict[str, Run] = {}
    repeated: set[str] = set()
    for run in runs:
        cell = json.dumps([run.label, run.variant, run.protocol, run.replicate], sort_keys=True)
        if cell in cells:
            repeated.add(f"{run.label}, {run.protocol}, {run.replicate_name}")
        if cell not in cells or _finished(run) > _finished(cells[cell]):
            cells[cell] = run
    notes = [f"{name}: run more than once; the last one counts." for name in sorted(repeated)]
    kept = list(cells.values())
    for label in dict.fromkeys(run.label for run in kept):
        kept, note = _tell_apart(kept, label)
        notes += note
    return Group(kept, [*notes, *_doubts(kept)])


def _doubts(runs: Sequence[Run]) -> list[str]:
    """Say what a reader should know before trusting a comparison of these runs."""
    versions = {text(run.measured.get("versions", {})) for run in runs}
    doubts = ["Made by different versions: " + "; ".join(sorted(versions))] * (len(versions) > 1)
    for name in dict.fromkeys(run.label for run in runs):
        codes = {run.code for run in runs if run.label == name}
        if len(codes) > 1:
            doubts.append(f"{name}: its code changed between protocols; run it again.")
    for name in dict.fromkeys(run.replicate[0] for run in runs):
        weights = {run.replicate[1] for run in runs if run.replicate[0] == name}
        if len(weights) > 1:
            doubts.append(f"{name}: {len(weights)} different weights bear this name; all count.")
    return doubts


def _finished(run: Run) -> str:
    return str(run.measured.get("finished", ""))


def _tell_apart(runs: list[Run], label: str) -> tuple[list[Run], list[str]]:
    """Put the differing options into the label where one protocol has several of them."""
    mine = [run for run in runs if run.label == label]
    several = any(
        len({text(run.variant) for run in mine if run.protocol == protocol}) > 1
        for protocol in {run.protocol for run in mine}
    )
    if not several:
        return runs, []
    names = dict.fromkeys(name for run in mine for name in run.variant)
    differing = [n for n in names if len({text(run.variant.get(n)) for run in mine}) > 1]

    def name(run: Run) -> str:
        return f"{label} ({', '.join(f'{n}={text(run.variant.get(n))}' for n in differing)})"

    renamed = [replace(run, label=name(run)) if run.label == label else run for run in runs]
    return renamed, [f"{label} was run with several {', '.join(differing)}: shown apart."]
