"""What ranks that share a stream save and cost: a step together against one of one process.

    .venv/bin/python benchmarks/ranks.py           # two ranks of one thread each, two minutes

One process takes the whole batch, then all ranks take a part each, in turn; figures are medians
of paired ratios, of the time on the clock (which needs as many idle cores as there are ranks) and
of one rank's processor time (which others' load disturbs less). Also: how many bytes a rank sends
in one step, and in how many messages, if sums and gathered rows go round in a ring. Weights are
random, and every batch is learnt from.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from measuring import against, options_of, take_turns, write_figures
from rich.console import Console
from rich.table import Table

import dasp
from dasp.methods.ranks import Ranks
from dasp.models import CavMae


class Traffic:
    """Counts what this rank sends."""

    def __init__(self, size: int) -> None:
        self.size, self.bytes, self.messages = size, Counter(), 0
        self._send = Ranks._send

    def __enter__(self) -> "Traffic":
        traffic = self

        def counted(ranks, collective, *arguments):
            last = arguments[1] if collective is dist.all_gather else arguments[0]
            rounds = 2 / self.size if collective is dist.all_reduce else 1
            traffic.bytes[_kind(collective, last)] += round(rounds * (self.size - 1) * last.nbytes)
            traffic.messages += 1
            self._send(ranks, collective, *arguments)

        Ranks._send = counted
        return self

    def __exit__(self, *_: object) -> None:
        Ranks._send = self._send


def _kind(collective, tensor: torch.Tensor) -> str:
    if collective is dist.all_reduce:
        return "gradients" if tensor.numel() > 1 else "announcements"
    return "announcements" if tensor.dtype in (torch.int64, torch.uint8) else "rows"


def build(options: argparse.Namespace) -> torch.nn.Module:
    torch.manual_seed(0)
    return CavMae(
        embed_dim=options.width, num_heads=6, depth=options.depth, num_classes=options.classes
    )


def measure(rank: int, options: argparse.Namespace) -> dict[str, object]:
    torch.set_num_threads(1)
    model = build(options)
    generator = torch.Generator().manual_seed(0)
    whole = {
        name: torch.randn(options.batch, *shape, generator=generator)
        for name, shape in model.input_shapes.items()
    }
    part = {name: value.tensor_split(options.ranks)[rank] for name, value in whole.items()}
    single = dasp.adapt(model, "dasp", delta=1e-9)
    shared = dasp.adapt(model, "dasp", delta=1e-9, group="world")

    def alone() -> None:
        if rank == 0:
            single(whole)
        dist.barrier()

    def together() -> None:
        assert shared(part).updated
        dist.barrier()

    times = take_turns({"alone": alone, "together": together}, options.rounds)
    with Traffic(options.ranks) as traffic:
        shared(part)
    return {
        "step": against(times["together"], times["alone"]),
        "messages": traffic.messages,
        "bytes": dict(traffic.bytes),
    }


def on_rank(rank: int, options: argparse.Namespace, folder: str) -> dict[str, object]:
    store = dist.FileStore(str(Path(folder) / "store"), options.ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=options.ranks)
    found = measure(rank, options)
    dist.destroy_process_group()
    return found


def run(options: argparse.Namespace) -> dict[str, object]:
    """Fork the other ranks; be the first."""
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(1, options.ranks):
            if os.fork() == 0:
                sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
                on_rank(rank, options, folder)
                os._exit(0)
        return on_rank(0, options, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--classes", type=int, default=309)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    figures = run(options)
    title = f"{options.ranks} ranks that share {options.batch} samples, against one process"
    table = Table("figure", "value", title=title)
    step = figures["step"]
    table.add_row(
        "time of a step, ratio", f"{step['ratio']:.2f} ({step['low']:.2f}–{step['high']:.2f})"
    )
    table.add_row("processor time of a rank, ratio", f"{step['processor_ratio']:.2f}")
    table.add_row("messages a step", str(figures["messages"]))
    for kind, count in figures["bytes"].items():
        table.add_row(f"kB a rank sends: {kind}", f"{count / 1e3:,.1f}")
    Console().print(table)
    write_figures(options.json, title, options_of(options), figures)


if __name__ == "__main__":
    main()
