"""How costs grow: with the stream, the batch, the width, the modalities, the methods, the workers.

    python benchmarks/growth.py             # four minutes on two cores

Small models, one thread, processor time, so that other load counts less; of several rounds that
take turns over the points of a curve the quickest counts. Each curve is fitted by a line in what it
should be a line of. Memory is the most that a process of its own held above what it held before.
`--chunks` pieces of a stream are measured, each of 100 batches, in `--streams` streams.
"""

import ctypes
import resource
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import finish, parse, random_inputs

import dasp
from dasp.bench.cells import run_job
from dasp.bench.engines import Workspace
from dasp.bench.features import Features
from dasp.bench.plan import MethodRow, Plan, load_plan
from dasp.bench.references import find_model
from dasp.bench.runner import run_plan
from dasp.bench.store import Store
from dasp.core.types import Inputs
from dasp.models import Toy

BATCHES = (8, 16, 32, 64, 128, 256)
LARGE_BATCHES = (32, 64, 128, 192, 256)  # smaller ones fit into what a process holds anyway
WIDTHS = (64, 128, 256, 384, 512)
MODALITIES = (2, 3, 4, 6, 8)
METHODS = (1, 2, 3, 4, 6)
WORKERS = (1, 2, 4, 8)
CHUNK = 100  # batches
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    # δ = 0 flags a modality in every batch; of "paper" with a large δ none ever is, and all learn
    # under the KL term: the dearest case, alike for any number of modalities.
    "source": ("source", {}),
    "dasp": ("dasp", {"delta": 0.0}),
    "triage": ("triage", {}),
    "dasp, all unbiased": ("dasp", {"variant": "paper", "delta": 10.0}),
}
Curve = tuple[Sequence[int], dict[str, list[float]]]


def straightness(xs: Sequence[float], ys: Sequence[float]) -> dict[str, float]:
    """Fit cost = fixed + slope · x, and cost ∝ x^exponent.

    `deviation` is the largest distance of a point from the line, relative to the line there. Fixed
    costs lower the exponent below 1 without bending the line.
    """
    x, y = np.asarray(xs, dtype=float), np.asarray(ys, dtype=float)
    # Each point weighs by its own size, as the deviation does: else the last ones decide alone.
    slope, fixed = np.polyfit(x, y, 1, w=1 / y)
    line = fixed + slope * x
    deviation = np.max(np.abs(y - line) / np.abs(line))
    exponent = np.polyfit(np.log(x), np.log(y), 1)[0]
    found = {"fixed": fixed, "slope": slope, "deviation": deviation, "exponent": exponent}
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def curve(x: str, y: str, points: Curve, power: int = 1) -> dict[str, Any]:
    """Return a curve as plain data with its fits: lines in `x`, or in a power of it."""
    xs, series = points
    fitted = [place**power for place in xs]
    return {
        "x": x,
        "y": y,
        "xs": list(xs),
        "series": {name: [round(v, 6) for v in values] for name, values in series.items()},
        "line_in_power": power,
        "fits": {name: straightness(fitted, values) for name, values in series.items()},
    }


def adaptation(way: str, model: torch.nn.Module) -> dasp.Adaptation:
    name, options = WAYS[way]
    tta = dasp.adapt(model, name, **options)
    if name == "triage":
        tta.fit([inputs_of(model, 128, 1, damaged=False)])
    return tta


def inputs_of(model: torch.nn.Module, size: int, seed: int = 0, damaged: bool = True) -> Inputs:
    """Return random inputs; the first sensor is off by more than any diagnosis overlooks."""
    toy = isinstance(model, Toy)
    shapes = dict.fromkeys(model.modalities, (8, model.features)) if toy else model.input_shapes
    inputs = random_inputs(shapes, size, seed)
    if damaged:
        inputs[next(iter(shapes))] *= 5.0
    return inputs


def processor_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def step_curves(
    points: Sequence[int],
    make: Callable[[int], tuple[torch.nn.Module, int]],
    ways: Sequence[str],
    rounds: int,
) -> Curve:
    """Return the least seconds of a step at each point; `make` gives its model and batch size."""
    calls: dict[Any, Callable[[], object]] = {}
    for point in points:
        model, size = make(point)
        inputs = inputs_of(model, size)
        for way in ways:
            tta = adaptation(way, model)
            calls[way, point] = lambda tta=tta, inputs=inputs: tta(inputs)
    best = dict.fromkeys(calls, float("inf"))
    for round_ in range(rounds + 1):
        for name, call in calls.items():
            took = processor_seconds(call)
            best[name] = min(best[name], took) if round_ else best[name]  # the first warms up
    return points, {way: [best[way, point] for point in points] for way in ways}


