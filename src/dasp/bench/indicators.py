"""Run a plan of kind "indicators": what each source model shows under every shift."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from dasp.bench import indicator_measure
from dasp.bench.cell import provenance
from dasp.bench.features import Part, model_digest, parts_of
from dasp.bench.indicator_measure import Measure, noise_floor
from dasp.bench.plan import Plan
from dasp.bench.prepare import Place, fill_store, open_features
from dasp.bench.progress import Bars
from dasp.bench.references import find_model, model_name
from dasp.bench.results import is_done, write_result
from dasp.bench.store import digest
from dasp.core.errors import OptionError
from dasp.corruptions.base import registry
from dasp.data.parallel import run_jobs
from dasp.methods import redundancy
from dasp.streams.domains import Domain, all_domains
from dasp.streams.visits import CLEAN, Condition

FORMAT = "dasp-indicators-1"


@dataclass(frozen=True)
class View:
    """One file: a model in all domains of a severity, in batches of one size."""

    data: dict[str, Any]
    model: dict[str, str]
    severity: int
    batch_size: int
    seed: int
    corruptions: tuple[str, ...] = ()
    code: str = ""  # hash of what measures

    @property
    def key(self) -> str:
        """Return the hash of all settings; views of different settings never share it."""
        return digest(asdict(self))

    @property
    def filename(self) -> str:
        """Return a name that a reader understands and that no other view has."""
        model = self.model["name"].replace("/", "-")
        size = f"batch{self.batch_size}"
        return f"indicators-{self.severity}-{size}-{model}-{self.seed}-{self.key[:8]}.json"


Item = tuple[str, list[View]]
"""A model's reference, and its views of one severity and seed: they share the model's passes."""


class Job:
    """What a worker does; it goes to each worker once, models and data are opened there."""

    def __init__(self, plan: Plan, place: Place) -> None:
        self.plan, self.place = plan, place

    def __call__(self, item: Item) -> None:
        """Measure one model at one severity, and write a file a batch size."""
        torch.set_num_threads(1)
        start = time.perf_counter()
        model, views = item
        measure = Measure(open_features(model, self.plan.data, self.place), views[0].seed)
        sizes = [view.batch_size for view in views]
        damaged = domains_of(measure.modalities, views[0].severity, views[0].corruptions)
        found = [measure.domain(domain, sizes) for domain in [None, *damaged]]
        for place, view in enumerate(views):
            result = {
                "modalities": list(measure.modalities),
                "noise_floor": noise_floor(measure, view.batch_size),
                "domains": [by_size[place] for by_size in found],
            }
            seconds = {"measure": round(time.perf_counter() - start, 3)}
            measured = {"seconds": seconds, **provenance()}
            write_result(self.place.results, view, result, measured, FORMAT)


def run_indicators(plan: Plan, place: Place, show: bool = True) -> list[Path]:
    """Measure what is not measured yet; return the files of all views of the plan.

    Safe to interrupt: a view that is written is not made again.
    """
    items = items_of(plan)
    place.results.mkdir(parents=True, exist_ok=True)
    still = [
        (model, [view for view in views if not is_done(place.results, view, FORMAT)])
        for model, views in items
    ]
    todo = [(model, views) for model, views in still if views]
    if todo:
        with Bars(show) as bars:
            fill_store(_needed(todo), plan.data, place, bars)
            bars.phase("measure", run_jobs(Job(plan, place), todo, place.workers), len(todo))
    return [place.results / view.filename for _, views in items for view in views]


def indicator_files(plan: Plan) -> list[str]:
    """Return the names of the files that a plan makes, before any is made."""
    return [view.filename for _, views in items_of(plan) for view in views]


def items_of(plan: Plan) -> list[Item]:
    """Return what a plan measures; a wrong name is refused before anything starts."""
    identity = plan.data.open().identity
    code = sha256()
    for module in (indicator_measure, redundancy):
        code.update(Path(str(module.__file__)).read_bytes())
    items = []
    for model in plan.models:
        found = find_model(model)
        name = {"name": model_name(model), "digest": model_digest(found)}
        for severity in plan.severities:
            domains_of(found.modalities, severity, plan.corruptions)  # type: ignore[arg-type]
            items += [
                (
                    model,
                    [
                        View(
                            data=identity,
                            model=name,
                            severity=severity,
                            batch_size=size,
                            seed=seed,
                            corruptions=plan.corruptions,
                            code=code.hexdigest()[:16],
                        )
                        for size in plan.batch_sizes
                    ],
                )
                for seed in plan.seeds
            ]
    return items


def domains_of(
    modalities: Sequence[str], severity: int, corruptions: Sequence[str]
) -> list[Domain]:
    """Return every domain of the modalities that have corruptions."""
    known = [name for name in modalities if _has_corruptions(name)]
    return all_domains(known, corruptions, (severity,))


def _has_corruptions(modality: str) -> bool:
    try:
        registry(modality)
    except OptionError:
        return False
    return True


def _needed(items: Sequence[Item]) -> dict[str, set[Part]]:
    """Return the arrays that each model needs."""
    needed: dict[str, set[Part]] = {}
    for model, views in items:
        names: tuple[str, ...] = tuple(find_model(model).modalities)  # type: ignore[arg-type]
        domains = domains_of(names, views[0].severity, views[0].corruptions)
        conditions = [CLEAN, *(Condition((domain,)) for domain in domains)]
        needed.setdefault(model, set()).update(parts_of(conditions, names, encoded=True))
    return needed
