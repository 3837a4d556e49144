"""One efficiency file as typed data: what a method costs, measured beside Source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dasp.bench.efficiency import FORMAT
from dasp.bench.passes import ENCODERS
from dasp.core.errors import InputError
from dasp.report.fields import reading
from dasp.report.groups import METHODS
from dasp.report.runs import Run


@dataclass(frozen=True)
class PassCount:
    """Samples that went through one stage of the model in a round."""

    call: str
    modalities: Sequence[str]
    gradient: bool
    forward: int
    backward: int

    @property
    def encoder(self) -> bool:
        """Tell whether the stage is an encoder; else it is the fusion."""
        return self.call in ENCODERS


@dataclass(frozen=True)
class Round:
    """Seconds of one round: reading, adapting on the clock, adapting in processor time."""

    load: float
    adapt: float
    processor: float


@dataclass(frozen=True)
class Efficiency:
    """What one method costs on one model."""

    key: str
    cell: Mapping[str, Any]
    threads: int
    samples: int  # of a round
    passes: Sequence[PassCount]
    trainable: int
    total: int
    rounds: Sequence[Round]
    source: Sequence[Round]  # each just before the round at the same place
    over_mib: float | None  # peak above what the process held before its first batch
    peak_mib: float | None
    measured: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Return the row's name."""
        return str(self.cell["label"])

    @property
    def model_name(self) -> str:
        """Return the name of the source model."""
        return str(self.cell["model"]["name"])

    @property
    def setting(self) -> tuple[str, str, int, int]:
        """Return what costs in one figure must share: model, stream, severity, batch size."""
        cell = self.cell
        return self.model_name, cell["protocol"], cell["severity"], cell["batch_size"]

    @property
    def machine(self) -> str:
        """Return on how many threads it was measured, for a reader."""
        return "1 thread" if self.threads == 1 else f"{self.threads} threads"

    def speeds(self, loading: bool) -> list[float]:
        """Return the samples a second of each round, with or without reading them."""
        return [self.samples / (r.adapt + (r.load if loading else 0.0)) for r in self.rounds]

    def ratios(self, processor: bool = False) -> list[float]:
        """Return the time of each round over that of Source just before, loading left out."""
        pairs = zip(self.rounds, self.source, strict=True)
        if processor:
            return [mine.processor / source.processor for mine, source in pairs if source.processor]
        return [mine.adapt / source.adapt for mine, source in pairs]

    def accuracy(self, runs: Sequence[Run]) -> float | None:
        """Return the accuracy of the runs of this row, model and stream; None if there are none.

        Where runs of several sizes are there, those with the most samples count.
        """
        cell = self.cell
        mine = [
            run
            for run in runs
            if (run.label, run.method, run.protocol)
            == (self.label, cell["method"], cell["protocol"])
            and (run.severity, run.batch_size) == (cell["severity"], cell["batch_size"])
            and run.model.get("digest") == cell["model"]["digest"]
        ]
        most = max((run.seen for run in mine), default=0)
        found = [run.accuracy for run in mine if run.seen == most]
        return sum(found) / len(found) if found else None


def efficiency_of(content: Mapping[str, Any]) -> Efficiency:
    """Return what one parsed efficiency file holds, or say what is wrong with it."""
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        raise InputError(f"it is not an efficiency file of format {FORMAT}.")
    with reading("measure it again"):
        result, measured = content["result"], content["measured"]
        found = Efficiency(
            key=str(content["key"]),
            cell=dict(content["cell"]),
            threads=int(content["cell"]["threads"]),
            samples=int(result["samples"]),
            passes=tuple(PassCount(**entry) for entry in result["passes"]),
            trainable=int(result["trainable"]),
            total=int(result["total"]),
            rounds=tuple(Round(**seconds) for seconds in measured["rounds"]),
            source=tuple(Round(**seconds) for seconds in measured["source"]),
            over_mib=measured["memory"]["over_mib"],
            peak_mib=measured["memory"]["peak_mib"],
            measured=dict(measured),
        )
    if not found.rounds or len(found.rounds) != len(found.source) or found.samples < 1:
        raise InputError("its rounds contradict each other; measure it again.")
    return found


def ordered(found: Sequence[Efficiency]) -> list[Efficiency]:
    """Return them with the known methods first, in their usual order."""
    known = {name: place for place, name in enumerate(METHODS)}
    return sorted(found, key=lambda entry: known.get(entry.label, len(known)))
