"""How long a plan will take, roughly: from one timed pass and the passes that methods make."""

import time

import torch
from torch import nn

from dasp.bench.cell import batches_of
from dasp.bench.references import find_method, find_model
from dasp.bench.results import Cell

SAMPLES = 16
# Passes through the fusion that a step costs, backward counted as two; encoders likewise.
FUSION_PASSES = 6.0
ENCODER_PASSES = 3.0


def estimate_seconds(cells: list[tuple[str, Cell]], workers: int) -> float:
    """Return about how many seconds the cells will take on `workers` processes of one thread."""
    costs = {model: _seconds_a_sample(find_model(model)) for model in {m for m, _ in cells}}
    total = 0.0
    for model, cell in cells:
        encode, fuse = costs[model]
        batches = batches_of(cell, cell.data["samples"])
        if find_method(cell.method).tunes_encoder:
            cost = ENCODER_PASSES * (encode + fuse)
        else:
            cost = fuse if cell.method == "source" else FUSION_PASSES * fuse
        total += batches * cell.batch_size * cost
    return total / max(workers, 1)


@torch.no_grad()
def _seconds_a_sample(model: nn.Module) -> tuple[float, float]:
    """Time one pass of random inputs: (encode, fuse) seconds a sample, on one thread."""
    shapes = getattr(model, "input_shapes", None)
    if shapes is None:
        return 0.0, 0.0
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        inputs = {name: torch.zeros(SAMPLES, *shape) for name, shape in shapes.items()}
        model.fuse(model.encode(inputs))  # type: ignore[operator]  # warms up
        start = time.perf_counter()
        tokens = model.encode(inputs)  # type: ignore[operator]
        middle = time.perf_counter()
        model.fuse(tokens)  # type: ignore[operator]
        end = time.perf_counter()
    finally:
        torch.set_num_threads(threads)
    return (middle - start) / SAMPLES, (end - middle) / SAMPLES
