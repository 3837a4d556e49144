"""What the feature store saves: all token-level methods over the paper's five protocols.

    .venv/bin/python benchmarks/grid.py                # 128 samples a domain: 15 minutes
    .venv/bin/python benchmarks/grid.py --vit 0        # without the costs of ViT-B

Every cell is run three ways in turn, in one process of one thread: everything from the store (its
filling counted), tokens encoded anew from stored inputs, and everything (drawing, corrupting,
encoding) anew, as the released code does. The results must be the same to the bit. Processor time
is given beside that on the clock, as others' load disturbs it less.

The encoders of the built-in model are tiny beside its fusion. So ViT-B's parts (each encoder, each
method on tokens, keeping and reading a batch of tokens) are timed in turn as well, and what they
give for the same grid is reckoned: without the store 126 encodings a method, with it 16 of video
and 7 of audio for all. Corrupting, which the store saves too, is left out there.
"""

import argparse
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import torch
from measuring import Seconds, against, options_of, spread, timed, write_figures
from rich.console import Console
from rich.progress import track
from rich.table import Table
from vit_parts import BATCH, vit_parts

from dasp.bench.cell import run_cell
from dasp.bench.features import Features, own_domain, parts_of
from dasp.bench.plan import MAIN_PROTOCOLS, Entry, Plan
from dasp.bench.plan_files import load_plan
from dasp.bench.references import find_method, find_model
from dasp.bench.results import Cell
from dasp.bench.savings import savings
from dasp.bench.store import Store
from dasp.methods import METHODS
from dasp.streams.protocols import visits

TOKEN_LEVEL = tuple(name for name in METHODS if not METHODS[name].tunes_encoder)
STORE, ENCODE, ANEW = "store", "encode in every run", "corrupt and encode in every run"
DRAWING = ("decode", "corrupt")


class EncodesEachTime(Features):
    """Inputs from the store, tokens made whenever they are asked for."""

    def __init__(self, *given) -> None:
        super().__init__(*given)
        self.ahead = 0

    def get(self, part):
        if not part.encoded:
            return super().get(part)
        return np.concatenate(list(self._make(part, self.store.clock)))


def grid_plan(samples: int, model: str) -> Plan:
    plan = load_plan("quick")
    rows = {name: Entry(name) for name in TOKEN_LEVEL}
    data = replace(plan.data, samples=samples)
    return replace(plan, methods=rows, protocols=MAIN_PROTOCOLS, models=(model,), data=data)


def measure_grid(plan: Plan, folder: str) -> dict:
    """Run every cell all three ways, who comes first in turn."""
    material, model = plan.data.open(), find_model(plan.models[0])
    ways = {
        STORE: Features(material, model, Store(folder)),
        ENCODE: EncodesEachTime(material, model, Store(folder)),
        ANEW: Features(material, model, None),
    }
    times: dict[str, list[Seconds]] = {way: [] for way in ways}
    same, turns, cells = True, list(ways), plan.cells()
    filling = timed(partial(fill, cells, ways[STORE]))
    for cell in {cell.method: cell for cell in cells}.values():  # warms up, above all torch
        run(cell, ways[STORE], set())
    for cell in track(cells, description="cells", transient=True):
        results: set[str] = set()
        for way in turns:
            times[way].append(timed(partial(run, cell, ways[way], results)))
        same = same and len(results) == 1
        turns = turns[1:] + turns[:1]
    figures = {
        name: whole(times, filling, ways[STORE].store.clock.seconds, place)
        for place, name in enumerate(Seconds._fields)
    }
    return figures | {
        "a_cell": {way: against(times[way], times[STORE]) for way in (ENCODE, ANEW)},
        "equal": same,
        "saved": [asdict(saving) for saving in savings(ways[STORE], cells)],
    }


def run(cell: Cell, features: Features, results: set[str]) -> None:
    results.add(json.dumps(run_cell(cell, find_method(cell.method), features)[0]))


def whole(times: dict, filling: Seconds, making: dict[str, float], place: int) -> dict:
    """Add up the seconds of the whole grid, on the clock or of processor time."""
    seconds = {way: sum(cell[place] for cell in own) for way, own in times.items()}
    seconds[STORE] += filling[place]
    # Tokens encoded in every run need inputs, drawn and corrupted once: a share of the filling.
    drawing = sum(making[work] for work in DRAWING) / sum(making.values())
    seconds[ENCODE] += drawing * filling[place]
    return {
        "seconds": {way: round(value, 2) for way, value in seconds.items()},
        "filling": round(filling[place], 2),
        "times_as_long": {way: round(value / seconds[STORE], 3) for way, value in seconds.items()},
    }


