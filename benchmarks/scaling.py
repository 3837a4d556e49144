"""What the full evaluation takes on 1, 8 and 64 GPUs: reckoned from measured and counted costs.

    python benchmarks/scaling.py                        # seconds; --tflops, --efficiency and more

Runs, streams and arrays are those that the bench itself would make (`scaling_plan.py`), arithmetic
is counted (`arithmetic.py`), reading and corrupting is measured on one core (`samples.py`). How
fast a GPU, a disk and a network are is assumed, and said: change it by the options.
"""

import argparse
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from measuring import options_of, write_figures
from rich.console import Console
from rich.table import Table
from scaling_plan import arrays, full_evaluation, on_tokens, samples_of
from suite import RESULTS, read

from dasp.bench.cell import batches_of
from dasp.bench.features import Part
from dasp.bench.results import Cell
from dasp.core.errors import DataError
from dasp.data.sets import SPECS

GPUS = (1, 8, 64)
TOKENS = {"audio": 512 * 768, "video": 196 * 768}
INPUTS = {"audio": 1024 * 128, "video": 3 * 224 * 224}
FLOAT = 4  # bytes
TB = 1e12


@dataclass(frozen=True)
class Costs:
    """Seconds of each kind of work on what is assumed of a machine."""

    gflop: Mapping[str, Mapping[str, float]]
    milliseconds: Mapping[str, Mapping[str, float]]
    machine: argparse.Namespace

    def gpu(self, gflop: float) -> float:
        return gflop / (1000 * self.machine.tflops * self.machine.efficiency)

    def encode(self, part: Part, clips: int) -> float:
        return clips * self.gpu(self.gflop["stages"][f"encode {part.modality}"])

    def load(self, part: Part, clips: int) -> float:
        """Seconds of one core to read, damage and prepare an array's inputs."""
        kind = "read" if part.domain is None else "read and damaged"
        return clips * self.milliseconds[f"{part.modality}, {kind}"]["median_ms"] / 1000

    def step(self, cell: Cell) -> float:
        """GPU seconds of a run, if nothing keeps it waiting."""
        row = "dasp robust" if cell.label.startswith("dasp robust") else cell.method
        return samples_of(cell) * self.gpu(self.gflop["steps"][row])

    def run(self, cell: Cell) -> float:
        """Seconds of a run that reads ahead from its share of the node's disk."""
        rate = 1e9 * self.machine.disk / self.machine.gpus_a_node
        return max(self.step(cell), traffic(cell) / rate)


def size(part: Part, clips: int, float16: bool = False) -> float:
    """Return the bytes of an array; only tokens may be kept in half precision."""
    numbers = (TOKENS if part.encoded else INPUTS)[part.modality]
    return clips * numbers * (FLOAT / 2 if float16 and part.encoded else FLOAT)


def traffic(cell: Cell) -> float:
    """Return the bytes that a run reads."""
    return samples_of(cell) * FLOAT * sum((TOKENS if on_tokens(cell) else INPUTS).values())


def schedule(lengths: Iterable[float], places: int) -> float:
    """Return when the last of these ends, the longest first, each where it can begin soonest.

    >>> schedule([3, 3, 2, 2, 2], 2)
    7
    """
    free: list[float] = [0] * places
    for length in sorted(lengths, reverse=True):
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def reckon(costs: Costs) -> dict[str, Any]:
    cells = {name: full_evaluation(name) for name in SPECS}
    clips = {name: SPECS[name].clips for name in SPECS}
    parts = [(part, clips[name]) for name in SPECS for part in sorted_parts(cells[name])]
    runs = [costs.run(cell) for name in SPECS for cell in cells[name]]
    encodings = [costs.encode(part, count) for part, count in parts if part.encoded]
    loading = sum(costs.load(part, count) for part, count in parts if not part.encoded)
    return {
        "plan": {name: counts(cells[name], clips[name], costs) for name in SPECS},
        "work": {
            "core_hours_reading_and_corrupting": loading / 3600,
            "gpu_hours_encoding_once": sum(encodings) / 3600,
            "gpu_hours_encoding_in_every_run": encoding_each_time(cells, costs) / 3600,
            "gpu_hours_of_runs": sum(costs.step(c) for n in SPECS for c in cells[n]) / 3600,
            "gpus_beyond_which_the_longest_run_decides": int(sum(runs) / max(runs)),
        },
        "by_method_gpu_hours": by_method(cells, costs),
        "gpus": {str(n): on_gpus(n, runs, encodings, loading, cells, parts, costs) for n in GPUS},
    }


def sorted_parts(cells: list[Cell]) -> list[Part]:
    return sorted(arrays(cells), key=lambda part: (part.modality, str(part.domain), part.encoded))


