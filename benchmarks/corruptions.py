"""How fast are the frame corruptions? Images a second at 224×224, on one core and on all.

    python benchmarks/corruptions.py                      # about two minutes
    python benchmarks/corruptions.py --seconds 0.2        # a quick look

Beside ours stand the times of the reference figures (another, small machine) and a plain
implementation of the same algorithms timed here (`plain_frames.py`). All five severities are
timed alike and averaged. Goals: glass blur 30 times the plain speed, the others 3 times on average.
Needs `pip install scikit-image opencv-python-headless`.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: one core means one core

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from measuring import write_figures
from PIL import Image as Pillow
from plain_frames import PLAIN
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from skimage.data import astronaut

from dasp.corruptions import corrupt_frame, names

STATS = Path(__file__).parents[1] / "tests" / "corruptions" / "corruption_stats.json"
SEVERITIES = range(1, 6)


@dataclass(frozen=True)
class Row:
    """Milliseconds an image for one corruption, and images a second on all cores."""

    name: str
    ours: float
    plain: float
    reference: float
    all_cores: float

    @property
    def gain(self) -> float:
        return self.plain / self.ours


def photograph(size: int) -> np.ndarray:
    return np.asarray(Pillow.fromarray(astronaut()).resize((size, size), Pillow.BILINEAR))


def milliseconds(call: Callable[[int], object], seconds: float) -> float:
    """Return the mean over severities of the median time of `call(severity)` on one core.

    Time of this thread's processor, not of the clock on the wall: a busy machine does not count.
    """
    medians = []
    for severity in SEVERITIES:
        call(severity)  # tables and caches are filled here
        times: list[float] = []
        end = time.perf_counter() + seconds / len(SEVERITIES)
        while len(times) < 3 or time.perf_counter() < end:
            start = time.thread_time()
            call(severity)
            times.append(time.thread_time() - start)
        medians.append(np.median(times))
    return float(np.mean(medians)) * 1000


def count_images(name: str, size: int, seconds: float) -> float:
    """Return the images a second of one worker, going round the severities."""
    image = photograph(size)
    for number in range(30):  # enough to meet every table and every ice texture once
        corrupt_frame(image, name, 1 + number % 5, sample_id=str(number))
    start, done = time.perf_counter(), 0
    while time.perf_counter() < start + seconds:
        for severity in SEVERITIES:
            corrupt_frame(image, name, severity, sample_id=str(done))
        done += len(SEVERITIES)
    return done / (time.perf_counter() - start)


def measure(options: argparse.Namespace, console: Console) -> list[Row]:
    reference = json.loads(options.stats.read_text())["ms_per_image"]
    image, cores, rows = photograph(options.size), os.cpu_count() or 1, []
    spawn = get_context("spawn")
    with ProcessPoolExecutor(cores, spawn) as pool, Progress(console=console) as progress:
        for name in progress.track(names("video"), description="timing"):
            ours = milliseconds(lambda s, n=name: corrupt_frame(image, n, s), options.seconds)
            plain = milliseconds(lambda s, n=name: PLAIN[n](image, s), options.seconds)
            work = [[value] * cores for value in (name, options.size, options.seconds)]
            together = sum(pool.map(count_images, *work))
            rows.append(Row(name, ours, plain, reference[name], together))
    return rows


def show(rows: list[Row], console: Console) -> None:
    table = Table("corruption")
    heads = (
        "ms",
        "images/s",
        "images/s, all cores",
        "plain ms",
        "gain",
        "reference ms (elsewhere)",
    )
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        figures = (row.ours, 1000 / row.ours, row.all_cores, row.plain, row.gain, row.reference)
        formats = (".2f", ".0f", ".0f", ".1f", ".1f", ".1f")
        cells = (format(v, f) for v, f in zip(figures, formats, strict=True))
        table.add_row(row.name, *cells)
    console.print(table)


def summary(rows: list[Row]) -> dict[str, float]:
    """How many times the plain speed: glass blur, the mean of the others, and their whole time."""
    others = [row for row in rows if row.name != "glass_blur"]
    return {
        "glass_blur": round(next(row.gain for row in rows if row.name == "glass_blur"), 1),
        "others": round(float(np.mean([row.gain for row in others])), 2),
        "others_in_total": round(
            sum(row.plain for row in others) / sum(row.ours for row in others), 2
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stats", type=Path, default=STATS, help="the reference's figures")
    parser.add_argument("--size", type=int, default=224, help="side of the image")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each measurement")
    parser.add_argument("--json", help="also write the figures to this file")
    options, console = parser.parse_args(), Console()
    rows = measure(options, console)
    show(rows, console)
    found = summary(rows)
    console.print(f"glass_blur: {found['glass_blur']:.0f} times the plain speed (goal 30)")
    console.print(
        f"the others: {found['others']:.1f} times on average (goal 3), "
        f"{found['others_in_total']:.1f} times in total time"
    )
    figures = {"times_the_plain_speed": found, "by_corruption": {r.name: asdict(r) for r in rows}}
    settings = {"size": options.size, "seconds": options.seconds}
    write_figures(
        options.json, "Frame corruptions against a plain implementation", settings, figures
    )


if __name__ == "__main__":
    main()
