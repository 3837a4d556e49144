"""What source models show under shift, read from the files of `bench/indicators.py`."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dasp.bench.indicator_measure import INDICATORS
from dasp.bench.indicators import FORMAT
from dasp.core.errors import InputError
from dasp.report.fields import reading, view_fields
from dasp.report.runs import CLEAN

SCORES = ("released", "paper")
"""The two forms of redundancy."""
USUAL_BATCH = 64


@dataclass(frozen=True)
class Sight:
    """One modality alone in one domain: right answers, and each indicator."""

    right: int
    means: Mapping[str, float]  # over batches
    deviations: Mapping[str, float | None]  # over batches; None where there is one
    named: Mapping[str, int]  # batches in which the indicator points at this modality


@dataclass(frozen=True)
class DomainView:
    """All modalities in one domain."""

    name: str  # "<modality>/<corruption>/<severity>", or "clean"
    family: str | None
    seen: int
    joint: int  # right answers of all modalities together
    batches: int
    sights: Mapping[str, Sight]

    @property
    def damaged(self) -> str | None:
        """Return the damaged modality, None where the data are clean."""
        return None if self.name == CLEAN else self.name.split("/")[0]

    @property
    def short(self) -> str:
        """Return the domain without its severity: "video fog"."""
        return " ".join(self.name.split("/")[:2]).replace("_", " ")

    def accuracy(self, modality: str) -> float:
        """Return the per cent that this modality alone has right."""
        return 100 * self.sights[modality].right / self.seen

    def points_at(self, indicator: str) -> str | None:
        """Return the modality that looks most shifted in the mean, None in a tie."""
        sign = INDICATORS[indicator]
        values = {name: sign * sight.means[indicator] for name, sight in self.sights.items()}
        best = [name for name, value in values.items() if value == max(values.values())]
        return best[0] if len(best) == 1 else None


@dataclass(frozen=True)
class Indicators:
    """One model in all domains of one severity, in batches of one size."""

    key: str
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    severity: int
    batch_size: int
    seed: int
    corruptions: Sequence[str]
    modalities: Sequence[str]
    noise_floor: Mapping[str, float]
    domains: Sequence[DomainView]

    @property
    def clean(self) -> DomainView:
        """Return what is seen without damage."""
        return next(domain for domain in self.domains if domain.damaged is None)

    def damaging(self, modality: str) -> list[DomainView]:
        """Return the domains that damage one modality."""
        return [domain for domain in self.domains if domain.damaged == modality]


def indicators_of(content: Mapping[str, Any]) -> Indicators:
    """Return what one parsed file holds, or say what is wrong with it."""
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        raise InputError(f"it is not a file of format {FORMAT}.")
    with reading("measure it again"):
        result = content["result"]
        found = Indicators(
            **view_fields(content),
            noise_floor={name: float(result["noise_floor"][name]["mean"]) for name in SCORES},
            domains=tuple(_domain(domain) for domain in result["domains"]),
        )
    if not _sound(found):
        raise InputError("its figures contradict each other; measure it again.")
    return found


def _domain(content: Mapping[str, Any]) -> DomainView:
    sights = {
        name: Sight(
            right=int(sight["right"]),
            means={key: float(sight[key]["mean"]) for key in INDICATORS},
            deviations={key: sight[key]["std"] for key in INDICATORS},
            named={key: int(sight["named"][key]) for key in INDICATORS},
        )
        for name, sight in content["modalities"].items()
    }
    return DomainView(
        name=str(content["name"]),
        family=content["family"],
        seen=int(content["seen"]),
        joint=int(content["joint"]),
        batches=int(content["batches"]),
        sights=sights,
    )


def _sound(found: Indicators) -> bool:
    return [domain.damaged for domain in found.domains].count(None) == 1 and all(
        set(domain.sights) == set(found.modalities)
        and 0 <= domain.joint <= domain.seen
        and domain.seen > 0 < domain.batches
        and all(0 <= sight.right <= domain.seen for sight in domain.sights.values())
        and all(math.isfinite(v) for sight in domain.sights.values() for v in sight.means.values())
        for domain in found.domains
    )


def indicator_groups(found: Iterable[Indicators]) -> list[list[Indicators]]:
    """Sort files into groups that may be averaged: the same data and corruptions."""
    groups: dict[str, list[Indicators]] = {}
    for view in found:
        setting = [view.data, view.corruptions, view.modalities]
        groups.setdefault(json.dumps(setting, sort_keys=True), []).append(view)
    return list(groups.values())


def usual(views: Sequence[Indicators]) -> list[Indicators]:
    """Return the files of the highest severity and the usual batch size."""
    severity = max(view.severity for view in views)
    mine = [view for view in views if view.severity == severity]
    size = usual_size(mine)
    return [view for view in mine if view.batch_size == size]


def usual_size(views: Sequence[Indicators]) -> int:
    """Return the batch size of most files; among equals 64, or what is nearest to it."""
    sizes = [view.batch_size for view in views]
    return min(sizes, key=lambda size: (-sizes.count(size), abs(size - USUAL_BATCH)))


def several_severities(views: Sequence[Indicators]) -> bool:
    """Tell whether something can be shown against severity."""
    return bool(damageable(views)) and len({view.severity for view in views}) > 1


def several_sizes(views: Sequence[Indicators]) -> bool:
    """Tell whether something can be shown against batch size."""
    return len({view.batch_size for view in views}) > 1


def shows_domains(views: Sequence[Indicators]) -> bool:
    """Tell whether the domains are shown one by one: not where only the batch size varies."""
    return several_severities(views) or (bool(damageable(views)) and not several_sizes(views))


def dominant(views: Sequence[Indicators]) -> str:
    """Return the modality that is right most often alone on clean data, in the mean."""
    names = views[0].modalities
    return max(names, key=lambda name: average(view.clean.accuracy(name) for view in views))


def damageable(views: Sequence[Indicators]) -> list[str]:
    """Return the modalities that some domain damages, the dominant one first."""
    first = dominant(views)
    names = [name for name in views[0].modalities if views[0].damaging(name)]
    return sorted(names, key=lambda name: name != first)


def average(values: Iterable[float]) -> float:
    """Return the mean, NaN of nothing: a figure leaves that out."""
    numbers = list(values)
    return statistics.fmean(numbers) if numbers else math.nan


class OfModel(Protocol):
    """What was measured on a source model."""

    @property
    def model(self) -> Mapping[str, Any]:
        """Return its name and digest."""


def how_many_models(views: Iterable[OfModel]) -> str:
    """Say how many source models stand behind a figure."""
    count = len({(view.model["name"], view.model.get("digest")) for view in views})
    return "one source model" if count == 1 else f"mean over {count} source models"
