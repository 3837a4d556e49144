"""Methods compared on the same samples, so that "better" means something.

A sample appears in every domain and before every source model; what is resampled is the sample
with all of that, so what its appearances have in common counts as the one piece of evidence it is.
The interval thus says how far another draw of test samples might move a difference, for these
source models and for streams as they ran. It is silent on other source models: few are at hand,
and resampling three of them promises more than it holds. So their spread is told as ±, and a
method is called better only where the models agree as well.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import InputError
from dasp.report.bootstrap import mean_interval
from dasp.report.groups import Group, mean_std
from dasp.report.hits import unpack_hits
from dasp.report.runs import Run
from dasp.report.tables import Replicate

AVERAGE = "average"


@dataclass(frozen=True)
class Scores:
    """How often each sample was right: (n,) counts by replicate, out of `most` each."""

    counts: Mapping[Replicate, NDArray[np.int64]]
    most: int

    @property
    def accuracy(self) -> float:
        """Return the mean accuracy over replicates, in per cent."""
        return float(np.mean([100 * own.mean() / self.most for own in self.counts.values()]))


@dataclass(frozen=True)
class Comparison:
    """The difference of two methods on the same samples, models and seeds, in points."""

    difference: float
    spread: float | None  # standard deviation over replicates
    low: float
    high: float
    by_model: Mapping[str, float]

    @property
    def ahead(self) -> int:
        """Return on how many source models the difference is above 0."""
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


def hits(run: Run) -> NDArray[np.bool_] | None:
    """Return which samples a run had right, (domains, n); None if its file does not tell."""
    rows = []
    for domain in run.domains:
        if domain.hits is None:
            return None
        rows.append(unpack_hits(domain.hits, domain.seen, domain.right))
    if len({len(row) for row in rows}) != 1:
        raise InputError(
            f"{run.label}, {run.protocol}, {run.replicate_name}: its domains have different "
            f"numbers of samples ({', '.join(str(len(row)) for row in rows)}), so nothing can be "
            "paired. Run this cell again."
        )
    return np.stack(rows)


def scores(group: Group, label: str, protocol: str) -> Scores:
    """Return how often each sample was right in a protocol, over its domains.

    "average" is over all shifted protocols, each with the same weight, for replicates that ran
    them all.
    """
    if protocol != AVERAGE:
        told = {run.replicate: hits(run) for run in group.of(label, protocol)}
        found = {key: own for key, own in told.items() if own is not None}
        most = {len(own) for own in found.values()} or {1}
        if len(most) > 1:
            raise InputError(
                f"{label}, {protocol}: its runs have different numbers of domains, so they are no "
                "replicates. Run them again."
            )
        return Scores({key: own.sum(axis=0) for key, own in found.items()}, most.pop())
    each = [scores(group, label, name) for name in group.shifted]
    common = math.lcm(*(own.most for own in each))
    whole = sorted(set.intersection(*(set(own.counts) for own in each)))
    sums = {key: [own.counts[key] * (common // own.most) for own in each] for key in whole}
    _check_lengths(f"{label}, {AVERAGE}", [part for parts in sums.values() for part in parts])
    totals = {key: np.sum(parts, axis=0) for key, parts in sums.items()}
    return Scores(totals, common * len(each))


def compare(mine: Scores, other: Scores, names: str = "") -> Comparison | None:
    """Compare two methods where both ran; None if they share no replicate.

    `names` tells a reader of an error which two.
    """
    shared = sorted(set(mine.counts) & set(other.counts))
    if not shared:
        return None
    most = math.lcm(mine.most, other.most)
    pairs = [(mine.counts[key], other.counts[key]) for key in shared]
    _check_lengths(names, [part for pair in pairs for part in pair])
    apart = np.stack([a * (most // mine.most) - b * (most // other.most) for a, b in pairs])
    unit = 100 / most
    each = [unit * float(own.mean()) for own in apart]
    low, high = mean_interval(apart.sum(axis=0))
    models: dict[tuple[str, str], list[float]] = {}
    for (name, digest, _), value in zip(shared, each, strict=True):
        models.setdefault((name, digest), []).append(value)
    by_model = {
        f"{name} {digest[:8]}": float(np.mean(own)) for (name, digest), own in models.items()
    }
    difference, spread = mean_std(each)
    assert difference is not None
    return Comparison(
        difference, spread, unit * low / len(shared), unit * high / len(shared), by_model
    )


def best_label(found: Mapping[str, Scores]) -> str | None:
    """Return the label of the highest mean accuracy, among those with the most replicates."""
    fullest = max((len(own.counts) for own in found.values()), default=0)
    able = [label for label, own in found.items() if len(own.counts) == fullest > 0]
    return max(able, key=lambda label: found[label].accuracy, default=None)


def paired_note(group: Group) -> str | None:
    """Say how many runs cannot be paired, None if all can."""
    lacking = sum(any(domain.hits is None for domain in run.domains) for run in group.runs)
    if not lacking:
        return None
    return (
        f"{lacking} of {len(group.runs)} runs were made by an older version that did not keep "
        "which samples were right; the comparison on the same samples leaves them out. Run them "
        "again to have it whole."
    )


def _check_lengths(names: str, parts: list[NDArray[np.int64]]) -> None:
    lengths = sorted({len(part) for part in parts})
    if len(lengths) > 1:
        raise InputError(
            f"{names}: runs on the same data have different numbers of samples "
            f"({', '.join(map(str, lengths))}), so nothing can be paired. Run them again."
        )
