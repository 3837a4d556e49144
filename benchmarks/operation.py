"""What running in service costs: the size of a state, and a log, a checkpoint, as parts of a batch.

    .venv/bin/python benchmarks/operation.py       # a minute on two cores

Each way is timed in turn on the same batch, so that a busy machine slows all alike; figures are
medians of ratios of processor time to the batch without log and checkpoint of the same round.
`floor` is that same batch once more: what it differs from 1 is the noise. The models
are as small as they come, so that every part is as large as it gets.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import torch
from measuring import against, options_of, take_turns, write_figures
from rich.console import Console
from rich.table import Table

import dasp
from dasp.models import CavMae, Toy
from dasp.models.pretrained import pretrained_path

ROUNDS = 100


def built_in() -> torch.nn.Module:
    return dasp.load_model("cav_mae", weights=pretrained_path("sounding_shapes_0"))


def sizes() -> dict[str, dict[str, float]]:
    """What a state takes beside the model it belongs to, in megabytes."""
    found = {}
    for name, model in {
        "sounding_shapes_0": built_in(),
        "CAV-MAE ViT-B": CavMae(num_classes=309),
    }.items():
        tta = dasp.adapt(model, "dasp")
        whole = sum(parameter.nbytes for parameter in model.parameters())
        # weights and Adam's two moments, which come with the first update
        state = 3 * sum(value.nbytes for value in tta.state()["tensors"].values())
        found[name] = {
            "model_mb": round(whole / 1e6, 2),
            "state_mb": round(state / 1e6, 2),
            "share": round(state / whole, 4),
        }
    return found


def inputs_for(model: torch.nn.Module, size: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    if isinstance(model, Toy):
        shapes = dict.fromkeys(model.modalities, (4, model.features))
    else:
        shapes = model.input_shapes
    return {n: torch.randn(size, *shape, generator=generator) for n, shape in shapes.items()}


def costs(
    name: str, model: torch.nn.Module, folder: Path, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """How many times as long as a plain batch each way takes, and the milliseconds added."""
    ways = {
        "plain": {},
        "floor": {},
        "log": {"log": folder / f"{name}.jsonl"},
        "checkpoint": {"checkpoint": folder / f"{name}.safetensors", "checkpoint_every": 1},
    }
    inputs = inputs_for(model, options.batch)
    handles = {way: dasp.adapt(model, "dasp", delta=0.0, **own) for way, own in ways.items()}
    calls = {way: lambda tta=tta: tta(inputs) for way, tta in handles.items()}
    times = take_turns(calls, options.rounds, warm_up=4)
    found = {}
    for way in ("floor", "log", "checkpoint"):
        pairs = list(zip(times[way], times["plain"], strict=True))
        extra = statistics.median(a.processor - b.processor for a, b in pairs)
        found[way] = against(times[way], times["plain"]) | {"extra_ms": round(1000 * extra, 3)}
    return found


def show(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    for title, rows in figures.items():
        table = Table(title, *next(iter(rows.values())))
        for name, row in rows.items():
            table.add_row(name, *(f"{value:.4g}" for value in row.values()))
        Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = {"size of a state": sizes()}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in {"toy": Toy(), "sounding_shapes_0": built_in()}.items():
            figures[name] = costs(name, model, Path(folder), options)
    show(figures)
    write_figures(options.json, "A log and a checkpoint in service", options_of(options), figures)


if __name__ == "__main__":
    main()
