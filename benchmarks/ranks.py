"""What ranks that share a stream save and cost: a step together against one of one process.

    python benchmarks/ranks.py           # two ranks of one thread each, two minutes

One process takes the whole batch, then all ranks take a part each, in turn; figures are medians
of paired ratios, of the time on the clock (which needs as many idle cores as there are ranks) and
of one rank's processor time. Also: how many bytes a rank sends in one step, and in how many
messages, if sums and gathered rows go round in a ring. Weights are random, every batch is learnt.
"""

import os
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from measuring import against, finish, parse, random_inputs, take_turns

import dasp
from dasp.methods.distributed import Ranks
from dasp.models import CavMae


@contextmanager
def traffic(size: int):
    """Count the bytes and messages that this rank sends."""
    sent, send = Counter(), Ranks._send

    def counted(ranks, collective, *arguments) -> None:
        tensor = arguments[1] if collective is dist.all_gather else arguments[0]
        rounds = 2 / size if collective is dist.all_reduce else 1
        sent[_kind(collective, tensor)] += round(rounds * (size - 1) * tensor.nbytes)
        sent["messages"] += 1
        send(ranks, collective, *arguments)

    Ranks._send = counted
    try:
        yield sent
    finally:
        Ranks._send = send


def _kind(collective, tensor: torch.Tensor) -> str:
    if collective is dist.all_reduce:
        return "gradients" if tensor.numel() > 1 else "announcements"
    return "announcements" if tensor.dtype in (torch.int64, torch.uint8) else "rows"


def measure(rank: int, options: Namespace) -> dict[str, object]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"embed_dim": options.width, "depth": options.depth, "num_classes": options.classes}
    model = CavMae(num_heads=6, **sizes)
    whole = random_inputs(model.input_shapes, options.batch)
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
    with traffic(options.ranks) as sent:
        shared(part)
    messages = sent.pop("messages")
    step = against(times["together"], times["alone"])
    return {"step": step, "messages": messages, "bytes": dict(sent)}


def on_rank(rank: int, options: Namespace, folder: str) -> dict[str, object]:
    store = dist.FileStore(str(Path(folder) / "store"), options.ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=options.ranks)
    found = measure(rank, options)
    dist.destroy_process_group()
    return found


def main() -> None:
    options = parse(__doc__, ranks=2, batch=16, width=384, depth=5, classes=309, rounds=7)
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(1, options.ranks):
            if os.fork() == 0:
                sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
                on_rank(rank, options, folder)
                os._exit(0)
        figures = on_rank(0, options, folder)
    title = f"{options.ranks} ranks that share {options.batch} samples, against one process"
    finish(options, title, figures)


if __name__ == "__main__":
    main()
