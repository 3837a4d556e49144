"""Run a plan of kind "indicators": what each source model shows under every shift."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from dasp.bench import indicator_measure
from dasp.bench.cell import Tick, provenance
from dasp.bench.engines.local import LOCAL
from dasp.bench.features import Features, Part, model_digest, parts_of
from dasp.bench.indicator_measure import Measure, noise_floor
from dasp.bench.plan import Plan
from dasp.bench.prepare import Place
from dasp.bench.references import find_model, model_name
from dasp.bench.store import digest
from dasp.bench.work import Engine, Item, Outcome, Work, run_work
from dasp.core.errors import OptionError
from dasp.corruptions.base import registry
from dasp.methods import redundancy
from dasp.streams.domains import Domain, all_domains
from dasp.streams.visits import CLEAN, Condition

FORMAT = "dasp-indicators-1"


@dataclass(frozen=True)
class View:
    """One file: a model in all domains of a severity, in batches of one size."""

    kind: ClassVar[str] = "indicators"

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
        return f"{self.kind}-{self.severity}-{size}-{model}-{self.seed}-{self.key[:8]}.json"


class Indicators(Work):
    """Measures a model at one severity, a file a batch size: they share the model's passes."""

    format = FORMAT
    title = "measure"

    def name(self, item: Item) -> str:
        """Return the kind and the model."""
        view = views_of(item)[0]
        return f"{view.kind} {view.model['name']} severity {view.severity}"

    def steps(self, item: Item) -> int:
        """Return the number of files."""
        return len(item.wanted)

    def parts(self, item: Item, modalities: Sequence[str]) -> set[Part]:
        """Return the tokens of every domain."""
        view = views_of(item)[0]
        domains = domains_of(modalities, view.severity, view.corruptions)
        conditions = [CLEAN, *(Condition((domain,)) for domain in domains)]
        return parts_of(conditions, modalities, encoded=True)

    def outcomes(self, item: Item, features: Features, tick: Tick) -> Iterable[Outcome]:
        """Give what is found for each view, and what it took since the first was begun."""
        start = time.perf_counter()
        for result in self.results(features, views_of(item)):
            seconds = {"measure": round(time.perf_counter() - start, 3)}
            tick(1, {})
            yield result, {"seconds": seconds, **provenance()}

    def results(self, features: Features, views: Sequence[View]) -> Iterable[dict[str, Any]]:
        """Give what is found for each view of a model."""
        measure = Measure(features, views[0].seed)
        sizes = [view.batch_size for view in views]
        damaged = domains_of(measure.modalities, views[0].severity, views[0].corruptions)
        found = [measure.domain(domain, sizes) for domain in [None, *damaged]]
        for place, view in enumerate(views):
            yield {
                "modalities": list(measure.modalities),
                "noise_floor": noise_floor(measure, view.batch_size),
                "domains": [by_size[place] for by_size in found],
            }


def run_indicators(
    plan: Plan, place: Place, show: bool = True, engine: Engine = LOCAL
) -> list[Path]:
    """Measure what is not measured yet; return the files of all views of the plan."""
    return run_work(Indicators(plan.data), items_of(plan), place, engine, show)


def indicator_files(plan: Plan) -> list[str]:
    """Return the names of the files that a plan makes, before any is made."""
    return [view.filename for item in items_of(plan) for view in item.wanted]


def items_of(
    plan: Plan,
    make: Callable[..., View] = View,
    modules: Sequence[ModuleType] = (indicator_measure, redundancy),
) -> list[Item]:
    """Return what a plan measures, its views made by `make`; `modules` are what measures.

    A wrong name is refused before anything starts.
    """
    identity = plan.data.open().identity
    code = sha256()
    for module in modules:
        code.update(Path(str(module.__file__)).read_bytes())
    items = []
    for model in plan.models:
        found = find_model(model)
        name = {"name": model_name(model), "digest": model_digest(found)}
        for severity in plan.severities:
            domains_of(found.modalities, severity, plan.corruptions)  # type: ignore[arg-type]
            items += [
                Item(
                    model,
                    tuple(
                        make(
                            data=identity,
                            model=name,
                            severity=severity,
                            batch_size=size,
                            seed=seed,
                            corruptions=plan.corruptions,
                            code=code.hexdigest()[:16],
                        )
                        for size in plan.batch_sizes
                    ),
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


def views_of(item: Item) -> list[View]:
    """Return the views of an item."""
    return [view for view in item.wanted if isinstance(view, View)]
