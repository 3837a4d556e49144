"""Metrics of a running adaptation, as a plain dict and in Prometheus' text format."""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

TOTALS = {
    "batches": "Batches given outside of frozen(), whatever their outcome",
    "samples": "Samples of the batches that did not end in an exception",
    "updates": "Batches followed by an update",
    "rejections": "Batches predicted as far as possible without an update: NaN, Inf, overflow",
    "errors": "Batches that ended in an exception",
    "rollbacks": "Returns to an earlier state by the method's own guard",
    "frozen": "Calls inside frozen()",
    "resets": "Calls of reset()",
    "saves": "States written to a file, checkpoints included",
    "loads": "States loaded or resumed from",
    "write_errors": "Log lines and checkpoints that could not be written",
}
BY_MODALITY = {
    "flags": "Batches in which a modality was diagnosed as biased",
    "missing": "Batches without a modality",
}
Value = float | Mapping[str, float]
"""A number, or one per modality."""


class Counters:
    """Counts that only grow, by name, and for BY_MODALITY also by modality.

    They are plain integers, so that they can be copied and saved with the state of an adaptation.
    """

    def __init__(self, modalities: Iterable[str]) -> None:
        self.modalities = tuple(modalities)
        self.totals = dict.fromkeys(TOTALS, 0)
        self.by_modality = {name: dict.fromkeys(self.modalities, 0) for name in BY_MODALITY}

    def add(self, **counts: int) -> None:
        """Add to some of the totals."""
        for name, count in counts.items():
            self.totals[name] += count

    def add_each(self, name: str, modalities: Iterable[str]) -> None:
        """Add one for each of some modalities."""
        for modality in modalities:
            self.by_modality[name][modality] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return a copy as plain dicts and ints."""
        return {**self.totals, **{name: dict(own) for name, own in self.by_modality.items()}}

    def fits(self, counts: Any) -> bool:
        """Tell whether `take` could continue from this: all counts are there, none is odd."""

        def shape(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: shape(own) for name, own in value.items()}
            return type(value) is int and value >= 0

        return bool(shape(counts) == shape(self.as_dict()))

    def take(self, counts: Mapping[str, Any]) -> None:
        """Continue from a copy."""
        self.totals = {name: counts[name] for name in TOTALS}
        self.by_modality = {name: dict(counts[name]) for name in BY_MODALITY}


def exposition(counters: Counters, **gauges: tuple[str, Value]) -> str:
    """Return counters and gauges, name=(help, value), in Prometheus' text format.

    >>> counters = Counters(["audio"])
    >>> counters.add(batches=1)
    >>> text = exposition(counters, score=("Last score", {"audio": 0.5}))
    >>> [line for line in text.splitlines() if line[0] != "#" and not line.endswith(" 0.0")]
    ['dasp_batches_total 1.0', 'dasp_score{modality="audio"} 0.5']
    """
    counts, helps = counters.as_dict(), TOTALS | BY_MODALITY
    metrics = [_metric(CounterMetricFamily, n, text, counts[n]) for n, text in helps.items()]
    metrics += [_metric(GaugeMetricFamily, n, text, value) for n, (text, value) in gauges.items()]
    return generate_latest(cast(Collector, SimpleNamespace(collect=lambda: metrics))).decode()


def _metric(
    kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, text: str, value: Value
) -> Metric:
    if not isinstance(value, Mapping):
        return kind(f"dasp_{name}", text, value=value)
    family = kind(f"dasp_{name}", text, labels=["modality"])
    for modality, own in value.items():
        family.add_metric([modality], own)
    return family
