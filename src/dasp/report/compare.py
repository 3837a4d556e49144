"""Runs that may be compared, and what is compared of them.

A `RunGroup` holds the runs of one setting: the same data, samples, batch size and severity. Runs of
one label and protocol in it differ by source model and seed alone: they are replicates,
and only they are averaged. A gain over Source is paired: the same model and seed.

The paired comparison goes sample by sample. A sample appears in every domain and before every
source model; it is resampled together with all of its appearances, so what these have in common
counts once. The interval says how far another draw of test samples might move a difference, for
these source models and for streams as they ran. It does not cover other source models: there are
few, so their spread is given as ±, and a method is called better only if the models agree.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dasp.bench.results import Counts, DomainCount, Result, RunConfig
from dasp.core.errors import InputError
from dasp.report.frame import CLEAN, data_text, text

SOURCE, AVERAGE = "source", "average"
LEVEL = 0.95
_REACH = 12.0  # standard deviations on each side; the weight of what lies beyond is negligible
_ROUNDING = 1e-9

Replicate = tuple[str, str, int]
"""Name and digest of the source model, and the seed."""


def pretty(protocol: str) -> str:
    """Return the name of a protocol for a heading.

    >>> pretty("per_domain/video")
    'per-domain video'
    """
    return protocol.replace("_", "-").replace("/", " ")


@dataclass(frozen=True)
class PlanRun:
    """A run under the label that a plan gives it."""

    label: str
    protocol: str
    key: str
    result: Result = field(repr=False)

    @property
    def config(self) -> RunConfig:
        """Return its settings."""
        return self.result.run

    @property
    def counts(self) -> Counts:
        """Return what was counted; runs without counts never become a `PlanRun`."""
        assert self.result.counts is not None
        return self.result.counts

    @property
    def accuracy(self) -> float:
        """Return the percentage of all samples that were right."""
        return 100 * self.counts.right / self.counts.seen

    @property
    def replicate(self) -> Replicate:
        """Return what tells this run from the others of its label and protocol."""
        return self.config.model["name"], self.config.model["digest"], self.config.seed

    @property
    def replicate_name(self) -> str:
        """Return the replicate for readers."""
        return f"{self.config.model['name']}, seed {self.config.seed}"

    @property
    def variant(self) -> dict[str, object]:
        """Return what replicates must share: options, versions, fitting and precision."""
        config = self.config
        fit = {"fit": config.source["samples"]} if config.source.get("samples") else {}
        return {**config.options, **fit, "versions": config.versions, "tokens": config.tokens}

    def diagnosed(self) -> Iterator[tuple[DomainCount, list[str]]]:
        """Yield the domain and the modalities named of each diagnosed batch of one domain."""
        biased = self.counts.batches.biased or []
        for domain in self.counts.domains if biased else ():
            for batch in range(domain.first_batch, domain.first_batch + domain.batches):
                yield domain, biased[batch]


@dataclass(frozen=True)
class RunGroup:
    """The runs of one setting; `name` says how it differs from the other groups of its plan."""

    runs: Sequence[PlanRun]
    name: str = ""
    notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        """Return the setting in one line."""
        run = self.runs[0].config
        samples = run.data.get("samples")
        words = [data_text(run.data)]
        words += [f"{samples} samples per domain"] if samples is not None else []
        return ", ".join([*words, f"batch {run.batch_size}", f"severity {run.severity}"])

    @cached_property
    def labels(self) -> list[str]:
        """Return the labels, Source first, the others in the order of the plan."""
        source = {run.label for run in self.runs if run.config.method == SOURCE}
        return sorted(dict.fromkeys(run.label for run in self.runs), key=lambda n: n not in source)

    @cached_property
    def protocols(self) -> list[str]:
        """Return the protocols, in the order of the plan."""
        return list(dict.fromkeys(run.protocol for run in self.runs))

    @property
    def shifted(self) -> list[str]:
        """Return the protocols that an average is over: clean data are left out of it."""
        return [protocol for protocol in self.protocols if protocol != CLEAN]

    @property
    def columns(self) -> list[str]:
        """Return the protocols, and "average" if it is over more than one."""
        return [*self.protocols, *([AVERAGE] if len(self.shifted) > 1 else [])]

    @property
    def telling(self) -> str:
        """Return the protocol that shows most: interleaved, otherwise the last one."""
        return "interleaved" if "interleaved" in self.protocols else self.protocols[-1]

    @cached_property
    def source(self) -> str | None:
        """Return the label that gains are counted from, None if Source was not run."""
        methods = {run.label: run.config.method for run in self.runs}
        return next((label for label in self.labels if methods[label] == SOURCE), None)

    @cached_property
    def _index(self) -> Mapping[tuple[str, str], list[PlanRun]]:
        index: dict[tuple[str, str], list[PlanRun]] = {}
        for run in sorted(self.runs, key=lambda run: run.replicate):
            index.setdefault((run.label, run.protocol), []).append(run)
        return index

    def of(self, label: str | None, protocol: str) -> list[PlanRun]:
        """Return the replicates of one label and protocol, ordered by model and seed."""
        return [] if label is None else self._index.get((label, protocol), [])

    def accuracy(self, protocol: str) -> pd.DataFrame:
        """Return the accuracy in %, (replicates, labels); NaN if a label lacks a replicate.

        "average" is over all shifted protocols, for replicates that ran them all.
        """
        if protocol == AVERAGE:
            each = [self.accuracy(name) for name in self.shifted]
            return sum(each[1:], start=each[0]) / len(each)
        found = {
            label: {run.replicate: run.accuracy for run in self.of(label, protocol)}
            for label in self.labels
        }
        return pd.DataFrame(found, columns=self.labels, dtype=float)

    def gain(self, protocol: str) -> pd.DataFrame:
        """Return the gain over Source in points, (replicates, labels); Source's own is NaN."""
        return over_source(self.accuracy(protocol), self.source)

    def by_domain(self, protocol: str) -> pd.DataFrame:
        """Return the accuracy in %, ((domain, replicate), labels), domains in stream order."""
        records = [
            (domain.name, run.replicate, run.label, domain.right, domain.seen)
            for label in self.labels
            for run in self.of(label, protocol)
            for domain in run.counts.domains
        ]
        names = ["domain", "replicate", "label", "right", "seen"]
        counts = pd.DataFrame.from_records(records, columns=names)
        sums = counts.groupby(names[:3], sort=False)[["right", "seen"]].sum()
        shares = (100 * sums["right"] / sums["seen"].where(sums["seen"] > 0)).unstack("label")
        present = [label for label in self.labels if label in shares.columns]
        return shares.reindex(list(dict.fromkeys(counts["domain"])), level="domain")[present]


