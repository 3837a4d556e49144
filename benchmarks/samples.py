"""What a sample costs before any model sees it, on one core: read, corrupt, draw.

    python benchmarks/samples.py            # under a minute; needs `pip install soundfile`

Processor time, so that other load counts less; each sample has an id of its own. Clips are 10 s of
noise at 16 kHz and a JPEG of 340 × 256 pixels, as in the releases; a sound corruption is meant to
be 200 times faster than real time at its slowest. docs/scaling.md is computed from these figures.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import torch
from measuring import finish, parse
from PIL import Image
from rich.progress import track

from dasp.core.seeding import numpy_generator
from dasp.core.sound import resample
from dasp.corruptions import corrupt_sound, names
from dasp.data import Clip, ClipDataset, Manifest, log_mel
from dasp.data.shapes import SoundingShapes
from dasp.streams import DomainDamage, all_domains

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
    """Time every corruption of a sound, and the two steps that any sound goes through."""
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
        row = found[name] = milliseconds(work, calls)
        row["times_real_time"] = round(1000 * SECONDS / row["median_ms"], 1)
        row["slowest_times_real_time"] = round(1000 * SECONDS / row["slowest_ms"], 1)
    return found


def clips(calls: int, folder: Path) -> dict[str, dict[str, float]]:
    """Time a clip as a run reads it, one modality at a time, undamaged and damaged."""
    manifest = write_clips(folder, calls + 1)
    found = {}
    for modality in ("audio", "video"):
        clean = ClipDataset(manifest, modalities=(modality,))
        found[f"{modality}, read"] = milliseconds(clean.__getitem__, calls)
        rows = []
        for domain in track(all_domains((modality,)), f"{modality} domains", transient=True):
            damaged = ClipDataset(manifest, DomainDamage(domain), (modality,))
            rows.append(milliseconds(damaged.__getitem__, max(calls // 10, 2)))
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
        made.append(Clip(str(number), 0, wav, jpg))
    return Manifest("noise", folder, tuple(made), ("noise",))


def main() -> None:
    options = parse(__doc__, calls=30)
    calls, shapes = options.calls, SoundingShapes("test", options.calls + 1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        figures = {
            "sounds": sounds(calls, Path(folder)),
            "clips": clips(calls, Path(folder)),
            "sounding shapes": {
                "frame": milliseconds(shapes.frame, calls),
                "sound": milliseconds(shapes.wave, calls),
                "pair as tensors": milliseconds(shapes.__getitem__, calls),
            },
        }
    finish(options, "Reading, corrupting and drawing: one core, processor time", figures)


if __name__ == "__main__":
    main()
