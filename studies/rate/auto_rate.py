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

import numpy as np
import torch
import tyro
from numpy.typing import NDArray

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
    "dsa_units": ("interleaved/units", "continual/torso"),
}
SAMPLES = 64  # per domain: one batch
ALLOWED = 0.3  # points that lr="auto" may lose against the default
Cells = dict[str, str]  # by the method's name
Hits = NDArray[np.bool_]  # which samples of a stream were right


def streams_of(model: str) -> tuple[str, ...]:
    """Return the streams on which a model is compared."""
    return STREAMS.get(model.rsplit("_", 1)[0], STREAMS["sounding_shapes"])


def data_of(model: str, root: Path | None, samples: int = SAMPLES) -> DataOptions:
    """Return the validation data of a packaged model; no other stream is damaged by its seed."""
    kind = model.rsplit("_", 1)[0]
    flavour = "sound" if "shapes_sound" in model else "balanced"
    if kind not in ("grid", "dsa", "dsa_units"):
        return DataOptions(samples=samples, split="validation", flavour=flavour, seed=1)
    folder = root and root / kind.split("_")[0]
    return DataOptions(kind, folder, samples, split="validation", seed=1)


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
    fit: int,
    workspace: Workspace,
) -> tuple[dict[str, Cells], dict[str, tuple[Hits, Hits]]]:
    """Return a column per stream, and of each cell the hits of lr="auto" and of the default."""
    rows = {"source": MethodRow("source")}
    for method in methods:
        for lr in rates(method, data.name).values():
            clean = fit if dasp.METHODS[method].fit is not dasp.Method.fit else 0
            rows[f"{method} {lr}"] = MethodRow(method, {"lr": lr}, clean)
    plan = Plan(models=(model,), protocols=streams, methods=rows, data=data)
    found = run_plan(plan, workspace, f"rate {model}")
    columns: dict[str, Cells] = {}
    pairs: dict[str, tuple[Hits, Hits]] = {}
    for stream in streams:
        hits = {label: _hits(results, stream) for label, results in found.items()}
        place = f"{model}, {stream}"
        cells = columns[place] = {"source": _percent(hits["source"])}
        for method in methods:
            told = rates(method, data.name)
            default, tuned, auto = (hits[f"{method} {lr}"] for lr in told.values())
            last = _percent(auto) if told["auto"] == "auto" else "kept"
            cells[method] = f"{_percent(default)} / {_percent(tuned)} / {last}"
            if told["auto"] == "auto":
                pairs[f"{place}, {method}"] = auto, default
    return columns, pairs


def _hits(results: list[Result], stream: str) -> Hits:
    """Return which samples were right in the one result of a stream."""
    (counts,) = (r.counts for r in results if r.run.protocol == stream and r.counts)
    return np.concatenate([domain.sample_hits(domain.seen) for domain in counts.domains])


def _percent(hits: Hits) -> str:
    return f"{100 * hits.mean():.1f}"


def main(
    models: Annotated[tuple[str, ...], tyro.conf.Positional],
    methods: tuple[str, ...] = tuple(dasp.METHODS),
    streams: tuple[str, ...] = (),
    samples: int = SAMPLES,
    fit: int = 0,
    root: Path | None = None,
    workspace: Annotated[Workspace, tyro.conf.arg(name="")] = OUT,
) -> None:
    """Print accuracies at the default, the tuned and the automatic rate, and the largest loss.

    Args:
        models: Packaged models.
        methods: Some methods; those that train nothing or do not fit a model are left out.
        streams: Protocols; by default two that fit the model.
        samples: Samples per domain.
        fit: Clean samples for methods that can learn from them; 0: as many as a method needs.
        root: Directory of the recordings, which has `grid` or `dsa` in it.
    """
    columns: dict[str, Cells] = {}
    pairs: dict[str, tuple[Hits, Hits]] = {}
    for name in models:
        model = dasp.load_model(name)
        fitting = [method for method in methods if has_rate(method, model)]
        data = data_of(name, root, samples)
        found, own = compare(name, fitting, streams or streams_of(name), data, fit, workspace)
        columns |= found
        pairs |= own
    print("| default / tuned / auto |", " | ".join(columns), "|")
    print("|---|" + "---:|" * len(columns))
    for method in dict.fromkeys(("source", *methods)):
        cells = [column.get(method, "") for column in columns.values()]
        if any(cells):
            print(f"| {method} |", " | ".join(cells), "|")
    gains = {cell: 100 * (auto.mean() - default.mean()) for cell, (auto, default) in pairs.items()}
    below = [cell for cell, gain in gains.items() if gain < -ALLOWED]
    print(f"\n{len(below)} of {len(gains)} lose more than {ALLOWED} points")
    for cell in below:
        auto, default = pairs[cell]
        only = int((auto & ~default).sum()), int((default & ~auto).sum())
        print(
            f"{cell}: {gains[cell]:+.1f}; of {len(auto)} samples {only[0]} are right with auto "
            f"alone, {only[1]} with the default alone"
        )


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
