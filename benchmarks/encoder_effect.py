"""What faster encoders do to accuracy and to the diagnosis: the paper's protocols, shipped models.

    .venv/bin/python benchmarks/encoder_effect.py      # about seven minutes on one core

The same samples in the same order for each kind of `dasp.models.faster` and for float32. Changed
diagnoses are batches in which other modalities are flagged; the largest change of a score is over
all batches, beside that score (the robust variant's are not bounded by 1). Samples turned are
those right with one kind of encoders and wrong with float32, or the reverse.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from measuring import options_of, write_figures
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dasp.bench.cell import run_cell
from dasp.bench.features import Features
from dasp.bench.plan import Plan, with_methods
from dasp.bench.plan_files import load_plan
from dasp.bench.references import find_method, find_model
from dasp.bench.store import Store

KINDS = ("bfloat16", "int8", "compiled")
METHODS = ("source", "read", "dasp", "dasp robust")
Runs = dict[tuple[str, str, str], dict[str, Any]]  # by model, method and protocol


def run(plan: Plan, kind: str, store: Store, progress: Progress) -> Runs:
    """Run the plan with one kind of encoders."""
    material, suffix = plan.data.open(), "" if kind == "float32" else f":{kind}"
    bar = progress.add_task(kind, total=len(plan.models) * len(plan.methods) * len(plan.protocols))
    runs = {}
    for name in plan.models:
        features = Features(material, find_model(name + suffix), store)
        for cell in replace(plan, models=(name + suffix,)).cells():
            result, _ = run_cell(cell, find_method(cell.method), features)
            runs[name, cell.label, cell.protocol] = result
            progress.advance(bar)
    return runs


def accuracies(runs: Runs, method: str) -> np.ndarray:
    return np.array([run["accuracy"] for key, run in runs.items() if key[1] == method])


def compared(mine: Runs, plain: Runs, method: str) -> dict[str, Any]:
    """Hold the runs of one method against those with float32 encoders."""
    pairs = [(run, plain[key]) for key, run in mine.items() if key[1] == method]
    differences = accuracies(mine, method) - accuracies(plain, method)
    turned = np.concatenate([hits(a) != hits(b) for a, b in pairs])
    found = {
        "accuracy": round(float(accuracies(mine, method).mean()), 3),
        "difference": round(float(differences.mean()), 3),
        "lowest": round(float(differences.min()), 3),
        "highest": round(float(differences.max()), 3),
        "turned_percent": round(100 * float(turned.mean()), 3),
    }
    if pairs[0][0]["batches"]["biased"] is not None:
        flags = [(x, y) for a, b in pairs for x, y in zip(flagged(a), flagged(b), strict=True)]
        found["diagnoses_changed"] = f"{sum(x != y for x, y in flags)} of {len(flags)}"
        found |= largest_change(pairs)
    return found


def hits(result: dict[str, Any]) -> np.ndarray:
    packed = "".join(domain["hits"] for domain in result["domains"])
    return np.unpackbits(np.frombuffer(bytes.fromhex(packed), np.uint8))


def flagged(result: dict[str, Any]) -> list[list[str]]:
    return result["batches"]["biased"]


def scores(result: dict[str, Any]) -> np.ndarray:
    return np.array(list(result["batches"]["scores"].values()), float)


def largest_change(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, float]:
    """Return by how much a score changes at most, and what that score is with float32."""
    mine, plain = (np.concatenate([scores(pair[i]).ravel() for pair in pairs]) for i in (0, 1))
    place = np.abs(mine - plain).argmax()
    change = abs(float(mine[place] - plain[place]))
    return {"largest_change": round(change, 5), "of_a_score": round(float(plain[place]), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--models", type=int, default=3, help="of sounding_shapes_0 to _2")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = tuple(f"sounding_shapes_{number}" for number in range(options.models))
    plan = with_methods(load_plan("quick"), METHODS)
    plan = replace(plan, models=names, data=replace(plan.data, samples=options.samples))
    with tempfile.TemporaryDirectory() as folder, Progress(transient=True) as progress:
        store = Store(folder)
        runs = {kind: run(plan, kind, store, progress) for kind in ("float32", *options.kinds)}
    effect = {
        f"{method}, {kind}": compared(runs[kind], runs["float32"], method)
        for method in METHODS
        for kind in runs
    }
    title = (
        f"{len(names)} models, {len(plan.protocols)} protocols, {options.samples} samples a domain"
    )
    show(title, effect)
    samples = sum(len(hits(result)) for result in runs["float32"].values()) // len(METHODS)
    figures = {"effect": effect, "samples of each row": samples}
    write_figures(options.json, title, options_of(options), figures)


def show(title: str, effect: dict[str, Any]) -> None:
    table = Table(title=title)
    for head in ("method, encoders", "accuracy", "difference", "low to high", "turned"):
        table.add_column(head, justify="right" if head in ("accuracy", "difference") else "left")
    for head in ("diagnoses changed", "largest change of a score"):
        table.add_column(head, justify="right")
    for name, row in effect.items():
        table.add_row(name, *cells(row))
    Console(width=110).print(table)


def cells(row: dict[str, Any]) -> Iterator[str]:
    yield f"{row['accuracy']:.2f}"
    yield f"{row['difference']:+.2f}"
    yield f"{row['lowest']:+.2f} to {row['highest']:+.2f}"
    yield f"{row['turned_percent']:.2f}%"
    if "diagnoses_changed" in row:
        yield row["diagnoses_changed"]
        yield f"{row['largest_change']:.4f} of {row['of_a_score']:.2f}"


if __name__ == "__main__":
    main()
