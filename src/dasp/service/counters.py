"""Counters of a running adaptation, as a plain dict and in Prometheus' text format."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

TOTALS = {
    "batches": "Batches given outside frozen(), whatever came of them",
    "samples": "Samples of those batches that were not refused by an error",
    "updates": "Batches that were learnt from",
    "rejections": "Batches predicted as far as possible and not learnt from: NaN, Inf, overflow",
    "errors": "Batches that ended in an exception",
    "rollbacks": "Returns to an earlier state by the method's own guard",
    "frozen": "Calls inside frozen()",
    "resets": "Calls of reset()",
    "saves": "States written to a file, checkpoints among them",
    "loads": "States loaded or resumed from",
    "write_errors": "Log lines and checkpoints that could not be written",
}
BY_MODALITY = {
    "flags": "Batches in which a modality was called biased",
    "missing": "Batches that came without a modality",
}


class Counters:
    """Counts that only grow, by name; those of BY_MODALITY by modality too."""

    def __init__(self, modalities: Iterable[str]) -> None:
        self.modalities = tuple(modalities)
        self.totals = dict.fromkeys(TOTALS, 0)
        self.by_modality = {name: dict.fromkeys(self.modalities, 0) for name in BY_MODALITY}

    def add(self, name: str, count: int = 1) -> None:
        """Count one thing."""
        self.totals[name] += count

    def add_each(self, name: str, modalities: Iterable[str]) -> None:
        """Count one thing for each of some modalities."""
        own = self.by_modality[name]
        for modality in modalities:
            own[modality] = own.get(modality, 0) + 1

    def as_dict(self) -> dict[str, Any]:
        """Return a copy as plain dicts and ints."""
        return {**self.totals, **{name: dict(own) for name, own in self.by_modality.items()}}

    def take(self, counts: Mapping[str, Any]) -> None:
        """Go on from a copy; what it lacks starts from 0."""
        self.totals = {name: int(counts.get(name, 0)) for name in TOTALS}
        for name, own in self.by_modality.items():
            then = counts.get(name, {})
            self.by_modality[name] = {m: int(then.get(m, 0)) for m in own}


def exposition(counters: Counters, gauges: Mapping[str, tuple[str, Any]]) -> str:
    """Write counters and gauges as Prometheus reads them.

    `gauges` are {name: (help, number or {modality: number})}; a counter's name ends in _total.

    >>> counters = Counters(["audio"])
    >>> counters.add("batches")
    >>> text = exposition(counters, {"score": ("Last score", {"audio": 0.5})})
    >>> [line for line in text.splitlines() if line[0] != "#" and not line.endswith(" 0")]
    ['dasp_batches_total 1', 'dasp_score{modality="audio"} 0.5']
    """
    lines: list[str] = []
    for name, text in TOTALS.items():
        lines += _metric(f"dasp_{name}_total", "counter", text, counters.totals[name])
    for name, text in BY_MODALITY.items():
        lines += _metric(f"dasp_{name}_total", "counter", text, counters.by_modality[name])
    for name, (text, value) in gauges.items():
        lines += _metric(f"dasp_{name}", "gauge", text, value)
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str, value: Any) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    if not isinstance(value, Mapping):
        return [*lines, f"{name} {_number(value)}"]
    return lines + [f'{name}{{modality="{_escaped(m)}"}} {_number(v)}' for m, v in value.items()]


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
