"""What keeping tokens as float16 changes: accuracy, single predictions and the diagnosis.

    .venv/bin/python benchmarks/tokens.py              # six minutes on two cores

Every token-level row of the plan `quick` on its five streams, once on float32 tokens and once on
float16 ones: the same samples in the same order. Of the five streams of a row, the table shows the
mean accuracy and the largest differences; the file has them all.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from measuring import options_of, write_figures
from rich.console import Console
from rich.table import Table

from dasp.bench.plan import Plan
from dasp.bench.plan_files import load_plan
from dasp.bench.prepare import Place
from dasp.bench.references import find_method
from dasp.bench.runner import run_plan


def run(plan: Plan, place: Place) -> list[dict]:
    return [json.loads(path.read_text()) for path in run_plan(plan, place)]


def hits(result: dict, samples: int) -> np.ndarray:
    packed = [np.frombuffer(bytes.fromhex(d["hits"]), np.uint8) for d in result["domains"]]
    return np.concatenate([np.unpackbits(own, count=samples) for own in packed])


def compared(full: dict, half: dict) -> dict:
    """What differs between two runs of one cell."""
    assert full["cell"]["label"] == half["cell"]["label"]
    ours, theirs = full["result"], half["result"]
    samples = full["cell"]["data"]["samples"]
    row = {
        "accuracy": ours["accuracy"],
        "float16": theirs["accuracy"],
        "difference": round(theirs["accuracy"] - ours["accuracy"], 4),
        "samples_changed": round(
            100 * float((hits(ours, samples) != hits(theirs, samples)).mean()), 4
        ),
    }
    scores, others = ours["batches"]["scores"], theirs["batches"]["scores"]
    if scores:
        pairs = [(a, b) for name in scores for a, b in zip(scores[name], others[name], strict=True)]
        flags = zip(ours["batches"]["biased"], theirs["batches"]["biased"], strict=True)
        row["flags_changed"] = round(100 * float(np.mean([a != b for a, b in flags])), 4)
        row["score_difference"] = round(max(abs(a - b) for a, b in pairs), 6)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--workers", type=int, help="processes; by default one a core")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    plan = load_plan("quick")
    rows = {k: v for k, v in plan.methods.items() if not find_method(v.method).tunes_encoder}
    plan = replace(plan, methods=rows, data=replace(plan.data, samples=options.samples))
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder, "results"), Path(folder, "store"), workers=options.workers)
        full, half = run(plan, place), run(replace(plan, tokens="float16"), place)
        kept = {2: 0, 4: 0}
        for path in Path(folder, "store").glob("tokens-*.npy"):
            array = np.load(path, mmap_mode="r")
            kept[array.itemsize] += array.nbytes
    figures: dict = {"bytes_of_float32": kept[2] / kept[4], "rows": {}}
    for ours, theirs in zip(full, half, strict=True):
        label, protocol = ours["cell"]["label"], ours["cell"]["protocol"]
        figures["rows"].setdefault(label, {})[protocol] = compared(ours, theirs)
    show(figures, options.samples)
    write_figures(options.json, "Tokens kept as float16", options_of(options), figures)


def show(figures: dict, samples: int) -> None:
    table = Table(title=f"float16 tokens beside float32, quick plan, {samples} samples a domain")
    table.add_column("row")
    for column in ("accuracy", "difference", "% of hits", "% of flags", "scores"):
        table.add_column(column, justify="right")
    figures["largest"] = {}
    for label, streams in figures["rows"].items():
        own = figures["largest"][label] = {
            name: max((row[name] for row in streams.values()), key=abs)
            for name in next(iter(streams.values()))
            if name not in ("accuracy", "float16")
        }
        diagnosed = "flags_changed" in own
        table.add_row(
            label,
            f"{np.mean([row['accuracy'] for row in streams.values()]):.2f}",
            f"{own['difference']:+.3f}",
            f"{own['samples_changed']:.3f}",
            f"{own['flags_changed']:.2f}" if diagnosed else "",
            f"{own['score_difference']:.1e}" if diagnosed else "",
        )
    Console().print(table)
    Console().print(f"bytes kept, float16 to float32: {figures['bytes_of_float32']:.3f}")


if __name__ == "__main__":
    main()