def counts(cells: list[Cell], clips: int, costs: Costs) -> dict[str, Any]:
    parts = arrays(cells)
    one = [part for part in parts if part.domain is None or part.domain.severity == 5]
    lengths = {cell.key: costs.run(cell) for cell in cells}
    longest = max(cells, key=lambda cell: lengths[cell.key])
    return {
        "clips": clips,
        "runs": len(cells),
        "batches": sum(batches_of(cell, clips) for cell in cells),
        "samples_seen": sum(map(samples_of, cells)),
        "arrays_of_inputs": sum(not part.encoded for part in parts),
        "encodings": sum(part.encoded for part in parts),
        "encodings_without_store": sum(
            samples_of(cell) // clips * len(TOKENS) for cell in cells if on_tokens(cell)
        ),
        "store_tb": sum(size(part, clips) for part in parts) / TB,
        "store_float16_tb": sum(size(part, clips, float16=True) for part in parts) / TB,
        "store_one_severity_tb": sum(size(part, clips) for part in one) / TB,
        "read_by_runs_tb": sum(map(traffic, cells)) / TB,
        "longest_run": f"{longest.label}, {longest.protocol}",
        "longest_run_hours": lengths[longest.key] / 3600,
    }


def encoding_each_time(cells: Mapping[str, list[Cell]], costs: Costs) -> float:
    both = costs.gflop["stages"]["encode audio"] + costs.gflop["stages"]["encode video"]
    return sum(
        samples_of(cell) * costs.gpu(both)
        for own in cells.values()
        for cell in own
        if on_tokens(cell)
    )


def by_method(cells: Mapping[str, list[Cell]], costs: Costs) -> dict[str, float]:
    hours: Counter[str] = Counter()
    for own in cells.values():
        for cell in own:
            hours[cell.label if cell.label == cell.method else "ablations and robust"] += (
                costs.step(cell) / 3600
            )
    return dict(hours)


def on_gpus(count, runs, encodings, loading, cells, parts, costs) -> dict[str, float]:
    """Return the hours of each phase on so many GPUs, and what goes over the network."""
    machine = costs.machine
    nodes = -(-count // machine.gpus_a_node)
    phases = {
        "loading": loading / (machine.cores * count),
        "encoding": schedule(encodings, count),
        "running": schedule(runs, count),
    }
    total = sum(phases.values())
    reads = sum(traffic(cell) for own in cells.values() for cell in own)
    whole = sum(size(part, clips) for part, clips in parts)
    return {
        **{f"hours_{name}": value / 3600 for name, value in phases.items()},
        "days": total / 86400,
        "utilisation_running": sum(runs) / (count * phases["running"]),
        "nodes": nodes,
        # One node has its disk for itself. Of several, all but the one that made it fetch an array.
        "shared_store_tb": reads / TB if nodes > 1 else 0.0,
        "shared_store_gbit_a_node": 8e-9 * reads / phases["running"] / nodes if nodes > 1 else 0.0,
        "store_a_node_tb": (nodes - 1) * whole / TB,
    }


def show(figures: Mapping[str, Any]) -> None:
    for title in ("plan", "gpus"):
        columns = figures[title]
        table = Table(title, *columns)
        for row in next(iter(columns.values())):
            table.add_row(row, *(shown(column[row]) for column in columns.values()))
        Console().print(table)
    for title in ("work", "by_method_gpu_hours"):
        table = Table(title, "")
        for row, value in figures[title].items():
            table.add_row(row, shown(value))
        Console().print(table)


def shown(value: float | str) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def rounded(figures: Any) -> Any:
    """Keep four digits of every number that is not a count."""
    if isinstance(figures, dict):
        return {name: rounded(value) for name, value in figures.items()}
    return float(f"{figures:.4g}") if isinstance(figures, float) else figures


def measured(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise DataError(f"no {path}: measure it first, by python benchmarks/run.py {name}.")
    found: dict[str, Any] = read(path)["figures"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--tflops", type=float, default=19.5, help="of a GPU in float32 (A100: 19.5; TF32: 156)")
    add("--efficiency", type=float, default=0.5, help="part of that which a transformer reaches")
    add("--cores", type=int, default=8, help="cores for each GPU")
    add("--gpus-a-node", type=int, default=8)
    add("--disk", type=float, default=6.0, help="GB a second that a node reads from its own disks")
    add("--json", help="also write the figures to this file")
    options = parser.parse_args()
    costs = Costs(measured("arithmetic"), measured("samples")["clips"], options)
    figures = rounded(reckon(costs))
    show(figures)
    write_figures(options.json, "The full evaluation", options_of(options), figures)


if __name__ == "__main__":
    main()