def over_source(accuracy: pd.DataFrame, source: str | None) -> pd.DataFrame:
    """Return accuracies minus those of Source in the same row, NaN for Source itself."""
    base = accuracy[source] if source in accuracy.columns else np.nan
    gain = accuracy.sub(base, axis=0)
    return gain.assign(**{source: np.nan}) if source is not None else gain


def group_runs(runs: Iterable[PlanRun]) -> list[RunGroup]:
    """Sort runs into groups that may be compared, in order of severity and appearance.

    A protocol that was run with several lists of domains has one group per list.
    """
    found: dict[str, tuple[dict[str, Any], list[PlanRun]]] = {}
    lists: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        config = run.config
        setting = {**config.data, "batch": config.batch_size, "severity": config.severity}
        stream = text([list(config.domains.items()), config.visits])
        known = lists.setdefault((text(setting), run.protocol), [])
        known += [] if stream in known else [stream]
        setting["list of domains"] = known.index(stream) + 1
        found.setdefault(text(setting), (setting, []))[1].append(run)
    ordered = sorted(found.values(), key=lambda pair: -int(pair[0]["severity"]))
    settings = [setting for setting, _ in ordered]
    names = dict.fromkeys(name for setting in settings for name in setting)
    differing = [n for n in names if len({text(s.get(n)) for s in settings}) > 1]
    return [
        replace(_group(runs), name=", ".join(f"{n} {text(setting.get(n))}" for n in differing))
        for setting, runs in ordered
    ]


def _group(runs: Sequence[PlanRun]) -> RunGroup:
    """Keep one run per cell, and tell apart what must not be averaged together."""
    cells: dict[str, PlanRun] = {}
    repeated: set[str] = set()
    for run in runs:
        cell = text([run.label, run.variant, run.protocol, run.replicate])
        if cell in cells:
            repeated.add(f"{run.label}, {run.protocol}, {run.replicate_name}")
        if cell not in cells or _finished(run) > _finished(cells[cell]):
            cells[cell] = run
    notes = [f"{name}: run more than once; the last one counts." for name in sorted(repeated)]
    kept = list(cells.values())
    for label in dict.fromkeys(run.label for run in kept):
        kept, more = _options_apart(kept, label)
        notes += more
    for name in dict.fromkeys(run.replicate[0] for run in kept):
        weights = {run.replicate[1] for run in kept if run.replicate[0] == name}
        if len(weights) > 1:
            notes.append(f"{name}: {len(weights)} different weights have this name; all count.")
    versions = sorted({text(run.result.measured.get("versions", {})) for run in kept})
    notes += [f"Made by different versions: {'; '.join(versions)}"] * (len(versions) > 1)
    return RunGroup(kept, notes=notes)


