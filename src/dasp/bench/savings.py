"""What the store saved: how often its arrays were needed, and what making each took."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dasp.bench.features import Features, Part, own_domain, parts_of
from dasp.bench.references import find_method
from dasp.bench.results import Cell

MAKING = ("decode", "corrupt", "encode")


@dataclass(frozen=True)
class Saving:
    """The arrays of one modality: tokens, or raw inputs for methods that tune the encoders."""

    kind: str
    modality: str
    arrays: int
    uses: int
    once: dict[str, float]
    """Seconds that making each array once took."""
    each_time: dict[str, float]
    """Seconds that making them for every use would take."""

    @property
    def saved(self) -> float:
        """Return the seconds of making that were saved."""
        return sum(self.each_time.values()) - sum(self.once.values())


def savings(features: Features, cells: Iterable[Cell]) -> list[Saving]:
    """Return what the store of `features` saves for these cells, by kind and modality.

    An array that is not there, or that was kept before times were, counts for nothing.
    """
    uses: Counter[Part] = Counter()
    for cell in cells:
        uses.update(_uses(cell, tuple(features.model.modalities)))  # type: ignore[arg-type]
    groups: dict[tuple[str, str], list[Part]] = {}
    for part in uses:
        groups.setdefault(("tokens" if part.encoded else "inputs", part.modality), []).append(part)
    found = []
    for (kind, modality), parts in sorted(groups.items()):
        costs = [(_cost(features, part), uses[part]) for part in parts]
        found.append(
            Saving(
                kind,
                modality,
                arrays=len(parts),
                uses=sum(count for _, count in costs),
                once={work: sum(cost[work] for cost, _ in costs) for work in MAKING},
                each_time={work: sum(n * cost[work] for cost, n in costs) for work in MAKING},
            )
        )
    return found


def _uses(cell: Cell, modalities: tuple[str, ...]) -> Iterable[Part]:
    """Give each array that a cell needs as often as its stream comes to it."""
    encoded = not find_method(cell.method).tunes_encoder
    for visit in cell.visits():
        for condition in visit.conditions:
            for part in parts_of([condition], modalities, encoded, cell.tokens):
                yield Part(part.modality, own_domain(part), part.encoded, part.precision)


def _cost(features: Features, part: Part) -> dict[str, float]:
    """Return the seconds of each kind of work that a part takes from nothing."""
    assert features.store is not None
    seconds = dict.fromkeys(MAKING, 0.0)
    parts = {part, Part(part.modality, part.domain, encoded=False)}
    for own in parts:
        took = features.store.about(features.key(own)).get("seconds", {})
        for work in MAKING:
            seconds[work] += took.get(work, 0.0)
    return seconds
