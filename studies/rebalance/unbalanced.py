"""What rebalancing does to streams whose classes are not equally frequent.

    python studies/rebalance/unbalanced.py          # some minutes on two cores

Source and DASP with and without `rebalance`, on the six sound corruptions one after another
(never reset), under several kinds of streams:

    even     every class equally often, in random order: what rebalancing takes for granted
    drawn    every sample's class drawn at random, all classes alike: even up to chance
    1:3 …    frequencies fall from class to class, by this much from the first to the last
    half     half of the classes never occur
    bursts   every class comes in bursts (Dirichlet .1 over the batches), equally often in the end
    sorted   one class after another
"""

import argparse

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import dasp
from dasp.bench.datasets import DataOptions
from dasp.bench.features import Features
from dasp.bench.plan import MethodRow, resolved
from dasp.bench.references import find_model
from dasp.bench.store import Store
from dasp.core.seeding import numpy_generator
from dasp.data.loading import run_jobs
from dasp.streams.protocols import sample_order, visits

BATCH = 64
KINDS = ("even", "drawn", "1:3", "1:10", "half", "bursts", "sorted")
WHOLE = {"even": "shuffled", "bursts": "dirichlet", "sorted": "sorted"}  # every sample once
METHODS = ("source", "dasp")


def order(kind: str, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return which samples come, and when."""
    count, classes = len(labels), int(labels.max()) + 1
    if kind == "drawn":
        return rng.integers(0, count, count)
    if kind in WHOLE:
        return sample_order(WHOLE[kind], labels, BATCH, rng)
    ranks = numpy_generator(0, "frequencies").permutation(classes)  # the same in all domains
    place = ranks[labels]
    if kind == "half":
        return rng.permutation(np.flatnonzero(place < classes // 2))
    share = float(kind[2:]) ** (-place / (classes - 1))
    return rng.permutation(np.flatnonzero(rng.random(count) < share))


def accuracy(features: Features, method: str, strength: float, kind: str) -> float:
    """Run one stream; return percent right."""
    options = resolved(MethodRow(method, {"rebalance": strength}), "sounding_shapes")
    tta = dasp.adapt(features.model, method, **options)
    right = seen = 0
    for visit in visits("continual/audio", 5):
        rng = numpy_generator(0, "unbalanced", kind, visit.name)
        rows = order(kind, features.labels.numpy(), rng)
        for chosen, tokens in features.batches(visit.conditions, True, rows, BATCH):
            predicted = tta.on_tokens(tokens).logits.argmax(dim=1)
            right += int((predicted == features.labels[chosen]).sum())
            seen += len(chosen)
    return 100 * right / seen


class Job:
    """One kind of stream, all methods and strengths; opened anew in each process."""

    def __init__(self, options: argparse.Namespace, strengths: tuple[float, ...]) -> None:
        self.options, self.strengths = options, strengths

    def __call__(self, kind: str) -> list[float]:
        torch.set_num_threads(1)
        data = DataOptions(samples=self.options.samples, split=self.options.split)
        features = Features(data.open(), find_model(self.options.model), Store(self.options.store))
        return [accuracy(features, m, s, kind) for m in METHODS for s in self.strengths]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", default="sounding_shapes_0")
    parser.add_argument("--store", default="out/store")
    options = parser.parse_args()
    strengths = (0.0, 0.5, 0.8)
    table = Table(title=f"accuracy (%), {options.samples} samples a domain, {options.split} split")
    table.add_column("stream")
    for method in METHODS:
        for strength in strengths:
            table.add_column(f"{method} {strength or 'plain'}", justify="right")
    job = Job(options, strengths)
    rows = [job(KINDS[0]), *run_jobs(job, KINDS[1:])]  # the first fills the store
    for kind, row in zip(KINDS, rows, strict=True):
        table.add_row(kind, *(f"{value:.1f}" for value in row))
    Console().print(table)


if __name__ == "__main__":
    main()
