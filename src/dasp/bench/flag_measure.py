"""How often each indicator flags a modality: a damaged one, a healthy one, any on clean data.

Nothing adapts here. An indicator is judged against its own level on clean training samples, and a
modality counts as flagged where it deviates by more than a threshold; several are counted at once.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from dasp.bench.features import Features, Part, own_domain
from dasp.bench.indicator_measure import Measure, whole_batches
from dasp.core.seeding import numpy_generator
from dasp.core.types import Fused
from dasp.methods.indicators import Look, Values
from dasp.methods.levels import Level, Levels, clean_levels, deviations
from dasp.streams.domains import Domain
from dasp.streams.orders import sample_order

THRESHOLDS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0)
ORDERS = ("shuffled", "sorted")
CLEAN_ORDERS = 8  # in which clean samples come: of one order alone there are too few batches


class Watch(Measure):
    """Looks at the domains of one model; a modality's clean samples are passed once for all."""

    def __init__(self, features: Features, seed: int) -> None:
        super().__init__(features, seed)
        self._views: dict[str, Fused] = {}

    def look(self, domain: Domain | None) -> Look:
        """Return what the model makes of all samples of a domain (None: clean)."""
        seen = {name: self._view(Part(name, domain, True)) for name in self.modalities}
        return Look(seen, self._pass(self.modalities, domain)[1])

    def _view(self, part: Part) -> Fused:
        clean = own_domain(part) is None
        if clean and part.modality in self._views:
            return self._views[part.modality]
        found = Fused(*self._pass((part.modality,), part.domain))
        if clean:
            self._views[part.modality] = found
        return found

    def batches(self, domain: Domain | None, order: str, size: int) -> Iterator[Tensor]:
        """Give the rows of each whole batch of a domain, clean samples in several orders."""
        for again in range(CLEAN_ORDERS if domain is None else 1):
            # The first order is the one in which a run meets this domain.
            purpose = ("order", domain_name(domain), *([str(again)] if again else []))
            draws = numpy_generator(self.seed, *purpose)
            yield from whole_batches(sample_order(order, self.labels.numpy(), size, draws), size)


def levels_of(clean: Look, size: int, seed: int) -> dict[str, dict[str, Level]]:
    """Return the levels of all indicators, for batches of one size."""
    return clean_levels(clean, size, numpy_generator(seed, "clean batches", str(size)))


def count_flags(
    watch: Watch, domain: Domain | None, clean: Look, levels: Mapping[int, Levels]
) -> dict[int, dict[str, Any]]:
    """Return how many batches of a domain are flagged, by batch size (those of `levels`) and order.

    Counts are by indicator and threshold: of the damaged modality if there is one (`hits`), of any
    other (`wrong`, at most one a batch).
    """
    look = watch.look(domain)
    damaged = None if domain is None else domain.modality
    found: dict[int, dict[str, Any]] = {}
    for size, mine in levels.items():
        found[size] = {}
        for order in ORDERS:
            batches = watch.batches(domain, order, size)
            deviating = [deviations(look[rows], clean, mine) for rows in batches]
            found[size][order] = {"name": domain_name(domain), **_counted(deviating, damaged)}
    return found


def domain_name(domain: Domain | None) -> str:
    """Return the name of a domain in results."""
    return "clean" if domain is None else str(domain)


def _counted(batches: list[dict[str, Values]], damaged: str | None) -> dict[str, Any]:
    modalities = list(next(iter(batches[0].values())))
    values = [[list(found.values()) for found in batch.values()] for batch in batches]
    # (modalities, indicators, thresholds, batches)
    over = np.array(values).T[:, :, None, :] > np.array(THRESHOLDS)[:, None]
    healthy = [name != damaged for name in modalities]
    counts = {"batches": len(batches), "wrong": over[healthy].any(axis=0).sum(axis=2).tolist()}
    if damaged is not None:
        counts["hits"] = over[modalities.index(damaged)].sum(axis=2).tolist()
    return counts


def levels_as_data(levels: Levels) -> dict[str, dict[str, list[float]]]:
    """Return mean and deviation of each level as plain data."""
    return {
        indicator: {name: [round(x.mean, 6), round(x.std, 6)] for name, x in found.items()}
        for indicator, found in levels.items()
    }


def look_at_source(features: Features, count: int, seed: int) -> Look:
    """Return what the model makes of `count` clean training samples, kept in the store."""
    source = Features(features.material.source(count), features.model, features.store)
    return Watch(source, seed).look(None)