def fill(cells: list[Cell], features: Features) -> None:
    """Make all arrays of the store."""
    names = features.model.modalities
    parts = {part for cell in cells for part in parts_of(conditions(cell), names, encoded=True)}
    for part in track(parts, description="filling the store", transient=True):
        features.get(part)


def conditions(cell: Cell) -> Iterator:
    for visit in cell.visits():
        yield from visit.conditions


def reckoned(times: dict[str, list[Seconds]], plan: Plan) -> dict[str, float]:
    """Reckon what the grid takes with ViT-B with and without the store: a ratio a round."""
    passes = sum(1 for protocol in plan.protocols for _ in visits(protocol, 5))
    arrays = {
        (part.modality, own_domain(part))
        for cell in plan.cells()
        for part in parts_of(conditions(cell), ("audio", "video"), encoded=True)
    }
    once = Counter(modality for modality, _ in arrays)
    ratios = []
    for round_ in range(len(times["read tokens"])):
        cost = {name: own[round_].clock for name, own in times.items()}
        encode = cost["encode audio"] + cost["encode video"]
        adapt = sum(cost[name] for name in TOKEN_LEVEL)
        made = sum(count * cost[f"encode {name}"] for name, count in once.items())
        stored = made + max(once.values()) * cost["write tokens"]
        stored += passes * (adapt + len(TOKEN_LEVEL) * cost["read tokens"])
        ratios.append(passes * (adapt + len(TOKEN_LEVEL) * encode) / stored)
    return spread(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--model", default="sounding_shapes_0")
    parser.add_argument("--vit", type=int, default=3, help="timed rounds of ViT-B's parts")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan = grid_plan(options.samples, options.model)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure_grid(plan, folder)
    show(figures, f"{len(TOKEN_LEVEL)} methods, 5 protocols, {options.samples} samples a domain")
    if options.vit:
        times = vit_parts(TOKEN_LEVEL, options.vit)
        figures["vit"] = {
            "milliseconds_a_batch": {
                name: round(1000 * statistics.median(s.clock for s in own), 2)
                for name, own in times.items()
            },
            "store": reckoned(times, plan),
        }
        show_vit(figures["vit"])
    title = "All token-level methods on the paper's five protocols, with and without the store"
    write_figures(options.json, title, options_of(options), figures)


def show(figures: dict, title: str) -> None:
    table = Table(title=title)
    table.add_column("way")
    for column in ("seconds", "times as long", "processor time", "of a cell", "low to high"):
        table.add_column(column, justify="right")
    for way, seconds in figures["clock"]["seconds"].items():
        cell = figures["a_cell"].get(way)
        table.add_row(
            way,
            f"{seconds:.1f}",
            f"{figures['clock']['times_as_long'][way]:.2f}",
            f"{figures['processor']['times_as_long'][way]:.2f}",
            f"{cell['ratio']:.2f}" if cell else "",
            f"{cell['low']:.2f} to {cell['high']:.2f}" if cell else "",
        )
    console = Console()
    console.print(table)
    console.print(f"results equal to the bit: {figures['equal']}")
    table = Table(title="What the store saved, by its own account")
    for column in ("", "arrays", "uses", "made once (s)", "made for each use (s)"):
        table.add_column(column, justify="right" if column else "left")
    for row in figures["saved"]:
        once, each = (sum(row[name].values()) for name in ("once", "each_time"))
        name = f"{row['kind']} of {row['modality']}"
        table.add_row(name, str(row["arrays"]), str(row["uses"]), f"{once:.1f}", f"{each:.1f}")
    console.print(table)


def show_vit(figures: dict) -> None:
    table = Table(title=f"ViT-B, batch {BATCH}, one thread")
    table.add_column("part")
    table.add_column("ms a batch", justify="right")
    for name, value in figures["milliseconds_a_batch"].items():
        table.add_row(name, f"{value:.0f}")
    ratio = figures["store"]
    Console().print(table)
    Console().print(
        f"encoding in every run would take {ratio['ratio']:.2f} times as long as with the store "
        f"({ratio['low']:.2f} to {ratio['high']:.2f}), corrupting left out"
    )


if __name__ == "__main__":
    main()
