"""How costs grow: with the stream, the batch, the width, the modalities, the methods, the workers.

    python benchmarks/growth.py             # four minutes on two cores

Small models, one thread, processor time, so that other load counts less; of several rounds that
take turns over the points of a curve the quickest counts. Each curve is fitted by a line in what it
should be a line of (`straightness.py`). Memory is the most that a process of
its own held above what it held before.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from growth_plans import method_curves, worker_curve
from growth_steps import CHUNK, built_in, memory_curves, step_curves, stream_curves
from measuring import options_of, write_figures
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from straightness import straightness

from dasp.models import Toy

BATCHES = (8, 16, 32, 64, 128, 256)
LARGE_BATCHES = (32, 64, 128, 192, 256)  # smaller ones fit into what a process holds anyway
WIDTHS = (64, 128, 256, 384, 512)
MODALITIES = (2, 3, 4, 6, 8)
CHUNKS = 8


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
        memory = memory_curves(("source", "dasp"), LARGE_BATCHES)
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
    parser.add_argument("--streams", type=int, default=2, help="of which the quickest counts")
    parser.add_argument("--samples", type=int, default=64, help="of each domain of a plan")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = measure(options)
    show(figures)
    write_figures(options.json, "How costs grow", options_of(options), figures)


if __name__ == "__main__":
    main()
