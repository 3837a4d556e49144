"""Metrics of a running adaptation, as a plain dict and in Prometheus' text format."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

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
Gauges = Mapping[str, tuple[str, float | Mapping[str, float]]]
"""{name: (help, value or {modality: value})}"""


class Counters:
    """Counts that only grow, by name, and for BY_MODALITY also by modality.

    They are plain integers, so that an adaptation can be copied and its counts saved with its
    state; `collect` gives them to a Prometheus registry.
    """

    def __init__(self, modalities: Iterable[str]) -> None:
        self.modalities = tuple(modalities)
        self.totals = dict.fromkeys(TOTALS, 0)
        self.by_modality = {name: dict.fromkeys(self.modalities, 0) for name in BY_MODALITY}

    def add(self, name: str, count: int = 1) -> None:
        """Add to one count."""
        self.totals[name] += count

    def add_each(self, name: str, modalities: Iterable[str]) -> None:
        """Add one for each of some modalities."""
        own = self.by_modality[name]
        for modality in modalities:
            own[modality] = own.get(modality, 0) + 1

    def as_dict(self) -> dict[str, Any]:
        """Return a copy as plain dicts and ints."""
        return {**self.totals, **{name: dict(own) for name, own in self.by_modality.items()}}

    def take(self, counts: Mapping[str, Any]) -> None:
        """Continue from a copy; missing counts start at 0."""
        self.totals = {name: int(counts.get(name, 0)) for name in TOTALS}
        for name, own in self.by_modality.items():
            then = counts.get(name, {})
            self.by_modality[name] = {m: int(then.get(m, 0)) for m in own}

    def collect(self) -> Iterator[Metric]:
        """Yield the counts as Prometheus metrics."""
        for name, text in TOTALS.items():
            yield CounterMetricFamily(f"dasp_{name}", text, value=self.totals[name])
        for name, text in BY_MODALITY.items():
            family = CounterMetricFamily(f"dasp_{name}", text, labels=["modality"])
            for modality, count in self.by_modality[name].items():
                family.add_metric([modality], count)
            yield family


class _Collector:
    """The metrics of one adaptation at one moment."""

    def __init__(self, counters: Counters, gauges: Gauges) -> None:
        self._counters, self._gauges = counters, gauges

    def collect(self) -> Iterator[Metric]:
        yield from self._counters.collect()
        for name, (text, value) in self._gauges.items():
            if not isinstance(value, Mapping):
                yield GaugeMetricFamily(f"dasp_{name}", text, value=value)
                continue
            family = GaugeMetricFamily(f"dasp_{name}", text, labels=["modality"])
            for modality, own in value.items():
                family.add_metric([modality], own)
            yield family


def exposition(counters: Counters, gauges: Gauges) -> str:
    """Return counters and gauges in Prometheus' text format, from a registry of their own.

    >>> counters = Counters(["audio"])
    >>> counters.add("batches")
    >>> text = exposition(counters, {"score": ("Last score", {"audio": 0.5})})
    >>> [line for line in text.splitlines() if line[0] != "#" and not line.endswith(" 0.0")]
    ['dasp_batches_total 1.0', 'dasp_score{modality="audio"} 0.5']
    """
    registry = CollectorRegistry()
    registry.register(_Collector(counters, gauges))
    return generate_latest(registry).decode()
