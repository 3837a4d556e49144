"""How costs grow: with the stream, the batch, the width, the modalities, the methods, the workers.

    python benchmarks/growth.py             # about five minutes on two cores
    python benchmarks/growth.py --draw      # only the pictures in docs/growth, from the JSON file

Small models, one thread, processor time, so that other load counts less; of several rounds that
take turns over the points of a curve the quickest counts. Each curve is fitted by a line in what it
should be a line of (`straightness.py`). Memory is the most that a process of
its own held above what it held before.
"""

import argparse
import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from growth_figures import draw
from growth_plans import method_curves, worker_curve
from measuring import HERE, options_of, write_figures
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from straightness import straightness
from suite import read

import dasp
from dasp.bench.memory import forget_peak, peak_mib, resident_mib
from dasp.core.types import Inputs
from dasp.models import Toy
from dasp.models.pretrained import pretrained_path

DOCS = HERE.parent / "docs" / "growth"
BATCHES = (8, 16, 32, 64, 128, 256)
LARGE_BATCHES = (32, 64, 128, 192, 256)  # smaller ones fit into what a process holds anyway
WIDTHS = (64, 128, 256, 384, 512)
MODALITIES = (2, 3, 4, 6, 8)
CHUNK, CHUNKS = 100, 8  # batches: the stream is measured in pieces
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    # δ = 0 flags a modality in every batch; of "paper" with a large δ none ever is, and all learn
    # under the KL term: the dearest case, alike for any number of modalities.
    "source": ("source", {}),
    "dasp": ("dasp", {"delta": 0.0}),
    "dasp robust": ("dasp", {"variant": "robust"}),
    "dasp, all steady": ("dasp", {"variant": "paper", "delta": 10.0}),
}


def adaptation(way: str, model: torch.nn.Module, clean: Inputs) -> dasp.Adaptation:
    name, options = WAYS[way]
    tta = dasp.adapt(model, name, **options)
    if options.get("variant") == "robust":
        tta.fit([clean])
    return tta


def built_in() -> torch.nn.Module:
    return dasp.load_model("cav_mae", weights=pretrained_path("sounding_shapes_0"))


def inputs_of(model: torch.nn.Module, size: int, seed: int = 0, damaged: bool = True) -> Inputs:
    """Random inputs; if `damaged`, the first sensor is off by more than any diagnosis overlooks."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, Toy):
        shapes: Mapping[str, Sequence[int]] = dict.fromkeys(model.modalities, (8, model.features))
    else:
        shapes = model.input_shapes  # type: ignore[assignment]
    inputs = {n: torch.randn(size, *shape, generator=generator) for n, shape in shapes.items()}
    if damaged:
        inputs[next(iter(shapes))] *= 5.0
    return inputs


def quickest(calls: Mapping[Any, Callable[[], object]], rounds: int) -> dict[Any, float]:
    """Return the least processor time of each call; the calls take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for round_ in range(rounds + 1):
        for name, call in calls.items():
            took = processor_seconds(call)
            if round_:  # the first one warms up
                best[name] = min(best[name], took)
    return best


Make = Callable[[int], tuple[torch.nn.Module, int]]
"""Gives the model and the batch size of a point of a curve."""


def step_curves(points: Sequence[int], make: Make, ways: Sequence[str], rounds: int) -> dict:
    """Return the seconds of a step at each point, by way."""
    calls = {}
    for point in points:
        model, size = make(point)
        inputs = inputs_of(model, size)
        for way in ways:
            tta = adaptation(way, model, inputs_of(model, 128, 1, damaged=False))
            calls[way, point] = lambda tta=tta, inputs=inputs: tta(inputs)
    best = quickest(calls, rounds)
    return {way: [best[way, point] for point in points] for way in ways}


def stream_curves(ways: Sequence[str], options: argparse.Namespace) -> tuple[dict, dict]:
    """Return the seconds of a stream so far, and the MiB held then, after each chunk of it.

    The ways take turns chunk by chunk; of several streams the quickest time of a chunk counts.
    """
    model = Toy(depth=1)
    batches = [inputs_of(model, 32, seed) for seed in range(16)]
    best = {way: [float("inf")] * options.chunks for way in ways}
    memory: dict[str, list[float]] = {}
    clean = inputs_of(model, 128, 1, damaged=False)
    handles = {way: adaptation(way, model, clean) for way in ways}
    for _ in range(1 + options.streams):  # the first one warms up
        for tta in handles.values():
            tta.reset()
        memory["all three"] = []
        for chunk in range(options.chunks):
            for way, tta in handles.items():
                took = processor_seconds(lambda tta=tta: walk(tta, batches))
                best[way][chunk] = min(best[way][chunk], took)
            memory["all three"].append(resident_mib() or peak_mib())
    return {way: list(accumulate(best[way])) for way in ways}, memory


def walk(tta: dasp.Adaptation, batches: Sequence[Inputs]) -> None:
    for number in range(CHUNK):
        tta(batches[number % len(batches)])


