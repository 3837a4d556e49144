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
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import dasp
from dasp.models import CavMae, Toy
from dasp.models.pretrained import pretrained_path

ROUNDS = 100


def built_in() -> torch.nn.Module:
    return dasp.load_model("cav_mae", weights=pretrained_path("sounding_shapes_0"))


def sizes() -> Table:
    table = Table(
        "model", "parameters (MB)", "state of dasp (MB)", "share", title="Size of a state"
    )
    for name, model in {
        "sounding_shapes_0": built_in(),
        "CAV-MAE ViT-B": CavMae(num_classes=309),
    }.items():
        tta = dasp.adapt(model, "dasp")
        whole = sum(parameter.nbytes for parameter in model.parameters())
        # weights and Adam's two moments, which come with the first update
        state = 3 * sum(value.nbytes for value in tta.state()["tensors"].values())
        table.add_row(name, f"{whole / 1e6:.2f}", f"{state / 1e6:.2f}", f"{state / whole:.1%}")
    return table


def inputs_for(model: torch.nn.Module, size: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    if isinstance(model, Toy):
        shapes = dict.fromkeys(model.modalities, (4, model.features))
    else:
        shapes = model.input_shapes
    return {n: torch.randn(size, *shape, generator=generator) for n, shape in shapes.items()}


def costs(name: str, model: torch.nn.Module, folder: Path, size: int, rounds: int) -> Table:
    ways = {
        "plain": {},
        "floor": {},
        "log": {"log": folder / f"{name}.jsonl"},
        "checkpoint": {"checkpoint": folder / f"{name}.safetensors", "checkpoint_every": 1},
    }
    inputs = inputs_for(model, size)
    handles = {way: dasp.adapt(model, "dasp", delta=0.0, **own) for way, own in ways.items()}
    times: dict[str, list[float]] = {way: [] for way in ways}
    turns = list(handles.items())
    for round_ in range(rounds + 4):
        turns = turns[1:] + turns[:1]  # whoever follows the checkpoint finds colder memory
        for way, tta in turns:
            start = time.process_time()
            tta(inputs)
            if round_ >= 4:  # the first rounds warm up
                times[way].append(time.process_time() - start)
    table = Table("", "ratio", "extra a batch (ms)", title=f"{name}, batch {size}")
    for way, own in times.items():
        pairs = list(zip(own, times["plain"], strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        extra = statistics.median(a - b for a, b in pairs)
        table.add_row(way, f"{ratio:.3f}", f"{1000 * extra:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    console = Console()
    console.print(sizes())
    with tempfile.TemporaryDirectory() as folder:
        for name, model in {"toy": Toy(), "sounding_shapes_0": built_in()}.items():
            console.print(costs(name, model, Path(folder), 64, rounds))


if __name__ == "__main__":
    main()
