"""How long a model waits for data, and what making data takes: streams with and without help.

    .venv/bin/python benchmarks/loading.py             # eight minutes on two cores

*stored*: a cell of `dasp bench`, tokens from the feature store, with and without a thread that
gathers batches ahead; the disk's cache is dropped before each run. The built-in set under DASP, and
arrays of ViT-B's size under Source, which does the least for each byte it is given.
*streamed*: `Loader` straight into a model that adapts, no store: the built-in set, and clips on
disk (10 s of sound, a JPEG of 340 × 256 pixels) into a CAV-MAE of three layers; by the process
itself, or by 1 or 2 workers whose results may wait, a few (8 a worker) or two batches. Ways of one
stream take turns; the base of the ratios is the first.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
import torch
from measuring import against, options_of, take_turns, write_figures
from PIL import Image
from rich.console import Console
from rich.table import Table

import dasp
from dasp.bench.cell import run_cell
from dasp.bench.features import AHEAD, Features
from dasp.bench.gather import gather
from dasp.bench.plan import Entry, Plan
from dasp.bench.references import find_method, find_model
from dasp.bench.store import Store
from dasp.core.ahead import drawn_ahead
from dasp.core.clock import Clock, shares, timed
from dasp.data import Loader, loader, open_manifest
from dasp.data.shapes import SoundingShapes
from dasp.streams import Domain
from dasp.streams.domains import DomainDamage, domain_dataset

RAIN, FOG = Domain("audio", "rain", 5), Domain("video", "fog", 5)
VIT = {"audio": (512, 768), "video": (196, 768)}


class Way:
    """One way through a stream, and what its time went by on; the first time warms up."""

    def __init__(self, run: Callable[[Clock, Clock], None]) -> None:
        self.run = run
        self.clock = Clock()
        """Of the process that adapts."""
        self.work = Clock()
        """Of whoever made the samples."""
        self.times = -1

    def __call__(self) -> None:
        clock, work = Clock(), Clock()
        self.run(clock, work)
        self.times += 1
        if self.times:
            self.clock.add(clock.seconds)
            self.work.add(work.seconds)


def forget(folder: Path) -> None:
    """Let the system drop what it keeps of these files in memory."""
    for path in folder.glob("*.npy"):
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def built_in_cell(features: Features, cell, ahead: int, clock: Clock, _: Clock) -> None:
    features.ahead = ahead
    run_cell(cell, find_method(cell.method), features, lambda _, seconds: clock.add(seconds))


def vit_cell(arrays: dict, tta: dasp.Adaptation, batch: int, ahead: int, clock, _) -> None:
    order = np.random.default_rng(0).permutation(len(arrays["audio"])).reshape(-1, batch)
    batches = (
        {n: torch.from_numpy(gather([a], np.zeros_like(rows), rows)) for n, a in arrays.items()}
        for rows in order
    )
    with drawn_ahead(batches, ahead) as drawn:
        for tokens in timed(drawn, clock):
            with clock.on("adapt"):
                tta.on_tokens(tokens)


def streamed(data, tta: dasp.Adaptation, batch: int, workers: int, far: bool, clock, work) -> None:
    loader.AHEAD = 2 if far else 0
    stream = Loader(data, batch, workers)
    tta.reset()
    for one in stream:
        with stream.clock.on("adapt"):
            tta(one.inputs)
    clock.add(stream.clock.seconds)
    work.add(stream.work.seconds)


def built_in_store(folder: Path) -> dict[str, Way]:
    names = ("fog", "contrast", "rain")
    methods = {"dasp": Entry("dasp")}
    plan = Plan(methods=methods, protocols=("interleaved",), corruptions=names)
    features = Features(plan.data.open(), find_model(plan.models[0]), Store(folder))
    (cell,) = plan.cells()
    ways = {"as it is asked for": 0, f"{AHEAD} batches ahead": AHEAD}
    return {
        name: Way(partial(built_in_cell, features, cell, depth)) for name, depth in ways.items()
    }


def vit_store(folder: Path, samples: int) -> dict[str, Way]:
    torch.manual_seed(0)
    tta = dasp.adapt(dasp.models.CavMae(num_classes=50), "source")
    rng, store = np.random.default_rng(0), Store(folder)
    arrays = {
        name: store.get(
            {"kind": "tokens", "name": name},
            samples,
            lambda _, shape=shape: (
                rng.standard_normal((16, *shape), np.float32) for _ in range(samples // 16)
            ),
        )
        for name, shape in VIT.items()
    }
    ways = {"as it is asked for": 0, f"{AHEAD} batches ahead": AHEAD}
    return {name: Way(partial(vit_cell, arrays, tta, 16, depth)) for name, depth in ways.items()}


def clips(folder: Path, count: int):
    rng = np.random.default_rng(0)
    for number in range(count):
        place = folder / "clips" / f"class{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        wave = (0.05 * rng.standard_normal(160_000)).astype(np.float32)
        soundfile.write(place / f"{number}.wav", wave, 16_000, subtype="PCM_16")
        picture = rng.integers(0, 255, (64, 85, 3), np.uint8)
        Image.fromarray(picture).resize((340, 256)).save(place / f"{number}.jpg")
    return open_manifest(folder / "clips")


def stream_ways(data, model: torch.nn.Module, batch: int) -> dict[str, Way]:
    tta = dasp.adapt(model, "dasp")
    ways = {
        "this process": (0, False),
        "1 worker, 8 results wait": (1, False),
        "1 worker, 2 batches wait": (1, True),
        "2 workers, 16 results wait": (2, False),
        "2 workers, 2 batches wait": (2, True),
    }
    return {
        name: Way(partial(streamed, data, tta, batch, workers, far))
        for name, (workers, far) in ways.items()
    }


def cases(folder: Path, options: argparse.Namespace) -> Iterable[tuple[str, dict[str, Way]]]:
    """Give each stream and its ways; only one is in memory at a time."""
    yield "stored: built-in set, DASP", built_in_store(folder / "built-in")
    yield "stored: ViT-B tokens, Source", vit_store(folder / "vit", options.vit_samples)
    shapes = SoundingShapes("test", options.samples, damage=DomainDamage(FOG, 0))
    shipped = find_model("sounding_shapes_0")
    yield "streamed: built-in set, fog", stream_ways(shapes, shipped, 64)
    torch.manual_seed(0)
    model = dasp.models.CavMae(embed_dim=96, num_heads=4, depth=3, num_classes=2)
    manifest = clips(folder, options.clips)
    for domain in (FOG, RAIN):
        data = domain_dataset(manifest, domain)
        yield f"streamed: clips, {domain.corruption}", stream_ways(data, model, 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=512, help="of the built-in set, streamed")
    parser.add_argument("--vit-samples", type=int, default=64, help="a multiple of 16")
    parser.add_argument("--clips", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title="Time on the clock, and how long the model waits")
    for column in ("stream", "way", "time", "the model's process", "makers of samples"):
        table.add_column(column, justify="right" if column == "time" else "left")
    figures: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as name:
        for title, ways in cases(Path(name), options):
            figures[title] = measured(title, ways, Path(name), options.rounds, table)
    Console().print(table)
    title = "How long a model waits for its data"
    write_figures(options.json, title, options_of(options), figures)


def measured(title: str, ways: dict[str, Way], folder: Path, rounds: int, table: Table) -> dict:
    def cold() -> None:
        for own in ("built-in", "vit"):
            forget(folder / own)

    times = take_turns(ways, rounds, before=cold)
    base = next(iter(times.values()))
    figures = {}
    for name, way in ways.items():
        total = sum(way.clock.seconds.values())
        figures[name] = {
            **against(times[name], base),
            "waits": round(way.clock.seconds["load"] / total, 4),
            "shares": {k: round(v / total, 4) for k, v in way.clock.seconds.items()},
            "seconds_of_makers": {k: round(v / rounds, 3) for k, v in way.work.seconds.items()},
        }
        ratio = f"{figures[name]['ratio']:.2f}"
        table.add_row(title, name, ratio, shares(way.clock.seconds), shares(way.work.seconds))
        title = ""
    return figures


if __name__ == "__main__":
    main()
