"""Compare lr="auto" with the default and the tuned rate of each method, on validation data.

    python studies/rate/auto_rate.py sounding_shapes_1 sounding_shapes_depth_0
    python studies/rate/auto_rate.py dsa_1 --root DIR/dsa
    python studies/rate/auto_rate.py grid_1 --root DIR/grid --methods dasp tent

Two streams per model, never reset: all sensors damaged in turn, and one of them. No test sample is
read. The rates differ, all other options are those of src/dasp/plans/options, which has the tuned
rates, chosen on the first model of each data set. A method that keeps its published rate is not
run with "auto". What is done is not done again. docs/own_model.md has the table.
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


def data_of(model: str, root: Path | None) -> DataOptions:
    """Return the validation data of a packaged model; no other stream is damaged by its seed."""
    kind = model.split("_")[0]
    name = kind if kind in ("grid", "dsa") else "sounding_shapes"
    flavour = "sound" if "shapes_sound" in model else "balanced"
    return DataOptions(name, root, SAMPLES, split="validation", flavour=flavour, seed=1)


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


def compare(model: str, methods: list[str], root: Path | None, workspace: Workspace) -> list[float]:
    """Print the rows of one model; return what lr="auto" gains over the default in each."""
    data = data_of(model, root)
    streams = STREAMS.get(model.rsplit("_", 1)[0], STREAMS.get(data.name, ()))
    rows = {"source": MethodRow("source")}
    for method in methods:
        for lr in rates(method, data.name).values():
            rows[f"{method} {lr}"] = MethodRow(method, {"lr": lr})
    plan = Plan(models=(model,), protocols=streams, methods=rows, data=data)
    found = run_plan(plan, workspace, f"rate {model}")
    gains = []
    for stream in streams:
        shares = {label: _accuracy(results, stream) for label, results in found.items()}
        for method in methods:
            told = rates(method, data.name)
            default, tuned, auto = (shares[f"{method} {lr}"] for lr in told.values())
            kept = "" if told["auto"] == "auto" else " (kept)"
            gains.append(auto - default)
            print(
                f"| {model} | {stream} | {method} | {shares['source']:.1f} | {default:.1f} | "
                f"{tuned:.1f} | {auto:.1f}{kept} | {gains[-1]:+.1f} | {auto - tuned:+.1f} |",
                flush=True,
            )
    return gains


def _accuracy(results: list[Result], stream: str) -> float:
    """Return the accuracy in percent of the one result of a stream."""
    (counts,) = (r.counts for r in results if r.run.protocol == stream)
    return counts.accuracy if counts else float("nan")


def main(
    models: Annotated[tuple[str, ...], tyro.conf.Positional],
    methods: tuple[str, ...] = tuple(dasp.METHODS),
    root: Path | None = None,
    workspace: Annotated[Workspace, tyro.conf.arg(name="")] = OUT,
) -> None:
    """Print a row per model, stream and method, and the largest loss against the default.

    Args:
        models: Packaged models.
        methods: Some methods; those that train nothing or do not fit a model are left out.
        root: Directory of the recordings, for grid and dsa.
    """
    print("| model | stream | method | source | default | tuned | auto | − default | − tuned |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    gains = []
    for name in models:
        model = dasp.load_model(name)
        fitting = [method for method in methods if has_rate(method, model)]
        gains += compare(name, fitting, root, workspace)
    below, least = sum(gain < -ALLOWED for gain in gains), min(gains)
    print(f"\n{below} of {len(gains)} rows lose more than {ALLOWED} points; least {least:+.1f}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
