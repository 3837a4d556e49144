"""How the cost of a plan grows with its methods and with the processes that run it."""

import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dasp.bench.cell import run_cell
from dasp.bench.features import Features
from dasp.bench.plan import Entry, Plan
from dasp.bench.plan_files import load_plan
from dasp.bench.prepare import Place
from dasp.bench.references import find_method, find_model
from dasp.bench.runner import run_plan
from dasp.bench.store import Store

METHODS = (1, 2, 3, 4, 6)
WORKERS = (1, 2, 4, 8)
ROUNDS = 2
CORRUPTIONS = ("fog", "contrast", "rain", "traffic")
Curve = tuple[Sequence[int], dict[str, list[float]]]


def method_curves(samples: int) -> Curve:
    """Processor seconds of a plan of so many methods, with the store, its filling counted, or not.

    All methods are DASP at learning rates of their own, so that one costs as much as another.
    """
    stored, anew = ([float("inf")] * len(METHODS) for _ in range(2))
    for _ in range(ROUNDS):  # the quickest counts
        for place, count in enumerate(METHODS):
            plan = small_plan(samples, [1e-4 * (number + 1) for number in range(count)])
            with tempfile.TemporaryDirectory() as folder:
                stored[place] = min(stored[place], seconds(plan, Store(folder)))
            anew[place] = min(anew[place], seconds(plan, None))
    return METHODS, {"with the store": stored, "without": anew}


def seconds(plan: Plan, store: Store | None) -> float:
    """Run every cell here, one after another."""
    features = Features(plan.data.open(), find_model(plan.models[0]), store)
    cells = plan.cells()
    start = time.process_time()
    for cell in cells:
        run_cell(cell, find_method(cell.method), features)
    return time.process_time() - start


def worker_curve(samples: int) -> Curve:
    """Processor seconds of eight equal runs, from a full store, by how many processes share them.

    Flat is right: work that is shared is not more work. What it grows by is the start of a process.
    """
    plan = small_plan(samples, [1e-4 * (place + 1) for place in range(max(WORKERS))])
    found = []
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder) / "first", Path(folder) / "store")
        run_plan(plan, place, show=False)
        for workers in WORKERS:
            place = replace(place, results=Path(folder) / str(workers), workers=workers)
            before = spent()
            run_plan(plan, place, show=False)
            found.append(spent() - before)
    return WORKERS, {"eight runs": found}


def spent() -> float:
    """Return the processor seconds of this process and of those it started, so far."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def small_plan(samples: int, rates: Sequence[float]) -> Plan:
    plan = load_plan("quick")
    return replace(
        plan,
        methods={f"dasp {rate:g}": Entry("dasp", {"lr": rate}) for rate in rates},
        models=("sounding_shapes_0",),
        protocols=("interleaved",),
        corruptions=CORRUPTIONS,
        data=replace(plan.data, samples=samples),
    )
