"""What indicators flag, read from the files of `bench/flags.py`, and the rates that follow."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dasp.bench.flags import FORMAT
from dasp.core.errors import InputError
from dasp.report.fields import reading
from dasp.report.runs import CLEAN

QUIET = 98.0
"""Per cent of clean batches that must stay without a flag, for a threshold to be of use."""
Grid = Sequence[Sequence[int]]
"""Batches by indicator and threshold."""
Spot = tuple[int, int]


@dataclass(frozen=True)
class Counts:
    """Batches of one domain in one order of the samples."""

    name: str
    batches: int
    wrong: Grid  # with a healthy modality flagged
    hits: Grid  # with the damaged modality flagged; of clean data none

    @property
    def damaged(self) -> str | None:
        """Return the damaged modality, None where the data are clean."""
        return None if self.name == CLEAN else self.name.split("/")[0]

    @property
    def short(self) -> str:
        """Return the domain without its severity: "video fog"."""
        return " ".join(self.name.split("/")[:2]).replace("_", " ")


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
    orders: Mapping[str, Sequence[Counts]]

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
            key=str(content["key"]),
            data=dict(cell["data"]),
            model={"name": cell["model"]["name"], **cell["model"]},
            severity=int(cell["severity"]),
            batch_size=int(cell["batch_size"]),
            seed=int(cell["seed"]),
            corruptions=tuple(cell["corruptions"]),
            source=dict(cell["source"]),
            modalities=tuple(result["modalities"]),
            indicators=tuple(map(str, result["indicators"])),
            thresholds=tuple(map(float, result["thresholds"])),
            orders={
                str(order): tuple(
                    Counts(str(d["name"]), int(d["batches"]), d["wrong"], d.get("hits", ()))
                    for d in domains
                )
                for order, domains in result["orders"].items()
            },
        )
        if not _sound(found):
            raise InputError("its figures contradict each other; measure it again.")
    return found


def _sound(found: Flags) -> bool:
    shape = [len(found.thresholds)] * len(found.indicators)
    return bool(found.orders) and all(
        [counts.damaged for counts in domains].count(None) == 1
        and all(
            [len(row) for row in grid] == shape
            and all(0 <= count <= counts.batches for row in grid for count in row)
            for counts in domains
            for grid in ((counts.wrong,) if counts.damaged is None else (counts.wrong, counts.hits))
        )
        for domains in found.orders.values()
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
        """Return the lowest threshold that leaves clean data alone, or the highest if none does."""
        spots = [(indicator, place) for place in range(len(self.views[0].thresholds))]
        return next((spot for spot in spots if self.is_quiet(spot)), spots[-1])

    def is_quiet(self, spot: Spot) -> bool:
        """Tell whether `QUIET` per cent of clean batches have no flag, in each order."""
        return all(fmean(Rates(self.views, [order]).clean(spot)) >= QUIET for order in self.orders)

    def clean(self, spot: Spot) -> list[float]:
        """Return the share of clean batches without a flag."""
        return [100 - s for s in self._shares("wrong", spot, lambda _, c: c.damaged is None)]

    def wrong(self, spot: Spot) -> list[float]:
        """Return the share of damaged batches with a healthy modality flagged."""
        return self._shares("wrong", spot, lambda _, counts: counts.damaged is not None)

    def hits(
        self, spot: Spot, severity: int | None = None, modality: str = "", domain: str = ""
    ) -> list[float]:
        """Return the share of damaged batches with the damaged modality flagged.

        Of one severity, one damaged modality or one domain ("video fog"), if named.
        """
        return self._shares(
            "hits",
            spot,
            lambda view, counts: (
                counts.damaged is not None
                and severity in (None, view.severity)
                and modality in ("", counts.damaged)
                and domain in ("", counts.short)
            ),
        )

    def _shares(
        self, count: str, spot: Spot, wanted: Callable[[Flags, Counts], bool]
    ) -> list[float]:
        sums: dict[str, list[int]] = {}
        for view in self.views:
            for counts in (c for order in self.orders for c in view.orders[order]):
                if wanted(view, counts):
                    total = sums.setdefault(view.replicate, [0, 0])
                    total[0] += getattr(counts, count)[spot[0]][spot[1]]
                    total[1] += counts.batches
        return [100 * part / whole for part, whole in sums.values()]
