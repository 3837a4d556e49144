"""How many times faster than real time each sound corruption is, on one core.

    python benchmarks/sounds.py

Takes about ten seconds. Each line is the median and the slowest of `CLIPS` clips of 10 s at
16 kHz, each with its own sample id. The goal is 200x for every corruption.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import torch

from dasp.core.resampling import resample
from dasp.core.seeding import numpy_generator
from dasp.corruptions import corrupt_sound, names
from dasp.data.audio import log_mel

CLIPS, SECONDS, RATE = 30, 10, 16000


def measure(label: str, work: Callable[[str], object]) -> None:
    work("warm up")
    took = []
    for clip in range(CLIPS):
        start = time.perf_counter()
        work(f"clip {clip}")
        took.append(time.perf_counter() - start)
    median, slowest = float(np.median(took)), max(took)
    print(f"{label:<28}{1e3 * median:9.1f} ms {SECONDS / median:8.0f}x {SECONDS / slowest:8.0f}x")


def main() -> None:
    torch.set_num_threads(1)
    generator = numpy_generator(0, "benchmark")
    wave = (0.05 * generator.standard_normal(SECONDS * RATE)).astype(np.float32)
    hifi = (0.05 * generator.standard_normal(SECONDS * 44100)).astype(np.float32)
    print(f"{'10 s at 16 kHz, one core':<28}{'a clip':>12} {'median':>9} {'slowest':>9}")
    for name in names("audio"):
        measure(name, lambda clip, name=name: corrupt_sound(wave, name, 5, sample_id=clip))
    with tempfile.TemporaryDirectory() as folder:
        soundfile.write(Path(folder) / "rain.wav", hifi, 44100)
        measure(
            "rain, from a recording",
            lambda clip: corrupt_sound(wave, "rain", 5, sample_id=clip, noise_dir=folder),
        )
    measure("filterbank of 1024 frames", lambda _: log_mel(wave, RATE))
    measure("44.1 kHz to 16 kHz", lambda _: resample(hifi, 44100, RATE))


if __name__ == "__main__":
    main()
