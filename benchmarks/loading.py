"""How long a model waits for data: streams with and without help.

    python benchmarks/loading.py             # six minutes on two cores

*stored*: a run of `dasp bench`, tokens from the feature store, with and without a thread that
gathers batches ahead; the disk's cache is dropped before each run.
*streamed*: `Loader` straight into a model that adapts, no store: the built-in set, and clips on
disk (10 s of sound, a JPEG of 340 × 256 pixels) into a CAV-MAE of three layers; by the process
itself, or by 1 or 2 workers. Ways of one stream take turns; the base of the ratios is the first.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import torch
from measuring import against, finish, parse, take_turns
from samples import write_clips
from store import forget

import dasp
from dasp.bench.cells import run_job
from dasp.bench.datasets import DataOptions
from dasp.bench.features import AHEAD, Features
from dasp.bench.plan import MethodRow, Plan
from dasp.bench.references import find_model
from dasp.bench.store import Store
from dasp.data import Loader
from dasp.data.shapes import SoundingShapes
from dasp.streams import Domain, DomainDamage, domain_dataset

RAIN, FOG = Domain("audio", "rain", 5), Domain("video", "fog", 5)
DEPTHS = {"as it is asked for": 0, f"{AHEAD} batches ahead": AHEAD}
WORKERS = {"this process": 0, "1 worker": 1, "2 workers": 2}


class Way:
    """One way through a stream: `run` returns the seconds of adapting. The first time warms up."""

    def __init__(self, run: Callable[[], float]) -> None:
        self.run, self.times = run, -1
        self.adapting = self.total = 0.0

    def __call__(self) -> None:
        began = time.perf_counter()
        adapting = self.run()
        self.times += 1
        if self.times:
            self.adapting += adapting
            self.total += time.perf_counter() - began


def built_in_store(folder: Path, samples: int) -> dict[str, Way]:
    plan = Plan(
        methods={"dasp": MethodRow("dasp")},
        protocols=("interleaved",),
        corruptions=("fog", "contrast", "rain"),
        data=DataOptions(samples=samples),
    )
    features = Features(plan.data.open(), find_model(plan.models[0]), Store(folder))
    ((_, job),) = plan.jobs()

    def run(ahead: int) -> float:
        features.ahead = ahead
        return run_job(job, features).measured["seconds"]["adapt"]

    return {name: Way(partial(run, depth)) for name, depth in DEPTHS.items()}


def streamed(data, model: torch.nn.Module, batch: int) -> dict[str, Way]:
    tta = dasp.adapt(model, "dasp")

    def run(workers: int) -> float:
        adapting = 0.0
        tta.reset()
        for one in Loader(data, batch, workers):
            began = time.perf_counter()
            tta(one.inputs)
            adapting += time.perf_counter() - began
        return adapting

    return {name: Way(partial(run, workers)) for name, workers in WORKERS.items()}


def cases(folder: Path, options: argparse.Namespace) -> Iterable[tuple[str, dict[str, Way]]]:
    """Yield each stream and its ways; only one is in memory at a time."""
    yield "stored: built-in set, DASP", built_in_store(folder / "built-in", options.stored)
    shapes = SoundingShapes("test", options.samples, damage=DomainDamage(FOG, 0))
    yield "streamed: built-in set, fog", streamed(shapes, find_model("sounding_shapes_0"), 64)
    torch.manual_seed(0)
    model = dasp.models.CavMae(embed_dim=96, num_heads=4, depth=3, num_classes=2)
    manifest = write_clips(folder, options.clips)
    for domain in (FOG, RAIN):
        data = domain_dataset(manifest, domain)
        yield f"streamed: clips, {domain.corruption}", streamed(data, model, 16)


def measured(ways: dict[str, Way], folder: Path, rounds: int) -> dict[str, dict]:
    def cold() -> None:
        for path in folder.glob("*/*.npy"):
            forget(path)

    times = take_turns(ways, rounds, before=cold)
    base = next(iter(times.values()))
    figures = {}
    for name, way in ways.items():
        waits = round(1 - way.adapting / way.total, 4)
        figures[name] = {**against(times[name], base), "waits": waits}
    return figures


def main() -> None:
    options = parse(__doc__, stored=1024, samples=512, clips=128, rounds=3)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        figures = {
            title: measured(ways, Path(name), options.rounds)
            for title, ways in cases(Path(name), options)
        }
    finish(options, "How long a model waits for its data", figures)


if __name__ == "__main__":
    main()
