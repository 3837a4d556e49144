"""Run a plan of kind "flags": what each indicator flags, and what it should have flagged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from dasp.bench import flag_measure, indicator_measure
from dasp.bench.engines.local import LOCAL
from dasp.bench.features import Features
from dasp.bench.flag_measure import (
    THRESHOLDS,
    Watch,
    count_flags,
    levels_as_data,
    levels_of,
    look_at_source,
)
from dasp.bench.indicators import Indicators, View, domains_of, items_of
from dasp.bench.plan import Plan
from dasp.bench.prepare import Place
from dasp.bench.work import Engine, Item, run_work
from dasp.methods import batch_statistics, indicators, profile, redundancy
from dasp.methods import levels as level_code
from dasp.methods.indicators import COMBINATIONS, INDICATORS

FORMAT = "dasp-flags-1"
CLEAN_SAMPLES = 128  # of the training split, from which levels are learnt
MEASURING = (flag_measure, indicator_measure, level_code)
JUDGING = (indicators, batch_statistics, profile, redundancy)


@dataclass(frozen=True)
class FlagView(View):
    """One file: what indicators flag in all domains of a severity, in batches of one size."""

    kind: ClassVar[str] = "flags"

    source: dict[str, Any] = field(default_factory=dict)  # the clean samples


class Flags(Indicators):
    """Counts the flags of one model at one severity."""

    format = FORMAT

    def results(self, features: Features, views: Sequence[View]) -> Iterable[dict[str, Any]]:
        """Give what is flagged for each view of a model."""
        watch = Watch(features, views[0].seed)
        clean = look_at_source(features, CLEAN_SAMPLES, watch.seed)
        levels = {v.batch_size: levels_of(clean, v.batch_size, watch.seed) for v in views}
        damaged = domains_of(watch.modalities, views[0].severity, views[0].corruptions)
        found = count_flags(watch, damaged, clean, levels)
        for size, mine in levels.items():
            yield {
                "modalities": list(watch.modalities),
                "indicators": [*INDICATORS, *COMBINATIONS],
                "thresholds": list(THRESHOLDS),
                "levels": levels_as_data(mine),
                "orders": found[size],
            }


def run_flags(plan: Plan, place: Place, show: bool = True, engine: Engine = LOCAL) -> list[Path]:
    """Measure what is not measured yet; return the files of all views of the plan."""
    return run_work(Flags(plan.data), _items(plan), place, engine, show)


def flag_files(plan: Plan) -> list[str]:
    """Return the names of the files that a plan makes, before any is made."""
    return [view.filename for item in _items(plan) for view in item.wanted]


def _items(plan: Plan) -> list[Item]:
    source = plan.data.open().source(CLEAN_SAMPLES).identity
    return items_of(plan, partial(FlagView, source=source), MEASURING + JUDGING)
