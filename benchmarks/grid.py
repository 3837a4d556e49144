"""What the feature store saves: Source and the five token-level methods over five protocols.

    .venv/bin/python benchmarks/grid.py                # built-in set, 128 samples a domain

Three ways in one run, one process of one thread: everything from the store (its filling counted),
tokens encoded anew in every run from stored inputs, and everything (drawing, corrupting,
encoding) anew in every run. The results must be the same to the bit.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dasp.bench.cell import run_cell
from dasp.bench.features import Features
from dasp.bench.plan import with_methods, with_settings
from dasp.bench.plan_files import load_plan
from dasp.bench.references import find_method, find_model
from dasp.bench.store import Store

METHODS = ("source", "read", "abpem", "tsa", "pta", "dasp")


class EncodesEachTime(Features):
    """Inputs from the store, tokens made whenever they are asked for."""

    def get(self, part):
        return np.concatenate(list(self._make(part))) if part.encoded else super().get(part)


def run(kind, plan, store, progress):
    material, model = plan.data.open(), find_model(plan.models[0])
    features = kind(material, model, store)
    start = time.perf_counter()
    title = f"{kind.__name__}, {'store' if store else 'no store'}"
    results = [
        run_cell(cell, find_method(cell.method), features)[0]
        for cell in progress.track(plan.cells(), description=title)
    ]
    return time.perf_counter() - start, results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--model", default="sounding_shapes_0")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan = with_settings(with_methods(load_plan("quick"), METHODS), ["*.lr=1e-3"])
    plan = replace(plan, models=(options.model,), data=replace(plan.data, samples=options.samples))
    with tempfile.TemporaryDirectory() as folder, Progress(transient=True) as progress:
        stored, first = run(Features, plan, Store(folder), progress)
        encoding, second = run(EncodesEachTime, plan, Store(folder), progress)
        nothing, third = run(Features, plan, None, progress)
    same = json.dumps(first) == json.dumps(second) == json.dumps(third)
    size = f"{len(METHODS)} methods, {len(plan.protocols)} protocols"
    title = f"{size}, {options.samples} samples a domain"
    table = Table(title=title)
    for column in ("way", "seconds", "times as long"):
        table.add_column(column, justify="left" if column == "way" else "right")
    figures = {
        "store": stored,
        "encode in every run": encoding,
        "corrupt and encode in every run": nothing,
    }
    for way, seconds in figures.items():
        table.add_row(way, f"{seconds:.1f}", f"{seconds / stored:.2f}")
    Console().print(table)
    Console().print(f"results equal to the bit: {same}")
    if options.json:
        with open(options.json, "w") as file:  # noqa: PTH123
            json.dump({"title": title, "seconds": figures, "equal": same}, file, indent=1)


if __name__ == "__main__":
    main()
