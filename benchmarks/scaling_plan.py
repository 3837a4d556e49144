"""The full evaluation as the bench would run it: its runs and its arrays, with no data on disk."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from dasp.bench.features import Part, own_domain, parts_of
from dasp.bench.material import SOURCE_SAMPLES, DataOptions
from dasp.bench.plan import MAIN_PROTOCOLS
from dasp.bench.plan_files import load_plan
from dasp.bench.references import find_method
from dasp.bench.results import Cell
from dasp.data.sets import SPECS
from dasp.models import CavMae
from dasp.streams.domains import SEVERITIES
from dasp.streams.protocols import visits

MODALITIES = CavMae.modalities
SEEDS = tuple(range(10))
MAIN = "robust/paper"  # every method, and the robust variant with and without clean samples
ABLATIONS = ("paper/ablation", "paper/differences", "paper/sensitivity")  # at severity 5


@dataclass(frozen=True)
class Sized:
    """A data set of which only the size is known."""

    name: str
    clips: int

    @property
    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "samples": self.clips}

    def source(self, count: int = SOURCE_SAMPLES) -> "Sized":
        return replace(self, clips=count)


@dataclass(frozen=True)
class Listed(DataOptions):
    """A published data set, opened without its files."""

    def open(self) -> Sized:  # type: ignore[override]
        return Sized(self.name, SPECS[self.name].clips)


def stand_in() -> CavMae:
    """A model of the right modalities: what a plan consists of does not depend on its size."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the same one for every plan, so that equal runs are equal
        return CavMae(embed_dim=12, depth=1, audio_length=16, image_size=16, num_classes=2)


def full_evaluation(data: str) -> list[Cell]:
    """Return every run on one data set, each once: all severities and seeds, then the ablations."""
    shared: dict[str, Any] = {
        "data": Listed(data),
        "models": (f"{Path(__file__)}:stand_in",),
        "seeds": SEEDS,
        "clean_after": 0,
    }
    main = replace(load_plan(MAIN), **shared, protocols=MAIN_PROTOCOLS, severities=SEVERITIES)
    cells = {cell.key: cell for cell in main.cells()}
    for name in ABLATIONS:
        plan = load_plan(name)
        kept = tuple(protocol for protocol in plan.protocols if protocol in MAIN_PROTOCOLS)
        cells |= {cell.key: cell for cell in replace(plan, **shared, protocols=kept).cells()}
    return list(cells.values())


def samples_of(cell: Cell) -> int:
    """Return how many samples a run sees."""
    return conditions_of(cell.protocol, cell.severity) * int(cell.data["samples"])


@cache
def conditions_of(protocol: str, severity: int) -> int:
    """Return how often a stream of all corruptions goes through the data set."""
    return sum(len(visit.conditions) for visit in visits(protocol, severity))


def on_tokens(cell: Cell) -> bool:
    """Tell whether a run reads tokens; else it reads inputs and encodes them itself."""
    return not find_method(cell.method).tunes_encoder


def arrays(cells: list[Cell]) -> set[Part]:
    """Return the distinct arrays that these runs read, each under the domain that it has itself."""
    streams = {(cell.protocol, cell.severity, on_tokens(cell)): cell for cell in cells}
    parts = set()
    for (_, _, encoded), cell in streams.items():
        for part in parts_of(_conditions(cell), MODALITIES, encoded):
            parts.add(replace(part, domain=own_domain(part)))
    return parts


def _conditions(cell: Cell) -> Iterator[Any]:
    for visit in cell.visits():
        yield from visit.conditions
