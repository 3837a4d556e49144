"""Compare lr="auto" with the default and the tuned rate of each method, on validation data.

    python studies/rate/auto_rate.py dsa_1 grid_1 --root DIR   # recordings: DIR/dsa, DIR/grid
    python studies/rate/auto_rate.py sounding_shapes_1 sounding_shapes_depth_0 --methods dasp tent

Two streams per model, never reset: all sensors damaged in turn, and one of them. No test sample is
read. The rates differ, all other options are those of src/dasp/plans/options, which has the tuned
rates, chosen on the first model of each data set. A method that keeps its published rate is not
run with "auto". What is done is not done again. docs/own_model.md has the tables.
"""

from pathlib import Path
from typing import Annotated

import torch
import tyro

import dasp
from dasp.bench.datasets import DataOptions
from dasp.bench.engines import Workspace
from dasp.bench.plan import MethodRow, Plan, resolved
from dasp.bench.results import Result
from dasp.bench.runner import run_plan
from dasp.core.errors import ContractError

OUT = Workspace(Path("out/rate"))
STREAMS = {
    "sounding_shapes": ("interleaved", "continual/audio"),
    "sounding_shapes_depth": ("interleaved/depth", "continual/depth"),
    "grid": ("interleaved", "continual/audio"),
    "dsa": ("interleaved/sensors", "continual/accelerometer"),
}
SAMPLES = 64  # per domain: one batch
ALLOWED = 0.3  # points that lr="auto" may lose against the default
Cells = dict[str, str]  # by the method's name


def streams_of(model: str) -> tuple[str, ...]:
    """Return the streams on which a model is compared."""
    return STREAMS.get(model.rsplit("_", 1)[0], STREAMS["sounding_shapes"])


def data_of(model: str, root: Path | None, samples: int = SAMPLES) -> DataOptions:
    """Return the validation data of a packaged model; no other stream is damaged by its seed."""
    kind = model.split("_")[0]
    flavour = "sound" if "shapes_sound" in model else "balanced"
    if kind not in ("grid", "dsa"):
        return DataOptions(samples=samples, split="validation", flavour=flavour, seed=1)
    return DataOptions(kind, root and root / kind, samples, split="validation", seed=1)


def rates(method: str, data: str) -> dict[str, float | str]:
    """Return the rates to compare, by name; those that are the same have one row in the plan."""
    default, tuned = dasp.METHODS[method].default_lr, resolved(MethodRow(method), data)["lr"]
    chosen = "auto" if dasp.METHODS[method].auto_change else default
    return {"default": default, "tuned": tuned, "auto": chosen}


def has_rate(method: str, model: torch.nn.Module) -> bool:
    """Return whether a method fits this model and trains something there."""
    options = {"stream_length": 1} if method == "sumi" else {}
    try:
        return bool(dasp.adapt(model, method, **options).memory.weights)
    except ContractError:
        return False


def compare(
    model: str,
    methods: list[str],
    streams: tuple[str, ...],
    data: DataOptions,
    workspace: Workspace,
) -> tuple[dict[str, Cells], list[float]]:
    """Return a column per stream, and what lr="auto" gains over the default in each cell."""
    rows = {"source": MethodRow("source")}
    for method in methods:
        for lr in rates(method, data.name).values():
            rows[f"{method} {lr}"] = MethodRow(method, {"lr": lr})
    plan = Plan(models=(model,), protocols=streams, methods=rows, data=data)
    found = run_plan(plan, workspace, f"rate {model}")
    columns: dict[str, Cells] = {}
    gains = []
    for stream in streams:
        shares = {label: _accuracy(results, stream) for label, results in found.items()}
        cells = columns[f"{model}, {stream}"] = {"source": f"{shares['source']:.1f}"}
        for method in methods:
            told = rates(method, data.name)
            default, tuned, auto = (shares[f"{method} {lr}"] for lr in told.values())
            cells[method] = f"{default:.1f} / {tuned:.1f} / kept"
            if told["auto"] == "auto":
                cells[method] = f"{default:.1f} / {tuned:.1f} / {auto:.1f}"
                gains.append(auto - default)
    return columns, gains


def _accuracy(results: list[Result], stream: str) -> float:
    """Return the accuracy in percent of the one result of a stream."""
    (counts,) = (r.counts for r in results if r.run.protocol == stream)
    return counts.accuracy if counts else float("nan")


def main(
    models: Annotated[tuple[str, ...], tyro.conf.Positional],
    methods: tuple[str, ...] = tuple(dasp.METHODS),
    streams: tuple[str, ...] = (),
    samples: int = SAMPLES,
    root: Path | None = None,
    workspace: Annotated[Workspace, tyro.conf.arg(name="")] = OUT,
) -> None:
    """Print accuracies at the default, the tuned and the automatic rate, and the largest loss.

    Args:
        models: Packaged models.
        methods: Some methods; those that train nothing or do not fit a model are left out.
        streams: Protocols; by default two that fit the model.
        samples: Samples per domain.
        root: Directory of the recordings, which has `grid` or `dsa` in it.
    """
    columns: dict[str, Cells] = {}
    gains = []
    for name in models:
        model = dasp.load_model(name)
        fitting = [method for method in methods if has_rate(method, model)]
        data = data_of(name, root, samples)
        found, gained = compare(name, fitting, streams or streams_of(name), data, workspace)
        columns |= found
        gains += gained
    print("| default / tuned / auto |", " | ".join(columns), "|")
    print("|---|" + "---:|" * len(columns))
    for method in dict.fromkeys(("source", *methods)):
        cells = [column.get(method, "") for column in columns.values()]
        if any(cells):
            print(f"| {method} |", " | ".join(cells), "|")
    below, least = sum(gain < -ALLOWED for gain in gains), min(gains)
    print(f"\n{below} of {len(gains)} lose more than {ALLOWED} points; least {least:+.1f}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
