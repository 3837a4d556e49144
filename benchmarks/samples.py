"""What it costs to have a sample before any model sees it, on one core: read, corrupt, draw.

    python benchmarks/samples.py            # under a minute; needs `pip install soundfile`

Processor time, so that what else the machine does counts less; each sample has an id of its own.
Clips are 10 s of noise at 16 kHz and a JPEG of 340 × 256 pixels, as in the releases; a sound
corruption is meant to be 200 times faster than real time at its slowest. `docs/scaling.md`
reckons with these figures.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import torch
from measuring import options_of, write_figures
from PIL import Image
from rich.console import Console
from rich.progress import track
from rich.table import Table

from dasp.core.seeding import numpy_generator
from dasp.core.sound import resample
from dasp.corruptions import corrupt_sound, names
from dasp.data import ClipDataset, Manifest
from dasp.data.audio import log_mel
from dasp.data.manifest import Clip
from dasp.data.shapes import SoundingShapes
from dasp.streams.domains import DomainDamage, all_domains

SECONDS, RATE = 10, 16000


def milliseconds(work: Callable[[int], object], calls: int) -> dict[str, float]:
    """Return the median and the slowest of some samples, each the quickest of three times."""
    work(calls)
    took = []
    for number in range(calls):
        times = []
        for _ in range(3):
            start = time.process_time()
            work(number)
            times.append(time.process_time() - start)
        took.append(1000 * min(times))
    return {"median_ms": round(statistics.median(took), 3), "slowest_ms": round(max(took), 3)}


def sounds(calls: int, folder: Path) -> dict[str, dict[str, float]]:
    """Every corruption of a sound, and the two steps that any sound goes through."""
    generator = numpy_generator(0, "benchmark")
    wave = (0.05 * generator.standard_normal(SECONDS * RATE)).astype(np.float32)
    hifi = (0.05 * generator.standard_normal(SECONDS * 44100)).astype(np.float32)
    soundfile.write(folder / "rain.wav", hifi, 44100)
    ways: dict[str, Callable[[int], object]] = {
        name: lambda i, name=name: corrupt_sound(wave, name, 5, sample_id=f"clip {i}")
        for name in names("audio")
    }
    ways["rain, from a recording"] = lambda i: corrupt_sound(
        wave, "rain", 5, sample_id=f"clip {i}", noise_dir=folder
    )
    ways["filterbank of 1024 frames"] = lambda _: log_mel(wave, RATE)
    ways["44.1 kHz to 16 kHz"] = lambda _: resample(hifi, 44100, RATE)
    found = {}
    for name, work in track(ways.items(), "sounds", transient=True):
        row = milliseconds(work, calls)
        row["times_real_time"] = round(1000 * SECONDS / row["median_ms"], 1)
        row["slowest_times_real_time"] = round(1000 * SECONDS / row["slowest_ms"], 1)
        found[name] = row
    return found


def clips(calls: int, folder: Path) -> dict[str, dict[str, float]]:
    """A clip as a run reads it, one modality at a time, undamaged and damaged."""
    manifest = write_clips(folder, calls + 1)
    found = {}
    for modality in ("audio", "video"):
        clean = ClipDataset(manifest, modalities=(modality,))
        found[f"{modality}, read"] = milliseconds(lambda i, d=clean: d[i], calls)
        rows = []
        for domain in track(all_domains((modality,)), f"{modality} domains", transient=True):
            damaged = ClipDataset(manifest, None, DomainDamage(domain), (modality,))
            rows.append(milliseconds(lambda i, d=damaged: d[i], max(calls // 10, 2)))
        found[f"{modality}, read and damaged"] = {
            "median_ms": round(statistics.mean(row["median_ms"] for row in rows), 3),
            "slowest_ms": max(row["slowest_ms"] for row in rows),
        }
    return found


def write_clips(folder: Path, count: int) -> Manifest:
    """Write sounds of noise and pictures of smooth noise, which are as large as photographs."""
    made = []
    for number in range(count):
        rng = numpy_generator(0, "clip", str(number))
        wav, jpg = folder / f"{number}.wav", folder / f"{number}.jpg"
        soundfile.write(wav, 0.05 * rng.standard_normal(SECONDS * RATE), RATE)
        small = Image.fromarray(rng.integers(0, 256, (64, 85, 3), np.uint8))
        small.resize((340, 256), Image.Resampling.BICUBIC).save(jpg, quality=90)
        made.append(Clip(str(number), 0, wav, (jpg,), folder, folder))
    return Manifest("noise", folder, tuple(made), ("noise",))


def drawing(calls: int) -> dict[str, dict[str, float]]:
    """A sample of the built-in set, which is drawn and not read."""
    shapes = SoundingShapes("test", calls + 1)
    return {
        "frame": milliseconds(shapes.frame, calls),
        "sound": milliseconds(shapes.wave, calls),
        "pair as tensors": milliseconds(shapes.__getitem__, calls),
    }


def show(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    for group, rows in figures.items():
        table = Table(group, title="one core, processor time", title_justify="left")
        for head in ("ms", "slowest ms", "times real time", "at its slowest"):
            table.add_column(head, justify="right")
        for name, row in rows.items():
            table.add_row(name, *(f"{value:.4g}" for value in row.values()))
        Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=30, help="samples of each kind")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        figures = {
            "sounds": sounds(options.calls, Path(folder)),
            "clips": clips(options.calls, Path(folder)),
            "sounding shapes": drawing(options.calls),
        }
    show(figures)
    write_figures(options.json, "Reading, corrupting and drawing", options_of(options), figures)


if __name__ == "__main__":
    main()