def stream_curves(ways: Sequence[str], chunks: int, streams: int) -> tuple[Curve, Curve]:
    """Return the seconds of a stream so far, and the MiB held then, after each chunk of it.

    The ways take turns chunk by chunk; of several streams the quickest time of a chunk counts.
    """
    model = Toy(depth=1)
    batches = [inputs_of(model, 32, seed) for seed in range(16)]
    best = {way: [float("inf")] * chunks for way in ways}
    handles = {way: adaptation(way, model) for way in ways}
    for _ in range(1 + streams):  # the first one warms up
        memory = []
        for tta in handles.values():
            tta.reset()
        for chunk in range(chunks):
            for way, tta in handles.items():
                took = processor_seconds(
                    lambda tta=tta: [tta(batches[n % len(batches)]) for n in range(CHUNK)]
                )
                best[way][chunk] = min(best[way][chunk], took)
            memory.append(held("VmRSS"))
    lengths = [CHUNK * (chunk + 1) for chunk in range(chunks)]
    seconds = {way: list(accumulate(best[way])) for way in ways}
    return (lengths, seconds), (lengths, {"all three": memory})


def held(field: str) -> float:
    """Return the MiB that this process holds (VmRSS), or held at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def step_memory(way: str, size: int) -> float:
    with suppress(OSError, AttributeError):  # return what is freed: a peak is what was needed
        library = ctypes.CDLL("libc.so.6")
        for name, value in ((-3, 1 << 16), (-1, 0)):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            library.mallopt(name, value)
    model = find_model("sounding_shapes_0")
    inputs, tta = inputs_of(model, size), adaptation(way, model)
    tta({name: value[:2] for name, value in inputs.items()})
    before = held("VmRSS")
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # begins the peak anew
    for _ in range(2):
        tta(inputs)
    return held("VmHWM") - before


def in_fork(function: Callable[..., float], *given: Any) -> float:
    """Run a function in a process that begins as this one and ends with it."""
    context = torch.multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=lambda: there.send(function(*given)), daemon=True)
    process.start()
    found: float = here.recv()
    process.join()
    return found


def small_plan(samples: int, count: int) -> Plan:
    """Return a plan of DASP at so many learning rates, so that one costs as much as another."""
    rates = [1e-4 * (number + 1) for number in range(count)]
    plan = load_plan("quick")
    return replace(
        plan,
        methods={f"dasp {rate:g}": MethodRow("dasp", {"lr": rate}) for rate in rates},
        models=("sounding_shapes_0",),
        protocols=("interleaved",),
        corruptions=("fog", "contrast", "rain", "traffic"),
        data=replace(plan.data, samples=samples),
    )


def method_curves(samples: int) -> Curve:
    """Return the seconds of plans with the store, its filling counted, and without it."""

    def seconds(plan: Plan, store: Store | None) -> float:
        features = Features(plan.data.open(), find_model(plan.models[0]), store)
        jobs = plan.jobs()
        return processor_seconds(lambda: [run_job(job, features) for _, job in jobs])

    stored, anew = ([float("inf")] * len(METHODS) for _ in range(2))
    for _ in range(2):  # the quickest counts
        for place, count in enumerate(METHODS):
            plan = small_plan(samples, count)
            with tempfile.TemporaryDirectory() as folder:
                stored[place] = min(stored[place], seconds(plan, Store(folder)))
            anew[place] = min(anew[place], seconds(plan, None))
    return METHODS, {"with the store": stored, "without": anew}


def worker_curve(samples: int) -> Curve:
    """Return the processor seconds of eight equal runs by number of processes: flat is right."""
    plan, found = small_plan(samples, max(WORKERS)), []
    with tempfile.TemporaryDirectory() as folder:
        place = Workspace(Path(folder) / "first", Path(folder) / "store")
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


def measure(options) -> Mapping[str, dict[str, Any]]:
    ways, rounds = ("source", "dasp", "triage"), options.rounds
    per_batch, per_step = "samples per batch", "seconds per step"
    # Memory first, as a process that has held more would not need to ask for it again.
    sizes = LARGE_BATCHES
    peaks = {way: [in_fork(step_memory, way, size) for size in sizes] for way in ways[:2]}
    seconds, memory = stream_curves(ways, options.chunks, options.streams)
    built_in = find_model("sounding_shapes_0")
    batch = step_curves(BATCHES, lambda size: (built_in, size), ways, rounds)
    width = step_curves(WIDTHS, lambda d: (Toy(embed_dim=d, depth=1), 32), ways, rounds)

    def sensors(count: int) -> tuple[Toy, int]:
        return Toy(modalities=tuple(f"sensor_{n}" for n in range(count)), depth=1), 32

    modalities = step_curves(MODALITIES, sensors, ("source", "dasp, all unbiased"), rounds)
    methods, workers = method_curves(options.samples), worker_curve(options.samples)
    return {
        "batch_memory": curve(per_batch, "MiB per step", (sizes, peaks)),
        "stream": curve("batches of the stream", "total seconds", seconds),
        "stream_memory": curve("batches of the stream", "MiB in use", memory),
        "batch": curve(per_batch, per_step, batch),
        "width": curve("embedding width D", per_step, width, power=2),
        "modalities": curve("modalities", per_step, modalities),
        "methods": curve("methods compared", "seconds of the whole plan", methods),
        "workers": curve("processes", "total processor seconds", workers),
    }


def main() -> None:
    options = parse(__doc__, rounds=7, chunks=8, streams=2, samples=64)
    torch.set_num_threads(1)
    finish(options, "How costs grow", measure(options))


if __name__ == "__main__":
    main()
