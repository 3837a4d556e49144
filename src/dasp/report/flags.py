"""What indicators flag, read from the files of `bench/flags.py`, and the rates that follow."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dasp.bench.flags import FORMAT
from dasp.core.errors import InputError
from dasp.report.fields import reading, view_fields

QUIET = 98.0
"""Per cent of batches that must stay without a false alarm, for a threshold to be of use."""
Grid = Sequence[Sequence[int]]
"""Batches by indicator and threshold."""
Spot = tuple[int, int]


@dataclass(frozen=True)
class Counts:
    """Batches, and how many of them are flagged."""

    batches: int
    flagged: Grid


@dataclass(frozen=True)
class Order:
    """What is flagged while the samples come in one order."""

    clean: Counts  # of clean data: any modality
    healthy: Counts  # of all domains: one that is not damaged
    domains: Mapping[str, Counts]  # of each domain, as "video/fog/5": the damaged one


@dataclass(frozen=True)
class Flags:
    """One model in all domains of one severity, in batches of one size."""

    key: str
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    severity: int
    batch_size: int
    seed: int
    corruptions: Sequence[str]
    source: Mapping[str, Any]  # the clean samples
    modalities: Sequence[str]
    indicators: Sequence[str]
    thresholds: Sequence[float]
    orders: Mapping[str, Order]

    @property
    def replicate(self) -> str:
        """Return what tells apart the models and seeds that a rate is averaged over."""
        return f"{self.model['name']} {self.model.get('digest')} {self.seed}"


def flags_of(content: Mapping[str, Any]) -> Flags:
    """Return what one parsed file holds, or say what is wrong with it."""
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        raise InputError(f"it is not a file of format {FORMAT}.")
    with reading("measure it again"):
        cell, result = content["cell"], content["result"]
        found = Flags(
            **view_fields(content),
            source=dict(cell["source"]),
            indicators=tuple(map(str, result["indicators"])),
            thresholds=tuple(map(float, result["thresholds"])),
            orders={str(name): _order(order) for name, order in result["orders"].items()},
        )
        if not _sound(found):
            raise InputError("its figures contradict each other; measure it again.")
    return found


def _order(content: Mapping[str, Any]) -> Order:
    return Order(
        clean=_counts(content["clean"]),
        healthy=_counts(content["healthy"]),
        domains={str(domain["name"]): _counts(domain) for domain in content["domains"]},
    )


def _counts(content: Mapping[str, Any]) -> Counts:
    return Counts(int(content["batches"]), tuple(map(tuple, content["flagged"])))


def _sound(found: Flags) -> bool:
    shape = [len(found.thresholds)] * len(found.indicators)
    return bool(found.orders) and all(
        [len(row) for row in counts.flagged] == shape
        and all(0 <= count <= counts.batches > 0 for row in counts.flagged for count in row)
        for order in found.orders.values()
        for counts in (order.clean, order.healthy, *order.domains.values())
    )


def flag_groups(found: Iterable[Flags]) -> list[list[Flags]]:
    """Sort files into groups that may be averaged: the same data, indicators and thresholds."""
    groups: dict[str, list[Flags]] = {}
    for view in found:
        setting: list[Any] = [view.data, view.source, view.corruptions, view.modalities]
        setting += [view.indicators, view.thresholds, sorted(view.orders)]
        groups.setdefault(json.dumps(setting, sort_keys=True), []).append(view)
    return list(groups.values())


@dataclass(frozen=True)
class Rates:
    """Rates of files of one batch size, in some orders of the samples, in % for each model.

    A `spot` is the place of an indicator and that of a threshold.
    """

    views: Sequence[Flags]
    orders: Sequence[str]

    def quiet_spot(self, indicator: int) -> Spot:
        """Return the lowest threshold without too many false alarms, the highest if none is."""
        spots = [(indicator, place) for place in range(len(self.views[0].thresholds))]
        return next((spot for spot in spots if self.is_quiet(spot)), spots[-1])

    def is_quiet(self, spot: Spot) -> bool:
        """Tell whether, in each order, `QUIET` per cent of batches have no false alarm.

        Neither clean batches any flag, nor damaged ones a flag on a healthy modality.
        """
        each = [Rates(self.views, [order]) for order in self.orders]
        calm = [(fmean(rates.clean(spot)), 100 - fmean(rates.wrong(spot))) for rates in each]
        return all(share >= QUIET for pair in calm for share in pair)

    def clean(self, spot: Spot) -> list[float]:
        """Return the share of clean batches without a flag."""
        return [100 - share for share in self._shares(spot, lambda _, order: [order.clean])]

    def wrong(self, spot: Spot) -> list[float]:
        """Return the share of damaged batches with a healthy modality flagged."""
        return self._shares(spot, lambda _, order: [order.healthy])

    def hits(self, spot: Spot, severity: int | None = None, domain: str = "") -> list[float]:
        """Return the share of damaged batches with the damaged modality flagged.

        Of one severity, and of the domains whose names begin with `domain` ("video/"), if given.
        """

        def chosen(view: Flags, order: Order) -> list[Counts]:
            mine = severity in (None, view.severity)
            return [c for name, c in order.domains.items() if mine and name.startswith(domain)]

        return self._shares(spot, chosen)

    def _shares(
        self, spot: Spot, chosen: Callable[[Flags, Order], Iterable[Counts]]
    ) -> list[float]:
        sums: dict[str, list[int]] = {}
        for view in self.views:
            for counts in (c for name in self.orders for c in chosen(view, view.orders[name])):
                total = sums.setdefault(view.replicate, [0, 0])
                total[0] += counts.flagged[spot[0]][spot[1]]
                total[1] += counts.batches
        return [100 * part / whole for part, whole in sums.values()]