def processor_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def memory_curves(ways: Sequence[str]) -> dict[str, list[float]]:
    """Return the MiB that a step takes at its peak, by batch size: each in a process of its own."""
    return {way: [in_fork(step_memory, way, size) for size in LARGE_BATCHES] for way in ways}


def step_memory(way: str, size: int) -> float:
    give_back_at_once()
    model = built_in()
    inputs = inputs_of(model, size)
    tta = adaptation(way, model, inputs_of(model, 128, 1, damaged=False))
    tta({name: value[:2] for name, value in inputs.items()})
    before = resident_mib() or 0.0
    forget_peak()
    for _ in range(2):
        tta(inputs)
    return peak_mib() - before


def give_back_at_once() -> None:
    """Let the C library return what is freed, so that a peak is what was needed and not kept."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        for name, value in ((-3, 1 << 16), (-1, 0)):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            library.mallopt(name, value)


def in_fork(function: Callable[..., float], *given: Any) -> float:
    """Run a function in a process that begins as this one and ends with it."""
    context = torch.multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=lambda: there.send(function(*given)), daemon=True)
    process.start()
    found: float = here.recv()
    process.join()
    return found


def curve(
    x: str, y: str, xs: Sequence[float], series: Mapping[str, Sequence[float]], power: int = 1
) -> dict[str, Any]:
    """Return a curve as plain data with its fits: lines in `xs`, or in a power of them."""
    fitted = [place**power for place in xs]
    return {
        "x": x,
        "y": y,
        "xs": list(xs),
        "series": {name: [round(v, 6) for v in values] for name, values in series.items()},
        "line_in_power": power,
        "fits": {name: straightness(fitted, values) for name, values in series.items()},
    }


def measure(options: argparse.Namespace) -> dict[str, dict]:
    found: dict[str, dict] = {}
    ways, rounds = ("source", "dasp", "dasp robust"), options.rounds
    with Progress(transient=True) as progress:
        bar = progress.add_task("growth", total=6)

        def add(name: str, *parts: Any, **more: Any) -> None:
            found[name] = curve(*parts, **more)

        # First, as a process that has held more would not need to ask for it again.
        memory = memory_curves(("source", "dasp"))
        add("batch_memory", "samples a batch", "MiB a step takes", LARGE_BATCHES, memory)
        progress.advance(bar)
        lengths = [CHUNK * (place + 1) for place in range(options.chunks)]
        seconds, memory = stream_curves(ways, options)
        add("stream", "batches of the stream", "seconds so far", lengths, seconds)
        add("stream_memory", "batches of the stream", "MiB held", lengths, memory)
        progress.advance(bar)
        steps = step_curves(BATCHES, lambda b: (built_in(), b), ways, rounds)
        add("batch", "samples a batch", "seconds a step", BATCHES, steps)
        progress.advance(bar)
        steps = step_curves(WIDTHS, lambda d: (Toy(embed_dim=d, depth=1), 32), ways, rounds)
        add("width", "embedding width D", "seconds a step", WIDTHS, steps, power=2)
        progress.advance(bar)
        ways = ("source", "dasp, all steady")
        steps = step_curves(
            MODALITIES, lambda m: (Toy(modalities=named(m), depth=1), 32), ways, rounds
        )
        add("modalities", "modalities", "seconds a step", MODALITIES, steps)
        progress.advance(bar)
        add(
            "methods",
            "methods compared",
            "seconds of the whole plan",
            *method_curves(options.samples),
        )
        add("workers", "processes", "processor seconds of all", *worker_curve(options.samples))
        progress.advance(bar)
    return found


def named(count: int) -> tuple[str, ...]:
    return tuple(f"sensor_{number}" for number in range(count))


def show(figures: Mapping[str, Any]) -> None:
    table = Table(title="Growth: lines fitted to costs", title_justify="left")
    for head in ("curve", "series", "first", "last", "from the line", "exponent"):
        table.add_column(head, justify="left" if head in ("curve", "series") else "right")
    for name, found in figures.items():
        for series, fit in found["fits"].items():
            values = found["series"][series]
            ends = (f"{values[0]:.4g}", f"{values[-1]:.4g}")
            table.add_row(name, series, *ends, f"{fit['deviation']:.1%}", f"{fit['exponent']:.2f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=CHUNKS, help=f"of {CHUNK} batches")
    parser.add_argument("--streams", type=int, default=3, help="of which the quickest counts")
    parser.add_argument("--samples", type=int, default=64, help="of each domain of a plan")
    parser.add_argument("--draw", action="store_true", help="draw what the JSON file has")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    path = Path(options.json or HERE / "results" / "growth.json")
    if options.draw:
        draw(read(path)["figures"], DOCS)
        return
    torch.set_num_threads(1)
    figures = measure(options)
    show(figures)
    write_figures(options.json, "How costs grow", options_of(options), figures)


if __name__ == "__main__":
    main()