def _finished(run: PlanRun) -> str:
    return str(run.result.measured.get("finished", ""))


def _options_apart(runs: list[PlanRun], label: str) -> tuple[list[PlanRun], list[str]]:
    """Put differing options into a label if one protocol was run with several of them."""
    mine = [run for run in runs if run.label == label]
    several = any(
        len({text(run.variant) for run in mine if run.protocol == protocol}) > 1
        for protocol in {run.protocol for run in mine}
    )
    if not several:
        return runs, []
    names = dict.fromkeys(name for run in mine for name in run.variant)
    differing = [n for n in names if len({text(run.variant.get(n)) for run in mine}) > 1]

    def name(run: PlanRun) -> str:
        return f"{label} ({', '.join(f'{n}={text(run.variant.get(n))}' for n in differing)})"

    renamed = [replace(run, label=name(run)) if run.label == label else run for run in runs]
    return renamed, [f"{label} was run with several {', '.join(differing)}: shown apart."]


@dataclass(frozen=True)
class Stream:
    """One protocol in one setting; `name` tells it from the others of its section."""

    name: str
    protocol: str
    group: RunGroup

    @cached_property
    def gain(self) -> pd.DataFrame:
        """Return the gain over Source, (replicates, labels)."""
        return self.group.gain(self.protocol)


def streams_of(groups: Sequence[RunGroup]) -> list[Stream]:
    """Return the streams of all groups; a protocol in several settings is named with them."""
    pairs = [(protocol, group) for group in groups for protocol in group.protocols]
    often = [protocol for protocol, _ in pairs]
    return [
        Stream(f"{pretty(p)} ({group.name})" if often.count(p) > 1 else pretty(p), p, group)
        for p, group in pairs
    ]


def average_gain(streams: Sequence[Stream], label: str) -> tuple[float, float]:
    """Return mean and standard deviation of a gain over streams with the same weight each.

    Clean streams are left out if there are others. NaN if the label lacks a stream; the deviation
    is that of the replicates' own averages, NaN if not every replicate ran all streams.
    """
    voting = [stream for stream in streams if stream.protocol != CLEAN] or list(streams)
    each = [stream.gain.get(label, pd.Series(dtype=float)).dropna() for stream in voting]
    if any(own.empty for own in each):
        return math.nan, math.nan
    wide = pd.concat(each, axis=1)  # (replicates, streams)
    if wide.isna().any(axis=None):
        return float(wide.mean().mean()), math.nan
    own = wide.mean(axis=1)
    return float(own.mean()), float(own.std())


