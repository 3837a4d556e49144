"""How much longer a DASP step takes than a plain forward, on CAV-MAE ViT-B: a ratio in one run.

    .venv/bin/python benchmarks/step.py            # batch 16, about eleven minutes on two cores

Both are timed in turn, so that a busy machine slows both alike; figures are medians of the paired
ratios, of the time on the clock and of processor time (which others' load disturbs less). Weights
are random: time does not depend on them, except through which modality is flagged, so each case
is forced. Peak memory is that of a process of its own for each case.
"""

import argparse
import dataclasses
import json
import resource
import statistics
import subprocess
import sys
import time

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import dasp
from dasp.methods import Dasp

CASES = ("source", "audio", "video", "nothing")
MIB = 1024


class Told(Dasp):
    """DASP that does all its work and then is told what the diagnosis was."""

    flagged: frozenset[str] = frozenset()

    def _diagnose(self, batch, remember):
        source, diagnosis = super()._diagnose(batch, remember)
        return source, dataclasses.replace(diagnosis, biased=self.flagged)


def build(case: str, model: torch.nn.Module) -> dasp.Adaptation:
    if case == "source":
        return dasp.adapt(model, "source")
    tta = dasp.adapt(model, Told)
    tta.method.flagged = frozenset() if case == "nothing" else frozenset({case})
    return tta


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return dasp.models.CavMae(num_classes=309)


def make_inputs(batch: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "audio": torch.randn(batch, 1024, 128, generator=generator),
        "video": torch.randn(batch, 3, 224, 224, generator=generator),
    }


def timed(tta: dasp.Adaptation, inputs: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Seconds on the clock and of processor time."""
    clock, processor = time.perf_counter(), time.process_time()
    tta(inputs)
    return time.perf_counter() - clock, time.process_time() - processor


def measure_time(batch: int, repeats: int) -> dict[str, list[tuple[float, float]]]:
    model, inputs = make_model(), make_inputs(batch)
    handles = {case: build(case, model) for case in CASES}
    times: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    with Progress(transient=True) as progress:
        for round_ in progress.track(range(repeats + 1), description="timing"):
            for case, tta in handles.items():
                seconds = timed(tta, inputs)
                if round_:  # the first round warms up
                    times[case].append(seconds)
    return times


def measure_memory(case: str, batch: int) -> float:
    """Peak resident memory (MiB) of a process that makes three calls."""
    command = [sys.executable, __file__, "--memory-of", case, "--batch", str(batch)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def report_memory(case: str, batch: int) -> None:
    tta, inputs = build(case, make_model()), make_inputs(batch)
    for _ in range(3):
        timed(tta, inputs)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds after one to warm up")
    parser.add_argument("--threads", type=int, default=0, help="0: as torch chooses")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.memory_of:
        report_memory(options.memory_of, options.batch)
        return
    # Memory first: a child's peak counts what its parent held when it was started.
    memory = {case: measure_memory(case, options.batch) for case in CASES}
    times = measure_time(options.batch, options.repeats)
    show(options, times, memory)


def show(options: argparse.Namespace, times: dict, memory: dict) -> None:
    title = f"CAV-MAE ViT-B, batch {options.batch}, float32, {torch.get_num_threads()} threads"
    table = Table(title=title)
    columns = (
        "case",
        "seconds",
        "time / source",
        "low to high",
        "cpu / source",
        "MiB",
        "memory / source",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "case" else "right")
    figures = {case: summary(times[case], times["source"]) for case in CASES}
    for case, row in figures.items():
        row |= {"peak_mib": memory[case], "memory_ratio": memory[case] / memory["source"]}
        table.add_row(
            "source" if case == "source" else f"dasp, {case} flagged",
            f"{row['seconds']:.2f}",
            f"{row['ratio']:.3f}",
            f"{row['low']:.2f} to {row['high']:.2f}",
            f"{row['cpu_ratio']:.3f}",
            f"{row['peak_mib']:.0f}",
            f"{row['memory_ratio']:.3f}",
        )
    Console().print(table)
    if options.json:
        with open(options.json, "w") as file:  # noqa: PTH123
            json.dump({"title": title, "cases": figures}, file, indent=1)


def summary(times: list[tuple[float, float]], source: list[tuple[float, float]]) -> dict:
    """Medians of one case and of its ratios to the source forwards timed beside it."""
    pairs = list(zip(times, source, strict=True))
    ratios = [mine[0] / plain[0] for mine, plain in pairs]
    return {
        "seconds": statistics.median(seconds for seconds, _ in times),
        "ratio": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "cpu_ratio": statistics.median(mine[1] / plain[1] for mine, plain in pairs),
    }


if __name__ == "__main__":
    main()
