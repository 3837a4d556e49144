"""Runs that may be compared, and what is compared of them.

A `RunGroup` holds the runs of one setting: the same data, samples, batch size and severity. Runs of
one label and protocol in it differ by source model and seed alone: they are replicates,
and only they are averaged. A gain over Source is paired: the same model and seed.

The paired comparison goes sample by sample. A sample appears in every domain (in only one
if the stream deals samples out) and before every source model; it is resampled together with its
appearances, so what these have in common counts once. The interval says how far another draw of
test samples might move a difference, for these source models and for streams as they ran. It does
not cover other source models: there are few, so their spread is given as ±, and a method is called
better only if the models agree.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dasp.bench.results import Result
from dasp.report.frame import CLEAN, absent, damaged, data_text, text

SOURCE, AVERAGE = "source", "average"
LEVEL = 0.95
_REACH = 12.0  # standard deviations on each side; the weight of what lies beyond is negligible
_ROUNDING = 1e-9


def pretty(protocol: str) -> str:
    """Return a protocol for a heading.

    >>> pretty("per_domain/video")
    'per-domain video'
    """
    return protocol.replace("_", "-").replace("/", " ")


class PlanRun:
    """A run under the label that a plan gives it.

    `replicate` (name and digest of the model, seed) tells it from the others of its label and
    protocol; `variant` is what replicates must share: options, versions, fitting and precision.
    `accuracy` is in % of all samples.
    """

    def __init__(self, label: str, result: Result) -> None:
        assert result.counts is not None, "a measurement of cost has no counts"
        config, counts = result.run, result.counts
        self.label, self.result, self.config, self.counts = label, result, config, counts
        self.protocol, self.key = config.protocol, config.key
        self.accuracy = 100 * counts.right / counts.seen
        self.replicate = config.model["name"], config.model["digest"], config.seed
        self.replicate_name = f"{config.model['name']}, seed {config.seed}"
        fit = {"fit": config.source["samples"]} if config.source.get("samples") else {}
        rest = {"versions": config.versions, "tokens": config.tokens}
        self.variant: dict[str, Any] = {**config.options, **fit, **rest}

    @cached_property
    def hits(self) -> NDArray[np.int64]:
        """Return how often each sample was right, over the domains of the stream: (n,)."""
        samples = self.config.data["samples"]
        rows = [domain.sample_hits(samples) for domain in self.counts.domains]
        return np.asarray(np.sum(rows, axis=0), dtype=np.int64)

    @property
    def appearances(self) -> int:
        """Return how often each sample occurs: in every domain, or once in the stream."""
        return self.counts.seen // int(self.config.data["samples"])


class RunGroup:
    """The runs of one setting; `name` says how it differs from the other groups of its plan.

    `labels` and `protocols` are in the order of the plan, Source first; `runs` are sorted by them,
    model and seed. `source` is the label that gains are counted from, None if it was not run.
    `shifted` are the protocols that an average is over: clean data are left out. `columns` are all
    protocols, and "average" if it is over more than one. `telling` is the protocol that shows
    most. `title` is the setting in one line.
    """

    def __init__(self, runs: Sequence[PlanRun], name: str = "", notes: Sequence[str] = ()) -> None:
        self.name, self.notes = name, notes
        sources = list(dict.fromkeys(run.label for run in runs if run.config.method == SOURCE))
        self.source = sources[0] if sources else None
        self.labels = list(dict.fromkeys([*sources, *(run.label for run in runs)]))
        self.protocols = list(dict.fromkeys(run.protocol for run in runs))
        self.shifted = [protocol for protocol in self.protocols if protocol != CLEAN]
        self.columns = [*self.protocols, *([AVERAGE] if len(self.shifted) > 1 else [])]
        self.telling = "interleaved" if "interleaved" in self.protocols else self.protocols[-1]
        places = {name: n for n, name in enumerate((*self.labels, *self.protocols))}
        self.runs = sorted(runs, key=lambda r: (places[r.label], places[r.protocol], r.replicate))
        config = runs[0].config
        repeated = all(run.appearances == len(run.counts.domains) for run in runs)
        samples = f"{config.data['samples']} samples{' per domain' if repeated else ''}"
        rest = f"batch {config.batch_size}, severity {config.severity}"
        self.title = f"{data_text(config.data)}, {samples}, {rest}"

    def of(self, label: str | None, protocol: str) -> list[PlanRun]:
        """Return the replicates of one label and protocol."""
        return [run for run in self.runs if (run.label, run.protocol) == (label, protocol)]

    def accuracy(self, protocol: str) -> pd.DataFrame:
        """Return the accuracy in %, (replicates, labels); NaN if a label lacks a replicate.

        "average" is over all shifted protocols, for replicates that ran them all.
        """
        if protocol == AVERAGE:
            each = [self.accuracy(name) for name in self.shifted]
            return sum(each[1:], start=each[0]) / len(each)
        return self._shares(protocol, ["replicate"])

    def gain(self, protocol: str) -> pd.DataFrame:
        """Return the gain over Source in points, (replicates, labels); Source's own is NaN."""
        return over_source(self.accuracy(protocol), self.source)

    def by_domain(self, protocol: str) -> pd.DataFrame:
        """Return the accuracy in %, ((domain, replicate), labels), domains in stream order."""
        return self._shares(protocol, ["domain", "replicate"]).dropna(axis=1, how="all")

    def _shares(self, protocol: str, rows: list[str]) -> pd.DataFrame:
        records = [
            (domain.name, run.replicate, run.label, domain.right, domain.seen)
            for run in self.runs
            if run.protocol == protocol
            for domain in run.counts.domains
        ]
        names = ["domain", "replicate", "label", "right", "seen"]
        counts = pd.DataFrame.from_records(records, columns=names)
        sums = counts.groupby([*rows, "label"], sort=False)[["right", "seen"]].sum()
        shares = 100 * sums["right"] / sums["seen"].where(sums["seen"] > 0)
        return shares.unstack("label", sort=False).reindex(columns=self.labels)

    def diagnosed(self) -> Iterator[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
        """Yield label, protocol, and the damaged and the clean batches that were diagnosed.

        The columns tell of a batch (of one domain) the damaged modalities, and whether any was
        named, exactly the damaged ones were, these were among the named, there is a healthy one,
        and a healthy one was named.
        """
        for label, protocol in dict.fromkeys((run.label, run.protocol) for run in self.runs):
            records = []
            for run in self.of(label, protocol):
                known, biased = run.counts.batches.scores or {}, run.counts.batches.biased or []
                for domain in run.counts.domains:
                    damage = damaged(domain.name)
                    bad = set(filter(None, damage.split("+")))
                    well = set(known) - bad - absent(domain.name)
                    for named in map(set, biased[domain.first_batch :][: domain.batches]):
                        judged = named == bad, bad <= named, bool(well), bool(well & named)
                        records.append((damage, bool(named), *judged))
            if records:
                columns = ["damage", "named", "exact", "hit", "healthy", "alarm"]
                batches = pd.DataFrame.from_records(records, columns=columns)
                clean = batches["damage"] == ""
                yield label, protocol, batches[~clean], batches[clean]


def over_source(accuracy: pd.DataFrame, source: str | None) -> pd.DataFrame:
    """Return accuracies minus those of Source in the same row, NaN for Source itself."""
    base = accuracy[source] if source in accuracy.columns else np.nan
    gain = accuracy.sub(base, axis=0)
    return gain.assign(**{source: np.nan}) if source is not None else gain


def group_runs(runs: Iterable[PlanRun]) -> list[RunGroup]:
    """Sort runs into groups that may be compared, in order of severity and appearance.

    A protocol that was run with several lists of domains has one group per list, so that the runs
    of a group can be paired sample by sample.
    """
    found: dict[str, tuple[dict[str, Any], list[PlanRun]]] = {}
    lists: dict[tuple[str, str], dict[str, int]] = {}
    for run in runs:
        config = run.config
        setting = {**config.data, "batch": config.batch_size, "severity": config.severity}
        known = lists.setdefault((text(setting), run.protocol), {})
        sizes = [domain.seen for domain in run.counts.domains]
        stream = text([list(config.domains.items()), sizes])
        setting["list of domains"] = known.setdefault(stream, len(known) + 1)
        found.setdefault(text(setting), (setting, []))[1].append(run)
    ordered = sorted(found.values(), key=lambda pair: -int(pair[0]["severity"]))
    differing = _differing([setting for setting, _ in ordered])
    return [
        _group(runs, ", ".join(f"{n} {text(setting.get(n))}" for n in differing))
        for setting, runs in ordered
    ]


def _differing(settings: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the names whose values are not the same in all settings."""
    names = dict.fromkeys(name for setting in settings for name in setting)
    return [n for n in names if len({text(setting.get(n)) for setting in settings}) > 1]


def _group(runs: Sequence[PlanRun], name: str) -> RunGroup:
    """Keep one run per cell, and tell apart what must not be averaged together."""
    cells: dict[str, PlanRun] = {}
    repeated: set[str] = set()
    for run in runs:
        cell = text([run.label, run.variant, run.protocol, run.replicate])
        if cell in cells:
            repeated.add(f"{run.label}, {run.protocol}, {run.replicate_name}")
        both = cells.get(cell, run), run
        cells[cell] = max(both, key=lambda own: str(own.result.measured.get("finished", "")))
    notes = [f"{where}: run more than once; the last one counts." for where in sorted(repeated)]
    kept = list(cells.values())
    for label in dict.fromkeys(run.label for run in kept):
        mine = [run for run in kept if run.label == label]
        variants = {(run.protocol, text(run.variant)) for run in mine}
        if len(variants) == len({run.protocol for run in mine}):
            continue
        # One protocol was run with several options: these become part of the label.
        names = _differing([run.variant for run in mine])
        notes.append(f"{label} was run with several {', '.join(names)}: shown apart.")
        for run in mine:
            words = ", ".join(f"{n}={text(run.variant.get(n))}" for n in names)
            kept[kept.index(run)] = PlanRun(f"{label} ({words})", run.result)
    weights = Counter(model for model, _ in {run.replicate[:2] for run in kept})
    several = ((model, n) for model, n in weights.items() if n > 1)
    notes += [f"{model}: {n} different weights have this name; all count." for model, n in several]
    return RunGroup(kept, name, notes)


def streams_of(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Return each protocol of each group by itself; `name` tells it from the others."""
    often = Counter(protocol for group in groups for protocol in group.protocols)
    return [
        RunGroup(
            [run for run in group.runs if run.protocol == protocol],
            f"{pretty(protocol)} ({group.name})" if often[protocol] > 1 else pretty(protocol),
        )
        for group in groups
        for protocol in group.protocols
    ]


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
class Comparison:
    """The difference of two methods on the same samples, models and seeds, in points."""

    difference: float
    spread: float  # standard deviation over replicates, NaN if there is only one
    low: float
    high: float
    by_model: Mapping[str, float]

    @property
    def verdict(self) -> str:
        """Return better or worse; unclear if the interval holds 0, mixed if models disagree."""
        if self.low <= 0 <= self.high:
            return "unclear"
        sign = math.copysign(1, self.low)
        if any(sign * value <= 0 for value in self.by_model.values()):
            return "mixed"
        return "better" if sign > 0 else "worse"


def compare(group: RunGroup, label: str, other: str, protocol: str) -> Comparison | None:
    """Compare two labels in a protocol, where both ran; None if they share no replicate.

    "average" is over all shifted protocols, each with the same weight, for replicates that ran
    them all.
    """
    names = group.shifted if protocol == AVERAGE else [protocol]
    mine, theirs = (
        [{run.replicate: run for run in group.of(n, name)} for name in names]
        for n in (label, other)
    )
    shared = sorted(set.intersection(*map(set, (*mine, *theirs))))
    if not shared:
        return None
    pairs = [[(a[r], b[r]) for r in shared] for a, b in zip(mine, theirs, strict=True)]
    often = [own[0][0].appearances for own in pairs]
    common = math.lcm(*often)
    weights = [common // count for count in often]  # each protocol counts the same
    apart = np.array([[a.hits - b.hits for a, b in own] for own in pairs])  # (…, replicates, n)
    apart = np.tensordot(weights, apart, axes=1)
    unit = 100 / (common * len(names))
    models = [f"{name} {digest[:8]}" for name, digest, _ in shared]
    each = pd.Series(unit * apart.mean(axis=1), index=models)
    low, high = (unit * end / len(shared) for end in mean_interval(apart.sum(axis=0)))
    by_model = each.groupby(level=0).mean().to_dict()
    return Comparison(float(each.mean()), float(each.std()), low, high, by_model)
