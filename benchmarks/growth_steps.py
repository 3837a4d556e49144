"""What a step takes, in time and memory, at the points of the growth curves."""

import argparse
import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

import torch

import dasp
from dasp.bench.memory import forget_peak, peak_mib, resident_mib
from dasp.core.types import Inputs
from dasp.models import Toy
from dasp.models.pretrained import pretrained_path

CHUNK = 100  # batches: the stream is measured in pieces
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


def memory_curves(ways: Sequence[str], sizes: Sequence[int]) -> dict[str, list[float]]:
    """Return the MiB that a step takes at its peak, by batch size: each in a process of its own."""
    return {way: [in_fork(step_memory, way, size) for size in sizes] for way in ways}


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
