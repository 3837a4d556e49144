"""What every kind of plan has in common: items that give result files, done by an engine."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

from dasp.bench.cell import Tick
from dasp.bench.features import Features, Part
from dasp.bench.material import DataOptions
from dasp.bench.prepare import Place
from dasp.bench.references import find_model
from dasp.bench.results import FORMAT, Settings, is_done, write_result

Outcome = tuple[dict[str, Any], dict[str, Any]]
"""What was counted, and what was measured."""


@dataclass(frozen=True)
class Item:
    """What is done in one go: the files that a model gives together."""

    model: str  # its reference
    wanted: tuple[Settings, ...]  # one a file

    @property
    def key(self) -> str:
        """Return what no two items share."""
        return self.wanted[0].key

    @property
    def digest(self) -> str:
        """Return the hash of the model that is meant."""
        return self.wanted[0].model["digest"]


class Work(ABC):
    """How a kind of plan does its items; plain data, which goes to each worker once."""

    format: ClassVar[str] = FORMAT
    title: ClassVar[str] = "adapt"
    on_gpu: ClassVar[bool] = False  # whether its models may be moved to one

    def __init__(self, data: DataOptions) -> None:
        self.data = data

    @abstractmethod
    def name(self, item: Item) -> str:
        """Return what an item is called while it runs."""

    @abstractmethod
    def steps(self, item: Item) -> int:
        """Return how many steps an item tells of."""

    @abstractmethod
    def parts(self, item: Item, modalities: Sequence[str]) -> set[Part]:
        """Return the arrays that an item needs."""

    @abstractmethod
    def outcomes(self, item: Item, features: Features, tick: Tick) -> Iterable[Outcome]:
        """Give the outcome of each file that is wanted, in order."""

    def arrays(self, item: Item) -> list[Part]:
        """Return the arrays that an item needs, in an order that is the same everywhere."""
        parts = self.parts(item, _modalities(item.model))
        return sorted(parts, key=lambda part: (part.modality, str(part.domain), part.encoded))

    def rest(self, item: Item, results: Path) -> Item | None:
        """Return what is not done yet of an item, or None."""
        wanted = tuple(one for one in item.wanted if not is_done(results, one, self.format))
        return replace(item, wanted=wanted) if wanted else None

    def write(self, results: Path, item: Item, outcomes: Iterable[Outcome]) -> None:
        """Write the files of an item, each as soon as its outcome is there."""
        for wanted, outcome in zip(item.wanted, outcomes, strict=True):
            write_result(results, wanted, *outcome, self.format)


class Engine(Protocol):
    """Where items are done: on this machine, or on many."""

    def processes(self, place: Place) -> int | None:
        """Return how many items are done side by side; None if only the cluster knows."""

    def run(
        self, work: Work, items: Sequence[Item], place: Place, done: int, show: bool = True
    ) -> None:
        """Do every item and write its files; `done` items of the plan were done before.

        An item that another runner of the same folder has is left to it, and waited for.
        """


def run_work(
    work: Work, items: Sequence[Item], place: Place, engine: Engine, show: bool = True
) -> list[Path]:
    """Do what is not done yet; return the result files of all items.

    Safe to interrupt and to run twice at once on one folder.
    """
    place.results.mkdir(parents=True, exist_ok=True)
    todo = list(_open(work, items, place.results))
    if todo:
        engine.run(work, todo, place, len(items) - len(todo), show)
    return [place.results / wanted.filename for item in items for wanted in item.wanted]


def _open(work: Work, items: Iterable[Item], results: Path) -> Iterator[Item]:
    for item in items:
        rest = work.rest(item, results)
        if rest is not None:
            yield rest


@cache
def _modalities(model: str) -> tuple[str, ...]:
    return tuple(find_model(model).modalities)  # type: ignore[arg-type]