def mean_interval(values: NDArray[np.int64], level: float = LEVEL) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of integers, (n,), exactly.

    The sum of a resample (n draws with replacement) is distributed as the n-fold convolution of
    the values' own frequencies, which a Fourier transform gives. The ends are those of infinitely
    many resamples: they do not depend on the order of the values, and negated values mirror them.

    >>> mean_interval(np.array([0, 0, 1, 1]))
    (0.0, 1.0)
    """
    n, least = len(values), int(values.min())
    offsets = values - least
    mean, deviation = n * float(offsets.mean()), math.sqrt(n) * float(offsets.std())
    first = math.floor(mean - _REACH * deviation)
    length = 2 ** math.ceil(math.log2(2 * _REACH * deviation + int(offsets.max()) + 2))
    one = np.bincount(offsets, minlength=length) / n
    wrapped = np.fft.irfft(np.fft.rfft(one) ** n, length)  # sums, modulo the length
    chances = np.roll(wrapped, -(first % length))  # of first, first + 1, …
    tail = (1 - level) / 2 - _ROUNDING
    low = int(np.argmax(np.cumsum(chances) >= tail))
    high = length - 1 - int(np.argmax(np.cumsum(chances[::-1]) >= tail))
    shift = first + n * least
    return (low + shift) / n, (high + shift) / n


@dataclass(frozen=True)
class SampleScores:
    """How often each sample was right: (n,) counts by replicate, out of `most` each."""

    counts: Mapping[Replicate, NDArray[np.int64]]
    most: int

    @property
    def accuracy(self) -> float:
        """Return the mean accuracy over replicates, in %."""
        return float(np.mean([100 * own.mean() / self.most for own in self.counts.values()]))


@dataclass(frozen=True)
class Comparison:
    """The difference of two methods on the same samples, models and seeds, in points."""

    difference: float
    spread: float
    """Standard deviation over replicates, NaN if there is only one."""
    low: float
    high: float
    by_model: Mapping[str, float]

    @property
    def ahead(self) -> int:
        """Return the number of source models on which the difference is above 0."""
        return sum(value > 0 for value in self.by_model.values())

    @property
    def verdict(self) -> str:
        """Return better or worse; unclear if the interval holds 0, mixed if models disagree."""
        if self.low <= 0 <= self.high:
            return "unclear"
        sign = math.copysign(1, self.low)
        if any(sign * value <= 0 for value in self.by_model.values()):
            return "mixed"
        return "better" if sign > 0 else "worse"


def sample_scores(group: RunGroup, label: str, protocol: str) -> SampleScores:
    """Return how often each sample was right in a protocol, over its domains.

    "average" is over all shifted protocols, each with the same weight, for replicates that ran
    them all.
    """
    where = f"{label}, {protocol}"
    if protocol != AVERAGE:
        runs = group.of(label, protocol)
        hits = {run.replicate: [d.sample_hits() for d in run.counts.domains] for run in runs}
        _check_lengths(where, [row for rows in hits.values() for row in rows])
        most = {len(rows) for rows in hits.values()} or {1}
        if len(most) > 1:
            raise InputError(f"{where}: runs differ in their number of domains. Run them again.")
        return SampleScores({k: np.sum(rows, axis=0) for k, rows in hits.items()}, most.pop())
    each = [sample_scores(group, label, name) for name in group.shifted]
    common = math.lcm(*(own.most for own in each))
    whole = sorted(set.intersection(*(set(own.counts) for own in each)))
    parts = {key: [own.counts[key] * (common // own.most) for own in each] for key in whole}
    _check_lengths(where, [part for own in parts.values() for part in own])
    return SampleScores({k: np.sum(own, axis=0) for k, own in parts.items()}, common * len(each))


def compare(mine: SampleScores, other: SampleScores, names: str = "") -> Comparison | None:
    """Compare two methods where both ran; None if they share no replicate.

    `names` says in an error which two they are.
    """
    shared = sorted(set(mine.counts) & set(other.counts))
    if not shared:
        return None
    most = math.lcm(mine.most, other.most)
    pairs = [(mine.counts[key], other.counts[key]) for key in shared]
    _check_lengths(names, [part for pair in pairs for part in pair])
    apart = np.stack([a * (most // mine.most) - b * (most // other.most) for a, b in pairs])
    unit = 100 / most
    each = pd.Series(
        unit * apart.mean(axis=1), index=[f"{name} {digest[:8]}" for name, digest, _ in shared]
    )
    low, high = mean_interval(apart.sum(axis=0))
    return Comparison(
        float(each.mean()),
        float(each.std()),
        unit * low / len(shared),
        unit * high / len(shared),
        {str(name): float(value) for name, value in each.groupby(level=0).mean().items()},
    )


def adapting_scores(group: RunGroup, protocol: str) -> dict[str, SampleScores]:
    """Return the scores of every label but Source that ran a protocol."""
    labels = [label for label in group.labels if label != group.source]
    found = {label: sample_scores(group, label, protocol) for label in labels}
    return {label: own for label, own in found.items() if own.counts}


def compare_with_source(group: RunGroup, protocol: str) -> dict[str, Comparison]:
    """Return how each label compares with Source in a protocol, or on their average."""
    if group.source is None:
        return {}
    base = sample_scores(group, group.source, protocol)
    found = {
        label: compare(own, base, f"{label} and {group.source}, {protocol}")
        for label, own in adapting_scores(group, protocol).items()
    }
    return {label: result for label, result in found.items() if result is not None}


def best_label(found: Mapping[str, SampleScores]) -> str | None:
    """Return the label of the highest mean accuracy, among those with the most replicates."""
    fullest = max((len(own.counts) for own in found.values()), default=0)
    able = [label for label, own in found.items() if len(own.counts) == fullest > 0]
    return max(able, key=lambda label: found[label].accuracy, default=None)


def _check_lengths(names: str, parts: Sequence[NDArray[np.generic]]) -> None:
    lengths = sorted({len(part) for part in parts})
    if len(lengths) > 1:
        raise InputError(
            f"{names}: runs on the same data have different numbers of samples "
            f"({', '.join(map(str, lengths))}) and cannot be paired. Run them again."
        )
