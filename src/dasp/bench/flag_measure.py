"""How often each indicator flags a modality: a damaged one, a healthy one, any on clean data.

Nothing adapts here. An indicator is judged against its own level on clean training samples, and a
modality counts as flagged where it deviates by more than a threshold; several are counted at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dasp.bench.features import Features, Part, own_domain
from dasp.bench.indicator_measure import Measure, whole_batches
from dasp.core.seeding import numpy_generator
from dasp.core.types import Fused
from dasp.methods.indicators import Look, Values
from dasp.methods.levels import Level, Levels, clean_levels, deviations
from dasp.streams.domains import Domain
from dasp.streams.orders import sample_order

THRESHOLDS = (*(step / 2 for step in range(2, 13)), 7.0, 8.0, 10.0, 12.0, 16.0, 20.0)
ORDERS = ("shuffled", "sorted")
CLEAN_ORDERS = 8  # in which clean samples come: of one order alone there are too few batches
Flagged = NDArray[np.bool_]
"""By indicator, threshold and batch."""


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
        name = "clean" if domain is None else str(domain)
        for again in range(CLEAN_ORDERS if domain is None else 1):
            # The first order is the one in which a run meets this domain.
            purpose = ("order", name, *([str(again)] if again else []))
            draws = numpy_generator(self.seed, *purpose)
            yield from whole_batches(sample_order(order, self.labels.numpy(), size, draws), size)


def levels_of(clean: Look, size: int, seed: int) -> dict[str, dict[str, Level]]:
    """Return the levels of all indicators, for batches of one size."""
    return clean_levels(clean, size, numpy_generator(seed, "clean batches", str(size)))


def count_flags(
    watch: Watch, domains: Sequence[Domain], clean: Look, levels: Mapping[int, Levels]
) -> dict[int, dict[str, Any]]:
    """Return how many batches are flagged, by batch size (those of `levels`) and order.

    Counts are by indicator and threshold: batches of clean data with any flag (`clean`), of each
    domain with the damaged modality flagged (`domains`), of all domains with a healthy modality
    flagged (`healthy`).
    """
    found: dict[int, dict[str, Any]] = {
        size: {order: {"domains": []} for order in ORDERS} for size in levels
    }
    healthy: dict[tuple[int, str], list[Flagged]] = {}
    for domain in [None, *domains]:
        look = watch.look(domain)
        for size, order in product(levels, ORDERS):
            batches = watch.batches(domain, order, size)
            deviating = [deviations(look[rows], clean, levels[size]) for rows in batches]
            hits, others = flagged(deviating, None if domain is None else domain.modality)
            if domain is None:
                found[size][order]["clean"] = _counts(others)
            else:
                found[size][order]["domains"].append({"name": str(domain), **_counts(hits)})
                healthy.setdefault((size, order), []).append(others)
    for (size, order), each in healthy.items():
        found[size][order]["healthy"] = _counts(np.concatenate(each, axis=2))
    return found


def flagged(
    batches: Sequence[Mapping[str, Values]], damaged: str | None
) -> tuple[Flagged, Flagged]:
    """Tell for each batch whether the damaged modality is flagged, and whether any other is."""
    modalities = list(next(iter(batches[0].values())))
    values = [[list(found.values()) for found in batch.values()] for batch in batches]
    # (modalities, indicators, thresholds, batches)
    over = np.array(values).T[:, :, None, :] > np.array(THRESHOLDS)[:, None]
    mine = np.array([name == damaged for name in modalities])
    return over[mine].any(axis=0), over[~mine].any(axis=0)


def _counts(found: Flagged) -> dict[str, Any]:
    return {"batches": found.shape[2], "flagged": found.sum(axis=2).tolist()}


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
